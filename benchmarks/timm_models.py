"""Whole timm models with published throughput: traced by name, priced as timm's benchmark ran them.

timm's benchmark.py (eager, autocast in fp16, synthetic inputs resident on the GPU) times inference in eval
mode, and training steps of forward, loss, backward and SGD with momentum. Models are traced here at the
row's own batch and image size, in a process each few hundred models so that memory stays small, and the
graphs are kept in a folder so that the next run needs no tracing.
"""

from __future__ import annotations

import csv
import gzip
import re
import subprocess
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tclint.config import Precision
from tclint.cost.estimate import Estimate, estimate
from tclint.cost.scenario import Layout, Scenario
from tclint.graph import Graph

LAYOUTS: dict[str, Layout] = {"nchw": "contiguous", "nhwc": "channels_last"}
PRECISIONS: dict[str, Precision] = {"amp": "fp16", "float32": "fp32", "tf32": "tf32", "bfloat16": "bf16"}
TIMM_OPTIMIZER = "sgd-momentum"
"""benchmark.py's default."""
HELD_OUT_ONE_IN = 3
"""Families of models that constants may never be chosen by: a third, by a hash of the family's name."""


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One line of a file of measured throughput."""

    gpu: str
    model: str
    phase: str
    amp: str
    layout: str
    batch: int
    image: int
    samples_per_s: float

    @property
    def key(self) -> str:
        """Of the trace it needs."""
        return f"{self.model}-{self.image}-{self.batch}"

    @property
    def family(self) -> str:
        """'vit' of 'vit_base_patch16_224'."""
        return family(self.model)

    @property
    def held_out(self) -> bool:
        """Whether its family is one that nothing is chosen by."""
        return zlib.crc32(self.family.encode()) % HELD_OUT_ONE_IN == 0

    @property
    def step_us(self) -> float:
        return 1e6 * self.batch / self.samples_per_s


def family(model: str) -> str:
    """The first word of a model's name, without where its weights come from and without numbers."""
    words = model.split(".", maxsplit=1)[0].split("_")
    prefixes = {"tf", "gluon", "tv", "ig", "ssl", "swsl", "legacy", "nf", "eca", "ecaresnet"}
    while len(words) > 1 and words[0] in prefixes:
        words = words[1:]
    found = re.match(r"[a-z]+", words[0])
    return found[0] if found else words[0]


def read_rows(path: Path) -> tuple[list[ModelRow], int]:
    """The rows of a file in the schema of whole models, and how many could not be read."""
    rows, unreadable = [], 0
    with path.open(newline="", encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            try:
                rows.append(
                    ModelRow(
                        row["gpu"],
                        row["model"],
                        row["phase"],
                        row["amp"],
                        row["layout"],
                        int(float(row["batch"])),
                        int(float(row["img"])),
                        float(row["samples_per_sec"]),
                    )
                )
            except (KeyError, TypeError, ValueError):
                unreadable += 1
    return rows, unreadable


def scenario_of(row: ModelRow) -> Scenario:
    """The circumstances of a row.

    Raises:
        KeyError: its precision or layout is unknown.
    """
    mode = "train" if row.phase == "train" else "infer"
    return Scenario(row.gpu, PRECISIONS[row.amp], mode, LAYOUTS[row.layout], optimizer=TIMM_OPTIMIZER)


class Traces:
    """Graphs by row, read from a folder, traced into it when asked to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json.gz"

    def graph(self, row: ModelRow) -> Graph | None:
        """The row's graph; None where it was not traced or could not be."""
        path = self._path(row.key)
        if not path.exists() or not path.stat().st_size:
            return None
        return Graph.from_json(gzip.decompress(path.read_bytes()))

    def failed(self, row: ModelRow) -> bool:
        """Whether tracing was tried in vain."""
        path = self._path(row.key)
        return path.exists() and not path.stat().st_size

    def missing(self, rows: Sequence[ModelRow]) -> list[ModelRow]:
        """One row for each trace that is not there yet, in an order that mixes families."""
        found = {row.key: row for row in rows if not self._path(row.key).exists()}
        return sorted(found.values(), key=lambda row: zlib.crc32(row.model.encode()))

    def trace(self, rows: Sequence[ModelRow], *, at_once: int = 100) -> None:
        """Trace what is missing; a model that cannot be traced leaves an empty file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        missing = self.missing(rows)
        for start in range(0, len(missing), at_once):
            part = missing[start : start + at_once]
            names = "\n".join(f"{row.model} {row.image} {row.batch}" for row in part)
            subprocess.run([sys.executable, __file__, str(self.folder)], input=names, text=True, check=False)
            # A model that ended the process takes none of the others with it.
            for row in part:
                if not self._path(row.key).exists():
                    _trace_one(self._path(row.key), row.model, row.image, row.batch, isolated=True)


def _trace_one(path: Path, model: str, image: int, batch: int, *, isolated: bool = False) -> None:
    if isolated:
        subprocess.run(
            [sys.executable, __file__, str(path.parent)],
            input=f"{model} {image} {batch}",
            text=True,
            check=False,
        )
        if not path.exists():
            path.touch()
        return
    import timm
    import torch

    import tclint

    def build(**options: Any) -> Any:
        return timm.create_model(model, **options).train(), torch.empty(batch, 3, image, image, device="meta")

    graph = None
    for options in ({}, {"img_size": image}):
        try:
            graph = tclint.trace(lambda options=options: build(**options))
            break
        except Exception as error:
            print(f"{model} at {image}: {str(error)[:200]}", file=sys.stderr)
    path.write_bytes(b"" if graph is None else gzip.compress(graph.to_json().encode(), 3))


def estimates(rows: Sequence[ModelRow], traces: Traces) -> Iterator[tuple[ModelRow, Estimate]]:
    """Every row that has a trace with its price; rows of one graph follow each other."""
    for row in sorted(rows, key=lambda row: row.key):
        graph = traces.graph(row)
        if graph is not None:
            yield row, estimate(graph, scenario_of(row))


def main() -> int:
    folder = Path(sys.argv[1])
    for line in sys.stdin.read().splitlines():
        model, image, batch = line.split()
        path = folder / f"{model}-{image}-{batch}.json.gz"
        if not path.exists():
            _trace_one(path, model, int(image), int(batch))
    return 0


if __name__ == "__main__":
    sys.exit(main())

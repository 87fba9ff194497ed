"""Whole timm models with published throughput: traced by name, priced as timm's benchmark ran them.

timm's benchmark.py (eager, autocast in fp16, synthetic inputs resident on the GPU) times inference in eval
mode, and training steps of forward, loss, backward and SGD with momentum. Models are traced here at the
row's own batch and image size, in a process each few hundred models so that memory stays small, and the
graphs are kept in a folder so that the next run needs no tracing.

Two circumstances of the published runs are not in their files. Training was timed with PyTorch 1.11 and
1.12, which had no fused attention, so training rows are traced without it. And normalisation in inference ran
in half precision (timm's "fast norm"): networks with group norm are twice as fast as float32 norms and their
casts allow, while the same networks' training steps agree with them.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import os
import pickle
import re
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path
from typing import Any

import tclint
from tclint.config.settings import Precision
from tclint.cost.estimate import Estimate, estimate
from tclint.cost.scenario import Layout, Scenario
from tclint.cost.transforms.layout import apply_layout
from tclint.graph.lowering.work import Work
from tclint.graph.ops import Graph

LAYOUTS: dict[str, Layout] = {"nchw": "contiguous", "nhwc": "channels_last"}
PRECISIONS: dict[str, Precision] = {"amp": "fp16", "float32": "fp32", "tf32": "tf32", "bfloat16": "bf16"}
TRACED_AS = {
    # timm's table of old names sends these three to the 8d network.
    "ig_resnext101_32x16d": "resnext101_32x16d",
    "ig_resnext101_32x32d": "resnext101_32x32d",
    "ig_resnext101_32x48d": "resnext101_32x48d",
    # It had the layers of the 26t when it was measured, and its throughput.
    "ecaresnext50t_32x4d": "ecaresnext26t_32x4d",
}
"""Names that mean another network in today's timm than in the one that was measured."""
FAST_NORMS = {"layer_norm": "fast_layer_norm", "group_norm": "fast_group_norm"}
"""Norms that ran in half precision; under the new names no rule of autocast applies to them."""
UNFUSED = "unfused"
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
        """The key of the trace it needs."""
        model = TRACED_AS.get(self.model, self.model)
        return f"{model}-{self.image}-{self.batch}" + (f"-{UNFUSED}" if self.phase == "train" else "")

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
        if not self.has(row):
            return None
        return Graph.from_json(gzip.decompress(self._path(row.key).read_bytes()))

    def has(self, row: ModelRow) -> bool:
        """Whether the row's model was traced, and not in vain."""
        path = self._path(row.key)
        return path.exists() and path.stat().st_size > 0

    def missing(self, rows: Sequence[ModelRow]) -> list[ModelRow]:
        """One row for each trace that is not there yet."""
        found = {row.key: row for row in rows if not self._path(row.key).exists()}
        return sorted(found.values(), key=lambda row: zlib.crc32(row.model.encode()))

    def trace(self, rows: Sequence[ModelRow], *, at_once: int = 100) -> None:
        """Trace what is missing; a model that cannot be traced leaves an empty file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        missing = self.missing(rows)
        for start in range(0, len(missing), at_once):
            part = missing[start : start + at_once]
            names = "\n".join(row.key for row in part)
            subprocess.run([sys.executable, __file__, str(self.folder)], input=names, text=True, check=False)
            # A model that ended the process takes none of the others with it.
            for row in part:
                if not self._path(row.key).exists():
                    _trace_one(self._path(row.key), isolated=True)


def _trace_one(path: Path, *, isolated: bool = False) -> None:
    key = path.name.removesuffix(".json.gz")
    if isolated:
        subprocess.run([sys.executable, __file__, str(path.parent)], input=key, text=True, check=False)
        if not path.exists():
            path.touch()
        return
    import timm
    import torch
    from timm.layers import set_fused_attn

    unfused = key.endswith(f"-{UNFUSED}")
    model, image, batch = key.removesuffix(f"-{UNFUSED}").rsplit("-", 2)
    set_fused_attn(not unfused)

    def build(**options: Any) -> Any:
        return timm.create_model(model, **options).train(), torch.empty(
            int(batch), 3, int(image), int(image), device="meta"
        )

    graph = None
    for options in ({}, {"img_size": int(image)}):
        try:
            graph = tclint.trace(lambda options=options: build(**options))
            break
        except Exception as error:
            print(f"{model} at {image}: {str(error)[:200]}", file=sys.stderr)
    path.write_bytes(b"" if graph is None else gzip.compress(graph.to_json().encode(), 3))


Counts = dict[int, int]
"""How often a step runs each work, by the work's number."""


def lowered(rows: Sequence[ModelRow], traces: Traces) -> tuple[list[Work], list[ModelRow], list[Counts]]:
    """Distinct works, the rows that have a trace, and what each runs; kept beside the traces.

    Constants change no work, so the file stays good until the code that lowers a graph changes.
    """
    kept = traces.folder / f"works-{_code_hash()}.pickle"
    if kept.exists():
        found: tuple[list[Work], list[ModelRow], list[Counts]] = pickle.loads(kept.read_bytes())
        known = {row.key for row in found[1]}
        if all(row.key in known or not traces.has(row) for row in rows):
            return found
    by_key: dict[str, list[ModelRow]] = {}
    for row in rows:
        by_key.setdefault(row.key, []).append(row)
    ids: dict[Work, int] = {}
    priced: list[ModelRow] = []
    counts: list[Counts] = []
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        parts = pool.map(_lower, by_key.values(), repeat(traces), chunksize=8)
        for members, works in zip(by_key.values(), parts, strict=True):
            for row, own in zip(members, works, strict=False):
                priced.append(row)
                counts.append({ids.setdefault(work, len(ids)): number for work, number in own.items()})
    kept.write_bytes(pickle.dumps((list(ids), priced, counts)))
    return list(ids), priced, counts


def _lower(rows: Sequence[ModelRow], traces: Traces) -> list[Counter[Work]]:
    """The works of rows that share a trace; nothing where there is none."""
    graph = traces.graph(rows[0])
    if graph is None:
        return []
    known: dict[Scenario, Counter[Work]] = {}
    for row in rows:
        scenario = scenario_of(row)
        if scenario not in known:
            known[scenario] = Counter(kernel.work for kernel in price(graph, scenario).kernels)
    return [known[scenario_of(row)] for row in rows]


def price(graph: Graph, scenario: Scenario) -> Estimate:
    """The estimate of a step as timm's benchmark ran it."""
    if scenario.mode == "train":
        return estimate(graph, scenario)
    # In this order, because the layouts that ops give to their results go by the ops' names.
    laid_out = apply_layout(graph, scenario.layout)
    return estimate(_with_fast_norms(laid_out), replace(scenario, layout="as_traced"))


def _with_fast_norms(graph: Graph) -> Graph:
    """The graph with norms that autocast leaves in the dtype of their input."""
    return replace(graph, ops=tuple(replace(op, name=FAST_NORMS.get(op.name, op.name)) for op in graph.ops))


def _code_hash() -> str:
    """The hash of the code that decides which kernels a step runs."""
    package = Path(tclint.__file__).parent
    names = ("transforms/casts.py", "transforms/layout.py", "optimizer.py", "optimizers.toml")
    files = sorted((*package.glob("graph/**/*.py"), *package.glob("graph/**/*.toml")))
    digest = hashlib.sha256()
    for path in (*files, *(package / "cost" / name for name in names)):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def main() -> int:
    folder = Path(sys.argv[1])
    for line in sys.stdin.read().splitlines():
        path = folder / f"{line}.json.gz"
        if not path.exists():
            _trace_one(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What tclint is run on to see whether its findings and prices are the same: models and scripts by name.

All are copied or written into one work folder, so that paths in the findings do not depend on the checkout.
The models of libraries are a fixed sample of those in zoo/*.csv, built by files of a few lines.
"""

from __future__ import annotations

import csv
import hashlib
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peers_models import MODELS

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
FIXTURES = "fixtures"
LABELLED = "labelled"
FIX_CASES = "fix_cases"

SETS = ("fixtures", "scripts", "timm", "transformers")
TIMES = 16
"""Batches are those of the zoo, 2, that many times: a step that is all launch time has few findings."""
TRANSFORMERS_EVERY = 24
MOST_OPERATORS = 3000
PREFIXES = {"timm": "timm", "transformers": "hf"}
BUILDER = '''\
"""{name} of {library}, with random weights and a batch of inputs."""

import sys

sys.path.append({folder!r})

from compare_targets import build


def build_model():
    return build({library!r}, {name!r}, {family!r}, small={small})
'''


@dataclass(frozen=True)
class Target:
    """What one line of a snapshot speaks of: a model, or scripts that are read together."""

    set: str
    argument: str
    """The argument of the command line, seen from the work folder."""
    is_model: bool = True
    digest: str = ""
    """The digest of the file that is read: another one cannot be compared."""

    @property
    def name(self) -> str:
        return self.argument if self.is_model else f"{self.argument} (read)"


def write_targets(work: Path, sets: tuple[str, ...]) -> list[Target]:
    """The targets of some sets, whose files are then in the work folder."""
    makers = {
        "fixtures": _fixtures,
        "scripts": _scripts,
        "timm": lambda folder: _library(folder, "timm"),
        "transformers": lambda folder: _library(folder, "transformers"),
    }
    return [target for name in sets for target in makers[name](work)]


def _fixtures(work: Path) -> Iterator[Target]:
    shutil.copytree(ROOT / "fixtures", work / FIXTURES, ignore=shutil.ignore_patterns("__pycache__"))
    files = sorted((work / FIXTURES).glob("*.py"))
    for path in files:
        for function in re.findall(r"^def (build_model|build_base)\(", path.read_text("utf-8"), re.MULTILINE):
            yield Target("fixtures", f"{FIXTURES}/{path.name}:{function}", digest=_digest(path))
    for path in files:
        yield Target("fixtures", f"{FIXTURES}/{path.name}", is_model=False, digest=_digest(path))


def _scripts(work: Path) -> Iterator[Target]:
    """The labelled scripts, and the files that the tests of fixes begin with."""
    shutil.copytree(ROOT / "tests" / "source" / "labelled", work / LABELLED)
    (work / FIX_CASES).mkdir()
    for path in (ROOT / "tests" / "edits" / "cases").glob("*.before"):
        shutil.copy(path, work / FIX_CASES / f"{path.stem.replace('.', '_')}.py")
    for folder in (LABELLED, FIX_CASES):
        for path in sorted((work / folder).rglob("*.py")):
            yield Target("scripts", path.relative_to(work).as_posix(), is_model=False, digest=_digest(path))


def _library(work: Path, library: str) -> Iterator[Target]:
    """Every second model of the sample by its name: its findings lie in the library. Others by builders."""
    folder = work / f"{library}_models"
    folder.mkdir()
    for position, (name, family, small) in enumerate(sample(library)):
        if position % 2 == 0 and not small:
            yield Target(library, f"{PREFIXES[library]}:{name}")
            continue
        path = folder / f"{re.sub('[^a-z0-9]', '_', name.lower())}_model.py"
        text = BUILDER.format(name=name, library=library, family=family, small=small, folder=str(HERE))
        path.write_text(text, encoding="utf-8")
        yield Target(library, f"{folder.name}/{path.name}:build_model")


def sample(library: str) -> list[tuple[str, str, bool]]:
    """Names, families and whether only two layers are built: those of peers.py, and others from all over.

    The first of every family of timm, and one in so many of transformers.
    """
    with (HERE / "zoo" / f"{library}.csv").open(newline="", encoding="utf-8") as stream:
        rows = [row for row in csv.DictReader(stream) if row["status"] == "ok" and not row["adjustments"]]
    families = {row["name"]: row["family"] for row in rows}
    chosen = {
        model.name: (model.name, families.get(model.name, model.name), model.small)
        for model in MODELS.values()
        if model.library == library
    }
    rows = sorted((row for row in rows if int(row["ops"]) <= MOST_OPERATORS), key=lambda row: row["name"])
    if library == "timm":
        known = {family for _, family, _ in chosen.values()}
        for row in rows:
            if row["family"] not in known:
                known.add(row["family"])
                chosen[row["name"]] = (row["name"], row["family"], False)
    else:
        for row in rows[::TRANSFORMERS_EVERY]:
            chosen.setdefault(row["name"], (row["name"], row["family"], False))
    return sorted(chosen.values())


def build(library: str, name: str, family: str, *, small: bool) -> tuple[Any, Any]:
    """A model of the zoo and its inputs, at a larger batch; called by the files that are written here."""
    if library == "timm":
        import zoo_timm

        case = zoo_timm.case(name, family)
    else:
        import zoo_transformers

        case = zoo_transformers.case(name, depth=2 if small else None)
    case.prepare()
    model, inputs = case.build()
    if isinstance(inputs, dict):
        return model, {key: _larger(value) for key, value in inputs.items()}
    return model, _larger(inputs)


def _larger(value: Any) -> Any:
    import torch
    from zoo_hf_inputs import BATCH

    return torch.cat([value] * TIMES) if value.shape[:1] == (BATCH,) else value


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]

"""The rows of this benchmark: public models, and the inputs that they are used with (models/*.toml)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tclint.core.errors import UsageError
from tclint.core.toml import parse_toml
from tclint.tracing.inputs.specs import InputSpec, parse_input

MODELS = Path(__file__).resolve().parent / "models"


@dataclass(frozen=True)
class Row:
    """A public model and its true inputs."""

    name: str
    family: str
    target: str
    """'path/file.py:callable' in the repository, or 'package.module:callable'."""
    source: str
    """Where the inputs are stated: a file of the repository and the key, option or function in it."""
    inputs: Mapping[str, Any]
    """By argument of the forward. Texts are tensors as `--input` has them ('int64[8,128]<50257'), those that
    begin with '=' Python expressions in the namespace of the target's module (with torch and argparse's
    Namespace); lists and tables are nested inputs, all else is given as it is."""
    repository: str = ""
    """'owner/name' on GitHub; empty: an installed package."""
    arguments: tuple[str, ...] = ()
    """What the callable gets: 'name=expression', as in `inputs`."""
    mode: str = "train"
    """'infer': the inputs are those of `model.eval()`."""
    batch: str = ""
    """The dim that counts samples: 'x' is the first one of x, 'x[1]' the second; '-': there is none; empty:
    the first one of the first tensor."""
    any_rank: tuple[str, ...] = ()
    """Inputs that the repository itself gives in several ranks (a timestep as a scalar or per sample)."""
    positional: bool = False
    """The forward takes its inputs by position only."""

    @property
    def package(self) -> str:
        """The installed package that holds the target; empty for a repository."""
        return "" if self.repository else self.target.partition(":")[0].partition(".")[0]

    def folder(self, checkouts: Path | None) -> Path | None:
        """Where the row's code is, or None where it is not here; for a package the working directory."""
        if not self.repository:
            return Path.cwd() if find_spec(self.package) is not None else None
        owner, _, name = self.repository.partition("/")
        places = [checkouts / f"{owner}+{name}", checkouts / name] if checkouts is not None else []
        return next((place for place in places if place.is_dir()), None)


def read_rows(folder: Path = MODELS) -> list[Row]:
    """All rows, in the order of the files.

    Raises:
        ValueError: a row is malformed, or two have one name.
    """
    rows: list[Row] = []
    for path in sorted(folder.glob("*.toml")):
        for table in parse_toml(path.read_text(encoding="utf-8"))["models"]:
            try:
                lists = {key: tuple(value) for key, value in table.items() if isinstance(value, list)}
                row = Row(**{**table, **lists})
                shapes = dict(stated_tensors(row.inputs))
            except (TypeError, UsageError) as error:
                raise ValueError(f"{path.name}: {table.get('name')}: {error}") from None
            if not shapes or row.name in {other.name for other in rows}:
                raise ValueError(f"{path.name}: {row.name} has no inputs, or is there twice")
            rows.append(row)
    return rows


def stated_tensors(value: Any, name: str = "") -> Iterator[tuple[str, InputSpec | None]]:
    """Names as graphs have them ('images[0]') with specs; None for what an expression gives."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from stated_tensors(item, f"{name}[{key!r}]" if name else key)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from stated_tensors(item, f"{name}[{index}]")
    elif isinstance(value, str):
        yield name, None if value.startswith("=") else parse_input(value)


def batch_dim(row: Row) -> tuple[str, int] | None:
    """The tensor and its dim that count samples; None where nothing does."""
    if row.batch == "-":
        return None
    if row.batch:
        match = re.fullmatch(r"(.+?)(?:\[(\d+)\])?", row.batch)
        assert match is not None
        return match[1], int(match[2] or 0)
    return next(iter(stated_tensors(row.inputs)))[0], 0

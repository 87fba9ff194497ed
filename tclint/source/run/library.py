"""The tables of `library/`, which describe what calls of libraries do; loaded once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from typing import Any

from tclint.core.toml import packaged_toml

_PACKAGE = "tclint.source.library"


@dataclass(frozen=True, slots=True)
class Spec:
    """What one function or method of a library does; library/README.md says what the fields mean."""

    names: tuple[str, ...]
    parameters: tuple[str, ...] = ()
    event: str = ""
    returns: str = ""
    waits: str = ""
    unless: str = ""
    runs: str = ""
    place: str = ""
    cast: str = ""
    region: str = ""
    sets: Mapping[str, Any] | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Defaults of a layer's parameters."""
    registry: str = ""
    """The program whose `entries` hold what is called instead under the first parameter's name."""
    holds: bool = False
    """Whether it makes a container of the modules in its arguments."""
    overridden: bool = False
    """Whether a method of a project's class that overrides it is the same event."""


@dataclass(frozen=True, slots=True)
class Program:
    """The summary of a library: a short program that does what matters of the library."""

    name: str
    names: tuple[str, ...]
    """The modules or packages whose names the text defines."""
    text: str


class Library:
    """All tables by name."""

    def __init__(self, tables: Sequence[Mapping[str, Any]], own: frozenset[str] = frozenset()) -> None:
        self.own = own
        """Full names that tables of the project describe, which come before what its files define."""
        self.calls: dict[str, Spec] = {}
        self.patterns: list[tuple[str, Spec]] = []
        """(pattern for names, effect of a call), longest pattern first."""
        self._matched: dict[str, Spec | None] = {}
        self.methods: dict[str, dict[str, Spec]] = {}
        self.aliases: dict[str, str] = {}
        self.programs: dict[str, Program] = {}
        self.kinds: dict[str, tuple[str, ...]] = {}
        """Kind -> the kinds whose methods it also has."""
        self.values: dict[str, object] = {}
        """Library name -> the constant that it stands for."""
        self.deprecated: dict[str, str] = {}
        """Library name that warns when it is used -> what to write instead."""
        self.float32_checkpoints: tuple[str, ...] = ()
        """Patterns for names of published checkpoints that are stored in float32."""
        self.quantized_checkpoints: tuple[str, ...] = ()
        """Patterns for names of published checkpoints that are stored in 4 bits."""
        self.vocabularies: dict[str, int] = {}
        """Pattern for names of published tokenizers -> the size of their vocabulary."""
        self.science: frozenset[str] = frozenset()
        """Packages for programs whose matrices are tiny, or whose accuracy is the result."""
        self.host: frozenset[str] = frozenset()
        """Packages that compute on the CPU and return numbers or arrays, whatever they are given."""
        self._superseded: tuple[str, ...] = ()
        self.stars: dict[str, tuple[str, ...]] = {}
        self.networks: dict[str, str] = {}
        """Pattern for names of libraries' models -> what these models are."""
        for table in tables:
            self._add(table)
        self.patterns.sort(key=lambda item: -len(item[0]))

    def _add(self, table: Mapping[str, Any]) -> None:
        for row in table.get("call", ()):
            spec = _spec(row)
            for name in spec.names:
                if "*" in name:
                    self.patterns.append((name, spec))
                else:
                    self.calls[name] = spec
        for row in table.get("method", ()):
            fields = {key: value for key, value in row.items() if key != "of"}
            spec = _spec(fields)
            kinds = row["of"] if isinstance(row["of"], list) else [row["of"]]
            for kind in kinds:
                for name in spec.names:
                    self.methods.setdefault(kind, {})[name] = spec
        self.aliases.update(table.get("alias", {}))
        self.values.update(table.get("value", {}))
        self.deprecated.update(table.get("deprecated", {}))
        self.float32_checkpoints += tuple(table.get("checkpoints", {}).get("float32", ()))
        self.quantized_checkpoints += tuple(table.get("checkpoints", {}).get("quantized", ()))
        self.vocabularies.update(table.get("vocabularies", {}))
        self.science |= frozenset(table.get("packages", {}).get("science", ()))
        self.host |= frozenset(table.get("packages", {}).get("host", ()))
        self._superseded += tuple(table.get("packages", {}).get("superseded", ()))
        self.networks.update(table.get("networks", {}))
        for module, names in table.get("stars", {}).items():
            self.stars[module] = tuple(names)
        for kind, parents in table.get("kind", {}).items():
            self.kinds[kind] = tuple(parents)
        for row in table.get("program", ()):
            program = Program(row["names"][0], tuple(row["names"]), row["text"])
            for name in program.names:
                self.programs[name] = program

    def is_superseded(self, name: str) -> bool:
        """Whether a name is deprecated, or of a package whose work torch does by now."""
        return name in self.deprecated or name.startswith(self._superseded)

    def canonical(self, name: str) -> str:
        """The name that the tables use for something with several names."""
        found = self.aliases.get(name)
        if found is not None:
            return found
        head, dot, last = name.rpartition(".")
        while head:
            known = self.aliases.get(head)
            if known is not None:
                return self.canonical(f"{known}{dot}{last}")
            head, dot, rest = head.rpartition(".")[0], ".", head.rpartition(".")[2]
            last = f"{rest}.{last}"
        return name

    def call(self, name: str) -> Spec | None:
        """The effect of a call of a function or class; None if it is unknown."""
        found = self.calls.get(name)
        if found is not None:
            return found
        if name not in self._matched:
            self._matched[name] = next(
                (spec for pattern, spec in self.patterns if fnmatchcase(name, pattern)), None
            )
        return self._matched[name]

    def method(self, kind: str, name: str) -> Spec | None:
        """The effect of a method of a kind of thing; None if it is unknown."""
        found = self.methods.get(kind, {}).get(name)
        if found is not None:
            return found
        for parent in self.kinds.get(kind, ()):
            found = self.method(parent, name)
            if found is not None:
                return found
        return None

    def is_a(self, kind: str, wanted: str) -> bool:
        """Whether a kind is another kind or has all of its methods."""
        return kind == wanted or any(self.is_a(parent, wanted) for parent in self.kinds.get(kind, ()))

    def program(self, name: str) -> Program | None:
        """The summary that defines a name, such as `accelerate.Accelerator`; None if none does."""
        head = name
        while head:
            found = self.programs.get(head)
            if found is not None:
                return found
            head = head.rpartition(".")[0]
        return None


def _spec(row: Mapping[str, Any]) -> Spec:
    fields = dict(row)
    fields["names"] = tuple(fields.get("names", ()))
    fields["parameters"] = tuple(fields.get("parameters", ()))
    return Spec(**fields)


@cache
def shipped() -> list[dict[str, Any]]:
    """The tables that tclint ships."""
    names = sorted(
        entry.name for entry in resources.files(_PACKAGE).iterdir() if entry.name.endswith(".toml")
    )
    return [packaged_toml(_PACKAGE, name) for name in names]


@cache
def library() -> Library:
    """What tclint knows of libraries."""
    return Library(shipped())

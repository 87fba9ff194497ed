"""Hydra's configurations: put together from the files that `defaults` lists name."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from tclint.source.run.values import NONE, Constant, Setting, Thing, Value, constant_of, either

_PACKAGE = re.compile(rb"\s*#\s*@package\s+(\S+)")
_REFERENCE = re.compile(r"\$\{\s*([A-Za-z_][\w.]*)\s*\}")
_MOST_PASSES = 3
_MOST_STEPS = 10
_DEEPEST = 20

Package = tuple[str, ...]
"""Keys under which a file's content goes."""


class NotComposed(Exception):
    """What a file at the top says depends on one that is not found, or not known."""


@dataclass
class Composer:
    """The files below one folder (https://hydra.cc/docs/advanced/defaults_list).

    Args:
        read: what a file holds; None where there is none.
        head: the bytes of a file that is there.
        outside: stands for what is not known.
    """

    folder: str
    read: Callable[[str], Value | None]
    head: Callable[[str], bytes]
    outside: Callable[[], Value]
    chosen: dict[str, Value] = field(default_factory=dict)
    """Group -> what is taken of it whatever `defaults` say."""

    def compose(self, name: str) -> Thing | None:
        """A configuration by its name; None where what it holds at the top is not known."""
        found = None
        for _ in range(_MOST_PASSES):
            before = dict(self.chosen)
            try:
                found = self._file("", name, (), 0)
            except NotComposed:
                return None
            if self.chosen == before:
                break
        return found

    def is_group(self, name: str) -> bool:
        return os.path.isdir(os.path.join(self.folder, *name.split("/")))

    def _file(self, group: str, name: str, package: Package, depth: int) -> Thing | None:
        """What one file gives, with those that it names."""
        name = name if name.endswith((".yaml", ".yml")) else f"{name}.yaml"
        path = os.path.normpath(os.path.join(self.folder, *group.split("/"), *name.split("/")))
        settings = self.read(path)
        if not isinstance(settings, Thing) or settings.kind != "dict" or depth > _DEEPEST:
            return None
        written = _PACKAGE.match(self.head(path))
        if written is not None:
            package = _package(written[1].decode(), (), group)
        defaults = settings.fields.pop(("item", "defaults"), None)
        own = _placed(settings, package)
        made = Thing("dict", "dict")
        has_self = False
        for entry in _items(defaults):
            if entry == Constant("_self_"):
                has_self = True
                merge(made, own)
            else:
                for part in self._default(entry, group, package, depth):
                    merge(made, part)
        if not has_self:
            # Which of both wins has changed between Hydra 1.0 and 1.1, but for files that another one names.
            merge(made, own, None if depth else self.outside)
        return made

    def _default(self, entry: Value, group: str, package: Package, depth: int) -> Iterator[Thing]:
        """What one entry of a `defaults` list gives."""
        if isinstance(entry, Thing) and entry.kind == "dict":
            (key, option), *_ = ((key[1], item) for key, item in entry.fields.items())
            *flags, key = str(key).split()
        elif isinstance(entry, Constant) and isinstance(entry.value, str):
            flags, (key, _, name) = [], entry.value.rpartition("/")
            name, has_package, at = name.partition("@")
            key = f"{key}{'@' if has_package else ''}{at}"
            option = Constant(name)
            if not key and not has_package:
                yield self._found(group, option, package, (), depth)
                return
        else:
            raise NotComposed
        at_group, has_package, at = key.partition("@")
        full = (
            at_group[1:] if at_group.startswith("/") else "/".join(part for part in (group, at_group) if part)
        )
        if full.partition("/")[0] == "hydra":
            return
        if "override" in flags:
            self.chosen[f"{full}{'@' if has_package else ''}{at}"] = option
            return
        inner = _package(at, package, full) if has_package else (*package, *at_group.strip("/").split("/"))
        option = self.chosen.get(f"{full}{'@' if has_package else ''}{at}", option)
        for one in _items(option) if isinstance(option, Thing) and option.kind == "list" else [option]:
            yield self._found(full, one, inner, flags, depth)

    def _found(
        self, group: str, option: Value, package: Package, flags: Collection[str], depth: int
    ) -> Thing:
        if option == NONE:
            return Thing("dict", "dict")
        name = option.value if isinstance(option, Constant) else None
        found = self._file(group, name, package, depth + 1) if isinstance(name, str) else None
        if found is not None:
            return found
        if "optional" in flags and name is not None:
            return Thing("dict", "dict")
        if not package or (name is None and self._may_be_global(group)):
            raise NotComposed
        return _placed(self.outside(), package)

    def _may_be_global(self, group: str) -> bool:
        """Whether a file of a group goes elsewhere than under the group's name."""
        folder = os.path.join(self.folder, *group.split("/"))
        names = os.listdir(folder) if os.path.isdir(folder) else []
        return any(_PACKAGE.match(self.head(os.path.join(folder, name))) for name in names)


def resolve(config: Thing) -> Thing:
    """Put what `${a.b}` names into its place, in whatever file that stands."""
    _resolve(config, config)
    return config


def override(config: Thing, name: str, value: Value) -> None:
    """Set what a dotted name stands for."""
    merge(config, _placed(value, tuple(name.split("."))))


def merge(into: Thing, other: Value, instead: Callable[[], Value] | None = None) -> None:
    """Add what another mapping holds to one, whose values give way.

    Args:
        instead: gives what stands for a value that both have.
    """
    for key, item in other.fields.items() if isinstance(other, Thing) else ():
        known = into.fields.get(key)
        if isinstance(known, Thing) and isinstance(item, Thing) and known.kind == item.kind == "dict":
            merge(known, item, instead)
        elif known is not None and instead is not None and known != item:
            into.fields[key] = instead()
        else:
            into.fields[key] = item


def one_of(values: list[Value]) -> Value:
    """What one of several configurations holds, whichever it is."""
    things = [value for value in values if isinstance(value, Thing)]
    kinds = {thing.kind for thing in things}
    lengths = {constant_of(thing.fields.get("[]")) for thing in things}
    if len(things) < len(values) or len(kinds) > 1 or kinds - {"dict", "list"} or len(lengths) > 1:
        return either(*values)
    made = Thing(things[0].kind, things[0].name)
    for key in dict.fromkeys(key for thing in things for key in thing.fields):
        held = [thing.fields[key] for thing in things if key in thing.fields]
        found = one_of(held)
        made.fields[key] = found if len(held) == len(things) else either(found, Thing())
    return made


def _placed(value: Value, package: Package) -> Thing:
    for name in reversed(package):
        made = Thing("dict", "dict")
        made.fields["item", name] = value
        value = made
    assert isinstance(value, Thing)
    return value


def _package(written: str, package: Package, group: str) -> Package:
    if written.startswith("_global_"):
        return tuple(part for part in written.split(".")[1:] if part)
    if written == "_group_":
        return tuple(group.split("/"))
    if written == "_here_":
        return package
    return (*package, *written.split("."))


def _items(value: Value | None) -> list[Value]:
    return (
        [item for key, item in value.fields.items() if isinstance(key, tuple)]
        if isinstance(value, Thing)
        else []
    )


def _resolve(root: Thing, value: Thing) -> None:
    for key, item in list(value.fields.items()):
        found = _named(root, item)
        value.fields[key] = found
        if isinstance(found, Thing) and found.kind in ("dict", "list") and found is item:
            _resolve(root, found)


def _named(root: Thing, value: Value) -> Value:
    for _ in range(_MOST_STEPS):
        said = value.fields.get("@chosen by") if isinstance(value, Thing) else None
        text = said.value if isinstance(said, Setting) else None
        match = _REFERENCE.fullmatch(text.strip()) if isinstance(text, str) else None
        found = _at(root, match[1]) if match is not None else None
        if found is None:
            break
        value = found
    return value


def _at(root: Thing, path: str) -> Value | None:
    found: Value | None = root
    for name in path.split("."):
        found = found.fields.get(("item", name)) if isinstance(found, Thing) else None
    return found


__all__ = ["Composer", "merge", "override", "resolve"]

"""Writes a value of a program that was read as text that `--arg` takes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import NamedTuple

from tclint.source.questions.defaults import Defaults
from tclint.source.run.values import (
    ClassValue,
    Constant,
    Device,
    FunctionValue,
    Place,
    Setting,
    Symbol,
    Thing,
    Union,
    Value,
    options_of,
)
from tclint.tracing.worker.program.seen import SIZE

_PLAIN = (int, float, bool, type(None))
_DEEPEST = 5


class _Kind(NamedTuple):
    """What texts are written."""

    home: str
    """The target's file, in whose names `--arg` is read."""
    size: str | None
    """What is written for a size of data; None: it is unknown."""
    commands: list[Place]
    """Receives the places of commands whose values count although others pass different ones."""


class Texts(NamedTuple):
    """A value as `--arg` takes it."""

    told: str | None
    """As far as it is known; None where reading does not tell."""
    sized: str | None
    """With `SIZE` for each size of data in it; None where it holds none."""
    command: str
    """The file with the command that says it, if others say something else."""


def argument_texts(value: Value | None, home: str) -> Texts:
    """What a value is by default.

    Classes are told that the target's file defines (`ResNet(Bottleneck, ...)`), and what torch calls by a
    name (`torch.float32`). Of an object or a dict that only holds values, those that are known are told: code
    that reads another one fails.

    Args:
        home: the path of the target's file.
    """
    kind = _Kind(home, SIZE, [])
    sized = _text(value, kind, _DEEPEST)
    command = next((place.file.path for place in kind.commands), "")
    if sized is None or SIZE not in sized:
        return Texts(sized, None, command)
    return Texts(_text(value, _Kind(home, None, []), _DEEPEST), sized, command)


def _text(value: Value | None, kind: _Kind, depth: int) -> str | None:
    text = _known_text(_by_default(value, kind), kind, depth)
    return kind.size if text is None and value is not None and _is_size_of_data(value) else text


def _known_text(found: Value | None, kind: _Kind, depth: int) -> str | None:
    if isinstance(found, Device):
        return f'torch.device("{found.value}")'  # it is asked for its type, which text has not
    if isinstance(found, Constant):
        if isinstance(found.value, str):
            return json.dumps(found.value, ensure_ascii=False)  # in the quotes that a shell leaves alone
        return repr(found.value) if isinstance(found.value, _PLAIN) else None
    if isinstance(found, Symbol):
        return found.name if found.name.startswith("torch.") else None
    if isinstance(found, ClassValue):
        is_at_home = os.path.realpath(found.file.path) == os.path.realpath(kind.home)
        return found.function.qualified_name if is_at_home else None
    if not isinstance(found, Thing) or depth == 0:
        return None
    if found.kind in ("list", "tuple"):
        return _sequence(found, kind, depth)
    if found.kind == "dict":
        return _dict(found, kind, depth)
    return _object(found, kind, depth) if not found.kind and found.cls is not None else None


def _is_size_of_data(value: Value) -> bool:
    """Whether a value is how long or how large something is that is read when the program runs: `len(words)`,
    `table.shape[1]`."""
    return all(isinstance(option, Thing) and _is_size(option) for option, _ in options_of(value))


def _is_size(value: Thing) -> bool:
    operator, operands = value.operation or ("", ())
    if operator == "[]":
        return all(
            isinstance(of, Thing) and of.operation is not None and of.operation[1][-1] == Constant("shape")
            for of, _ in options_of(operands[0])
        )
    return operator == "len"


def _by_default(value: Value | None, kind: _Kind) -> Value | None:
    """What a value is by default; where commands pass different ones for an option, what it is without them,
    or else what the first one passes."""
    found = Defaults().value(value)
    if found is None and value is not None:
        devices = [option for option, _ in options_of(value)]
        if all(isinstance(option, Device) for option in devices):
            return devices[0]  # whichever it runs on, its work is the same
    if found is not None or not isinstance(value, Union):
        return found
    passed = [option.value for option in value.options if isinstance(option.value, Setting)]
    others = tuple(option for option in value.options if not isinstance(option.value, Setting))
    found = Defaults().value(Union(others))
    if found is None and not passed:
        stated = {one for one, _ in options_of(value) if isinstance(one, Constant)}
        if len(stated) == 1 and all(one in stated or _is_size_of_data(one) for one, _ in options_of(value)):
            return stated.pop()  # the data may say another size, but this one is written down
    if not passed or found not in (None, Constant(None)):
        return found
    if any(other != passed[0] for other in passed):
        kind.commands.append(passed[0].place)
    return passed[0]


def _sequence(found: Thing, kind: _Kind, depth: int) -> str | None:
    length = found.fields.get("[]")
    if not isinstance(length, Constant) or "[*]" in found.fields or "[~]" in found.fields:
        return None
    positions = range(int(str(length.value)))
    items = [_text(found.fields["item", position], kind, depth - 1) for position in positions]
    if None in items:
        return None
    inner = ", ".join(str(item) for item in items)
    if found.kind == "list":
        return f"[{inner}]"
    return f"({inner},)" if len(items) == 1 else f"({inner})"


def _dict(found: Thing, kind: _Kind, depth: int) -> str | None:
    if "[*]" in found.fields or "[~]" in found.fields:
        return None
    items = ((key[1], item) for key, item in found.fields.items() if isinstance(key, tuple))
    told = {key: _text(item, kind, depth - 1) for key, item in items}
    # What a program looks up by its name is a record, too: the devices and paths in it need not be known.
    texts = {key: text for key, text in told.items() if text is not None}
    if (
        not all(isinstance(key, (str, int)) for key in texts)
        or (not texts and told)
        or (len(texts) < len(told) and not all(isinstance(key, str) for key in told))
    ):
        return None
    names = {key: json.dumps(key, ensure_ascii=False) if isinstance(key, str) else key for key in texts}
    return "{" + ", ".join(f"{names[key]}: {text}" for key, text in texts.items()) + "}"


def _object(found: Thing, kind: _Kind, depth: int) -> str | None:
    """What argparse returns, or an instance of a class of values, as far as they are known."""
    cls = found.cls
    assert cls is not None
    bases = {base.name for base in cls.library_bases()} - {"builtins.object"}
    if cls.is_open or bases - {"builtins.dict"}:
        return None
    fields = {name: item for one in [*cls.lineage()][::-1] for name, item in _values(one)}
    if bases and found.made is not None:  # a dict of its own, made of another one and of keywords
        for item in found.made.arguments.values():
            if isinstance(item, Thing) and item.kind == "dict":
                fields |= {str(key[1]): one for key, one in item.fields.items() if isinstance(key, tuple)}
        fields |= found.made.arguments
    fields |= {name: item for name, item in found.fields.items() if isinstance(name, str)}
    texts = {name: _text(item, kind, depth - 1) for name, item in fields.items() if _is_field(name)}
    given = ", ".join(f"{name}={text}" for name, text in texts.items() if text is not None)
    return f"Namespace({given})" if given else None


def _values(cls: ClassValue) -> Iterator[tuple[str, Value]]:
    for name, item in cls.namespace.items():
        if not isinstance(item, FunctionValue):
            yield name, item


def _is_field(name: str) -> bool:
    return name.isidentifier() and not name.startswith("__")

"""Writes what a running program gives a model as texts that `--arg` and `--input` take."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from tclint.tracing.patches.stored_weights import AbsentWeights
from tclint.tracing.worker.program.seen import SIZE
from tclint.tracing.worker.program.unknown import Unknown

_DEEPEST = 6
_MOST_VALUES = 64
"""Larger arrays and tensors are written by their shape."""
_LONGEST = 20_000
_PLAIN = ("argparse", "types")
"""The modules of records without methods."""


class Untold(Exception):
    """No text expresses a value."""


class Texts:
    """Writes values as texts, with the names of one file and of what can be imported.

    Args:
        home: the path of the target's file.
        made: module -> the arguments that its class was called with.
        is_spoilt: tells whether a value may lack some of what it holds.
    """

    def __init__(
        self, home: str, made: WeakKeyDictionary[Any, Any], is_spoilt: Callable[[Any], bool] = lambda _: False
    ) -> None:
        self._home = os.path.realpath(home)
        self._made = made
        self._is_spoilt = is_spoilt
        self._size = ""
        """What is written for unknown values; '': nothing, which leaves their fields out."""

    def of(self, value: Any) -> tuple[str | None, str | None]:
        """The text of an argument as far as it is known, and that with `SIZE` for each unknown value in it or
        None."""
        sized = self._whole(value, SIZE)
        if sized is None or SIZE not in sized:
            return sized, None
        return self._whole(value, ""), sized

    def _whole(self, value: Any, size: str) -> str | None:
        self._size = size
        try:
            text = self._text(value, 0)
        except (Untold, RecursionError):
            return None
        return text if len(text) <= _LONGEST else None

    def _text(self, value: Any, depth: int) -> str:
        if isinstance(value, Unknown) and self._size and depth:
            return self._size
        if isinstance(value, (Unknown, AbsentWeights)) or self._is_spoilt(value) or depth > _DEEPEST:
            raise Untold
        if value is None or isinstance(value, (bool, int)):
            return str(value) if value is None or isinstance(value, bool) else str(int(value))
        if isinstance(value, float):
            return repr(float(value)) if math.isfinite(value) else f'float("{value}")'
        if isinstance(value, (str, os.PathLike)):
            return json.dumps(os.fspath(value), ensure_ascii=False)
        if isinstance(value, (torch.dtype, torch.Size)):
            return str(value) if isinstance(value, torch.dtype) else str(tuple(value))
        if isinstance(value, torch.device):
            return f'torch.device("{value.type}")'
        if isinstance(value, (type, FunctionType)) or inspect.isbuiltin(value):
            return self._name(value)
        if isinstance(value, functools.partial):
            return self._called("functools.partial", (value.func, *value.args), value.keywords, depth)
        if isinstance(value, nn.Module):
            return self._module(value, depth)
        if isinstance(value, torch.Tensor) or type(value).__module__ == "numpy":
            return _array(value)
        return self._held(value, depth)

    def _held(self, value: Any, depth: int) -> str:
        """The text of what holds other values."""
        if isinstance(value, (list, tuple, set)):
            items = [self._text(item, depth + 1) for item in value]
            inner = ", ".join(items)
            if isinstance(value, set):
                return f"{{{inner}}}" if items else "set()"
            is_tuple = isinstance(value, tuple)
            return f"({inner}{',' * (len(items) == 1)})" if is_tuple else f"[{inner}]"
        if isinstance(value, Mapping) or (hasattr(value, "keys") and hasattr(value, "__getitem__")):
            return self._mapping(value, depth)
        if dataclasses.is_dataclass(value):
            known = {one.name: getattr(value, one.name) for one in dataclasses.fields(value) if one.init}
            texts = self._fields(known, depth)
            if len(texts) == len(known):
                return f"{self._name(type(value))}({_keywords(texts)})"
        fields = _fields_of(value)
        texts = self._fields(fields, depth)
        if not texts:
            raise Untold
        return f"{self._maker(value, {name: fields[name] for name in texts})}({_keywords(texts)})"

    def _maker(self, value: Any, fields: dict[str, Any]) -> str:
        """A record's class, whose methods code may call, if it takes its fields by name; else a plain one."""
        try:
            if type(value).__module__ not in _PLAIN and vars(type(value)(**fields)) == fields:
                return self._name(type(value))
        except Exception:
            pass
        return "Namespace"

    def _mapping(self, value: Any, depth: int) -> str:
        """As an object with fields, if it is a configuration inside another one: code reads its fields."""
        items = {key: value[key] for key in value.keys()}  # noqa: SIM118 (it need not be iterable)
        names = self._fields(items, depth)
        if type(value) is not dict and depth and all(map(str.isidentifier, names)):
            return f"Namespace({_keywords(names)})"
        if (not names and items) or (
            len(names) < len(items) and not all(isinstance(key, str) for key in items)
        ):
            raise Untold
        return "{" + ", ".join(f"{self._text(key, depth + 1)}: {text}" for key, text in names.items()) + "}"

    def _fields(self, values: Mapping[Any, Any], depth: int) -> dict[Any, str]:
        """Those that a text expresses; code that reads another one fails."""
        found = {}
        for name, item in values.items():
            try:
                found[name] = self._text(item, depth + 1)
            except Untold:
                continue
        return found

    def _name(self, value: Any) -> str:
        """A class or function by its name in the target's file, or by its module's."""
        module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "<")
        owner = sys.modules.get(module or "")
        found: Any = owner
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is not value or module is None:
            raise Untold
        if module == "builtins" or os.path.realpath(getattr(owner, "__file__", None) or "") == self._home:
            return str(name)
        if module == "__main__":
            raise Untold
        return f"{module}.{name}"

    def _called(self, name: str, args: tuple[Any, ...], keywords: Mapping[str, Any], depth: int) -> str:
        texts = [self._text(item, depth + 1) for item in args]
        texts += [f"{key}={self._text(item, depth + 1)}" for key, item in keywords.items()]
        return f"{name}({', '.join(texts)})"

    def _module(self, value: nn.Module, depth: int) -> str:
        """The call of its class, if that still makes the same weights."""
        if value not in self._made:
            raise Untold
        args, keywords = self._made[value]
        try:
            with torch.device("meta"):
                same = type(value)(*args, **keywords)
        except Exception as error:
            raise Untold from error
        if _weights(same) != _weights(value):
            raise Untold
        return self._called(self._name(type(value)), args, keywords, depth)


def _weights(module: nn.Module) -> list[tuple[str, tuple[int, ...]]]:
    return [(name, tuple(weight.shape)) for name, weight in module.named_parameters()]


def _keywords(texts: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={text}" for name, text in texts.items())


def _fields_of(value: Any) -> dict[str, Any]:
    """What an object and its class hold, and what its properties give."""
    found: dict[str, Any] = {}
    for cls in reversed(type(value).__mro__[:-1]):
        for name, item in vars(cls).items():
            if isinstance(item, property):
                with_value: Callable[[], Any] = functools.partial(getattr, value, name)
                try:
                    found[name] = with_value()
                except Exception:
                    continue
            elif not callable(item) and not isinstance(item, (staticmethod, classmethod)):
                found[name] = item
    found |= getattr(value, "__dict__", {})
    return {name: item for name, item in found.items() if name.isidentifier() and not name.startswith("_")}


def _array(value: Any) -> str:
    """A tensor, an array or a number of numpy: its values, or its sizes where it is large."""
    library, maker = ("torch", "tensor") if isinstance(value, torch.Tensor) else ("numpy", "array")
    if not hasattr(value, "dtype") or str(value.dtype) == "object":
        raise Untold
    kind = str(value.dtype) if library == "torch" else f'"{value.dtype}"'
    if not value.shape and library == "numpy":
        return repr(value.item())
    if math.prod(value.shape) > _MOST_VALUES:
        return f"{library}.zeros({tuple(value.shape)}, dtype={kind})"
    return f"{library}.{maker}({value.tolist()}, dtype={kind})"


def inputs_of(forward: Any, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[str]:
    """The inputs of a call, as `--input` takes them; none if one of them has no text."""
    try:
        signature = inspect.signature(forward)
        given = signature.bind(*args, **keywords).arguments
        kinds = {one.kind for name, one in signature.parameters.items() if name in given}
        if kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}:
            return []
        found = [text for name, value in given.items() for text in _inputs(name, value)]
    except (Untold, TypeError, ValueError):
        return []
    return found if any(":=" not in text for text in found) else []


def _inputs(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, torch.Tensor):
        sizes = ",".join(map(str, value.shape))
        is_number = value.dtype.is_floating_point or value.dtype.is_complex or value.dtype == torch.bool
        below = "" if is_number or value.is_meta or not value.numel() else f"<{int(value.max()) + 1}"
        yield f"{name}={str(value.dtype).removeprefix('torch.')}[{sizes}]{below}"
    elif isinstance(value, Mapping):
        for key in value:
            yield from _inputs(f"{name}[{key!r}]", value[key])
    elif isinstance(value, (list, tuple)) and any(isinstance(item, torch.Tensor) for item in value):
        for index, item in enumerate(value):
            yield from _inputs(f"{name}[{index}]", item)
    elif value is None or isinstance(value, (bool, int, float, str, tuple)):
        yield f"{name}:={value!r}"
    else:
        raise Untold

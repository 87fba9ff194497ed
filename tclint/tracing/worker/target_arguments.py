"""What a target's callable is called with: `--arg` values, and configurations that make themselves."""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import dataclasses
import importlib
import inspect
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

from tclint.core.errors import TargetError, UsageError, closest
from tclint.graph.ops import Assumption
from tclint.tracing.worker.configurations import configuration_maker, from_file

_WORDS = {"true": True, "false": False, "null": None}
_MAKERS: Mapping[str, Any] = {
    "Namespace": argparse.Namespace,
    "SimpleNamespace": SimpleNamespace,
    "dict": dict,
}
"""What a call in an `--arg` may name without the target's file having it."""


@dataclass(frozen=True, slots=True)
class ArgumentSpec:
    """One `--arg`: 'width=64', 'config=GPTConfig(n_layer=6)', 'config=@conf.yaml', 'config.n_layer=6'."""

    path: tuple[str, ...]
    """The argument's name, then the fields of its value that lead to what is set."""
    text: str

    @property
    def name(self) -> str:
        """As it was written in front of the equals sign."""
        return ".".join(self.path)


def parse_arguments(texts: tuple[str, ...]) -> tuple[ArgumentSpec, ...]:
    """Read `--arg` options; what the values mean is told by `resolve`.

    Raises:
        UsageError: there is no name, or one is given twice.
    """
    specs: list[ArgumentSpec] = []
    for text in texts:
        name, equals, value = text.partition("=")
        path = tuple(part.strip() for part in name.split("."))
        if not equals or not all(part.isidentifier() for part in path):
            raise UsageError(
                f"{text!r} is no argument: write NAME=VALUE, such as width=64, depths=[2,2], "
                "config=GPTConfig(n_layer=6), config.n_layer=6 or config=@conf.yaml."
            )
        if any(spec.path == path for spec in specs):
            raise UsageError(f"the argument {'.'.join(path)!r} was given twice.")
        specs.append(ArgumentSpec(path, value.strip()))
    return tuple(specs)


def literal(text: str) -> Any:
    """A Python literal, true, false or null; any other text is a string."""
    if text in _WORDS:
        return _WORDS[text]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def literals(specs: Sequence[ArgumentSpec], target: str) -> dict[str, Any]:
    """The values for a target that takes plain ones only.

    Raises:
        TargetError: a field of a value is set.
    """
    for spec in specs:
        if len(spec.path) > 1:
            raise TargetError(f"--arg {spec.name} sets a field, and the arguments of {target} have none.")
    return {spec.path[0]: literal(spec.text) for spec in specs}


def resolve(
    specs: Sequence[ArgumentSpec], function: Callable[..., Any], module: ModuleType
) -> tuple[dict[str, Any], tuple[Assumption, ...]]:
    """The keyword arguments that a callable is given, and what was assumed about them.

    Values are literals, calls of what the module has (`GPTConfig(n_layer=6)`), names with a dot that lead to
    something in it (`nn.GELU`), contents of files (`@conf.yaml`), or text. A required argument that is not
    given, and is by its annotation or its name a configuration of the same project, is made with the
    defaults of its class.

    Raises:
        TargetError: a value names what is not there, or a field is set that a value does not have.
    """
    parameters = _parameters(function)
    hints = _annotations(function, module)
    values: dict[str, Any] = {}
    for spec in specs:
        if len(spec.path) == 1:
            try:
                if spec.text.startswith("@"):
                    maker = configuration_maker(spec.name, hints.get(spec.name), function, module)
                    values[spec.name] = from_file(spec.text[1:], maker)
                else:
                    values[spec.name] = _value(spec.text, module)
            except TargetError as error:
                raise TargetError(f"--arg {spec.name}: {error}", details=error.details) from None
    assumptions: list[Assumption] = []
    roots = {spec.path[0] for spec in specs if len(spec.path) > 1}
    for name, parameter in parameters.items():
        if name in values or not (parameter.default is parameter.empty or name in roots):
            continue
        if parameter.default is not parameter.empty and parameter.default is not None:
            values[name] = parameter.default
            continue
        maker = configuration_maker(name, hints.get(name), function, module)
        if maker is None:
            continue
        with contextlib.suppress(Exception):  # one that needs more than its defaults is for the user to make
            values[name] = maker()
            what = f"{name} = {maker.__qualname__}() with its defaults; --arg {name}.FIELD=VALUE sets a field"
            assumptions.append(Assumption(what))
    for spec in specs:
        if len(spec.path) > 1:
            root = spec.path[0]
            if root not in values:
                raise TargetError(
                    f"--arg {spec.name} sets a field of {root!r}, which is not given: give it first, such as "
                    f"--arg {root}=SomeConfig()."
                )
            values[root] = _with_field(values[root], spec.path[1:], _value(spec.text, module), spec.name)
    return values, tuple(assumptions)


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return {}
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {name: given for name, given in signature.parameters.items() if given.kind in named}


def _annotations(function: Callable[..., Any], module: ModuleType) -> dict[str, Any]:
    """Classes by the parameters that are annotated with them; what means nothing here is left out."""
    owner = function.__init__ if inspect.isclass(function) else function
    namespace = vars(sys.modules.get(getattr(function, "__module__", ""), module))
    found: dict[str, Any] = {}
    for name, stated in getattr(owner, "__annotations__", {}).items():
        alone = SimpleNamespace(__annotations__={name: stated})
        with contextlib.suppress(Exception):  # whatever a name that is not defined makes of it
            annotation = typing.get_type_hints(alone, namespace)[name]
            parts = [part for part in typing.get_args(annotation) if part is not type(None)]
            is_optional = len(parts) == 1 and len(typing.get_args(annotation)) == 2
            found[name] = parts[0] if is_optional else annotation
    return found


# ---------------------------------------------------------------- values


def _value(text: str, module: ModuleType) -> Any:
    plain = literal(text)
    if not isinstance(plain, str):
        return plain
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return plain
    if isinstance(tree, ast.Call):
        return _evaluated(tree, module)
    if isinstance(tree, ast.Attribute):
        with contextlib.suppress(TargetError):
            found = _evaluated(tree, module)
            return plain if isinstance(found, ModuleType) else found
    return plain


def _evaluated(tree: ast.expr, module: ModuleType) -> Any:
    if isinstance(tree, ast.Call):
        function = _evaluated(tree.func, module)
        if not all(keyword.arg for keyword in tree.keywords):
            raise TargetError(f"write the arguments of {ast.unparse(tree.func)} one by one.")
        args = [_evaluated(value, module) for value in tree.args]
        kwargs = {str(word.arg): _evaluated(word.value, module) for word in tree.keywords}
        try:
            return function(*args, **kwargs)
        except Exception as error:
            message = str(error).partition("\n")[0].rstrip(".")
            raise TargetError(f"{ast.unparse(tree)} raised {type(error).__name__}: {message}.") from error
    if isinstance(tree, ast.Name):
        if tree.id in _WORDS:
            return _WORDS[tree.id]
        if hasattr(module, tree.id):
            return getattr(module, tree.id)
        if tree.id in _MAKERS:
            return _MAKERS[tree.id]
        near = closest(tree.id, [name for name in vars(module) if not name.startswith("_")])
        raise TargetError(f"{module.__name__} has no {tree.id!r}.{near}")
    if isinstance(tree, ast.Attribute):
        return _attribute(tree, module)
    if isinstance(tree, (ast.List, ast.Tuple)):
        items = [_evaluated(item, module) for item in tree.elts]
        return tuple(items) if isinstance(tree, ast.Tuple) else items
    if isinstance(tree, ast.Dict) and all(tree.keys):
        return {
            _evaluated(key, module): _evaluated(value, module)
            for key, value in zip(tree.keys, tree.values, strict=True)
            if key is not None
        }
    try:
        return ast.literal_eval(tree)
    except ValueError:
        raise TargetError(
            f"{ast.unparse(tree)!r} is not evaluated: give values, lists and calls of classes."
        ) from None


def _attribute(tree: ast.Attribute, module: ModuleType) -> Any:
    """What a dotted name leads to: in the target's file, else in a module that can be imported."""
    text = ast.unparse(tree)
    names = text.split(".")
    if all(name.isidentifier() for name in names):
        owner: Any = module if hasattr(module, names[0]) else None
        if owner is None:
            with contextlib.suppress(ImportError):
                owner, names = importlib.import_module(".".join(names[:-1])), names[-1:]
        for name in names:
            owner = getattr(owner, name, None)
        if owner is not None:
            return owner
    raise TargetError(f"there is no {text!r} in {module.__name__} or installed.")


def _with_field(owner: Any, path: Sequence[str], value: Any, name: str) -> Any:
    """The value with a field of it, or of its fields, set."""
    field, *rest = path
    is_mapping = isinstance(owner, Mapping)
    known = list(map(str, owner)) if is_mapping else _field_names(owner)
    if field not in known and (known or not hasattr(owner, field)):
        listed = f"; it has {', '.join(known[:12])}.{closest(field, known)}" if known else ""
        raise TargetError(f"--arg {name}: {type(owner).__name__} has no {field!r}{listed or '.'}")
    if rest:
        value = _with_field(owner[field] if is_mapping else getattr(owner, field), rest, value, name)
    if dataclasses.is_dataclass(owner) and not isinstance(owner, type):
        fields = {item.name: item for item in dataclasses.fields(owner)}
        if field in fields and fields[field].init:
            return dataclasses.replace(
                owner, **{field: value}
            )  # frozen ones too, and what follows from fields
    try:
        owner = copy.copy(owner)  # it may be the default of a callable that the caller goes on using
        if is_mapping:
            owner[field] = value
        else:
            setattr(owner, field, value)
    except Exception as error:
        raise TargetError(f"--arg {name} cannot be set: {type(error).__name__}: {error}.") from None
    return owner


def _field_names(owner: Any) -> list[str]:
    names = [*vars(owner)] if hasattr(owner, "__dict__") else []
    return [name for name in names if not name.startswith("_")]

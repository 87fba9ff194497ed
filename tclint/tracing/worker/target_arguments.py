"""What a target's callable is called with: `--arg` values, and configurations that make themselves."""

from __future__ import annotations

import argparse
import ast
import builtins
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
from tclint.tracing.worker.configurations import as_options, configuration_maker, from_file

_WORDS = {"true": True, "false": False, "null": None}
_MAKERS: Mapping[str, Any] = {
    "Namespace": argparse.Namespace,
    "SimpleNamespace": SimpleNamespace,
    "dict": dict,
}
"""What an `--arg` may name without the target's file having it."""


@dataclass(frozen=True, slots=True)
class ArgumentSpec:
    """One `--arg`: 'width=64', 'config=GPTConfig(n_layer=6)', 'config=@conf.yaml', 'config.n_layer=6', or
    '@conf.yaml:model', whose keys are arguments."""

    path: tuple[str, ...]
    """The argument's name, then the fields of its value that lead to what is set; empty for a file."""
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
        if text.startswith("@"):
            specs.append(ArgumentSpec((), text))
            continue
        name, equals, value = text.partition("=")
        path = tuple(part.strip() for part in name.split("."))
        if not equals or not all(part.isidentifier() for part in path):
            raise UsageError(
                f"{text!r} is not an argument: write NAME=VALUE, such as width=64, depths=[2,2], "
                "config=GPTConfig(n_layer=6), config.n_layer=6, config=@conf.yaml or @conf.yaml:model."
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
        if len(spec.path) != 1:
            what = f"{spec.name} sets a field, and" if spec.path else f"{spec.text} is a file:"
            raise TargetError(f"--arg {what} the arguments of {target} have none.")
    return {spec.path[0]: literal(spec.text) for spec in specs}


def resolve(
    specs: Sequence[ArgumentSpec], function: Callable[..., Any], module: ModuleType
) -> tuple[dict[str, Any], tuple[Assumption, ...]]:
    """The keyword arguments that a callable is given, and what was assumed about them.

    Values are literals, expressions in the module's names and in what can be imported
    (`GPTConfig(n_layer=6)`, `nn.GELU`, `[2 * n for n in range(4)]`, `numpy.array([3, 4])`), contents of files
    (`@conf.yaml`, or a section of one, `@conf.yaml:model`), or text. A required argument that is not
    given, and is by its annotation or its name a configuration of the same project, is made with the
    defaults of its class.

    Raises:
        TargetError: a value names what is not there, or a field is set that a value does not have.
    """
    parameters = _parameters(function)
    hints = _annotations(function, module)
    values: dict[str, Any] = {}
    for spec in specs:
        if not spec.path:
            values = {**from_file(spec.text[1:], None), **values}
        if len(spec.path) == 1:
            try:
                if spec.text.startswith("@"):
                    maker = configuration_maker(spec.name, hints.get(spec.name), function, module)
                    values[spec.name] = from_file(spec.text[1:], maker)
                else:
                    takes_text = _takes_text(parameters.get(spec.name), hints.get(spec.name))
                    values[spec.name] = as_options(_value(spec.text, module, takes_text=takes_text))
            except TargetError as error:
                raise TargetError(f"--arg {spec.name}: {error}", details=error.details) from None
    assumptions: list[Assumption] = []
    lacking: TargetError | None = None
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
        try:
            values[name] = maker()
        except FileNotFoundError as error:
            lacking = lacking or TargetError(
                f"{name} = {maker.__qualname__}() reads {str(error.filename)!r}, which is not here: run "
                f"tclint where it is, or give --arg {name}=VALUE.",
                needed=_missing(function, values),
            )
        except Exception:  # one that needs more than its defaults is for the user to make
            continue
        else:
            what = f"{name} = {maker.__qualname__}() with its defaults; --arg {name}.FIELD=VALUE sets a field"
            assumptions.append(Assumption(what))
    if lacking is not None:
        raise lacking
    for spec in specs:
        if len(spec.path) > 1:
            root = spec.path[0]
            if root not in values:
                raise TargetError(
                    f"--arg {spec.name} sets a field of {root!r}, which is not given: give it first, such as "
                    f"--arg {root}=SomeConfig().",
                    needed=list(dict.fromkeys([root, *_missing(function, values)])),
                )
            values[root] = _with_field(
                values[root], spec.path[1:], _value(spec.text, module, takes_text=True), spec.name
            )
    return values, tuple(assumptions)


def given_to(function: Callable[..., Any]) -> dict[str, Any]:
    """What a target's callable is called with, by name, defaults included."""
    given = {
        name: parameter.default
        for name, parameter in _parameters(function).items()
        if parameter.default is not parameter.empty
    }
    return {**given, **getattr(function, "keywords", {})}


def needed_by(function: Callable[..., Any]) -> list[str]:
    """The parameters that a callable cannot be called without."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    any_number = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [one.name for one in parameters if one.default is one.empty and one.kind not in any_number]


def _missing(function: Callable[..., Any], values: Mapping[str, Any]) -> list[str]:
    return [name for name in needed_by(function) if name not in values]


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


def _value(text: str, module: ModuleType, *, takes_text: bool) -> Any:
    """What an expression is in the target's file, which is run anyway; text that is none, or whose names lead
    nowhere, is itself.

    Raises:
        TargetError: nobody means the text of it, and it leads nowhere.
    """
    plain = literal(text)
    if not isinstance(plain, str):
        return plain
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return plain
    if isinstance(tree.body, _NO_TEXT):
        return _evaluated(tree, module, vars(builtins))
    if isinstance(tree.body, ast.Name) and plain == text:
        return plain if takes_text else _value_named(text, module)
    if not isinstance(tree.body, ast.Constant):
        try:
            found = _evaluated(tree, module, {})
        except TargetError:
            if takes_text or not _leads_on(tree.body, module):
                return plain
            raise
        return plain if isinstance(found, ModuleType) else found
    return plain


def _leads_on(node: ast.expr, module: ModuleType) -> bool:
    """Whether nobody means the expression's text: `CONFIGS['small']`, or an attribute of what there is."""
    if isinstance(node, ast.Subscript):
        return True
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and hasattr(module, node.id)


def _takes_text(parameter: inspect.Parameter | None, annotation: Any) -> bool:
    return annotation is str or parameter is None or isinstance(parameter.default, str)


def _value_named(text: str, module: ModuleType) -> Any:
    """The class or the data of the module with that name, else the text: 'relu' may be both."""
    named = getattr(module, text, text)
    is_other = isinstance(named, ModuleType) or inspect.isroutine(named)
    return text if is_other else named


_NO_TEXT = (ast.Call, ast.ListComp, ast.SetComp, ast.DictComp, ast.Lambda)
"""What nobody writes who means its text."""


def _evaluated(tree: ast.Expression, module: ModuleType, further: Mapping[str, Any]) -> Any:
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    bound = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    bound |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    known = {**further, **_MAKERS, **_WORDS, **vars(module)}
    # A library's module may make its names when they are asked for.
    known |= {name.id: getattr(module, name.id) for name in names if hasattr(module, name.id)}
    dotted = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    for name in {node.id for node in names} - bound - set(known):
        longest = max((text for text in dotted if text.startswith(f"{name}.")), key=len, default="")
        if not longest:
            near = closest(name, [other for other in vars(module) if not other.startswith("_")])
            raise TargetError(f"{module.__name__} has no {name!r}.{near}")
        known[name] = _imported(longest, module)
    text = ast.unparse(tree)
    try:
        return eval(compile(tree, "--arg", "eval"), known)
    except Exception as error:
        message = str(error).partition("\n")[0].rstrip(".")
        raise TargetError(f"{text} raised {type(error).__name__}: {message}.") from error


def _imported(dotted: str, module: ModuleType) -> Any:
    """The package that a dotted name begins with; the module inside it that the name leads to is imported."""
    owner = dotted.rpartition(".")[0]
    while owner:
        with contextlib.suppress(ImportError):
            importlib.import_module(owner)
            return sys.modules[owner.partition(".")[0]]
        owner = owner.rpartition(".")[0]
    raise TargetError(f"there is no {dotted!r} in {module.__name__} or installed.")


def _with_field(owner: Any, path: Sequence[str], value: Any, name: str) -> Any:
    """The value with a field of it, or of its fields, set."""
    field, *rest = path
    is_mapping = isinstance(owner, Mapping)
    known = _field_names(owner)
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


_DEEPEST = 3
"""Fields of fields in which a name is looked for."""


def path_to(field: str, values: Mapping[str, Any]) -> str | None:
    """'config.model.width': the field of that name in values that a callable is given, the shortest way."""
    level = list(values.items())
    for _ in range(_DEEPEST):
        level = [(path, owner) for path, owner in level if not callable(owner)]  # classes, layers
        for path, owner in level:
            if field in _field_names(owner):
                return f"{path}.{field}"
        level = [
            (f"{path}.{name}", owner[name] if isinstance(owner, Mapping) else vars(owner)[name])
            for path, owner in level
            for name in _field_names(owner)
        ]
    return None


def _field_names(owner: Any) -> list[str]:
    if isinstance(owner, Mapping):
        return [name for name in owner if isinstance(name, str)]
    names = [*vars(owner)] if hasattr(owner, "__dict__") else []
    return [name for name in names if not name.startswith("_")]

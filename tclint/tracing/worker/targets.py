"""From 'path/model.py:build_model', 'package.module:Class.method' or 'timm:resnet50' to a callable."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import inspect
import linecache
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from tclint.core.errors import TargetError, closest
from tclint.core.search_path import added_folders
from tclint.core.target import LIBRARIES, is_model_file, is_recipe_file
from tclint.core.text import listed
from tclint.graph.ops import Assumption, Site
from tclint.tracing.stand_ins.absent import (
    NotInstalled,
    absent_packages,
    error_of,
    first_absent,
    importing,
    is_refused,
    stand_in_for_absent,
    stand_in_for_compiled,
)
from tclint.tracing.stand_ins.install import can_be_offered, has_stand_in, offer, stand_in_for, stand_ins
from tclint.tracing.values.sites import SiteFinder, entrance, file_of
from tclint.tracing.worker.hints import hint_for, holds_weights, in_plain_words
from tclint.tracing.worker.project_files import import_roots, package_of, setup_text
from tclint.tracing.worker.project_imports import (
    OwnPackages,
    asked_for,
    missing_packages,
    name_in_package,
    own_packages,
)
from tclint.tracing.worker.target_arguments import (
    ArgumentSpec,
    given_to,
    literals,
    needed_by,
    path_to,
    resolve,
)

_T = TypeVar("_T")

_MOST_DECORATORS = 30
"""Lines of them."""
_HOW_TO_LIST = " ('tclint models PATH' lists what there is)"


@dataclass(frozen=True, slots=True)
class Target:
    """A parsed target: exactly one of `path`, `module` and `library` is set."""

    text: str
    attribute: str
    """Empty: the path is that of a saved model."""
    path: str | None = None
    module: str | None = None
    library: str | None = None
    """'timm' or 'hf': the attribute names one of its models; 'recipe': it is a configuration file."""

    @property
    def container(self) -> str:
        """The file, module or library that holds the callable, as the user wrote it."""
        return self.path or self.module or self.library or ""


@dataclass(frozen=True, slots=True)
class LoadedTarget:
    """A target whose file was run and whose callable was found."""

    target: Target
    function: Callable[[], Any]
    module: ModuleType
    site: Site | None
    """Where the callable is defined."""
    assumptions: Sequence[Assumption] = ()
    """Complete once the callable has run."""


def parse_target(text: str) -> Target:
    """Split a target at its last colon.

    Raises:
        TargetError: there is no callable behind a colon.
    """
    if is_model_file(text):
        return Target(text, "", path=text)
    if is_recipe_file(text):
        return Target(text, text, library="recipe")
    library, _, name = text.partition(":")
    if library in LIBRARIES and name:
        return Target(text, name, library=library)
    container, colon, attribute = text.rpartition(":")
    if not colon or not container or not all(part.isidentifier() for part in attribute.split(".")):
        raise TargetError(
            f"{text!r} names no callable: write 'path/file.py:callable' or 'package.module:callable'"
            f"{_HOW_TO_LIST if os.path.exists(text) else ''}."
        )
    if container.endswith(".py") or "/" in container or os.sep in container:
        return Target(text, attribute, path=container)
    return Target(text, attribute, module=container)


def check_file(target: Target) -> None:
    """Fail early, without running anything, for a file that does not exist.

    Raises:
        TargetError: with the closest existing file.
    """
    if target.path is None or os.path.isfile(target.path):
        return
    if os.path.exists(target.path):
        raise TargetError(f"{target.path!r} is no file that Python could run.")
    folder = Path(target.path).parent
    name = Path(target.path).name
    if not folder.is_dir():
        raise TargetError(f"There is no folder {str(folder)!r} with a {name}.")
    siblings = sorted(str(entry) for entry in folder.glob("*.py"))
    raise TargetError(f"There is no file {target.path!r}.{closest(target.path, siblings)}")


@entrance
def load_target(
    target: Target,
    arguments: Sequence[ArgumentSpec] = (),
    running: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
) -> LoadedTarget:
    """Import the target's file or module and find its callable.

    Args:
        arguments: that the callable gets, beside configurations that make themselves.
        running: entered while the user's file runs.

    Raises:
        TargetError: the file does not run, or has no such callable that takes these arguments alone.
    """
    if target.library is not None:
        with running():
            return _load_from_library(target, target.library, literals(arguments, target.text))
    check_file(target)
    if not target.attribute:
        with running():
            return _load_saved(target, literals(arguments, target.text))
    with running():
        module = _import_file(target) if target.path is not None else _import_module(target)
    function: Any = module
    for part in target.attribute.split("."):
        try:
            function = getattr(function, part)
        except AttributeError:
            raise TargetError(_no_such_callable(target, module, part)) from None
        except Exception as error:  # of a package that imports its parts when they are asked for
            raise _import_error(target, error) from None
    if (unusable := error_of(function)) is not None:  # a decorator of the package made it
        raise _import_error(target, unusable)
    if _is_built(function):
        return _load_built(target, function, module, arguments)
    if not callable(function):
        raise TargetError(
            f"{target.attribute} in {target.container} is of type {type(function).__name__}, not a function "
            f"or class that builds a model.{_candidates(module, target)}"
        )
    site = site_of(function)
    values, assumptions = resolve(arguments, function, module)
    _check_signature(target, function, site, values)
    assumptions = (*_ended_early, *assumptions, *stand_ins(), *absent_packages())
    return LoadedTarget(target, functools.partial(function, **values), module, site, assumptions)


def _is_built(value: Any) -> bool:
    from tclint.tracing.session.exported import is_model

    return is_model(value)


def _load_built(
    target: Target, model: Any, module: ModuleType, arguments: Sequence[ArgumentSpec]
) -> LoadedTarget:
    """A model that stands in the file: its place is its class, or the line that makes it of a library's."""
    from tclint.tracing.patches.modules import construct_site_of

    if arguments:
        raise TargetError(f"{target.text} is built already, and takes no argument {arguments[0].name!r}.")
    site = site_of(type(model))
    if site is None or not SiteFinder().is_user_file(site.path):
        site = construct_site_of(model).site
    return LoadedTarget(
        target, lambda: model, module, site, (*_ended_early, *stand_ins(), *absent_packages())
    )


def _load_saved(target: Target, arguments: Mapping[str, Any]) -> LoadedTarget:
    from tclint.tracing.session.exported import load_program

    if arguments:
        raise TargetError(f"{target.text} is built already, and takes no argument {next(iter(arguments))!r}.")
    program = load_program(target.text)
    return LoadedTarget(target, lambda: program, ModuleType(""), None)


def _load_from_library(target: Target, library: str, arguments: Mapping[str, Any]) -> LoadedTarget:
    from tclint.tracing.worker.libraries import find_library_model

    try:
        function, assumptions = find_library_model(library, target.attribute, arguments)
    except TargetError:
        raise
    except BaseException as error:
        raise _import_error(target, error) from None
    # A recipe's first assumption is the model that it names, with the line.
    site = assumptions[0].site if assumptions else None
    return LoadedTarget(target, function, ModuleType(library), site, assumptions)


@contextlib.contextmanager
def user_errors(doing: str, is_user_file: Callable[[str], bool], given: str = "") -> Iterator[None]:
    """Turn what the user's code raises into one sentence with the user's file and line.

    Args:
        doing: what raised, as the sentence's subject: 'build_model'.
        given: what it was called with and nobody stated, for the end of the sentence.
    """
    try:
        yield
    except (TargetError, KeyboardInterrupt):
        raise
    except SystemExit as error:
        line = where_in_user_code(error, is_user_file)
        raise TargetError(
            f"{doing} called sys.exit({error.code!r}){line}.", details=traceback_of(error)
        ) from None
    except BaseException as error:
        if is_out_of_memory(error):
            raise
        line = where_in_user_code(error, is_user_file)
        hint = hint_for(error) or (f"; it got {given}" if given else "")
        message = f"{doing} raised {describe(error)}{line}{hint}."
        raise TargetError(message, details=traceback_of(error)) from None


def describe(error: BaseException) -> str:
    """'ValueError: size must be even', the first line only, without a full stop, on one printable line."""
    try:
        message = str(error).strip()
    except Exception:
        message = ""  # user code can make even that fail
    if not message and isinstance(error, AssertionError):
        message = next((f"{frame.line}" for frame in traceback.extract_tb(error.__traceback__)[-1:]), "")
    first = in_plain_words(message) or (message.splitlines()[0].strip() if message else "")
    if len(first) > 300:
        first = first[:297] + "..."
    name = type(error).__name__
    text = f"{name}: {first.rstrip('.')}" if first else name
    # A terminal would obey control characters.
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def where_in_user_code(error: BaseException, is_user_file: Callable[[str], bool]) -> str:
    """' (model.py:12)' for the innermost user frame of an error, else ''."""
    found = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if is_user_file(frame.filename):
            found = f" ({shown_path(frame.filename)}:{frame.lineno})"
    return found


def shown_path(path: str) -> str:
    """Relative to the working directory where that is shorter."""
    try:
        relative = os.path.relpath(path)
    except (ValueError, OSError):  # another drive; a working directory that is gone
        return path
    return relative if len(relative) < len(path) else path


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed, in Python or in torch."""
    if isinstance(error, MemoryError):
        return True
    message = describe(error)
    return "can't allocate memory" in message or "not enough memory" in message


def site_of(target: Any) -> Site | None:
    """Where a function or class is defined."""
    if callable(target) and not inspect.isclass(target):
        target = inspect.unwrap(target)
        target = getattr(target, "func", target)  # functools.partial
    if inspect.isclass(target):
        target = _as_written(target)
    code = getattr(target, "__code__", None)
    if code is not None:
        line = _behind_decorators(code.co_filename, code.co_firstlineno)
        return Site(file_of(code.co_filename), line, getattr(target, "__name__", ""))
    try:
        path = inspect.getsourcefile(target)
        _, line = inspect.getsourcelines(target)
    except (TypeError, OSError):
        # The class's source is out of reach (a notebook, an unregistered module): its first method's is not.
        codes = (getattr(value, "__code__", None) for value in getattr(target, "__dict__", {}).values())
        first = min((code for code in codes if code), key=lambda code: code.co_firstlineno, default=None)
        if first is None:
            return None
        return Site(file_of(first.co_filename), first.co_firstlineno, target.__qualname__)
    if not path:
        return None
    line = _behind_decorators(path, line)
    cell = file_of(path)
    return Site(cell if cell != path else os.path.abspath(path), line, getattr(target, "__qualname__", ""))


def _behind_decorators(path: str, line: int) -> int:
    """The line that names a function or class whose definition begins on a line: with its first decorator."""
    for number, text in enumerate(linecache.getlines(path)[line - 1 : line - 1 + _MOST_DECORATORS], line):
        if re.match(r"\s*(async\s+def|def|class)\s", text):
            return number
    return line


def _as_written(made: type) -> type:
    """The class that the user wrote under this name, where a decorator derived another one from it."""
    written = (base for base in made.__mro__ if base.__qualname__.rpartition(".")[2] == made.__name__)
    return next(written, made)


def _import_file(target: Target) -> ModuleType:
    path = os.path.abspath(target.path or "")
    sys.meta_path.insert(0, OwnPackages(own_packages(path)))
    package = package_of(path)
    # As Python has it: the folder of a script comes first, that of a package's module is not searched.
    sys.path.insert(0, package[0] if package is not None else os.path.dirname(path))
    offer(asked_for(path, can_be_offered()))
    # Behind what is installed: a folder of tests or utilities must not hide a library.
    sys.path.extend(root for root in import_roots(path) if root not in sys.path)
    if package is not None:
        return _import_named(target, package[1])
    if (inside := name_in_package(path)) is not None:
        module = _import_quietly(inside[1])
        if module is not None:
            return module
    name = Path(path).stem
    if name in sys.modules or not name.isidentifier() or name in sys.stdlib_module_names:
        name = f"_tclint_target_{name}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TargetError(f"{target.path} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    # Registered first, as a normal import does: dataclasses and pickling look the module up.
    sys.modules[name] = module
    run = spec.loader.exec_module
    try:
        _with_stand_ins(lambda: run(module))
    except BaseException as error:
        problem = _import_error(target, error)
        part = target.attribute.partition(".")[0]
        is_defined, names = hasattr(module, part), _callables(module)
        if isinstance(problem, TargetError) and names and not is_defined:
            there = f"Up to there it defines {listed(names, 10)}, and no {part!r}.{closest(part, names)}"
            problem = TargetError(f"{problem} {there}", details=problem.details)
        if not isinstance(problem, TargetError) or isinstance(error, ImportError) or not is_defined:
            raise problem from None
        # What is asked for stood above that line: a script that goes on to read its data, or to train.
        why = f"sys.exit({error.code!r})" if isinstance(error, SystemExit) else describe(error)
        told = f"{target.container} was run up to {why}{_line_outside_libraries(error)}, and nothing below"
        _ended_early.append(Assumption(told))
    return module


_ended_early: list[Assumption] = []
"""Of the file whose import ended before its end."""


def _import_quietly(name: str) -> ModuleType | None:
    """A module of a package by its name; None, and nothing of the package is left, where that fails."""
    package = name.partition(".")[0]
    before = set(sys.modules)
    if package in before:  # another package of that name
        return None
    try:
        return _with_stand_ins(lambda: importlib.import_module(name))
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException:
        for added in set(sys.modules) - before:
            if added.partition(".")[0] == package:
                del sys.modules[added]
        return None


def _import_named(target: Target, name: str) -> ModuleType:
    try:
        return _with_stand_ins(lambda: importlib.import_module(name))
    except BaseException as error:
        raise _import_error(target, error) from None


def _with_stand_ins(run: Callable[[], _T], own: str = "") -> _T:
    """What `run` returns; called again with a stand-in for each package that it lacks, except `own`."""
    while True:
        try:
            with importing():
                return run()
        except ImportError as error:
            package = (error.name or "").partition(".")[0]
            if not stand_in_for(error.name) and (package == own or not stand_in_for_absent(error)):
                raise
        except Exception as error:
            if not stand_in_for_compiled(error):
                raise


def _import_module(target: Target) -> ModuleType:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    sys.path.extend(added_folders([Path.cwd()], setup_text))
    name = target.module or ""
    offer(asked_for(os.path.join(os.getcwd(), name), can_be_offered()))
    try:
        return _with_stand_ins(lambda: importlib.import_module(name), name.partition(".")[0])
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if holds_weights(name):
            raise TargetError(
                f"{name} is named like a file of weights, which holds no Python; name what builds the model, "
                "as 'path/file.py:callable'."
            ) from None
        if name == missing or name.startswith(missing + "."):
            raise TargetError(
                f"There is no module {missing!r} here or installed; write a file as 'path/file.py:callable'."
            ) from None
        raise _import_error(target, error) from None
    except BaseException as error:
        raise _import_error(target, error) from None


def explained(target: Target, error: TargetError, *, has_arguments: bool) -> BaseException:
    """An error, or the packages that are not installed where it may be for want of them. Arguments that the
    user gives are the likelier reason, unless something of such a package was used."""
    lacking = first_absent()
    if lacking is None or error.needed:
        return error
    if is_refused():
        return _import_error(target, lacking)
    if has_arguments:
        return error
    absent, *_ = absent_packages()
    message = f"{error} {absent.what.partition(';')[0]}, which may be why."
    return TargetError(
        message, details=error.details, captured_output=error.captured_output, has_run=error.has_run
    )


def _import_error(target: Target, error: BaseException) -> BaseException:
    """What the user is told when the file does not run; errors of the process itself pass through."""
    container = target.container
    if isinstance(error, KeyboardInterrupt) or is_out_of_memory(error):
        return error
    if isinstance(error, NotInstalled):
        error = first_absent() or error
    first = error
    while first.__cause__ is not None:  # packages that import their parts late word it themselves
        first = first.__cause__
    error = first if isinstance(first, ModuleNotFoundError) else error
    hint = hint_for(error)
    details = traceback_of(error)
    if isinstance(error, SyntaxError):
        where = f"{shown_path(error.filename)}:{error.lineno}" if error.filename else container
        return TargetError(
            f"{where}: {error.msg or 'invalid syntax'}; Python cannot read it.", details=details
        )
    line = _line_outside_libraries(error)
    if isinstance(error, SystemExit):
        return TargetError(
            f"{container} called sys.exit({error.code!r}) while it was imported{line}; name a file that only "
            "defines the model, or put what this script runs below `if __name__ == '__main__':`."
        )
    if isinstance(error, ModuleNotFoundError):
        return TargetError(
            f"{container} imports {error.name!r}, which is not installed here{line}; install "
            f"{_with_others(error.name, target)} in the environment that runs tclint.",
            details=details,
        )
    return TargetError(f"{container} could not be imported: {describe(error)}{line}{hint}.", details=details)


def _with_others(name: str | None, target: Target) -> str:
    """'it', or 'it, timm and einops' where the project's files import more that is missing."""
    if target.path is None:
        return "it"
    missing = missing_packages(target.path, import_roots(target.path))
    first = (name or "").partition(".")[0]
    others = [other for other in missing if other != first and not has_stand_in(other)]
    return listed(["it", *others], 12)


def _line_outside_libraries(error: BaseException) -> str:
    return where_in_user_code(error, SiteFinder().is_user_file)


def _no_such_callable(target: Target, module: ModuleType, part: str) -> str:
    names = _callables(module)
    return f"{target.container} has no {part!r}.{closest(part, names)}{_candidates(module, target)}"


def _candidates(module: ModuleType, target: Target) -> str:
    names = _callables(module)
    if not names:
        return f" {target.container} defines no function or class."
    return f" It defines {', '.join(names[:10])}{', ...' if len(names) > 10 else ''}."


def _callables(module: ModuleType) -> list[str]:
    """Public functions and classes that the module itself defines, functions first."""
    own = [
        (inspect.isclass(value), name)
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isfunction(value) or inspect.isclass(value))
        and getattr(value, "__module__", None) == module.__name__
    ]
    return [name for _, name in sorted(own, key=lambda item: item[0])]


def _check_signature(
    target: Target, function: Callable[..., Any], site: Site | None, arguments: Mapping[str, Any]
) -> None:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return
    where = f" ({shown_path(site.path)}:{site.line})" if site else ""
    names = [
        parameter.name
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    takes_any = any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters)
    unknown = [name for name in arguments if name not in names]
    if unknown and not takes_any:
        takes = f"it takes {', '.join(names)}" if names else "it takes none"
        path = path_to(unknown[0], {**given_to(function), **arguments})
        hint = f" Did you mean --arg {path}=VALUE?" if path else closest(unknown[0], names)
        raise TargetError(f"{target.attribute}{where} has no argument {unknown[0]!r}; {takes}.{hint}")
    needed = [name for name in needed_by(function) if name not in arguments]
    if needed:
        raise TargetError(
            f"{target.attribute}{where} needs arguments ({', '.join(needed)}); give each with --arg, such as "
            f"--arg {needed[0]}=VALUE, or write a function without any, such as `def build_model(): return "
            f"{target.attribute}(...)`, and name that.",
            needed=needed,
        )


def traceback_of(error: BaseException) -> str:
    return "".join(traceback.format_exception(type(error), error, error.__traceback__))

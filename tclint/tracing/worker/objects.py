"""Models given as objects, or by the callable that builds them."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram

from tclint.config.settings import Settings
from tclint.core.errors import TargetError
from tclint.core.target import is_model_file, not_a_target
from tclint.graph.ops import Assumption, Graph, Site
from tclint.tracing.inputs.given import InferenceFailed, given_inputs
from tclint.tracing.inputs.guesses.inference import infer_inputs
from tclint.tracing.patches.modules import construct_site_of, named_modules
from tclint.tracing.session.build import on_meta
from tclint.tracing.session.exported import is_model, load_program, unwrapped
from tclint.tracing.values.layers import class_name, is_module
from tclint.tracing.values.sites import SiteFinder
from tclint.tracing.worker.apart import Keep, apart
from tclint.tracing.worker.attempts import trace_or_explain
from tclint.tracing.worker.entry import TraceOptions, choose_inputs, put_into_mode, runs_of, split_built
from tclint.tracing.worker.result_file import TraceResult
from tclint.tracing.worker.target_arguments import needed_by, parse_arguments, resolve
from tclint.tracing.worker.targets import (
    LoadedTarget,
    Target,
    describe,
    shown_path,
    site_of,
    traceback_of,
    where_in_user_code,
)

_TORCH_FOLDER = os.path.join(os.path.dirname(torch.__file__), "")


def trace_given(given: Any, inputs: Any, kwargs: Mapping[str, Any] | None, settings: Settings) -> Graph:
    """See `tclint.trace`."""
    arguments = parse_arguments(settings.arguments)
    options = TraceOptions(arguments=arguments, evaluate=settings.mode == "infer")

    def trace(keep: Keep) -> Graph:
        return _trace(_Given.of(given), inputs, kwargs, keep, options)

    return _own_nodes(apart(trace, name_of(given), Settings().timeout_s, _model_in(given)), given)


def _trace(
    target: _Given, inputs: Any, kwargs: Mapping[str, Any] | None, keep: Keep, options: TraceOptions
) -> Graph:
    started = time.perf_counter()
    loaded = target.loaded(options)
    with replace(target, given=loaded.function).built(keep, inputs, kwargs) as (model, returned, assumed):
        put_into_mode(model, options, target.sites)
        if inputs is not None:
            chosen = given_inputs(inputs, "inputs")
        elif kwargs:
            chosen = given_inputs((), "inputs")
        elif returned is not None:
            chosen = given_inputs(returned, target.name)
        else:
            try:
                chosen = infer_inputs(model)
            except InferenceFailed as error:
                raise TargetError(
                    f"The inputs of {target.name} cannot be inferred, because {error}: pass inputs=."
                ) from None
        if kwargs:
            chosen = replace(chosen, kwargs={**chosen.kwargs, **kwargs})
        metadata = {"inputs_from": chosen.source, "build_s": time.perf_counter() - started}
        chosen = chosen.with_assumptions((*loaded.assumptions, *assumed))
        return trace_or_explain(model, chosen, target.sites, target.site, metadata, target.name, "inputs=")


def trace_object(name: str, given: Any, settings: Settings) -> Iterator[TraceResult]:
    """One of `tclint.tracing.trace_objects`, under the name that it has in the report."""
    if isinstance(given, Graph):
        yield TraceResult(name, given)
        return
    options = TraceOptions.of(settings)

    def trace(keep: Keep) -> list[TraceResult]:
        return list(_runs(_Given.of(given, name), options, keep))

    try:
        runs = apart(trace, name, settings.timeout_s, _model_in(given))
    except TargetError as error:
        runs = [TraceResult(name, error=error)]
    except Exception as error:  # the other targets go on
        message = f"tclint failed on {name} ({describe(error)}); please report it."
        runs = [TraceResult(name, error=TargetError(message, details=traceback_of(error)))]
    for run in runs:
        graph = None if run.graph is None else _own_nodes(run.graph, given)
        yield replace(run, target=name, graph=graph)


def _own_nodes(graph: Graph, given: Any) -> Graph:
    """The graph, with the nodes of the caller's own program where that was read as it is."""
    if isinstance(given, ExportedProgram) and graph.metadata["model"] == ExportedProgram.__name__:
        return replace(graph, fx=lambda: given.graph)
    return graph


def _model_in(given: Any) -> nn.Module | None:
    model = given.model if isinstance(given, Captured) else given
    return model if is_module(model) else None


def _runs(target: _Given, options: TraceOptions, keep: Keep) -> Iterator[TraceResult]:
    seconds: dict[str, float] = {}
    loaded = target.loaded(options)
    how = "Settings.inputs"
    started = time.perf_counter()
    with replace(target, given=loaded.function).built(keep) as (model, returned, assumed):
        put_into_mode(model, options, target.sites)
        sets = choose_inputs(loaded, model, returned, options, target.sites, how)
        seconds["build"] = time.perf_counter() - started
        yield from runs_of(loaded, model, sets, assumed, options, target.sites, seconds, how)


@dataclass(frozen=True)
class Captured:
    """A model, or what builds it, with the inputs that it runs on."""

    model: nn.Module | Callable[..., Any]
    inputs: tuple[Any, ...] | dict[str, Any]
    """By position, or by name."""
    name: str
    site: Site | None
    """Where the run that it is of began, or where the model is defined."""
    prepare: Callable[[nn.Module], object] | None = None
    """Changes the model for the trace alone."""

    def __post_init__(self) -> None:
        if not is_module(self.model):  # what builds the model says what it takes, and where it is written
            for name in ("__module__", "__qualname__"):
                object.__setattr__(self, name, getattr(self.model, name, ""))
            object.__setattr__(self, "__wrapped__", self.model)

    def __call__(self, **arguments: Any) -> tuple[nn.Module, Any]:
        """As what builds a model returns it."""
        built = self.model if is_module(self.model) else self.model(**arguments)
        return built[0] if isinstance(built, tuple) else built, self.inputs


@dataclass(frozen=True)
class _Given:
    """What the caller handed over."""

    given: Any
    """A model, or a callable that returns one."""
    name: str
    site: Site | None
    """Where its class or function is defined; of torch's own classes, where the caller is."""
    sites: SiteFinder

    @classmethod
    def of(cls, given: Any, name: str = "") -> _Given:
        if isinstance(given, Captured):
            return cls(given, given.name, given.site, SiteFinder(roots=(os.getcwd(),)))
        if isinstance(given, str | os.PathLike):
            return cls._of_file(os.fsdecode(given))
        if not (is_model(given) or callable(given)):
            raise TargetError(str(not_a_target(given)))
        given = unwrapped(given)
        site = place_of(given)
        roots = [os.getcwd()]
        if site is not None and os.path.isabs(site.path):
            roots.append(os.path.dirname(site.path))
        sites = SiteFinder(roots=roots, files=(site.path,) if site is not None else ())
        return cls(given, name or name_of(given), site, sites)

    @classmethod
    def _of_file(cls, path: str) -> _Given:
        if not is_model_file(path):
            raise TargetError(
                f"{path!r} is no file of a model: tclint.trace takes a model, what builds one, or what "
                "torch.export.save wrote; tclint.check takes 'path/file.py:callable' too."
            )
        return cls(load_program(path), path, None, SiteFinder(roots=(os.getcwd(),)))

    def loaded(self, options: TraceOptions) -> LoadedTarget:
        """The model, or what builds it with the options' arguments, as a target's is.

        Raises:
            TargetError: it is built already, or takes no such arguments.
        """
        if options.arguments and is_model(self.given):
            raise TargetError(
                f"{self.name} is built already, and takes no argument {options.arguments[0].name!r}."
            )
        # Inputs may stand beside a class or function, as they may in a file that is named.
        origin = type(self.given) if is_model(self.given) else self.given
        module = sys.modules.get(getattr(origin, "__module__", None) or "", ModuleType(""))
        named = Target(self.name, self.name, module=module.__name__)
        build, told = self.given, tuple[Assumption, ...]()
        if not is_model(self.given):
            arguments, told = resolve(options.arguments, self.given, module)
            build = functools.partial(self.given, **arguments) if arguments else self.given
        return LoadedTarget(named, build, module, self.site, told)

    @contextlib.contextmanager
    def built(self, keep: Keep, *inputs: Any) -> Iterator[tuple[nn.Module, Any, tuple[Assumption, ...]]]:
        """The module, the inputs that came with it, and what building it assumed.

        Args:
            keep: called with what was there before: the caller's modules, and `inputs`.

        Raises:
            TargetError: it could not be built.
        """
        built, assumed = (self.given, ()) if is_model(self.given) else self._build(self.given)
        model, returned, among = split_built(built, self.name)
        made_here = self.sites.ids()
        callers = [
            module
            for _, module in named_modules(model)
            if is_model(self.given) or id(construct_site_of(module).site) not in made_here
        ]
        with keep(*callers, *inputs):
            if isinstance(self.given, Captured) and self.given.prepare is not None:
                self.given.prepare(model)
            yield model, returned, (*assumed, *among)

    def _build(self, build: Callable[[], Any]) -> tuple[Any, tuple[Assumption, ...]]:
        try:
            return on_meta(build, self.sites)
        except Exception as error:
            line = where_in_user_code(error, self.sites.is_user_file)
            needed = needed_by(build)
            raise TargetError(f"{self.name} raised {describe(error)}{line}.", needed=needed) from error


def place_of(given: Any) -> Site | None:
    """Where a model's class or a callable is defined; for torch's own, the line that hands it over."""
    site = site_of(type(given) if is_model(given) else given)
    if site is not None and os.path.abspath(site.path).startswith(_TORCH_FOLDER):
        site = SiteFinder().find(sys._getframe()).site
    return site


def name_of(given: Any) -> str:
    """What messages and reports call a module, by its class, or a callable: 'Net', 'build_model'."""
    if isinstance(given, Captured):
        return given.name
    if isinstance(given, Graph):
        return str(given.metadata.get("model") or "model")
    given = unwrapped(given)
    if is_model(given):
        return class_name(given)
    name = str(getattr(given, "__qualname__", None) or type(given).__name__).rpartition("<locals>.")[2]
    if name != "<lambda>":
        return name
    site = site_of(given)
    return f"lambda at {shown_path(site.path)}:{site.line}" if site is not None else "lambda"

"""Everything that happens to one target inside its worker: load, build, find inputs, trace."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import os
from collections.abc import Iterator, Mapping
from time import perf_counter  # bound before user code can replace it
from types import SimpleNamespace
from typing import Any

from torch import nn
from torch.export import ExportedProgram
from torch.fx import GraphModule

from tclint.core.errors import TargetError
from tclint.core.text import listed, with_article
from tclint.graph.ops import Assumption
from tclint.tracing.inputs.given import (
    CallInputs,
    InferenceFailed,
    by_keyword,
    given_inputs,
    input_sets,
    inputs_from_specs,
    inputs_of_module,
    with_batch,
)
from tclint.tracing.inputs.guesses.example_calls import ModelFiles
from tclint.tracing.inputs.guesses.inference import infer_inputs
from tclint.tracing.inputs.phases import Phase, phase_inputs
from tclint.tracing.inputs.specs import SYNTAX, InputSpec, parse_input_set, parse_inputs
from tclint.tracing.inputs.training_steps import trains_in_steps
from tclint.tracing.patches.compilers import NotExported, exported_with
from tclint.tracing.patches.environment import without_gpu
from tclint.tracing.patches.modules import remembered_construction
from tclint.tracing.patches.stored_weights import random_weights
from tclint.tracing.patches.writes import no_training, nothing_written
from tclint.tracing.session.build import on_meta
from tclint.tracing.session.exported import Exported, example_inputs, unwrapped
from tclint.tracing.session.trace import tensors_of
from tclint.tracing.values.cache import Cache
from tclint.tracing.values.layers import is_module, remember_builder
from tclint.tracing.values.sites import SiteFinder
from tclint.tracing.worker.attempts import trace_or_explain, without_forward
from tclint.tracing.worker.project_files import import_roots
from tclint.tracing.worker.result_file import TraceResult
from tclint.tracing.worker.target_arguments import ArgumentSpec, given_to, parse_arguments
from tclint.tracing.worker.targets import (
    LoadedTarget,
    Target,
    explained,
    load_target,
    parse_target,
    shown_path,
    site_of,
    user_errors,
)


@dataclasses.dataclass(frozen=True)
class TraceOptions:
    """The settings that tracing depends on."""

    inputs: tuple[InputSpec, ...] = ()
    input_sets: tuple[tuple[str, tuple[InputSpec, ...]], ...] = ()
    """Their names and specs."""
    arguments: tuple[ArgumentSpec, ...] = ()
    batch: int | None = None
    evaluate: bool = False
    """Whether the model is put into eval mode, however it was built."""
    phase: Phase | None = None

    @classmethod
    def of(cls, settings: Any) -> TraceOptions:
        """Those of what has these settings of a run.

        Raises:
            UsageError: a spec is malformed.
        """
        return cls(
            inputs=parse_inputs(tuple(settings.inputs)),
            input_sets=tuple((text, parse_input_set(text)) for text in settings.input_sets),
            arguments=parse_arguments(tuple(settings.arguments)),
            batch=settings.batch,
            evaluate=settings.mode == "infer",
            phase=None if settings.phase == "none" else Phase(settings.phase, settings.phase_tokens),
        )


def trace_target(text: str, options: TraceOptions, seconds: dict[str, float]) -> Iterator[TraceResult]:
    """Build one target in this process and trace it on each of its sets of inputs.

    Args:
        text: as `tclint.tracing.trace_targets` takes it.
        seconds: gets the wall time of 'import' and 'build'.

    Yields:
        A run for every set; where there are several, one that fails does not end the others.

    Raises:
        TargetError: one sentence that says what to do.
    """
    target = parse_target(text)
    try:
        yield from _trace(target, options, seconds)
    except TargetError as error:
        raise explained(target, error, has_arguments=bool(options.arguments)) from None


def _trace(target: Target, options: TraceOptions, seconds: dict[str, float]) -> Iterator[TraceResult]:
    folder = os.path.dirname(os.path.abspath(target.path)) if target.path else os.getcwd()
    roots = import_roots(target.path) if target.path else []
    files = [os.path.abspath(target.attribute)] if target.library == "recipe" else []
    sites = SiteFinder(roots=(folder, os.getcwd(), *roots), files=files)

    @contextlib.contextmanager
    def while_loading() -> Iterator[None]:
        # Decorators such as @torch.compile run when the file is imported, and so may constructors.
        with without_gpu(), remembered_construction(sites), random_weights(sites), no_training():
            yield

    written: list[str] = []
    with nothing_written((folder, os.getcwd()), written):
        with _timed(seconds, "import"):
            loaded = load_target(target, options.arguments, while_loading)
        with _timed(seconds, "build"):
            model, returned, assumed = _build(loaded, sites)
            put_into_mode(model, options, sites)
            sets = choose_inputs(loaded, model, returned, options, sites)
    if written:
        told = f"not written: {listed(written, 4)}, which the code writes before its forward runs"
        assumed += (Assumption(told),)
    yield from runs_of(loaded, model, sets, assumed, options, sites, seconds)


def runs_of(
    loaded: LoadedTarget,
    model: nn.Module,
    sets: Mapping[str, CallInputs],
    assumed: tuple[Assumption, ...],
    options: TraceOptions,
    sites: SiteFinder,
    seconds: Mapping[str, float],
    option: str = "--input",
) -> Iterator[TraceResult]:
    """Trace a built model on each of its sets of inputs; see `trace_target`."""
    text = loaded.target.text
    # Nobody wrote a line that builds a library's model: what concerns all of it is said of its class.
    root_site = loaded.site or (site_of(type(model)) if loaded.target.library else None)
    metadata: dict[str, Any] = {"target": text, "build_s": seconds["build"]}
    if options.arguments:
        metadata["arguments"] = {spec.name: spec.text for spec in options.arguments}
    if options.batch is not None:
        metadata["batch"] = options.batch
        if options.phase is None:
            sets = {name: with_batch(inputs, options.batch) for name, inputs in sets.items()}
    sets = {name: inputs.with_assumptions((*loaded.assumptions, *assumed)) for name, inputs in sets.items()}
    for name, inputs in sets.items():
        own_seconds = dict(seconds)
        own_metadata = {**metadata, "inputs_from": inputs.source}
        caches = [key for key, value in inputs.kwargs.items() if isinstance(value, Cache)]
        if caches:
            own_metadata["cache"] = caches[0]
        try:
            with _timed(own_seconds, "trace"):
                graph = trace_or_explain(
                    model, inputs, sites, root_site, own_metadata, text, option, with_guesses=True
                )
        except TargetError as error:
            if len(sets) == 1:
                raise
            yield TraceResult(text, None, error, own_seconds, input_set=name)
        else:
            yield TraceResult(text, graph, None, own_seconds, input_set=name)


def split_built(built: Any, what: str) -> tuple[nn.Module, Any, tuple[Assumption, ...]]:
    """(module, inputs or None, what was assumed) from what a callable returned: a model, or one among other
    things in a tuple, list or dict.

    Raises:
        TargetError: there is no nn.Module in it.
    """
    returned = None
    assumed: tuple[Assumption, ...] = ()
    if isinstance(built, ExportedProgram):
        return Exported(built), example_inputs(built), ()
    if isinstance(built, NotExported):
        built = built.module()
    parts = list(built.values()) if isinstance(built, Mapping) else built
    if isinstance(parts, (tuple, list)) and (modules := [part for part in parts if is_module(part)]):
        chosen = next((one for one in modules if any(True for _ in one.parameters())), modules[0])
        others = tuple(part for part in parts if part is not chosen)
        returned = others[0] if len(others) == 1 else others
        if not _may_be_inputs(returned):  # a tokenizer, a second model, a schedule of diffusion
            returned = None
        if len(modules) > 1:
            all_of_them = listed([type(one).__name__ for one in modules], 4)
            told = f"the model is {type(chosen).__name__}, of {len(modules)} modules that {what} returned"
            assumed = (Assumption(f"{told} ({all_of_them}); to lint another, name what builds it alone"),)
        built = chosen
    built = unwrapped(built)
    if not is_module(built):
        kind = "nothing" if built is None else with_article(type(built).__name__)
        raise TargetError(f"{what} returned {kind}, not an nn.Module or (module, inputs).")
    has_forward = "forward" in vars(built) or (
        inspect.getattr_static(type(built), "forward") is not nn.Module.forward
    )
    if not has_forward and not trains_in_steps(built):
        raise without_forward(
            built, f"{what} returned {with_article(type(built).__name__)}, which has no forward to trace"
        )
    return built, exported_with(built) if returned is None else returned, assumed


def _may_be_inputs(value: Any) -> bool:
    """Whether a builder may mean the forward's inputs by what it returned beside the model."""
    if isinstance(value, nn.Module):
        return False
    if isinstance(value, (list, tuple)):
        return all(map(_may_be_inputs, value))
    if isinstance(value, Mapping):
        return all(map(_may_be_inputs, value.values()))
    if value is None or isinstance(value, (bool, int, float, str, SimpleNamespace)):
        return True
    return any(True for _ in tensors_of(value))


def _build(loaded: LoadedTarget, sites: SiteFinder) -> tuple[nn.Module, Any, tuple[Assumption, ...]]:
    """The model, the inputs that came with it, and what building it assumed."""
    target = loaded.target
    given = "; ".join(one.what for one in loaded.assumptions if "--arg" in one.what)
    try:
        with user_errors(f"{target.attribute} in {target.container}", sites.is_user_file, given):
            built, assumed = on_meta(loaded.function, sites)
    except TargetError as error:
        error.has_run = True
        raise
    where = f" ({shown_path(loaded.site.path)}:{loaded.site.line})" if loaded.site else ""
    model, returned, among = split_built(built, f"{target.attribute}{where}")
    remember_builder(model, given_to(loaded.function))
    return model, returned, (*assumed, *among)


def put_into_mode(model: nn.Module, options: TraceOptions, sites: SiteFinder) -> None:
    """Call `model.eval()` where inference is asked for; otherwise the mode is the builder's choice.

    Raises:
        TargetError: the model's own `eval` or `train` failed.
    """
    # A program that torch.export made is in the mode that it was exported in.
    if options.evaluate and not (isinstance(model, GraphModule) and "eval" in vars(model)):
        with user_errors(f"{type(model).__name__}.eval()", sites.is_user_file):
            model.eval()


def choose_inputs(
    loaded: LoadedTarget,
    model: nn.Module,
    returned: Any,
    options: TraceOptions,
    sites: SiteFinder,
    option: str = "--input",
) -> dict[str, CallInputs]:
    """The sets of inputs by name; a single set has the name ''."""
    if options.phase is not None:
        return {"": phase_inputs(model, options.phase, options.batch, sites, loaded.target.text)}
    if options.input_sets:
        return {name: by_keyword(inputs_from_specs(specs), model) for name, specs in options.input_sets}
    if options.inputs:
        return {"": by_keyword(inputs_from_specs(options.inputs), model)}
    if returned is not None:
        return {"": given_inputs(returned, loaded.target.attribute)}
    provided = inputs_of_module(loaded.module)
    if provided is not None:
        name, make = provided
        with user_errors(f"{name} in {loaded.target.container}", sites.is_user_file):
            made, assumed = on_meta(make, sites)
            return {key: given.with_assumptions(assumed) for key, given in input_sets(made, name).items()}
    origin = origin_of(model, loaded, sites)
    try:
        return {"": infer_inputs(model, origin)}
    except InferenceFailed as error:
        raise TargetError(
            f"The inputs of {loaded.target.text} cannot be inferred, because {error}: give one {option} per "
            f"tensor ({SYNTAX}), or define example_inputs() beside it.",
            has_run=True,
        ) from None


def origin_of(model: nn.Module, loaded: LoadedTarget, sites: SiteFinder) -> ModelFiles | None:
    """The user's files behind a target; None for a model of a library."""
    if not loaded.target.path:
        return None
    of_class = site_of(type(model))
    paths = [loaded.target.path]
    if of_class is not None and sites.is_user_file(of_class.path):
        paths.append(of_class.path)
    names = frozenset({type(model).__name__, loaded.target.attribute})
    return ModelFiles(tuple(dict.fromkeys(paths)), names)


@contextlib.contextmanager
def _timed(seconds: dict[str, float], phase: str) -> Iterator[None]:
    started = perf_counter()
    try:
        yield
    finally:
        seconds[phase] = perf_counter() - started

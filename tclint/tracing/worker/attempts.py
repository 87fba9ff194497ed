"""Traces a built model on its inputs; where these were inferred, on one guess after another."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import re
import shlex
import traceback
from typing import Any

from torch import nn

from tclint.core.errors import TargetError
from tclint.core.text import listed
from tclint.graph.lowering.step import forward_flops
from tclint.graph.ops import Assumption, Graph, Site, TensorSpec
from tclint.tracing.inputs.forward import parameters_of
from tclint.tracing.inputs.given import ADVICE, CallInputs
from tclint.tracing.inputs.guesses.named_inputs import may_be_images
from tclint.tracing.inputs.repair.search import InputSearch
from tclint.tracing.inputs.specs import SYNTAX, InputSpec
from tclint.tracing.inputs.training_steps import batch_inputs, training_step_as_forward, trains_in_steps
from tclint.tracing.record.call_recorder import TooManyOps
from tclint.tracing.session.trace import trace_model
from tclint.tracing.values.assumptions import Policy
from tclint.tracing.values.sites import SiteFinder
from tclint.tracing.worker.hints import in_plain_words
from tclint.tracing.worker.plausible import guesses
from tclint.tracing.worker.targets import describe, is_out_of_memory, traceback_of, where_in_user_code

MOST_FLOPS = 1e15
"""The limit for the forward of one example; a video clip takes 3e14 (Wan 2.1, 14 billion parameters, 81
frames)."""
_MOST_CHANNELS = 4
"""Pictures have no more channels, nor do the latents that diffusion models make of them."""
_SMALLEST_SIDE = 5
_LONGEST_RATIO = 3.2
"""The largest ratio of a picture's sides; lines of text are 32x100."""


def absurdity(graph: Graph) -> str | None:
    """Why the inputs of a trace are hardly those that the model is used with; None where they may be.

    Args:
        graph: traced on inputs that were changed until the forward ran.
    """
    for spec in graph.inputs:
        if (reason := _as_picture(spec)) is not None:
            return reason
    batch = max(next((spec.shape[0] for spec in graph.inputs if spec.shape), 1), 1)
    flops = forward_flops(graph) / batch
    return f"one example would take {flops:.0e} FLOPs" if flops > MOST_FLOPS else None


def _as_picture(spec: TensorSpec) -> str | None:
    shape = spec.shape
    if len(shape) < 4 or not spec.dtype.startswith(("float", "bfloat")):
        return None
    name = spec.input_name or ""
    sides = shape[2:]
    if shape[1] > _MOST_CHANNELS or not may_be_images(name) or math.prod(sides) == 1:
        return None
    size = "x".join(str(side) for side in sides)
    if min(sides[-2:]) < _SMALLEST_SIDE:
        return f"{name} of {size} is too small for a picture"
    if max(sides[-2:]) > _LONGEST_RATIO * min(sides[-2:]) and shape[1] == 3:
        return f"{name} of {size} is too long for a picture"
    return None


def options_for(graph: Graph) -> str:
    """The options that give the inputs of a trace; '' where one of them has no name."""
    specs = [InputSpec(spec.shape, spec.dtype, spec.input_name) for spec in graph.inputs]
    if not all(spec.name is not None and spec.name[:1].isidentifier() for spec in specs):
        return ""
    return " ".join(f"--input {shlex.quote(str(spec))}" for spec in specs)  # shells expand brackets


def unknown_inputs(graph: Graph, reason: str, name: str, option: str) -> str:
    """The sentence for a model whose forward ran on nothing but absurd inputs."""
    shown = options_for(graph)
    what = f" ({shown})" if shown else ""
    advice = f"give them with {option}"
    if option.startswith("--"):
        names = [spec.input_name for spec in graph.inputs] if shown else []
        sizes = " ".join(f"{option} {name}=SIZES" for name in names) or f"one {option} SIZES per tensor"
        advice = f"give {sizes}, with sizes such as 8,3,224,224, or int64[8,128] where they are no float32"
    return (
        f"The inputs of {name} are unknown: the only ones that its forward accepted{what} are implausible, "
        f"because {reason}; {advice}."
    )


# Words of torch's and Python's messages about inputs that do not fit a model.
_SHAPE_PROBLEM = re.compile(
    r"shape|size|dim|channel|expected|mat1|broadcast|unpack|argument|divisible|dtype|index", re.IGNORECASE
)

_TARGETS = re.compile(r"(gt_?\w*|\w*targets?|\w*labels?|ground_truth\w*|y_true|annotations)")
# Errors of attributes whose owner came from the inputs, not from a class of the model's.
_OF_VALUES = re.compile(r"'(Tensor|NoneType|tuple|list|dict|int|float|bool|str)' object has no attribute")


def forward_error(
    error: BaseException, model: nn.Module, inputs: CallInputs, sites: SiteFinder, name: str, option: str
) -> BaseException:
    """One sentence on what failed, where, and whether other inputs may help.

    Args:
        name: of the target.
        option: how the user gives other inputs.
    """
    if is_out_of_memory(error):
        return error
    line = where_in_user_code(error, sites.is_user_file)
    if _is_left_out(error, model):
        return without_forward(model, f"The forward of {name} is left out{line}")
    details = traceback_of(error)
    if isinstance(error, TooManyOps):
        return TargetError(f"{name} was not traced: {error}; trace fewer steps of its loop.", details=details)
    if isinstance(error, SystemExit):
        return TargetError(f"The forward of {name} called sys.exit({error.code!r}){line}.", details=details)
    if isinstance(error, RecursionError):
        return TargetError(f"The forward of {name} recursed without an end{line}.", details=details)
    where = _failed_module(error, model)
    method = getattr(model.forward, "__name__", "forward")  # or training_step, in its place
    method = method if method == "training_step" else "forward"
    message = f"The {method} of {name} raised {describe(error)}{where}{line}"
    described = inputs.describe()
    if in_plain_words(str(error)) is not None:
        return TargetError(message + ".", details=details)
    missing = _missing_targets(error, model, inputs)
    if missing:
        message += (
            f"; a forward that trains may need {missing}, which was not given: give it with {option}, or "
            "price inference (mode infer)"
        )
    elif inputs.source == "inferred" and _may_be_of_inputs(error):
        message += (
            f"; its inputs were inferred ({described}), so give the right ones with {option}: {SYNTAX}"
            if option == "--input"
            else f"; its inputs were inferred ({described}), so give the right ones with {option}"
        )
    elif inputs.source == "--phase":
        message += f"; --phase called it with {described}"
    elif _SHAPE_PROBLEM.search(str(error)) and described:
        message += f"; it was called with {described}, which {option} can change"
    return TargetError(message + ".", details=details, has_run=True)


def without_forward(model: nn.Module, reason: str) -> TargetError:
    """The error for a model that has no forward, which names its methods that call layers.

    Args:
        reason: the beginning of the sentence: 'net.py:Net has no forward to trace'.
    """
    layers = {name for name, _ in model.named_children()}
    calling = [
        name
        for name, function in inspect.getmembers(type(model), inspect.isfunction)
        if name[0] != "_" and name != "forward" and not layers.isdisjoint(function.__code__.co_names)
    ]
    if not calling:
        return TargetError(f"{reason}; write a small module whose forward runs it, and name that.")
    parameters = [*inspect.signature(getattr(type(model), calling[0])).parameters][1:]
    call = f"self.model.{calling[0]}({', '.join(parameters)})"
    return TargetError(
        f"{reason}; its layers run in {listed(calling, 4)}: write a small module that holds it, and whose "
        f"forward calls one of these, such as `return {call}`, and name what builds that."
    )


def _is_left_out(error: BaseException, model: nn.Module) -> bool:
    """Whether a forward only says that there is none."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return isinstance(error, NotImplementedError) and frame.f_code is getattr(model.forward, "__code__", None)


def _missing_targets(error: BaseException, model: nn.Module, inputs: CallInputs) -> str:
    """What the forward calls the targets that it was not given, where it may have failed for want of them."""
    if not any(module.training for module in model.modules()):
        return ""
    parameters = parameters_of(model)
    given = {*list(parameters)[: len(inputs.args)], *inputs.kwargs}
    names = [name for name in parameters if name not in given and _TARGETS.fullmatch(name)]
    message = str(error)
    if not (isinstance(error, AssertionError) or "None" in message):
        names = [name for name in names if name in message]
    return " and ".join(map(repr, names))


def _may_be_of_inputs(error: BaseException) -> bool:
    """Whether other inputs may help: not where a name, a file, an operator or a device is missing."""
    message = str(error)
    if isinstance(error, (ImportError, NameError, NotImplementedError, OSError)) or "device" in message:
        return isinstance(error, UnboundLocalError)
    if isinstance(error, AttributeError):
        return _OF_VALUES.search(message) is not None
    return not isinstance(error, RuntimeError) or _SHAPE_PROBLEM.search(message) is not None


def _failed_module(error: BaseException, model: nn.Module) -> str:
    """' in encoder.layers.0 (Block)': the innermost module on the error's stack."""
    names = {id(module): name for name, module in model.named_modules()}
    found = ""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        if code.co_argcount and code.co_name not in ("__call__", "_call_impl"):
            owner = frame.f_locals.get(code.co_varnames[0])
            if isinstance(owner, nn.Module) and names.get(id(owner)):
                found = f" in {names[id(owner)]} ({type(owner).__name__})"
    return found


def trace_or_explain(
    model: nn.Module,
    inputs: CallInputs,
    sites: SiteFinder,
    root_site: Site | None,
    metadata: dict[str, Any],
    name: str,
    option: str,
    *,
    with_guesses: bool = False,
) -> Graph:
    """Trace the model; what its forward raises becomes one sentence.

    Args:
        name: of the model, for the message.
        option: how the user gives other inputs: '--input' or 'inputs='.
        with_guesses: whether to trace it at other values of what was guessed, too.

    Raises:
        TargetError: the forward failed.
    """
    trace = functools.partial(
        _traced,
        sites=sites,
        site=root_site,
        metadata=metadata,
        name=name,
        option=option,
        with_guesses=with_guesses,
    )
    if not trains_in_steps(model):
        return trace(model, inputs)
    try:
        batches = batch_inputs(model, inputs, sites)
        with training_step_as_forward(model):
            return trace(model, batches)
    except TargetError as error:
        reason = str(error).rstrip(".")
        told = Assumption(f"its forward was traced, without the loss, because {reason}", is_doubtful=True)
        try:
            return trace(model, inputs.with_assumptions((told,)))
        except TargetError:
            raise error from None


def _traced(
    model: nn.Module,
    inputs: CallInputs,
    *,
    sites: SiteFinder,
    site: Site | None,
    metadata: dict[str, Any],
    name: str,
    option: str,
    with_guesses: bool,
) -> Graph:
    def trace(inputs: CallInputs, policy: Policy = "likely") -> Graph:
        return trace_model(
            model,
            inputs.args,
            inputs.kwargs,
            sites,
            assumptions=inputs.assumptions,
            root_site=site,
            metadata=metadata,
            policy=policy,
        )

    def in_full(graph: Graph, inputs: CallInputs, *, is_doubtful: bool = False) -> Graph:
        found = tuple(guesses(graph, inputs, model, trace)) if with_guesses else ()
        if inputs.source == "inferred":
            graph = _with_options(graph, is_doubtful=is_doubtful)
        return dataclasses.replace(graph, guesses=found)

    first: TargetError | None = None
    cause: Exception | None = None
    doubtful: tuple[Graph, CallInputs] | None = None
    absurd: tuple[Graph, str] | None = None
    missed = False  # whether a guess failed that nothing states
    search = InputSearch(model, inputs)
    for tried in search:
        try:
            graph = trace(tried)
            is_doubtful = False
            if tried.source == "inferred":
                is_guess = tried.basis == "guess" or tried.is_partly_made_up
                is_doubtful = tried.basis == "repair" or (missed and is_guess)
                if is_doubtful and (reason := absurdity(graph)) is not None:
                    absurd = absurd or (graph, reason)
                    continue
                if search.doubts(graph):
                    doubtful, missed = doubtful or (graph, tried), True
                    continue
            return in_full(graph, tried, is_doubtful=is_doubtful)
        except (TargetError, KeyboardInterrupt):
            raise
        except BaseException as error:
            problem = forward_error(error, model, tried, sites, name, option)
            if not isinstance(problem, TargetError) or not isinstance(error, Exception):
                raise problem from None
            if first is None:
                first, cause = problem, error
            missed = missed or tried.basis != "stated" or tried.is_partly_made_up
            search.failed(error)
    if doubtful is not None:
        return in_full(*doubtful, is_doubtful=True)
    if absurd is not None:
        raise TargetError(unknown_inputs(*absurd, name, option)) from cause
    assert first is not None
    raise first from cause


def _with_options(graph: Graph, *, is_doubtful: bool) -> Graph:
    """What was assumed about the inputs ends with the options that give them, to be pasted and corrected.

    Args:
        is_doubtful: whether the first guess failed, and others were tried until the forward ran.
    """
    options = options_for(graph)
    advice = f"; to set others: {options}" if options else ADVICE
    assumptions = [
        dataclasses.replace(
            assumption, what=assumption.what.removesuffix(ADVICE) + advice, is_doubtful=is_doubtful
        )
        if assumption.what.endswith(ADVICE)
        else assumption
        for assumption in graph.assumptions
    ]
    return dataclasses.replace(graph, assumptions=tuple(assumptions))

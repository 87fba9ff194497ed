"""One trace: from a built model and its inputs to a Graph."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import linecache
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from time import perf_counter  # bound before user code can replace it
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.fx import Graph as FxGraph

from tclint.core.errors import TargetError
from tclint.graph.ops import Assumption, Graph, Site, TensorSpec
from tclint.tracing.meta_ops.meta_kernels import to_meta
from tclint.tracing.patches.autocast import watched_autocast
from tclint.tracing.patches.compilers import is_compiled
from tclint.tracing.patches.custom_functions import watched_by
from tclint.tracing.patches.devices import DeviceRewriter
from tclint.tracing.patches.environment import without_gpu
from tclint.tracing.patches.higher_order import higher_order_operators
from tclint.tracing.patches.modules import named_modules, remembered_construction, tracked_calls
from tclint.tracing.record.call_recorder import TooManyOps
from tclint.tracing.record.fx_reader import NotReadable, graph_from_fx
from tclint.tracing.record.fx_writer import FxWriter, without_composites
from tclint.tracing.record.recorder import Recorder
from tclint.tracing.session.build import list_parameters
from tclint.tracing.session.exported import Exported, graph_of
from tclint.tracing.session.weights import weights_on_meta
from tclint.tracing.stand_ins.absent import NotInstalled
from tclint.tracing.values.assumptions import MAX_ATTEMPTS, Instruction, Policy
from tclint.tracing.values.cache import Cache, filled
from tclint.tracing.values.constants import MAX_REAL_INPUT
from tclint.tracing.values.layers import class_name
from tclint.tracing.values.origin import ValueOrigin, set_origin
from tclint.tracing.values.sites import SiteFinder, entrance


@dataclasses.dataclass(frozen=True)
class Recording:
    """The operators of one run, and what the run had to assume."""

    fx: FxGraph
    assumptions: tuple[Assumption, ...]
    adjustments: tuple[str, ...]
    """How the run had to differ from the first attempt, for --debug."""
    returned: Any
    """What the forward returned, on meta."""


def trace_model(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    sites: SiteFinder,
    *,
    assumptions: Iterable[Assumption] = (),
    root_site: Site | None = None,
    metadata: Mapping[str, Any] | None = None,
    policy: Policy = "likely",
) -> Graph:
    """Run the model once on meta tensors and return what it did.

    Args:
        args: positional inputs of the forward, nested structures of real or meta tensors.
        kwargs: keyword inputs.
        assumptions: what was assumed before the run (inferred inputs).
        metadata: added to the graph's metadata.
        policy: what is assumed of data.

    Raises:
        TargetError: an exported program has other inputs.
        Exception: what the model's forward raised, if no guess helped.
    """
    started = perf_counter()
    adjustments: tuple[str, ...] = ()
    try:
        graph = graph_of(model.program, sites) if isinstance(model, Exported) else None
    except NotReadable:
        graph = None
        model = model.program.module()
    if graph is not None:
        _check_same_inputs(graph.inputs, (args, kwargs))
    else:
        recording = record(model, args, kwargs, sites, policy)
        adjustments = recording.adjustments
        read = graph_from_fx(recording.fx)
        nodes = without_composites(recording.fx)
        graph = dataclasses.replace(
            read, parameters=list_parameters(model), assumptions=recording.assumptions, fx=lambda: nodes
        )
    return dataclasses.replace(
        graph,
        assumptions=(*assumptions, *graph.assumptions),
        root_site=root_site,
        metadata={
            "torch": torch.__version__,
            "model": "ExportedProgram" if isinstance(model, Exported) else class_name(model),
            "training": model.training,
            "compiled": [""] if is_compiled(model) else _compiled_parts(model),
            "trace_s": perf_counter() - started,
            "adjustments": list(adjustments),
            **(metadata or {}),
        },
    )


def _compiled_parts(model: nn.Module) -> list[str]:
    """Names of the modules that are compiled by themselves, without those inside of such."""
    found: list[str] = []
    for name, module in named_modules(model):
        inside = any(name.startswith(f"{outer}.") for outer in found)
        if not inside and is_compiled(module):
            found.append(name)
    return found


def _check_same_inputs(stated: Sequence[TensorSpec], given: Any) -> None:
    """An exported program is read, not run: its sizes cannot be others than those it was exported with."""
    sizes = [tuple(tensor.shape) for tensor in tensors_of(given)]
    if sizes != [spec.shape for spec in stated]:
        own = ", ".join(f"{spec.dtype} {'x'.join(map(str, spec.shape))}" for spec in stated)
        raise TargetError(
            f"The program was exported with inputs of other sizes ({own}): export it with those that it is "
            "used with, or give none."
        )


def record(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    sites: SiteFinder,
    policy: Policy = "likely",
) -> Recording:
    """Run the model under the recorder; on failure try again with the last guess turned round.

    Raises:
        Exception: the first attempt's error.
    """
    flipped: dict[Instruction, bool] = {}
    keep_constants, inference = True, True
    says: torch.device | None = None
    adjustments: list[str] = []
    first: Exception | None = None
    for _ in range(MAX_ATTEMPTS):
        writer = FxWriter()
        recorder = Recorder(sites, writer, keep_constants=keep_constants, flipped=flipped, policy=policy)
        try:
            returned = _record_once(model, args, kwargs, recorder, writer, inference=inference, says=says)
            return Recording(writer.graph, recorder.assumptions.listed(), tuple(adjustments), returned)
        except (TooManyOps, MemoryError, RecursionError):
            raise
        except Exception as error:
            first = first or error
            message = str(error)
            if says is None and (other := _device_wanted(error)) is not None:
                says = other
                first = None  # the fault of the devices here, not the model's
                adjustments.append("one device" if says.type == "meta" else "the way for the CPU")
                continue
            if keep_constants and _is_device_conflict(message):
                keep_constants = False
                adjustments.append("constants on meta")
                continue
            if inference and isinstance(error, RuntimeError) and _needs_autograd(message):
                inference = False
                first = None  # the mode's fault, not the model's
                adjustments.append("autograd on")
                continue
            flipped_branch = recorder.assumptions.flip_last_branch()
            if flipped_branch is None:
                raise first from None
            adjustments.append(f"condition at line {flipped_branch.instruction[1]} turned round")
    assert first is not None
    raise first


@entrance
def _record_once(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    recorder: Recorder,
    writer: FxWriter,
    *,
    inference: bool,
    says: torch.device | None,
) -> Any:
    """What the forward returned, on meta; what it did is in the writer."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(higher_order_operators(Recorder))
        recorder.weights = stack.enter_context(weights_on_meta(model, inference=inference))
        named = _Inputs(writer)
        positional = tuple(
            named.declare(value, name)
            for value, name in zip(args, argument_names(model, len(args)), strict=True)
        )
        keywords = {name: named.declare(value, name) for name, value in kwargs.items()}
        stack.enter_context(without_gpu())
        stack.enter_context(remembered_construction(recorder.sites))  # layers made in a forward
        stack.enter_context(tracked_calls(recorder, model))
        stack.enter_context(watched_by(recorder))
        if inference:
            stack.enter_context(torch.inference_mode())
        # Gradients stay on by flag, so that the model's own no_grad regions can be seen.
        stack.enter_context(torch.enable_grad())
        stack.enter_context(watched_autocast(recorder))
        stack.enter_context(recorder)
        stack.enter_context(DeviceRewriter(recorder.assumptions.add, says=says))
        returned = model(*positional, **keywords)
        if isinstance(returned, Generator):
            returned = list(returned)  # a forward that yields runs only now
        writer.finish(recorder.current(tensor) for tensor in tensors_of(returned))
    return returned


class _Inputs:
    """Turns the caller's inputs into placeholders: meta tensors, except for a few integers given as such."""

    def __init__(self, writer: FxWriter) -> None:
        self._writer = writer
        self._declared: dict[int, torch.Tensor] = {}

    def declare(self, value: Any, name: str) -> Any:
        if isinstance(value, torch.Tensor):
            # One object given twice stays one: nn.MultiheadAttention asks `query is key`.
            if id(value) not in self._declared:
                # A new object even for meta tensors: the caller's must not keep the trace alive.
                tensor = value.detach().clone() if _has_values(value) else to_meta(value)
                self._declared[id(value)] = tensor
                set_origin(tensor, ValueOrigin(input_name=name))
                self._writer.declare_input(name, tensor)
            return self._declared[id(value)]
        if isinstance(value, Cache):
            # Copied anew for each attempt: a forward adds to it.
            return filled(value.content, lambda tensor, place: self.declare(tensor, f"{name}{place}"))
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(
                *(self.declare(item, f"{name}.{key}") for key, item in zip(value._fields, value, strict=True))
            )
        if type(value) in (list, tuple):
            return type(value)(self.declare(item, f"{name}[{index}]") for index, item in enumerate(value))
        if isinstance(value, Mapping) and type(value) is dict:
            return {key: self.declare(item, f"{name}[{key!r}]") for key, item in value.items()}
        if isinstance(value, SimpleNamespace):
            return SimpleNamespace(
                **{key: self.declare(item, f"{name}.{key}") for key, item in vars(value).items()}
            )
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return dataclasses.replace(
                value,
                **{
                    field.name: self.declare(getattr(value, field.name), f"{name}.{field.name}")
                    for field in dataclasses.fields(value)
                    if field.init
                },
            )
        return value


def _has_values(tensor: torch.Tensor) -> bool:
    """Lengths, positions, grid sizes, masks: few integers, which the forward may look at."""
    return (
        tensor.device.type == "cpu"
        and tensor.layout == torch.strided
        and not tensor.is_floating_point()
        and not tensor.is_complex()
        and tensor.numel() <= MAX_REAL_INPUT
    )


def argument_names(model: nn.Module, count: int) -> list[str]:
    """Names of the forward's positional arguments; 'inputs[1]' where they are collected by a star."""
    names: list[str] = []
    try:
        parameters = list(inspect.signature(model.forward).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    for parameter in parameters:
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
        elif parameter.kind == parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}[{index}]" for index in range(count - len(names))]
    names += [f"inputs[{index}]" for index in range(len(names), count)]
    return names[:count]


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    """The tensors of what a model returned, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_of(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_of(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from tensors_of(getattr(value, field.name))


def _device_wanted(error: Exception) -> torch.device | None:
    """The device on which all tensors should say that they are, where that may be a way out."""
    if isinstance(error, NotInstalled):
        return torch.device("cpu")  # the code may have a way that needs no extension
    return torch.device("meta") if _compares_devices(error) else None


def _compares_devices(error: Exception) -> bool:
    """Whether the line that failed looks at a device itself: of rotary tables and tokens, mostly."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None:
        return False
    frame = traceback.tb_frame
    line = linecache.getline(frame.f_code.co_filename, traceback.tb_lineno, frame.f_globals)
    return "device" in line and not SiteFinder.is_own_file(frame.f_code.co_filename)


def _is_device_conflict(message: str) -> bool:
    return (
        "FlexAttention" in message or "same device" in message or ("device" in message and "meta" in message)
    )


def _needs_autograd(message: str) -> bool:
    return any(sign in message for sign in ("grad", "nference tensor", "set_data"))

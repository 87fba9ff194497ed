"""Writes down operator calls: what ran, on what, in which module, at which line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch.fx import Node

from tclint.graph.ops import Cast, Checkpoint
from tclint.tracing.meta_ops.meta_kernels import to_meta
from tclint.tracing.record.fx_writer import Arguments, FxCall, FxWriter, TensorName
from tclint.tracing.values.aliasing import WrittenMemory, shares_memory, storage_key
from tclint.tracing.values.operators import VIEW_OR_COPY, Args, Kwargs, OperatorFacts
from tclint.tracing.values.origin import ensure_origin, new_origin, origin_of, parameter_of, tensors_in
from tclint.tracing.values.sites import NOWHERE, Caller, SiteFinder, SitePair

MAX_OPS = 1_000_000

ModuleStack = dict[str, tuple[str, str]]
"""`nn_module_stack` of torch.fx: path and class of each module that runs, outermost first."""


class TooManyOps(RuntimeError):
    """The model runs more operators than a graph can hold."""


class ModuleFrame(NamedTuple):
    """The module whose forward is running."""

    path: str
    type_name: str
    """The full name of its class."""
    construct: SitePair


_ROOT = ModuleFrame("", "", NOWHERE)


class CallRecorder:
    """Knows where the model is, and writes what it calls.

    Args:
        sites: tells user code from library code.
        writer: receives the operators; None while the model is being built.
    """

    def __init__(self, sites: SiteFinder, writer: FxWriter | None) -> None:
        self.sites = sites
        self.writer = writer
        self.modules: list[ModuleFrame] = [_ROOT]
        self.callers: list[Caller | None] = [None]
        """Beside `modules`, where each was called, once something asked."""
        self.stacks: list[ModuleStack | None] = [{}]
        """Beside `modules`, once something asked."""
        self.autocast_dtype: torch.dtype | None = None
        self.autocast_disabled = False
        """In a region that the model takes out of autocast, on or not."""
        self.in_custom_function = False
        """Inside a custom autograd.Function that was entered with gradients on."""
        self.had_gradients_above = False
        """When a tensor subclass was last given an operator to carry out."""
        self.has_own_backward = False
        """As above, and not torch.utils.checkpoint's, which differentiates what it runs."""
        self.checkpoint: Checkpoint | None = None
        self.checkpoints = 0
        """Calls of torch.utils.checkpoint so far."""
        self.carried: tuple[Node, int] | None = None
        """The node of another tracer's graph that runs, and how many modules ran when it started."""
        self._parent: Node | None = None
        self._written = WrittenMemory()

    def record(
        self,
        facts: OperatorFacts,
        args: Args,
        kwargs: Kwargs,
        output: Any,
        casts: tuple[Cast, ...],
        *,
        given: list[torch.Tensor] | None = None,
        written: Node | None = None,
        before: Arguments | None = None,
    ) -> None:
        """Write down an operator call, unless it only handed back its input (for operators' rules).

        Args:
            given: the tensors among the arguments, where the caller knows them.
            written: the call, if it was written ahead of its parts, which made the outputs.
            before: the arguments as they were before an operator that changed their shapes.
        """
        writer = self.writer
        if writer is None:
            return
        made = output if isinstance(output, (list, tuple)) else (output,)
        if given is None:
            given = tensors_in(args, kwargs)
        if facts.mutates:
            if not any(isinstance(tensor, torch.Tensor) for tensor in made):
                return
        elif written is None and _hands_back(made, given):
            return  # dropout in eval mode, `.to` without a change
        if writer.calls >= MAX_OPS:
            raise TooManyOps(f"the model runs more than {MAX_OPS} operators")
        node = written
        if node is None:
            node = writer.call(facts, before or writer.arguments(facts, args, kwargs), self._parent)
        call: FxCall = node.meta["tclint"]
        self._bind_outputs(node, call, output, made, given, rebinds=written is None)
        module, depth = self.modules[-1], len(self.modules) - 1
        stack, line = self._module_stack(depth), self.sites.find(sys._getframe(2), self.callers, depth)
        if self.carried is not None:
            stack, line = self._carried(stack, line)
        node.meta["nn_module_stack"] = stack
        if line.site is not None:
            node.meta["stack_trace"] = line.site.as_trace()
        call.construct, call.line = module.construct, line
        call.is_alias = facts.name in VIEW_OR_COPY and shares_memory(made[0], given)
        call.differentiable = self._has_gradients()
        call.has_own_backward = self.has_own_backward
        call.checkpoint = self.checkpoint
        call.autocast_disabled = self.autocast_disabled
        call.casts = casts
        if facts.name == "scaled_dot_product_attention":
            call.settings = _disabled_kernels()

    def _has_gradients(self) -> bool:
        """Whether a gradient flows through the operator that is called."""
        if torch.is_grad_enabled() or self.in_custom_function:
            return True
        return self.had_gradients_above and carried_out_by_subclass() is not None

    def _module_stack(self, depth: int) -> ModuleStack:
        """The modules that run, up to one of them."""
        stack = self.stacks[depth]
        if stack is None:
            outer, module = self._module_stack(depth - 1), self.modules[depth]
            # A module may run inside itself.
            key = module.path if module.path not in outer else f"{module.path}@{depth}"
            stack = self.stacks[depth] = {**outer, key: (module.path, module.type_name)}
        return stack

    def _carried(self, stack: ModuleStack, line: SitePair) -> tuple[ModuleStack, SitePair]:
        """The modules and the line that a node of another tracer's graph tells, where it knows better."""
        assert self.carried is not None
        node, depth = self.carried
        if line.site is None:
            line = self.sites.of_trace(node.meta.get("stack_trace") or "")
        own = node.meta.get("nn_module_stack")
        return own if own and depth == len(self.modules) else stack, line

    def _bind_outputs(
        self,
        node: Node,
        call: FxCall,
        output: Any,
        made: Sequence[Any],
        given: list[torch.Tensor],
        *,
        rebinds: bool,
    ) -> None:
        """Note what a call made, and, if it `rebinds`, leave on the tensors that it made them."""
        parameter = _parameter_of_all(given)
        names: list[TensorName] = []
        values: list[Any] = []
        for place, tensor in enumerate(made):
            if not isinstance(tensor, torch.Tensor):
                values.append(tensor)
                continue
            is_given = any(old is tensor for old in given)
            origin = ensure_origin(tensor) if is_given else new_origin(tensor)
            if parameter is not None and not is_given:
                origin.name_parameter(parameter)
            names.append(TensorName(origin.parameter, origin.input_name))
            values.append(to_meta(tensor))
            if rebinds and (call.facts.mutates or not is_given):
                origin.made_by(node, None if made is not output else place)
                if self._written.writes and not is_given:
                    self._written.forget(tensor, origin)
        node.meta["val"] = values[0] if made is not output else values
        if any(map(any, names)):
            call.names = tuple(names)


def _disabled_kernels() -> dict[str, list[str]]:
    """Fused attention kernels that `torch.nn.attention.sdpa_kernel` or torch.backends.cuda switched off, by
    their names in tclint.graph.lowering.work."""
    enabled = {
        "cuDNN": torch.backends.cuda.cudnn_sdp_enabled(),
        "FlashAttention 2": torch.backends.cuda.flash_sdp_enabled(),
        "memory-efficient": torch.backends.cuda.mem_efficient_sdp_enabled(),
    }
    disabled = [name for name, on in enabled.items() if not on]
    return {"disabled_kernels": disabled} if disabled else {}


def _hands_back(made: Sequence[Any], given: list[torch.Tensor]) -> bool:
    """Whether all that an operator returned are tensors that it was given."""
    for result in made:
        if isinstance(result, torch.Tensor):
            for tensor in given:
                if tensor is result:
                    break
            else:
                return False
    return True


def inherit_parameter(tensors: list[torch.Tensor], output: Any) -> None:
    """What is made from parameters alone, and not recorded, goes by the first one's name."""
    name = _parameter_of_all(tensors)
    if name is not None:
        for tensor in output if isinstance(output, (list, tuple)) else (output,):
            if isinstance(tensor, torch.Tensor) and not any(tensor is given for given in tensors):
                viewed = [origin_of(given) for given in tensors if storage_key(given) == storage_key(tensor)]
                is_copy = all(origin is not None and origin.is_copy for origin in viewed)
                ensure_origin(tensor).name_parameter(name, is_derived=True, is_copy=is_copy)


def _parameter_of_all(tensors: Sequence[torch.Tensor]) -> str | None:
    """The first tensor's parameter, if all of them are parameters or made from parameters alone."""
    names = [parameter_of(tensor) for tensor in tensors]
    return names[0] if names and None not in names else None


def carried_out_by_subclass() -> Any:
    """What a tensor subclass is carrying out by other operators, which autograd does not see; None: none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_name == _DISPATCH and not SiteFinder.is_own_file(code.co_filename):
            return frame.f_locals.get("func")
        frame = frame.f_back
    return None


_DISPATCH = "__torch_dispatch__"

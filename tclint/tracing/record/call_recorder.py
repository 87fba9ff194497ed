"""Writes down operator calls: what ran, on what, in which module, at which line."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.fx import Node

from tclint.graph.ops import Cast, Op, TensorSpec
from tclint.graph.ops.op import Checkpoint
from tclint.tracing.record.kinds import VIEW_OR_COPY, kind_of
from tclint.tracing.record.op_writer import Call, OpWriter
from tclint.tracing.values.aliasing import WrittenMemory, shares_memory
from tclint.tracing.values.dtypes import DTYPE_NAMES
from tclint.tracing.values.operators import OperatorFacts
from tclint.tracing.values.origin import ensure_origin, new_origin, spec_of, tensors_in
from tclint.tracing.values.sites import NOWHERE, Caller, SiteFinder, SitePair

MAX_OPS = 1_000_000


class TooManyOps(RuntimeError):
    """The model runs more operators than a graph can hold."""


class ModuleFrame(NamedTuple):
    """The module whose forward is running."""

    path: str
    type_name: str
    construct: SitePair


_ROOT = ModuleFrame("", "", NOWHERE)


class CallRecorder:
    """Knows where the model is, and writes what it calls.

    Args:
        sites: tells user code from library code.
        writer: receives the operators; None while the model is being built.
    """

    def __init__(self, sites: SiteFinder, writer: OpWriter | None) -> None:
        self.sites = sites
        self.writer = writer
        self.modules: list[ModuleFrame] = [_ROOT]
        self.callers: list[Caller | None] = [None]
        """Beside `modules`, where each was called, once something asked."""
        self.autocast_dtype: torch.dtype | None = None
        self.autocast_disabled = False
        """In a region that the model takes out of autocast, on or not."""
        self.in_custom_function = False
        """Inside a custom autograd.Function that was entered with gradients on."""
        self.has_own_backward = False
        """As above, and not torch.utils.checkpoint's, which differentiates what it runs."""
        self.checkpoint: Checkpoint | None = None
        self.checkpoints = 0
        """Calls of torch.utils.checkpoint so far."""
        self.carried: tuple[Node, int] | None = None
        """The node of another tracer's graph that runs, and how many modules ran when it started."""
        self._parent: Call | None = None
        self._written = WrittenMemory()

    def record(
        self,
        facts: OperatorFacts,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        output: Any,
        casts: tuple[Cast, ...],
        *,
        given: list[torch.Tensor] | None = None,
        written: Call | None = None,
        before: Mapping[int, TensorSpec] | None = None,
    ) -> None:
        """Write down an operator call, unless it only handed back its input (for operators' rules).

        Args:
            given: the tensors among the arguments, where the caller knows them.
            written: the call, if it was written ahead of its parts, which made the outputs.
            before: by id, tensor arguments as they were before an operator that changed their shapes.
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
        if len(writer.ops) >= MAX_OPS:
            raise TooManyOps(f"the model runs more than {MAX_OPS} operators")
        call = written or writer.write(facts, args, kwargs, before)
        outputs = self._bind_outputs(writer, call, facts, made, given, rebinds=written is None)
        name = facts.name
        module, depth = self.modules[-1], len(self.modules) - 1
        construct, site = module.construct, self.sites.find(sys._getframe(2), self.callers, depth)
        if self.carried is not None:
            module, site = self._carried(module, site)
        writer.ops[call.index] = Op(
            index=call.index,
            name=name,
            operator=facts.operator,
            kind=kind_of(name, aliases_input=name in VIEW_OR_COPY and shares_memory(made[0], given)),
            inputs=call.inputs,
            outputs=outputs,
            input_names=call.input_names,
            attributes=call.attributes,
            module_path=module.path,
            module_type=module.type_name,
            construct_site=construct.site,
            construct_library_site=construct.library_site,
            call_site=site.site,
            call_library_site=site.library_site,
            parent=None if self._parent is None else self._parent.index,
            in_place=facts.in_place,
            differentiable=torch.is_grad_enabled() or self.in_custom_function,
            has_own_backward=self.has_own_backward,
            checkpoint=self.checkpoint,
            autocast_disabled=self.autocast_disabled,
            casts=casts,
        )

    def _carried(self, module: ModuleFrame, site: SitePair) -> tuple[ModuleFrame, SitePair]:
        """The module and the line that a node of another tracer's graph tells, where it knows better."""
        assert self.carried is not None
        node, depth = self.carried
        if site.site is None:
            site = self.sites.of_trace(node.meta.get("stack_trace") or "")
        stack = node.meta.get("nn_module_stack")
        if stack and depth == len(self.modules):
            path, kind = list(stack.values())[-1]
            type_name = kind.rpartition(".")[2] if isinstance(kind, str) else kind.__name__
            module = ModuleFrame(path, type_name, module.construct)
        return module, site

    def _bind_outputs(
        self,
        writer: OpWriter,
        call: Call,
        facts: OperatorFacts,
        made: Sequence[Any],
        given: list[torch.Tensor],
        *,
        rebinds: bool,
    ) -> tuple[TensorSpec, ...]:
        """Describe what a call made, and, if it `rebinds`, leave on the tensors that it made them."""
        parameter = _parameter_of_all(call.inputs)
        specs: list[TensorSpec] = []
        for tensor in made:
            if not isinstance(tensor, torch.Tensor):
                continue
            is_given = any(old is tensor for old in given)
            origin = ensure_origin(tensor) if is_given else new_origin(tensor)
            if parameter is not None and not is_given:
                origin.name_parameter(parameter)
            spec = TensorSpec(
                tuple(tensor.shape),
                DTYPE_NAMES[tensor.dtype],
                tensor.stride() if tensor.layout is torch.strided else None,
                origin.parameter,
                call.index,
                len(specs),
                origin.input_name,
            )
            specs.append(spec)
            if rebinds and (facts.mutates or not is_given):
                origin.made_by(writer.ops, spec)
                if self._written.writes and not is_given:
                    self._written.forget(tensor, origin)
        return tuple(specs)


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
    name = _parameter_of_all([spec_of(tensor) for tensor in tensors])
    if name is not None:
        for tensor in output if isinstance(output, (list, tuple)) else (output,):
            if isinstance(tensor, torch.Tensor) and not any(tensor is given for given in tensors):
                ensure_origin(tensor).name_parameter(name, is_derived=True)


def _parameter_of_all(specs: Sequence[TensorSpec]) -> str | None:
    """The first tensor's parameter, if all of them are parameters or made from parameters alone."""
    for spec in specs:
        if spec.parameter is None:
            return None
    return specs[0].parameter if specs else None

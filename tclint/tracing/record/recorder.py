"""The recorder: runs a model on meta tensors and writes down every operator that it calls.

Weights and activations are meta tensors; small constants stay real (constants.py), so Python code can look
at them. A real tensor that meets a meta tensor becomes a meta tensor itself. Under torch.inference_mode
the dispatch mode sees linear, conv, einsum, attention and other composite operators whole.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tclint.graph.ops import Cast, numel
from tclint.tracing.meta_ops.argument_checks import check_arguments
from tclint.tracing.meta_ops.index_checks import check_constant_rows, integer_indices
from tclint.tracing.meta_ops.meta_kernels import MetaKernels, made_like, run_on_zeros, to_meta
from tclint.tracing.record.autocast_casts import cast_arguments
from tclint.tracing.record.call_recorder import CallRecorder, carried_out_by_subclass, inherit_parameter
from tclint.tracing.record.fx_writer import Arguments, FxWriter
from tclint.tracing.record.guesses import GUESSES
from tclint.tracing.record.higher_order import run_higher_order
from tclint.tracing.values.assumptions import Assumptions, Instruction, Policy
from tclint.tracing.values.constants import (
    BOOLEAN,
    MAX_REAL_UNDEFINED,
    RANDOM_FACTORIES,
    RANDOM_FILLERS,
    UNDEFINED_FACTORIES,
    keeps_values,
    stays_small,
    uniform_value,
)
from tclint.tracing.values.contents import note_contents
from tclint.tracing.values.makers import maker_of
from tclint.tracing.values.operators import (
    Args,
    Kwargs,
    OperatorFacts,
    facts_of,
    is_composite,
    is_whole_slice,
    required_facts,
)
from tclint.tracing.values.origin import (
    ensure_origin,
    is_traced,
    map_tensors,
    origin_for_reading,
    origin_of,
    set_origin,
    tensors_in,
)
from tclint.tracing.values.sites import SiteFinder
from tclint.tracing.values.triangles import (
    MOST_ELEMENTS,
    corner_made,
    note_corner,
    note_written,
    real_corner,
)

_NO_DISPATCH = torch.Tensor.__torch_dispatch__
_META = torch.device("meta")
_CPU = torch.device("cpu")

# Recorded as one op whose parts follow, because their work is that of the products they become.
_DECOMPOSED = frozenset({"chain_matmul", "einsum", "linalg_multi_dot", "tensordot"})

_COPIES_BETWEEN_DEVICES = frozenset({"_copy_from", "_to_copy", "clone", "copy", "to"})
_INDEXED = frozenset({"index", "index_put", "index_put_", "_unsafe_index", "_unsafe_index_put"})
_PRODUCTS = frozenset({"addmm", "bmm", "matmul", "mm", "mv"})
# Before their arguments are changed or guessed from; all others once for equal calls.
_CHECKED_AS_GIVEN = _INDEXED | _DECOMPOSED | GUESSES.keys()


# Not a factory, view or in-place operator; it "mutates" in that it gives its first argument a new origin.
_SCATTER_FACTS = replace(
    required_facts(torch.ops.aten.as_strided_scatter.default), returns_view=True, mutates=True
)


class Recorder(CallRecorder, TorchDispatchMode):
    """A dispatch mode for building (no writer) or running (with one) a model without its memory.

    Args:
        sites: tells user code from library code.
        writer: receives the operators; None while the model is being built.
        keep_constants: small constants stay real; False puts everything on meta.
        flipped: instructions whose guessed Boolean is to be answered the other way round.
    """

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # True would wrap __torch_dispatch__ so that the first call imports torch._dynamo.
        return False

    def __init__(
        self,
        sites: SiteFinder,
        writer: FxWriter | None = None,
        *,
        keep_constants: bool = True,
        flipped: dict[Instruction, bool] | None = None,
        policy: Policy = "likely",
    ) -> None:
        TorchDispatchMode.__init__(self)
        CallRecorder.__init__(self, sites, writer)
        self.keep_constants = keep_constants
        self.assumptions = Assumptions(sites, flipped, policy)
        self.weights: dict[int, str] = {}
        """Names of the running model's weights by their ids: for who looks at its tensors after it failed."""
        self._kernels = MetaKernels()

    # ------------------------------------------------------------------ dispatch

    def __torch_dispatch__(self, func: Any, types: Any, args: Args = (), kwargs: Kwargs | None = None) -> Any:
        if types and any(kind.__torch_dispatch__ != _NO_DISPATCH for kind in types):
            # A tensor subclass runs the operator on the tensors that it is made of, which come here in turn.
            self.had_gradients_above = self._has_gradients()
            return NotImplemented
        kwargs = kwargs or {}
        facts = facts_of(func)
        if facts is None:
            return run_higher_order(self, func, args, kwargs)
        tensors = tensors_in(args, kwargs)
        if facts.is_factory:
            return self._make(facts, args, kwargs)
        for tensor in tensors:
            if tensor.is_meta or self._written.is_demoted(tensor):
                return self._run_meta(facts, args, kwargs, tensors)
        return self._run_real(facts, args, kwargs, tensors)

    def _make(self, facts: OperatorFacts, args: Args, kwargs: Kwargs) -> Any:
        """Run a factory operator on the CPU for small constants, else on meta."""
        device = kwargs.get("device")
        source = args[0] if args and isinstance(args[0], torch.Tensor) else None
        on_meta = device is not None and device.type == "meta"
        if source is not None and source.is_meta and device is None:
            on_meta = True
        small = keeps_values(facts.full_name, args, kwargs)
        if on_meta and (source is not None or not self.keep_constants):
            small = False
        if small:
            kwargs = {**kwargs, "device": _CPU} if device is not None else kwargs
            if kwargs.get("pin_memory"):
                kwargs = {**kwargs, "pin_memory": False}
            output = facts.function(*args, **kwargs)
            if facts.full_name in UNDEFINED_FACTORIES:
                # Whatever lay in memory would make traces differ, and crash kernels that take it for indices.
                output.zero_()
            return output
        kwargs = {**kwargs, "device": _META}
        kwargs.pop("pin_memory", None)
        output = made_like(facts.full_name, source, kwargs)
        if output is None:
            output = facts.function(*args, **kwargs)
        if self.writer is not None and facts.full_name not in UNDEFINED_FACTORIES:
            self.record(facts, args, kwargs, output, ())
        note_corner(output, corner_made(facts, args, kwargs, output))
        return output

    def _run_real(self, facts: OperatorFacts, args: Args, kwargs: Kwargs, tensors: list[torch.Tensor]) -> Any:
        """Compute the values. Work on constants alone is not recorded, work on inputs is."""
        if facts.full_name in RANDOM_FILLERS and tensors and tensors[0].numel() > MAX_REAL_UNDEFINED:
            return args[0]
        if facts.full_name in RANDOM_FACTORIES:
            return self._run_meta(facts, args, kwargs, tensors)
        device = kwargs.get("device")
        if device is not None and device.type not in ("cpu", "meta"):
            kwargs = {**kwargs, "device": _CPU}
        elif device is not None and device.type == "meta" and self.writer is not None:
            # `.to(x.device)` of a constant: keep it readable, it joins the traced tensors when it meets one.
            kwargs = {**kwargs, "device": _CPU}
        in_forward = self.writer is not None
        if tensors and not facts.returns_view and not stays_small(facts.full_name, args, tensors, in_forward):
            return self._run_meta(facts, args, kwargs, tensors)
        from_inputs = self.writer is not None and any(
            is_traced(tensor) or self._written.is_written(tensor) for tensor in tensors
        )
        if from_inputs and self._written.writes:
            for tensor in tensors:
                self._learn_of_writes(tensor)
        before = self._arguments(facts, args, kwargs) if from_inputs and facts.mutates else None
        try:
            output = facts.function(*args, **kwargs)
        except (NotImplementedError, RuntimeError):
            if self.writer is None or not tensors:
                raise
            return self._run_meta(facts, args, kwargs, tensors)
        if from_inputs and _only_repeats(facts, args):
            set_origin(output, ensure_origin(args[0]))
        elif from_inputs:
            self.record(facts, args, kwargs, output, (), before=before)
            if facts.in_place:
                self._written.add(args[0])
        elif self.writer is not None and tensors:
            inherit_parameter(tensors, output)
        return output

    def _run_meta(self, facts: OperatorFacts, args: Args, kwargs: Kwargs, tensors: list[torch.Tensor]) -> Any:
        device = kwargs.get("device")
        if device is not None and device.type != "meta" and facts.name in _COPIES_BETWEEN_DEVICES:
            kwargs = {**kwargs, "device": _META}
        if kwargs.get("pin_memory"):
            kwargs = {**kwargs, "pin_memory": False}
        casts: tuple[Cast, ...] = ()
        if self.autocast_dtype is not None and not facts.mutates:
            args, kwargs, casts = cast_arguments(facts.name, args, kwargs, self.autocast_dtype)
            tensors = tensors_in(args, kwargs)
        target = args[0] if args else None
        if self._written.writes and self.writer is not None:
            args, kwargs, tensors = self._as_written(args, kwargs, tensors)
        if facts.in_place and not facts.reshapes_in_place:
            self._write_in_place(facts, args, kwargs)
            return target
        if facts.full_name in _CHECKED_AS_GIVEN:
            check_arguments(facts.full_name, args, kwargs)
        if facts.full_name in GUESSES:
            output = GUESSES[facts.full_name](self.assumptions, facts.function, args, kwargs)
            if output is not NotImplemented:
                self.record(facts, args, kwargs, output, casts, given=tensors)
                note_contents(facts, args, kwargs, output)
                return output
        compared = self._compared(facts, args, kwargs, tensors)
        if facts.mutates:
            note_written(args[0])
        if not all(tensor.is_meta for tensor in tensors):
            args, kwargs = self._on_meta(facts, args, kwargs, tensors)
            if device is not None and device.type != "meta":
                kwargs["device"] = _META
            tensors = tensors_in(args, kwargs)
        if self.writer is not None and facts.full_name in _DECOMPOSED:
            return self._run_parts(facts, args, kwargs, casts)
        # Operators such as squeeze_ change the very tensor that they are given.
        before = self._arguments(facts, args, kwargs) if facts.reshapes_in_place else None
        key, output = self._kernels.recall(facts, args, kwargs)
        if output is None:
            check_arguments(facts.full_name, args, kwargs)
            try:
                output = self._kernels.run(key, facts.function, args, kwargs, tensors)
            except (NotImplementedError, RuntimeError) as error:
                if is_composite(facts.function):
                    # Data-dependent sizes inside it may meet a guess.
                    return self._run_parts(facts, args, kwargs, casts, error)
                output = run_on_zeros(facts.function, args, kwargs, tensors, error)
        if _only_repeats(facts, args):
            set_origin(output, ensure_origin(args[0]))
            return output
        self.record(facts, args, kwargs, output, casts, given=tensors, before=before)
        note_contents(facts, args, kwargs, output)
        note_corner(output, corner_made(facts, args, kwargs, output) if compared is None else compared)
        return output

    def _as_written(
        self, args: Args, kwargs: Kwargs, tensors: list[torch.Tensor]
    ) -> tuple[Args, Kwargs, list[torch.Tensor]]:
        """The arguments with what was written to them in place since they were made."""
        for tensor in tensors:
            if self._written.is_demoted(tensor):
                args, kwargs = map_tensors(args, self.current), map_tensors(kwargs, self.current)
                return args, kwargs, tensors_in(args, kwargs)
            self._learn_of_writes(tensor)
        return args, kwargs, tensors

    def _on_meta(
        self, facts: OperatorFacts, args: Args, kwargs: Kwargs, tensors: list[torch.Tensor]
    ) -> tuple[Args, Kwargs]:
        """The arguments of an operator without the values that some of them have."""
        if facts.full_name in _INDEXED:
            args = integer_indices(args)
        elif facts.full_name in _PRODUCTS and any(one.layout is not torch.strided for one in tensors):
            self.assumptions.add("a product with a sparse matrix is priced as that with a dense one")
        elif facts.full_name == "embedding" and not self.assumptions.are_made:
            check_constant_rows(*args[:2])
        demote = self._demote_for_good if facts.mutates else self._demote
        return map_tensors(args, demote), map_tensors(kwargs, demote)

    @staticmethod
    def _compared(
        facts: OperatorFacts, args: Args, kwargs: Kwargs, tensors: list[torch.Tensor]
    ) -> torch.Tensor | None:
        """The corner of a comparison of positions, whose result is too large to keep."""
        if facts.name not in BOOLEAN or any(tensor.is_meta or is_traced(tensor) for tensor in tensors):
            return None
        shape = torch.broadcast_shapes(*(tensor.shape for tensor in tensors))
        if len(shape) < 2 or shape[-1] != shape[-2] or numel(shape) > MOST_ELEMENTS:
            return None
        return real_corner(facts.function(*args, **kwargs))

    def _write_in_place(self, facts: OperatorFacts, args: Args, kwargs: Kwargs) -> None:
        written = args[0]
        corner = corner_made(facts, args, kwargs, written)
        note_written(written)
        if self.writer is None:
            note_corner(written, corner)
            return
        if not written.is_meta:
            self._written.demote_to_meta(written)
            written = self._demote_for_good(written)
        others = tensors_in(args[1:], kwargs)
        if any(tensor.shape != written.shape or tensor.dtype != written.dtype for tensor in others):
            self._check_write(facts, (written, *args[1:]), kwargs)
        self.record(facts, (written, *args[1:]), kwargs, written, ())
        note_contents(facts, args, kwargs, written)
        note_corner(written, corner)
        self._written.add(written)

    def _check_write(self, facts: OperatorFacts, args: Args, kwargs: Kwargs) -> None:
        """Raise what the in-place operator raises where another tensor does not fit the written one."""
        check_arguments(facts.full_name, args, kwargs)
        if facts.full_name in GUESSES or facts.full_name in _INDEXED:
            return
        with contextlib.suppress(NotImplementedError):
            facts.function(*map_tensors(args, to_meta), **map_tensors(kwargs, to_meta))

    def _run_parts(
        self,
        facts: OperatorFacts,
        args: Args,
        kwargs: Kwargs,
        casts: tuple[Cast, ...],
        error: Exception | None = None,
    ) -> Any:
        """Run a composite operator as its parts, recorded as its children; `error` if that fails too."""
        given = self._arguments(facts, args, kwargs)
        written = self.writer.call(facts, given, self._parent) if self.writer and given else None
        before, self._parent = self._parent, written
        try:
            with self:
                output = facts.function.decompose(*args, **kwargs)
        except Exception:
            if written is not None and self.writer is not None:
                self.writer.take_back(written)  # the model may go on without it
            if error is None or isinstance(error, NotImplementedError):
                raise  # a missing kernel is no fault of the model's, what its parts refuse is
            raise error from None
        finally:
            self._parent = before
        self.record(facts, args, kwargs, output, casts, written=written)
        return output

    def _arguments(self, facts: OperatorFacts, args: Args, kwargs: Kwargs) -> Arguments | None:
        """What an operator is given, where it has to be written down before the operator runs."""
        return None if self.writer is None else self.writer.arguments(facts, args, kwargs)

    def current(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor as later operators see it: with all writes to its memory, on meta if it was written."""
        if self._written.is_demoted(tensor):
            tensor = self._demote(tensor)
        self._learn_of_writes(tensor)
        return tensor

    def _learn_of_writes(self, tensor: torch.Tensor) -> None:
        """Record that a tensor contains what was written to its memory through another one."""
        for write in self._written.unseen(tensor):
            if write.origin is origin_of(tensor):
                continue
            where = list(write.shape), list(write.strides), write.first
            self.record(_SCATTER_FACTS, (tensor, write.stand_in(), *where), {}, tensor, ())

    def _demote(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_meta:
            return tensor
        demoted = self._written.twin(tensor)
        if demoted is None:
            demoted = to_meta(tensor)
        # A weight needs no origin of its own for an operator that only reads it.
        is_read = not (self._written.is_written(tensor) or self._written.is_demoted(tensor))
        origin = origin_for_reading(tensor) if is_read else ensure_origin(tensor)
        if self.writer is not None and origin.maker is None:
            origin.value = None if self._written.is_demoted(tensor) else uniform_value(tensor)
            origin.memory = self.writer.memory_of(tensor, origin)
        set_origin(demoted, origin)
        if is_read and not is_traced(tensor):
            note_corner(demoted, real_corner(tensor))
        return demoted

    def _demote_for_good(self, tensor: torch.Tensor) -> torch.Tensor:
        """As `_demote`, where what becomes of the stand-in becomes of the tensor."""
        ensure_origin(tensor)
        return self._demote(tensor)


def _only_repeats(facts: OperatorFacts, args: Args) -> bool:
    """Whether a view is that of a `:` in an index, or detaches what is detached or what nothing can be.

    Older versions of torch (2.6) run an operator for each `:`, and detach twice.
    """
    if facts.full_name == "detach":
        maker = maker_of(args[0])
        return (maker is not None and maker.target is facts.function) or carried_out_by_subclass() not in (
            None,
            facts.function,
        )
    return is_whole_slice(facts, args)

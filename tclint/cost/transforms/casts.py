"""A traced graph as it runs in a precision: dtypes of every tensor, and the casts that autocast inserts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tclint.config.precisions import PRECISION_FACTS, LinearFormat
from tclint.config.settings import Mode, Precision
from tclint.cost.gpu import Gpu
from tclint.cost.math_units import NEEDED_CAPABILITY
from tclint.graph.ops import FLOATING_DTYPES, Cast, Graph, Op, TensorSpec
from tclint.graph.ops.op_tables import Policy, autocast_lists

HALF_DTYPES = frozenset({"float16", "bfloat16"})

_ELIGIBLE_WIDTH = {"float16": 1, "bfloat16": 1, "float32": 2}
_WIDTH = {**_ELIGIBLE_WIDTH, "float64": 3}


def apply_precision(graph: Graph, precision: Precision, mode: Mode) -> Graph:
    """The graph as it runs in a precision: dtypes changed, Op.casts filled in, nothing else touched.

    - 'fp16' and 'bf16' are torch.autocast around the forward pass; a model whose weights have 16 bits
      already runs as it was traced, without autocast (own_half_dtype).
    - 'pure-fp16', 'pure-bf16' and 'fp64' convert the model and its inputs. What the model itself converts
      is seen in a trace in that dtype only: `.float()` of a float32 tensor is no operator.
    - 'fp32' and 'tf32*' change no dtype: they are switches of the GPU's libraries, which pricing reads.
    - 'fp8' and 'int8' are what surrounds their linear layers; low_precision.py does those.

    Ops that autocast forbids keep their dtypes.
    """
    del mode  # torch casts alike with and without gradients: caching asks for requires_grad only
    facts = PRECISION_FACTS[precision]
    if facts.converted:
        return convert(graph, facts.dtype)
    if not facts.autocast or own_half_dtype(graph) is not None:
        return graph
    return _Autocast(graph, facts.dtype).run()


def own_half_dtype(graph: Graph) -> str | None:
    """The 16-bit dtype of a model's own weights; None where a weight matrix has another."""
    own = own_dtype(graph)
    return own if own in HALF_DTYPES else None


def own_dtype(graph: Graph) -> str | None:
    """The dtype of all weight matrices of a model, whatever its norms keep; None where they differ."""
    floating = [p for p in graph.parameters if not p.is_buffer and p.dtype in FLOATING_DTYPES and p.numel]
    weights = [p for p in floating if len(p.shape) > 1] or floating
    dtypes = {parameter.dtype for parameter in weights}
    return dtypes.pop() if len(dtypes) == 1 else None


def convert(graph: Graph, dtype: str) -> Graph:
    """The model and its inputs in another floating dtype, as `model.to(dtype)` leaves them.

    Every tensor of the model's own dtype becomes one of `dtype`. A model that was traced in 16 bits keeps
    the float32 tensors that it makes itself.
    """
    own = own_half_dtype(graph)
    if own == dtype:
        return graph
    changed = {own} if own is not None else {"float32", *HALF_DTYPES, "float64"} - {dtype}
    names = dict.fromkeys(changed, dtype)
    if dtype == "float64" and own is None:
        names["complex64"] = "complex128"

    def spec_as(spec: TensorSpec) -> TensorSpec:
        return replace(spec, dtype=names[spec.dtype]) if spec.dtype in names else spec

    def cast_as(cast: Cast) -> Cast:
        before, after = (names.get(name, name) for name in (cast.from_dtype, cast.to_dtype))
        return replace(cast, from_dtype=before, to_dtype=after)

    ops = tuple(
        replace(
            op,
            inputs=tuple(map(spec_as, op.inputs)),
            outputs=tuple(map(spec_as, op.outputs)),
            casts=tuple(c for c in map(cast_as, op.casts) if c.from_dtype != c.to_dtype),
        )
        for op in graph.ops
    )
    return replace(
        graph,
        ops=ops,
        parameters=tuple(
            replace(p, dtype=names[p.dtype]) if p.dtype in names else p for p in graph.parameters
        ),
        inputs=tuple(map(spec_as, graph.inputs)),
        outputs=tuple(map(spec_as, graph.outputs)),
    )


@dataclass(frozen=True, slots=True)
class Running:
    """What really runs when a precision is asked of a GPU."""

    precision: Precision
    """The precision of everything but the linear layers in `linear`."""
    linear: LinearFormat | None
    note: str = ""
    """Where that is not what was asked for, why."""


_HALF_INSTEAD: dict[Precision, Precision] = {"bf16": "fp16", "pure-bf16": "pure-fp16"}


def running(precision: Precision, mode: Mode, gpu: Gpu) -> Running:
    """What a step in that precision runs on a GPU.

    'fp8' and 'int8' leave the rest of the model in bf16, in fp16 where the GPU has no bf16; where it has no
    Tensor Cores for the format, everything is priced so: torch._scaled_mm raises an error there, and
    tclint has no formula for int8 products on CUDA cores.
    """
    facts = PRECISION_FACTS[precision]
    if facts.linear is None:
        return Running(precision, None)
    rest: Precision = "bf16" if mode == "train" else "pure-bf16"
    rest = rest if gpu.supports("bf16") else _HALF_INSTEAD[rest]
    if gpu.supports(facts.linear):
        return Running(rest, facts.linear)
    needed = NEEDED_CAPABILITY[facts.linear]
    capability = "{}.{}".format(*gpu.compute_capability)
    why = (
        "torch._scaled_mm raises an error"
        if facts.linear == "fp8"
        else "int8 products on CUDA cores have no formula"
    )
    note = (
        f"no {facts.linear} Tensor Cores on {gpu.name}: {facts.linear} needs compute capability {needed}, "
        f"this is {capability}; {why}, so the linear layers are priced in {rest.removeprefix('pure-')} "
        "as the rest"
    )
    return Running(rest, None, note)


class _Autocast:
    """One pass over the ops in order, with the dtype that every tensor made so far has."""

    def __init__(self, graph: Graph, dtype: str) -> None:
        self.graph = graph
        self.dtype = dtype
        self.lists = autocast_lists()
        self.made: dict[tuple[int, int], str] = {}
        self.cached: set[str] = set()
        self.restored: set[tuple[int, int]] = set()
        self.trainable = {p.name for p in graph.parameters if p.trainable and not p.is_buffer}
        # A composite op (einsum) works through its children, which are cast themselves.
        self.cache = graph.metadata.get("cache")
        """The input that holds what earlier steps computed, under the same autocast."""
        self.composites: set[int] = set()
        self.lower_composites: set[int] = set()
        for op in graph.ops:
            if op.parent is not None:
                self.composites.add(op.parent)
                if self.lists.policy(op.name) == "lower_precision":
                    self.lower_composites.add(op.parent)

    def run(self) -> Graph:
        ops = tuple(self._op(op) for op in self.graph.ops)
        outputs = tuple(self._as_made(spec) for spec in self.graph.outputs)
        inputs = tuple(self._as_made(spec) for spec in self.graph.inputs)
        return replace(self.graph, ops=ops, inputs=inputs, outputs=outputs)

    def _as_made(self, spec: TensorSpec) -> TensorSpec:
        if spec.producer is None:
            is_cached = self.cache is not None and (spec.input_name or "").startswith(self.cache)
            return replace(spec, dtype=self.dtype) if is_cached and spec.dtype == "float32" else spec
        dtype = self.made.get((spec.producer, spec.output_index), spec.dtype)
        return spec if dtype == spec.dtype else replace(spec, dtype=dtype)

    def _as_traced(self, op: Op) -> Op:
        """An op that the model takes out of autocast: what comes in lower it converts back itself, once.

        Of those conversions a float32 trace shows nothing.
        """
        casts = []
        inputs = [self._as_made(spec) for spec in op.inputs]
        for position, (traced, spec) in enumerate(zip(op.inputs, inputs, strict=True)):
            if traced.dtype == "float32" != spec.dtype and spec.producer is not None:
                inputs[position] = traced
                if (spec.producer, spec.output_index) not in self.restored:
                    self.restored.add((spec.producer, spec.output_index))
                    casts.append(Cast(spec.shape, spec.dtype, traced.dtype))
        self.made.update({(op.index, position): spec.dtype for position, spec in enumerate(op.outputs)})
        return replace(op, inputs=tuple(inputs), casts=(*op.casts, *casts))

    def _op(self, op: Op) -> Op:
        if op.autocast_disabled:
            return self._as_traced(op)
        inputs = tuple(self._as_made(spec) for spec in op.inputs)
        # Autocast has no in-place variants: they run in the dtype of the tensor they change.
        policy = "none" if op.in_place else self.lists.policy(op.name)
        if op.cast_by_hand:
            policy = "lower_precision"
        casts: tuple[Cast, ...] = ()
        if op.index in self.composites:
            result = self._composite_dtype(op, inputs)
        elif policy in ("lower_precision", "fp32", "promote"):
            target = self._target(policy, inputs)
            inputs, casts = self._cast(inputs, target)
            result = target
        elif policy == "fp32_result":
            result = "float32"
        else:
            result = self._implicit(op, inputs)
        outputs = self._outputs(op, inputs, result, policy)
        # A trace of a model with its own autocast region has casts already; these replace them.
        if policy not in ("lower_precision", "fp32", "promote"):
            casts = op.casts
        if inputs == op.inputs and outputs == op.outputs and casts == op.casts:
            return op
        return replace(op, inputs=inputs, outputs=outputs, casts=casts)

    def _composite_dtype(self, op: Op, inputs: Sequence[TensorSpec]) -> str | None:
        lower = op.index in self.lower_composites or self.lists.policy(op.name) == "lower_precision"
        return self.dtype if lower else self._implicit(op, inputs)

    def _target(self, policy: Policy, inputs: Sequence[TensorSpec]) -> str:
        if policy == "lower_precision":
            return self.dtype
        if policy == "fp32":
            return "float32"
        widths = {spec.dtype: _ELIGIBLE_WIDTH[spec.dtype] for spec in inputs if spec.dtype in _ELIGIBLE_WIDTH}
        return max(widths, key=lambda name: widths[name], default=self.dtype)

    def _cast(
        self, inputs: Sequence[TensorSpec], target: str
    ) -> tuple[tuple[TensorSpec, ...], tuple[Cast, ...]]:
        specs, casts = [], []
        for spec in inputs:
            if spec.dtype not in _ELIGIBLE_WIDTH or spec.dtype == target:
                specs.append(spec)
                continue
            specs.append(replace(spec, dtype=target))
            # Only leaves that require a gradient are cached, and only in the autocast dtype.
            leaf = spec.parameter if spec.producer is None and spec.parameter in self.trainable else None
            cacheable = leaf is not None and target == self.dtype
            if leaf is not None and cacheable:
                if leaf in self.cached:
                    continue
                self.cached.add(leaf)
            casts.append(Cast(spec.shape, spec.dtype, target, leaf if cacheable else None))
        return tuple(specs), tuple(casts)

    def _implicit(self, op: Op, inputs: Sequence[TensorSpec]) -> str | None:
        """The dtype that type promotion gives the result; None: the traced one stays."""
        if isinstance(op.attributes.get("dtype"), str):
            return None
        if op.name == "type_as" and len(inputs) > 1:
            return inputs[1].dtype
        first_only = op.in_place or op.name in self.lists.first_input or op.kind in ("view", "pool", "norm")
        traced = _promoted(op.inputs, first_only)
        if traced is None or any(spec.is_floating and spec.dtype != traced for spec in op.outputs):
            return None  # the op chose its dtype itself
        return _promoted(inputs, first_only)

    def _outputs(
        self, op: Op, inputs: Sequence[TensorSpec], result: str | None, policy: Policy
    ) -> tuple[TensorSpec, ...]:
        explicit = isinstance(op.attributes.get("dtype"), str)
        if policy == "fp32_result" and (explicit or not any(s.dtype in _ELIGIBLE_WIDTH for s in inputs[:1])):
            result = None
        outputs = []
        for position, spec in enumerate(op.outputs):
            dtype = result if result is not None and spec.dtype in _ELIGIBLE_WIDTH else spec.dtype
            if op.in_place and op.inputs and position == 0:
                dtype = inputs[0].dtype if op.inputs[0].dtype == spec.dtype else spec.dtype
            self.made[op.index, position] = dtype
            outputs.append(spec if dtype == spec.dtype else replace(spec, dtype=dtype))
        return tuple(outputs)


def _promoted(inputs: Sequence[TensorSpec], first_only: bool) -> str | None:
    """Widest floating dtype; tensors without dimensions count only where there are no others."""
    floating = [spec for spec in inputs if spec.dtype in _WIDTH]
    if not floating:
        return None
    if first_only:
        return floating[0].dtype
    considered = [spec for spec in floating if spec.shape] or floating
    widest = max(considered, key=lambda spec: _WIDTH[spec.dtype])
    mixed = {spec.dtype for spec in considered} >= {"float16", "bfloat16"}
    return "float32" if mixed and _WIDTH[widest.dtype] == 1 else widest.dtype

"""What torch.autocast does to a traced graph: dtypes of every tensor, and the casts it inserts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tclint.config import Mode, Precision
from tclint.graph.autocast import Policy, autocast_lists
from tclint.graph.graph import Graph
from tclint.graph.op import Cast, Op
from tclint.graph.spec import TensorSpec

AUTOCAST_DTYPE: dict[Precision, str] = {"fp16": "float16", "bf16": "bfloat16"}

_ELIGIBLE_WIDTH = {"float16": 1, "bfloat16": 1, "float32": 2}
_WIDTH = {**_ELIGIBLE_WIDTH, "float64": 3}


def apply_precision(graph: Graph, precision: Precision, mode: Mode) -> Graph:
    """The graph as it runs in a precision: dtypes changed, Op.casts filled in, nothing else touched.

    'fp16' and 'bf16' are torch.autocast around the forward pass. 'fp32' and 'tf32' change no dtype: they
    are switches of the GPU's libraries, which pricing reads ('tf32': on for matmuls and convolutions,
    'fp32': off for both; torch's own default is off for matmuls and on for convolutions). Ops that
    autocast forbids keep their dtypes.
    """
    del mode  # torch casts alike with and without gradients: caching asks for requires_grad only
    dtype = AUTOCAST_DTYPE.get(precision)
    return graph if dtype is None else _Autocast(graph, dtype).run()


class _Autocast:
    """One pass over the ops in order, with the dtype that every tensor made so far has."""

    def __init__(self, graph: Graph, dtype: str) -> None:
        self.graph = graph
        self.dtype = dtype
        self.lists = autocast_lists()
        self.made: dict[tuple[int, int], str] = {}
        self.cached: set[str] = set()
        self.trainable = {p.name for p in graph.parameters if p.trainable and not p.is_buffer}
        # A composite op (einsum) works through its children, which are cast themselves.
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
        return replace(self.graph, ops=ops, outputs=outputs)

    def _as_made(self, spec: TensorSpec) -> TensorSpec:
        if spec.producer is None:
            return spec
        dtype = self.made.get((spec.producer, spec.output_index), spec.dtype)
        return spec if dtype == spec.dtype else replace(spec, dtype=dtype)

    def _op(self, op: Op) -> Op:
        inputs = tuple(self._as_made(spec) for spec in op.inputs)
        # Autocast has no in-place variants: they run in the dtype of the tensor they change.
        policy = "none" if op.in_place else self.lists.policy(op.name)
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

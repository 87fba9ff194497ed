"""One operator of a traced model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, astuple, dataclass, field, fields, replace
from typing import Any, Literal, NamedTuple, get_args

from tclint.graph.ops.spec import Site, TensorSpec, numel

OpKind = Literal[
    "linear",
    "matmul",
    "conv",
    "attention",
    "norm",
    "softmax",
    "elementwise",
    "reduction",
    "pool",
    "embedding",
    "rnn",
    "loss",
    "copy",
    "view",
    "other",
]
OP_KINDS: frozenset[str] = frozenset(get_args(OpKind))

GEMM_KINDS: frozenset[str] = frozenset({"linear", "matmul", "conv", "attention", "rnn"})
"""Kinds whose work is matrix products, the only work that Tensor Cores do."""

# Schema names of the two matrices of a product; linear's second is stored [N, K], the others' [K, N].
_OPERANDS = (("input", "weight"), ("mat1", "mat2"), ("batch1", "batch2"), ("self", "mat2"), ("self", "other"))


@dataclass(frozen=True, slots=True)
class Cast:
    """A dtype conversion that autocast inserts before an op; it costs a read and a write of the tensor."""

    shape: tuple[int, ...]
    from_dtype: str
    to_dtype: str
    parameter: str | None = None
    """Set for a weight: autocast caches that cast for the rest of the forward pass."""

    @property
    def numel(self) -> int:
        return numel(self.shape)


class Checkpoint(NamedTuple):
    """A call of torch.utils.checkpoint: what ran in it runs again in the backward pass."""

    region: int
    """Number of the call."""
    is_reentrant: bool
    """The older kind runs all of the region again; the other stops once it has what backward needs."""


@dataclass(frozen=True, slots=True)
class Op:
    """One operator call at functional granularity (linear, conv2d, scaled_dot_product_attention, add ...).

    Attributes follow the ATen schema of the operator, so that lowering needs no torch: `inputs` are the
    tensor arguments in schema order, flattened, `input_names` the schema's argument names beside them
    ('input', 'weight', 'bias'; list arguments as 'tensors[0]', 'tensors[1]', ...), `attributes` every
    other argument by name, defaults included ('stride', 'padding', 'groups', 'is_causal', ...).
    """

    index: int
    name: str
    """ATen base name without overload and trailing underscore: 'linear', 'conv2d', 'add', 'relu'."""
    kind: OpKind
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    input_names: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """JSON values only."""
    module_path: str = ""
    """Qualified name of the innermost module whose forward ran: 'layer4.2.conv2'; '' for the root."""
    module_type: str = ""
    """Class name of that module."""
    construct_site: Site | None = None
    """The user's line that constructed that module, else the library's line."""
    construct_library_site: Site | None = None
    """The library's line, when the user's line only called a library that constructed the module."""
    call_site: Site | None = None
    """The user's line that called the operator, else the library's line."""
    call_library_site: Site | None = None
    direction: Literal["forward"] = "forward"
    """Recorded ops run forward; backward work is derived (tclint.graph.lowering.step)."""
    parent: int | None = None
    """Index of the composite op (einsum, tensordot, ...) that this op is a part of."""
    in_place: bool = False
    differentiable: bool = True
    """False where the model ran it under no_grad."""
    has_own_backward: bool = False
    """Part of a custom autograd.Function: whatever its own derivative, gradients pass as its author wrote."""
    checkpoint: Checkpoint | None = None
    autocast_disabled: bool = False
    """The model takes it out of autocast: `autocast(enabled=False)`, `custom_fwd(cast_inputs=float32)`."""
    cast_by_hand: bool = False
    """A what-if: its inputs are cast as those of operators that autocast lists."""
    operator: str = ""
    """torch's full name of the operator, with namespace and overload: 'aten::add_.Tensor'."""
    casts: tuple[Cast, ...] = ()
    """What autocast converts before this op; filled in by tclint.cost.transforms.casts, empty as traced."""

    def input(self, name: str) -> TensorSpec | None:
        """The tensor argument of that schema name, or None where it was not given."""
        for spec, input_name in zip(self.inputs, self.input_names, strict=False):
            if input_name == name:
                return spec
        return None

    @property
    def is_product(self) -> bool:
        """Whether its work is matrix products, the only work that Tensor Cores do."""
        return self.kind in GEMM_KINDS

    @property
    def line(self) -> tuple[str, int]:
        """The file and line that a finding about its layer is reported at; ('', 0) where neither is known."""
        site = self.construct_site or self.call_site
        return (site.path, site.line) if site else ("", 0)

    @property
    def groups(self) -> int:
        """The number of groups of a convolution; 1 for others."""
        groups = self.attributes.get("groups", 1)
        return groups if isinstance(groups, int) else 1

    @property
    def operand_positions(self) -> tuple[int, int] | None:
        """The positions of the two matrices among the inputs of a linear or matmul op; else None."""
        for names in _OPERANDS:
            if all(name in self.input_names for name in names):
                first, second = (self.input_names.index(name) for name in names)
                return first, second
        return None

    def with_input(self, name: str, spec: TensorSpec) -> Op:
        """A what-if: the op with another tensor for an argument."""
        inputs = tuple(
            spec if input_name == name else old
            for old, input_name in zip(self.inputs, self.input_names, strict=True)
        )
        return replace(self, inputs=inputs)

    def emptied(self) -> Op:
        """A what-if: a view of its first input in place of the op, which does no work."""
        inputs = tuple(spec for spec in self.inputs[:1] if spec.parameter is None)
        return replace(
            self, name="view", kind="view", inputs=inputs, input_names=("self",) * len(inputs), attributes={}
        )

    def to_json(self) -> dict[str, Any]:
        """JSON values by the fields' names, without the index and without what is as by default."""
        data: dict[str, Any] = {}
        for name, default in _DEFAULTS.items():
            value = getattr(self, name)
            if value != default:
                data[name] = _WRITERS[name](value) if name in _WRITERS else value
        return data

    @classmethod
    def from_json(cls, index: int, data: dict[str, Any]) -> Op:
        """The op that stands at a place of its graph.

        Raises:
            ValueError: its kind is none.
        """
        if data["kind"] not in OP_KINDS:
            raise ValueError(f"unknown op kind {data['kind']!r}")
        read = {name: _READERS[name](value) if name in _READERS else value for name, value in data.items()}
        return cls(index=index, **read)


_SITES = ("construct_site", "construct_library_site", "call_site", "call_library_site")

_DEFAULTS: dict[str, Any] = {
    item.name: item.default_factory() if item.default_factory is not MISSING else item.default
    for item in fields(Op)
    if item.name not in ("index", "direction")
}
_WRITERS: dict[str, Callable[[Any], Any]] = {
    "inputs": lambda specs: [spec.to_json() for spec in specs],
    "outputs": lambda specs: [spec.to_json() for spec in specs],
    "casts": lambda casts: [astuple(cast) for cast in casts],
    **dict.fromkeys(_SITES, Site.to_json),
}
_READERS: dict[str, Callable[[Any], Any]] = {
    "inputs": lambda specs: tuple(map(TensorSpec.from_json, specs)),
    "outputs": lambda specs: tuple(map(TensorSpec.from_json, specs)),
    "input_names": tuple,
    "casts": lambda casts: tuple(Cast(tuple(shape), *rest) for shape, *rest in casts),
    "checkpoint": lambda checkpoint: Checkpoint(*checkpoint),
    **dict.fromkeys(_SITES, Site.from_json),
}

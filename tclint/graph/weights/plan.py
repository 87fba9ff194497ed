"""The plan of a padding, as JSON: the weights that grow, where their entries go, what the padding changes.

`WeightPlan.to_json()` is what stands under `weights` in a plan file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

Verdict = Literal["exact", "exact_with", "inexact"]

EditKind = Literal["attention_scale", "constant", "slice_logits", "slice_output"]
"""`attention_scale`: `scaled_dot_product_attention` at `path:line` needs `scale=value`.
`constant`: the code at `path:line` multiplies, divides, adds ... by `value`, which is `formula` of a size
that grows; the number has to stay.
`slice_logits`, `slice_output`: what the operator at `path:line` reads, or what the model returns as output
number `output`, has to be cut to the first `size` entries of dim `axis`."""

SCHEMA_VERSION = "1"

Segment = tuple[int, int, int]
"""(old start, new start, length): that many entries of the old axis stand in the new one from there."""


@dataclass(frozen=True, slots=True)
class AxisPlan:
    """One axis of a weight that grows; what no segment covers is filled."""

    axis: int
    segments: tuple[Segment, ...]
    """In their order, which is the same in both axes."""
    fill: float = 0.0
    """Of the entries added to this axis: 1 for variances, so that nothing is divided by zero."""


@dataclass(frozen=True, slots=True)
class TensorPlan:
    """A parameter or buffer whose shape changes."""

    name: str
    """The first of its names; `aliases` are the others (tied weights)."""
    aliases: tuple[str, ...]
    is_buffer: bool
    old_shape: tuple[int, ...]
    new_shape: tuple[int, ...]
    axes: tuple[AxisPlan, ...]
    """Those that change."""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> TensorPlan:
        axes = tuple(
            AxisPlan(
                int(axis["axis"]),
                tuple((int(old), int(new), int(length)) for old, new, length in axis["segments"]),
                float(axis["fill"]),
            )
            for axis in data["axes"]
        )
        return cls(
            name=str(data["name"]),
            aliases=tuple(data["aliases"]),
            is_buffer=bool(data["is_buffer"]),
            old_shape=tuple(data["old_shape"]),
            new_shape=tuple(data["new_shape"]),
            axes=axes,
        )


@dataclass(frozen=True, slots=True)
class ParameterShape:
    """A parameter as `model.parameters()` gives it, before any padding."""

    name: str
    shape: tuple[int, ...]
    trainable: bool = True


@dataclass(frozen=True, slots=True)
class Edit:
    """What the model's code needs so that the padded model computes the same."""

    kind: EditKind
    module_path: str = ""
    op: str = ""
    """The operator, by its ATen base name; '' for the model's outputs."""
    path: str | None = None
    line: int | None = None
    value: float | None = None
    formula: str | None = None
    """How `value` follows from an old size: '1/sqrt(64)'."""
    size: int | None = None
    axis: int | None = None
    output: int | None = None

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value not in (None, "")}

    @property
    def text(self) -> str:
        """One sentence part: 'scale=0.125 for the attention in blocks.0 (model.py:31)'."""
        place = f" ({self.path}:{self.line})" if self.path else ""
        module = f" in {self.module_path}" if self.module_path else ""
        if self.kind == "attention_scale":
            return f"scale={self.value:.17g} for {self.op}{module}{place}"
        if self.kind == "constant":
            return f"{self.op} by {self.value:.17g}{module}{place}, which is {self.formula}, kept as it is"
        if self.output is not None:
            return f"output {self.output} cut to the first {self.size} entries of dim {self.axis}"
        part = f"the first {self.size} entries of dim {self.axis}"
        return f"the input of {self.op}{module}{place} cut to {part}"


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """One group of coupled dims that grows, and whether the padded model computes the same function."""

    id: str
    """`DimGroup.id`."""
    old_size: int
    new_size: int
    verdict: Verdict
    """Of the whole function in evaluation mode, for any weights and inputs that are finite."""
    edits: tuple[Edit, ...] = ()
    """With `exact_with`: all that it takes."""
    reason: str | None = None
    """With `inexact`: the operator that breaks it, and how."""
    path: str | None = None
    line: int | None = None
    """Where that operator is called."""
    tensors: tuple[str, ...] = ()
    """The weights of this group, by their first names."""

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "edits": [edit.to_json() for edit in self.edits]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> GroupPlan:
        if data["verdict"] not in ("exact", "exact_with", "inexact"):
            raise ValueError(f"unknown verdict {data['verdict']!r}")
        return cls(
            **{
                **data,
                "edits": tuple(Edit(**edit) for edit in data.get("edits", ())),
                "tensors": tuple(data.get("tensors", ())),
            }
        )


@dataclass(frozen=True, slots=True)
class WeightPlan:
    """All weights that grow, and what their groups' padding does to the model."""

    tensors: tuple[TensorPlan, ...] = ()
    groups: tuple[GroupPlan, ...] = ()
    parameters: tuple[ParameterShape, ...] = ()
    """All of the model's, in its order: optimizers know them by nothing else."""

    def __iter__(self) -> Iterator[TensorPlan]:
        return iter(self.tensors)

    @property
    def verdict(self) -> Verdict:
        """The worst of the groups."""
        verdicts = {group.verdict for group in self.groups}
        for verdict in ("inexact", "exact_with"):
            if verdict in verdicts:
                return verdict
        return "exact"

    def to_json(self) -> dict[str, Any]:
        """JSON values; `from_json` gives an equal plan back."""
        return {
            "schema_version": SCHEMA_VERSION,
            "tensors": [asdict(tensor) for tensor in self.tensors],
            "groups": [group.to_json() for group in self.groups],
            "parameters": [[item.name, list(item.shape), item.trainable] for item in self.parameters],
        }

    @classmethod
    def from_json(cls, data: Any) -> WeightPlan:
        """Read what `to_json` wrote.

        Raises:
            ValueError: it is none, or of another schema version.
        """
        if not isinstance(data, dict) or data.get("schema_version") != SCHEMA_VERSION:
            raise ValueError(f"no plan of weights of schema version {SCHEMA_VERSION}")
        try:
            return cls(
                tensors=tuple(TensorPlan.from_json(tensor) for tensor in data["tensors"]),
                groups=tuple(GroupPlan.from_json(group) for group in data["groups"]),
                parameters=tuple(
                    ParameterShape(str(name), tuple(shape), bool(trainable))
                    for name, shape, trainable in data["parameters"]
                ),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"no plan of weights: {error!r}") from error

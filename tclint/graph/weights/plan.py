"""The plan of a padding, as JSON: the weights that grow, where their entries go, what a run of it has shown.

`WeightPlan.to_json()` is what stands under `weights` in a plan file.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

Verdict = Literal["exact", "exact_with", "inexact", "unproved"]

EditKind = Literal["attention_scale", "constant", "slice_output"]
"""`attention_scale`: attention at `path:line` needs `scale=value`.
`constant`: the code at `path:line` multiplies, divides, adds ... by `value` at the old size; it has to stay.
`slice_output`: what the model returns as output number `output` has to be cut to the first `size` entries of
dim `axis`."""

SCHEMA_VERSION = "2"

Segment = tuple[int, int, int]
"""(old start, new start, length): that many entries of the old axis stand in the new one from there."""


@dataclass(frozen=True, slots=True)
class AxisPlan:
    """One axis of a weight that grows; what no segment covers is filled."""

    axis: int
    segments: tuple[Segment, ...]
    """In their order, which is the same in both axes."""
    fill: float = 0.0
    """What the added entries hold: 1 for variances, so that nothing is divided by zero."""


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


def _shown(path: str) -> str:
    """From the working directory, where it is in there."""
    here = os.path.join(os.getcwd(), "")
    return path.removeprefix(here)


@dataclass(frozen=True, slots=True)
class WeightEdit:
    """What the padded model's code needs so that it computes the same."""

    kind: EditKind
    op: str = ""
    """The operator, by its ATen base name; '' for the model's outputs."""
    path: str | None = None
    line: int | None = None
    value: float | None = None
    size: int | None = None
    axis: int | None = None
    output: int | None = None

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value not in (None, "")}

    @property
    def text(self) -> str:
        """One sentence part: 'scale=0.125 for the attention at model.py:31'."""
        place = f" at {_shown(self.path)}:{self.line}" if self.path else ""
        if self.kind == "attention_scale":
            return f"scale={self.value:.17g} for {self.op}{place}"
        if self.kind == "constant":
            return f"{self.value:.17g}, with which {self.op}{place} computes, kept as it is"
        return f"output {self.output} cut to the first {self.size} entries of dim {self.axis}"


@dataclass(frozen=True, slots=True)
class PaddingProof:
    """What runs of the original and of the padded model have shown.

    Both ran on the CPU in float64 and in evaluation mode, on the same inputs.
    """

    verdict: Verdict
    """`exact`: all outputs are equal to 1e-9 of their largest entry; `exact_with`: as soon as the edits are
    made; `inexact`: they are not; `unproved`: there was no run that tells."""
    edits: tuple[WeightEdit, ...] = ()
    """With `exact_with`: all that it takes."""
    reason: str = ""
    """With `inexact` and `unproved`: why, in half a sentence."""
    path: str | None = None
    line: int | None = None
    """With `inexact`: where the results differ first, if that is known."""
    difference: float = 0.0
    """The largest one that was found, relative to the largest entry of the output."""
    runs: int = 0
    """With that many sets of weights."""
    inputs: tuple[str, ...] = ()
    """Those of the runs: 'float64[2,8,256]'."""
    gradients: bool = False
    """Whether gradients were compared as well; those of some models cannot be."""
    layers: str = ""
    """Where the models ran with fewer layers than they have: which."""
    of: str = ""
    """SHA-256 of the plan that it is of."""

    @property
    def is_exact(self) -> bool:
        return self.verdict in ("exact", "exact_with")

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "edits": [edit.to_json() for edit in self.edits]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PaddingProof:
        if data["verdict"] not in ("exact", "exact_with", "inexact", "unproved"):
            raise ValueError(f"unknown verdict {data['verdict']!r}")
        return cls(
            **{
                **data,
                "edits": tuple(WeightEdit(**edit) for edit in data["edits"]),
                "inputs": tuple(data["inputs"]),
            }
        )


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """One group of coupled dims that grows."""

    id: str
    """`DimGroup.id`."""
    old_size: int
    new_size: int
    tensors: tuple[str, ...] = ()
    """The weights of this group, by their first names."""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> GroupPlan:
        return cls(**{**data, "tensors": tuple(data["tensors"])})


@dataclass(frozen=True, slots=True)
class WeightPlan:
    """All weights that grow, and whether the padded model is known to compute the same."""

    tensors: tuple[TensorPlan, ...] = ()
    groups: tuple[GroupPlan, ...] = ()
    parameters: tuple[ParameterShape, ...] = ()
    """All of the model's, in its order: optimizers know them by nothing else."""
    shown: PaddingProof | None = None

    def __iter__(self) -> Iterator[TensorPlan]:
        return iter(self.tensors)

    @property
    def digest(self) -> str:
        """SHA-256 of what is padded, and how."""
        text = json.dumps([asdict(tensor) for tensor in self.tensors], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def proof(self) -> PaddingProof:
        """What is known of this very plan: nothing where there was no run, or it was changed since."""
        if self.shown is None:
            return PaddingProof("unproved", reason="no run has compared the two models")
        if self.shown.of != self.digest:
            return PaddingProof("unproved", reason="the plan was changed after the run that compared them")
        return self.shown

    def proved(self, proof: PaddingProof) -> WeightPlan:
        """With what runs have shown of it."""
        return replace(self, shown=replace(proof, of=self.digest))

    def to_json(self) -> dict[str, Any]:
        """JSON values; `from_json` gives an equal plan back."""
        return {
            "schema_version": SCHEMA_VERSION,
            "tensors": [asdict(tensor) for tensor in self.tensors],
            "groups": [asdict(group) for group in self.groups],
            "parameters": [[item.name, list(item.shape), item.trainable] for item in self.parameters],
            "proof": None if self.shown is None else self.shown.to_json(),
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
            shown = data["proof"]
            return cls(
                tensors=tuple(TensorPlan.from_json(tensor) for tensor in data["tensors"]),
                groups=tuple(GroupPlan.from_json(group) for group in data["groups"]),
                parameters=tuple(
                    ParameterShape(str(name), tuple(shape), bool(trainable))
                    for name, shape, trainable in data["parameters"]
                ),
                shown=None if shown is None else PaddingProof.from_json(shown),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"no plan of weights: {error!r}") from error

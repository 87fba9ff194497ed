"""A whole traced model: ops in the order they ran, parameters, inputs, and what had to be assumed."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from tclint.core.units import count, plural
from tclint.graph.ops.op import Op
from tclint.graph.ops.spec import Site, TensorSpec, itemsize_bytes, numel

if TYPE_CHECKING:
    import torch

GRAPH_SCHEMA_VERSION = "5"
ASSUMED_BATCH = 8
"""How many samples a trace has that nobody gave inputs for; a step is priced with as many as suit the GPU."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter or buffer of the model; tied ones appear once, under their first name."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    trainable: bool = True
    """False for buffers and for parameters with requires_grad=False."""
    is_buffer: bool = False
    aliases: tuple[str, ...] = ()
    """Other qualified names of the same tensor (tied weights)."""
    construct_site: Site | None = None
    """Where the module that owns it was constructed."""
    is_persistent: bool = True
    """False for buffers that no checkpoint holds: the model computes them itself."""
    values_per_element: int = 1
    """Parameters that an element holds: 2 where a byte packs two of 4 bits."""

    @property
    def numel(self) -> int:
        return numel(self.shape)

    @property
    def bytes(self) -> int:
        return self.numel * itemsize_bytes(self.dtype)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Parameter:
        tuples = {name: tuple(data[name]) for name in ("shape", "aliases")}
        return cls(**{**data, **tuples, "construct_site": Site.from_json(data["construct_site"])})


@dataclass(frozen=True, slots=True)
class Assumption:
    """Something the tracer could not know and had to guess; shown to the user with its line."""

    what: str
    site: Site | None = None
    count: int = 1
    is_doubtful: bool = False
    """Whether every figure of the report may be another because of it: reports open with it."""

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Assumption:
        return cls(data["what"], Site.from_json(data["site"]), data["count"], data["is_doubtful"])


@dataclass(frozen=True, slots=True)
class Guess:
    """What a trace took one of several plausible values for, with the model at others."""

    assumption: int
    """Which of the graph's assumptions says what was taken."""
    why: str
    """'nothing states the height and width'."""
    others: tuple[tuple[str, Graph], ...]
    """By what is said of them: 'at 32x32'."""

    def to_json(self) -> dict[str, Any]:
        """Read by `from_json`."""
        others = [[label, graph.document()] for label, graph in self.others]
        return {"assumption": self.assumption, "why": self.why, "others": others}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Guess:
        others = ((label, Graph.from_document(graph)) for label, graph in data["others"])
        return cls(data["assumption"], data["why"], tuple(others))


@dataclass(frozen=True, slots=True)
class Graph:
    """A traced model; `ops[i].index == i`, in the order of execution.

    `inputs` are the tensors the model was called with (with `input_name`), `outputs` what it returned,
    flattened.
    """

    ops: tuple[Op, ...]
    parameters: tuple[Parameter, ...] = ()
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    assumptions: tuple[Assumption, ...] = ()
    root_site: Site | None = None
    """Where the user's callable or class is defined: the fallback location of a finding."""
    metadata: dict[str, Any] = field(default_factory=dict)
    """JSON values: torch version, seconds spent building and tracing, the model's class name."""
    guesses: tuple[Guess, ...] = ()
    """Of those assumptions on which the work may depend."""
    fx: Callable[[], torch.fx.Graph] | None = field(default=None, compare=False, repr=False)
    """Gives what the model was traced into, in the process that asked for the trace; not in JSON."""

    def __repr__(self) -> str:
        inputs = ", ".join(f"{spec.dtype}{list(spec.shape)}" for spec in self.inputs[:3])
        more = ", ..." if len(self.inputs) > 3 else ""
        name = self.metadata.get("model") or "model"
        size = f"{plural(len(self.ops), 'op')}, {count(self.parameter_count)} parameters"
        return f"<Graph: {name}, {size}, inputs {inputs or 'none'}{more}>"

    @property
    def parameter_count(self) -> int:
        """Number of parameters, buffers excluded, tied ones counted once."""
        return sum(one.numel * one.values_per_element for one in self.parameters if not one.is_buffer)

    @property
    def composites(self) -> frozenset[int]:
        """Indices of the ops whose work is carried by child ops (einsum, tensordot, ...)."""
        return frozenset(op.parent for op in self.ops if op.parent is not None)

    @property
    def products(self) -> tuple[Op, ...]:
        """The matrix products, convolutions, attentions and recurrent layers that do work themselves; a
        composite with children does not."""
        parents = self.composites
        return tuple(op for op in self.ops if op.is_product and op.index not in parents)

    @property
    def convolutions(self) -> tuple[Op, ...]:
        """The convolutions whose weight is known."""
        return tuple(op for op in self.ops if op.kind == "conv" and op.input("weight") is not None)

    def consumers(self) -> dict[int, list[Op]]:
        """Index of an op -> the ops that read one of its outputs, in order."""
        readers: dict[int, list[Op]] = {}
        for op in self.ops:
            for producer in dict.fromkeys(spec.producer for spec in op.inputs if spec.producer is not None):
                readers.setdefault(producer, []).append(op)
        return readers

    def producers(self, spec: TensorSpec | None) -> Iterator[Op]:
        """The op that made a tensor, the op that made the first input of that one, and so on."""
        while spec is not None and spec.producer is not None:
            op = self.ops[spec.producer]
            yield op
            spec = op.inputs[0] if op.inputs else None

    def ancestors(self, spec: TensorSpec) -> frozenset[int]:
        """The indices of all ops that a tensor is computed by."""
        found: set[int] = set()
        pending = [spec.producer]
        while pending:
            index = pending.pop()
            if index is not None and index not in found:
                found.add(index)
                pending += [one.producer for one in self.ops[index].inputs]
        return frozenset(found)

    def with_ops(self, changed: Mapping[int, Op]) -> Graph:
        """A what-if, for pricing only: the graph with other ops at some indices.

        Neighbours stay as they are, so this suits changes that no other op sees: a bias dropped, a
        convolution made dense. Parameters take the shapes that their new readers see.
        """
        ops = tuple(changed.get(op.index, op) for op in self.ops)
        shapes: dict[tuple[str, tuple[int, ...]], tuple[int, ...]] = {}
        dropped: set[str] = set()
        for index, op in changed.items():
            before = dict(zip(self.ops[index].input_names, self.ops[index].inputs, strict=True))
            after = dict(zip(op.input_names, op.inputs, strict=True))
            for name, spec in before.items():
                if spec.parameter is None:
                    continue
                if name in after:
                    # A tensor computed from a parameter carries its name with a shape of its own.
                    shapes[spec.parameter, spec.shape] = after[name].shape
                else:
                    dropped.add(spec.parameter)
        dropped -= {spec.parameter for op in ops for spec in op.inputs if spec.parameter}
        parameters = tuple(
            replace(parameter, shape=shapes.get((parameter.name, parameter.shape), parameter.shape))
            for parameter in self.parameters
            if parameter.name not in dropped
        )
        return replace(self, ops=ops, parameters=parameters)

    def __reduce__(self) -> tuple[type[Graph], tuple[Any, ...]]:
        # Nodes of torch.fx hold operators, which cannot be pickled.
        return Graph, tuple(None if part.name == "fx" else getattr(self, part.name) for part in fields(self))

    def to_fx(self) -> torch.fx.Graph:
        """Deprecated: `tclint.to_fx(graph)`."""
        warnings.warn(
            "Graph.to_fx() is deprecated: call tclint.to_fx(graph)", DeprecationWarning, stacklevel=2
        )
        return fx_of(self)

    def to_json(self) -> str:
        """One JSON document; `Graph.from_json` gives an equal graph back."""
        return json.dumps(self.document(), separators=(",", ":"), default=Site.to_json)

    def document(self) -> dict[str, Any]:
        """What `to_json` writes; sites are left to the writer."""
        return {
            "schema": GRAPH_SCHEMA_VERSION,
            "ops": [op.to_json() for op in self.ops],
            "parameters": [_by_field(parameter) for parameter in self.parameters],
            "inputs": [spec.to_json() for spec in self.inputs],
            "outputs": [spec.to_json() for spec in self.outputs],
            "assumptions": [_by_field(assumption) for assumption in self.assumptions],
            "root_site": self.root_site,
            "metadata": self.metadata,
            "guesses": [guess.to_json() for guess in self.guesses],
        }

    @classmethod
    def from_json(cls, text: str | bytes) -> Graph:
        """Read what `to_json` wrote.

        Raises:
            ValueError: not a graph document, or of another schema version.
        """
        return cls.from_document(json.loads(text))

    @classmethod
    def from_document(cls, data: Any) -> Graph:
        """Read what `document` gave, out of JSON.

        Raises:
            ValueError: not a graph document, or of another schema version.
        """
        if not isinstance(data, dict) or data.get("schema") != GRAPH_SCHEMA_VERSION:
            raise ValueError(f"not a tclint graph of schema version {GRAPH_SCHEMA_VERSION}")
        try:
            return cls(
                ops=tuple(Op.from_json(index, op) for index, op in enumerate(data["ops"])),
                parameters=tuple(Parameter.from_json(parameter) for parameter in data["parameters"]),
                inputs=tuple(TensorSpec.from_json(spec) for spec in data["inputs"]),
                outputs=tuple(TensorSpec.from_json(spec) for spec in data["outputs"]),
                assumptions=tuple(Assumption.from_json(item) for item in data["assumptions"]),
                root_site=Site.from_json(data["root_site"]),
                metadata=data["metadata"],
                guesses=tuple(Guess.from_json(guess) for guess in data.get("guesses", ())),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a tclint graph: {error!r}") from error


def fx_of(graph: Graph) -> torch.fx.Graph:
    """See `tclint.to_fx`."""
    if graph.fx is None:
        raise LookupError(
            "this graph has no torch.fx nodes: they stay in the process that asked for the trace, so call "
            "tclint.trace there"
        )
    return graph.fx()


def _by_field(item: Parameter | Assumption) -> dict[str, Any]:
    """JSON values by the fields' names; sites are left to the writer."""
    return {part.name: getattr(item, part.name) for part in fields(item)}

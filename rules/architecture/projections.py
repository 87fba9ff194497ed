"""Several products that read the same input."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tclint.plugin import Change, Finding, GraphContext, GraphRule, Op
from tclint.plugin.graph import SMALLEST_WIDTH, gain_phrase, indices_of, share_finding

from .fusions import with_joined_linears


class ProjectionsSeparate(GraphRule):
    """Linear layers that read the same tensor run as separate products.

    What it does
    Finds linear layers of one module, or of one parent module, that read the very same tensor - query,
    key and value, the gate and up halves of a gated feed-forward layer, the gates of a hand-written cell
    - and prices them as one layer with all their outputs, whose result is split.

    Why it costs
    Each product reads the input again, and alone it has fewer tiles than one product over all the
    columns: the GPU's last wave is emptier. In backward, the gradient of the input takes three products
    and two sums instead of one product.

    Example
        q, k, v = self.q(x), self.k(x), self.v(x)     # nn.Linear(256, 256) each

    Use instead
        q, k, v = self.qkv(x).chunk(3, dim=-1)        # nn.Linear(256, 768)

    When it does not apply
    Cross attention, whose key and value read another tensor (those two may still be merged). Wide layers,
    which fill the GPU alone: the predicted gain decides. Tensor parallelism and per-matrix optimizers
    (Muon, Shampoo) may need separate matrices. Checkpoints with separate weights have to be converted by
    concatenating them.
    """

    code = "ARC004"
    name = "qkv-separate"
    level = "info"
    confidence = "medium"
    sources = (
        "NVIDIA Train With Mixed Precision, Optimizing for Tensor Cores: concatenate weights and gate "
        "activations where possible",
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        by_lines: dict[tuple[tuple[str, int], ...], list[list[Op]]] = {}
        for layers in _layers_of_one_input(context):
            by_lines.setdefault(tuple(sorted({op.line for op in layers})), []).append(layers)
        for sets in by_lines.values():
            ops = [op for layers in sets for op in layers]
            if context.worth_pricing(indices_of(ops)):
                yield self._finding(context, sets, ops)

    def _finding(self, context: GraphContext, sets: list[list[Op]], ops: list[Op]) -> Finding:
        indices = [indices_of(layers) for layers in sets]
        change = Change(edit=partial(with_joined_linears, layers=indices))
        effect = context.effect(indices_of(ops), change)
        widths = " + ".join(str(op.outputs[0].shape[-1]) for op in sets[0])
        return share_finding(
            self,
            context,
            ops,
            "linear layer",
            f", {len(sets[0])} of them reading the same input each time; as one layer of {widths} outputs "
            f"they {_plural(gain_phrase(effect))}",
            effect=effect,
            advice="Build one linear layer with all the outputs and split its result with chunk or split.",
            evidence={"joined": len(sets[0])},
            others="a layer that reads the same input",
            change=change,
        )


def _plural(phrase: str) -> str:
    return "are" + phrase.removeprefix("is")


def _layers_of_one_input(context: GraphContext) -> Iterator[list[Op]]:
    """Sets of at least two linear layers of one parent module that read the same tensor."""
    found: dict[tuple[object, ...], list[Op]] = {}
    weights: dict[str, int] = {}
    for op in context.graph.ops:
        for spec in op.inputs:
            if spec.parameter is not None:
                weights[spec.parameter] = weights.get(spec.parameter, 0) + 1
        weight = op.input("weight")
        if op.name != "linear" or weight is None or weight.parameter is None:
            continue
        if op.outputs[0].shape[-1] < SMALLEST_WIDTH:
            continue  # separate heads, such as a score and a box
        source = op.inputs[0]
        if source.producer is None and source.input_name is None:
            continue
        parent = op.module_path.rpartition(".")[0]
        # Gates in a list of layers have the list as their parent.
        key = (source.producer, source.output_index, source.input_name, source.shape, parent)
        found.setdefault((*key, op.input("bias") is None), []).append(op)
    for layers in found.values():
        once = [op for op in layers if weights[_weight(op)] == 1]
        if len(once) >= 2:
            yield once


def _weight(op: Op) -> str:
    weight = op.input("weight")
    assert weight is not None
    return weight.parameter or ""

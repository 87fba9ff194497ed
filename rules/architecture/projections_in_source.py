"""Several products that read the same input, as the source itself shows them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tclint.plugin import Finding, Fix, Gpu, Settings, SourceContext, SourceRule, render
from tclint.plugin.source import TRAINS, Place, Projection

_BYTES = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2}
"""Bytes per value in the precisions whose products read and write values of that size."""
_SMALLEST = 64
"""Narrower layers are heads (actions, classes, a mean and a variance) and not parts of one projection (a
choice of this project)."""
_WANTED_APART = ("published", "adapt", "shard")
"""Events that need separate matrices: published weights, adapters and tensor parallelism."""


class ProjectionsSeparateInSource(SourceRule):
    """Linear layers that read the same tensor run as separate products.

    What it does
    Finds linear layers of one class that a method calls with the same variable - query, key and value,
    the gate and up halves of a gated feed-forward layer - where the source shows sizes so small that each
    product is limited by memory on every GPU given, whatever the number of tokens: inputs x outputs /
    (inputs + outputs) is below the GPU's balance. For a traced model the gain is priced at any size.

    Why it costs
    Each product reads the input again, and alone it has fewer tiles than one product over all the
    columns: the GPU's last wave is emptier. In backward, the gradient of the input takes three products
    and two sums instead of one product.

    Example
        q, k, v = self.q(x), self.k(x), self.v(x)     # nn.Linear(256, 256) each

    Use instead
        q, k, v = self.qkv(x).chunk(3, dim=-1)        # nn.Linear(256, 768)

    When it does not apply
    Sizes that are known only at run time. Wide layers, which may fill the GPU alone: give tclint the
    model as `file.py:callable` to have them priced. Layers whose weights are read elsewhere. Tensor
    parallelism, adapters, quantization and per-matrix optimizers (Muon, Shampoo) may need separate
    matrices, and published checkpoints have them. There is no `--fix`: the layers' names in checkpoints
    and their initialization, which depends on the number of outputs, would change in several places.
    """

    code = "ARC004"
    name = "qkv-separate"
    level = "info"
    confidence = "medium"
    sources = (
        "NVIDIA Train With Mixed Precision, Optimizing for Tensor Cores: concatenate weights and gate "
        "activations where possible",
    )
    triggers = ("Linear(",)
    program = TRAINS
    requires = ("self.", "Module")
    # Matches two attributes that are called with the same name close together.
    pattern = re.compile(rb"(?s)self\.\w+\((\w+)\).{0,200}?self\.\w+\(\1\)")

    def applies(self, settings: Settings) -> bool:
        return settings.precision in _BYTES

    def check(self, context: SourceContext) -> Iterator[Finding]:
        from tclint.plugin import load_gpu

        if context.record.of(*_WANTED_APART):
            return
        precision = context.settings.precision
        gpus = [load_gpu(gpu) for gpu in context.settings.gpus]
        seen = set[Place]()
        for group in context.projections.sharing_an_input():
            made = group[0].made
            if not context.concerns(made) or made.place in seen:
                continue
            if all(
                min(layer.inputs, layer.outputs) >= _SMALLEST and _limited_by_memory(layer, gpu, precision)
                for layer in group
                for gpu in gpus
            ):
                seen.add(made.place)
                yield self._finding(context, group)

    def _finding(self, context: SourceContext, group: list[Projection]) -> Finding:
        first, *others = group
        widths = " + ".join(str(layer.outputs) for layer in group)
        calls = [layer.call.call for layer in group if layer.call.call is not None]
        names = ", ".join(dict.fromkeys(render(call.function) for call in calls))
        return self.finding(
            context.at(first.made),
            f"{names} read the same `{first.call.argument_text}` in products of {first.inputs} -> {widths}, "
            "each limited by memory whatever the number of tokens; one layer of all the outputs reads it "
            "once.",
            related=tuple(
                context.also(made, "a layer that reads the same input")
                for made in dict.fromkeys(layer.made for layer in others)
                if made.place != first.made.place
            ),
            evidence={
                "joined": len(group),
                "inputs": first.inputs,
                "outputs": [layer.outputs for layer in group],
            },
            fix=Fix("Build one linear layer with all the outputs and split its result with chunk or split."),
            identity=f"{first.call.place.function.qualified_name}:{names}",
        )


def _limited_by_memory(layer: Projection, gpu: Gpu, precision: str) -> bool:
    """Whether the arithmetic intensity of a layer stays below the GPU's balance for any number of tokens."""
    if not gpu.supports(precision):
        return False
    bytes_per_token = _BYTES[precision] * (layer.inputs + layer.outputs)
    return 2 * layer.inputs * layer.outputs / bytes_per_token < gpu.balance(precision)

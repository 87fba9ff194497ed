"""Several products that read the same input, as the source itself shows them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tclint.cost.gpu import Gpu
from tclint.plugin import Finding, Fix, Settings, SourceContext, SourceRule
from tclint.source.layers.shared_inputs import Projection, SharedInput, layers_of_one_input
from tclint.source.names.queries import is_test_path

_BYTES = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2}
"""Of a value, for precisions whose products read and write it so."""
_SMALLEST = 64
"""A choice of this project: narrower layers are heads (actions, classes, a mean and a variance), not parts
of one projection."""
_WANTED_APART = re.compile(
    r"pre_?trained|from_url|load_url|lora|peft|muon|shampoo|soap|parallel|colwise|quantiz|bitsandbytes"
    r"|register_?model"
)
"""Identifiers, in lower case, of files whose matrices have a reason to be apart."""

_ELSEWHERE = ("Muon", "muon", "Shampoo", "shampoo", "parallelize_module", "get_peft_model")
"""The same in files that run with this one."""


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
    requires = ("self.", "Module")
    # Two attributes called with the same name close together, in a file that loads no published weights.
    pattern = re.compile(
        rb"(?s)\A(?!.*?(?:[pP]re_?[tT]rained|from_url|load_url|[lL]o[rR][aA]|[pP]arallel)).*?"
        rb"self\.\w+\((\w+)\).{0,200}?self\.\w+\(\1\)"
    )

    def applies(self, settings: Settings) -> bool:
        return settings.precision in _BYTES

    def check(self, context: SourceContext) -> Iterator[Finding]:
        if is_test_path(context.path):
            return
        if any(_WANTED_APART.search(name.lower()) for name in context.tables.identifiers):
            return
        from tclint.cost.gpu import load_gpu

        precision = context.settings.precision
        gpus = [load_gpu(gpu) for gpu in context.settings.gpus]
        for shared in layers_of_one_input(context):
            if all(
                min(layer.inputs, layer.outputs) >= _SMALLEST and _limited_by_memory(layer, gpu, precision)
                for layer in shared.layers
                for gpu in gpus
            ):
                if context.neighbours.mention(_ELSEWHERE):
                    return
                yield self._finding(context, shared)

    def _finding(self, context: SourceContext, shared: SharedInput) -> Finding:
        first, *others = shared.layers
        widths = " + ".join(str(layer.outputs) for layer in shared.layers)
        names = ", ".join(layer.name for layer in shared.layers)
        return self.finding(
            context.location(first.call.node_id),
            f"{names} read the same `{shared.tensor}` in products of {first.inputs} -> {widths}, each "
            "limited by memory whatever the number of tokens; one layer of all the outputs reads it once.",
            related=tuple(
                context.related(layer.call.node_id, "a layer that reads the same input") for layer in others
            ),
            evidence={
                "joined": len(shared.layers),
                "inputs": first.inputs,
                "outputs": [layer.outputs for layer in shared.layers],
            },
            fix=Fix("Build one linear layer with all the outputs and split its result with chunk or split."),
            identity=f"{shared.function.qualified_name}:{names}",
        )


def _limited_by_memory(layer: Projection, gpu: Gpu, precision: str) -> bool:
    """Operations for each byte moved, with ever more tokens, stay below what the GPU has of both."""
    if not gpu.supports(precision):
        return False
    bytes_per_token = _BYTES[precision] * (layer.inputs + layer.outputs)
    return 2 * layer.inputs * layer.outputs / bytes_per_token < gpu.balance(precision)

"""Activations that cuDNN does not fuse, as the source itself shows them."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.analysis.activations import NOT_FUSABLE
from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.layers.layer_order import Layer, LayerOrder
from tclint.source.names.queries import is_test_path, words

_NOT_FUSABLE = frozenset(NOT_FUSABLE.values())
_PRODUCTS = words("Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d Linear Bilinear")
_NORMS = words("BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm GroupNorm LayerNorm")
_COMPILERS = frozenset({"compile", "torch_tensorrt"})


class ActivationNotFusableInSource(SourceRule):
    """An activation after a convolution or linear layer is not one that cuDNN fuses.

    What it does
    Finds layers of torch.nn that compute an activation other than relu, tanh, sigmoid, elu, gelu,
    softplus or swish right after a convolution or linear layer (a norm may lie between), in
    `nn.Sequential` or in `forward`, and reports each kind once per file. Off by default: only a trace
    shows what it costs.

    Why it costs
    cuDNN's fused kernels apply those activations while the result is still on the chip. Any other is a
    separate kernel that reads and writes the whole tensor.

    Example
        nn.Sequential(nn.Conv2d(64, 64, 3), nn.BatchNorm2d(64), nn.LeakyReLU(0.1))

    Use instead
        nn.Sequential(nn.Conv2d(64, 64, 3), nn.BatchNorm2d(64), nn.ReLU())     # or SiLU, GELU

    When it does not apply
    Eager PyTorch launches every activation as a separate kernel, so changing one gains nothing there;
    torch.compile fuses any, and training code that calls it is left alone. The rule matters for engines
    built on cuDNN's fusion. Changing an activation changes the model.
    """

    code = "ARC007"
    name = "activation-not-fusable"
    since = "0.1.0"
    level = "info"
    confidence = "medium"
    enabled_by_default = False
    sources = ("NVIDIA cuDNN 8 Developer Guide, Runtime Fusion Engine: supported pointwise operations",)
    triggers = tuple(f"{kind}(" for kind in sorted(_NOT_FUSABLE))
    requires = ("nn",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        if is_test_path(context.path) or _COMPILERS & context.tables.identifiers:
            return
        found: dict[str, list[tuple[Layer, Layer]]] = {}
        for product, activation in _products_and_activations(context):
            found.setdefault(activation.kind, []).append((product, activation))
        for kind, pairs in found.items():
            product, activation = pairs[0]
            others = f" ({len(pairs)} in this file)" if len(pairs) > 1 else ""
            yield self.finding(
                context.location(activation.call.node_id),
                f"{kind} follows a {product.kind}{others}: cuDNN's fused kernels do not apply it, so that it "
                "reads and writes the whole tensor once more.",
                related=tuple(
                    context.related(layer.call.node_id, f"what it follows: {layer.kind}")
                    for layer, _ in pairs[:8]
                ),
                evidence={"activation": kind, "layers": len(pairs)},
                fix=Fix(
                    "For engines that fuse with cuDNN choose relu, tanh, sigmoid, elu, gelu, softplus or "
                    "swish; trace the model (tclint FILE.py:CALLABLE) to have the kernels priced."
                ),
                identity=kind,
            )


def _products_and_activations(context: SourceContext) -> Iterator[tuple[Layer, Layer]]:
    after = {pair.first.call.node_id: pair for pair in LayerOrder(context).pairs()}
    for pair in after.values():
        if pair.first.kind in _PRODUCTS:
            second = pair.second
            if second.kind in _NORMS and second.call.node_id in after:
                second = after[second.call.node_id].second
            if second.kind in _NOT_FUSABLE:
                yield pair.first, second

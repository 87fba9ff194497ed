"""Batch norms that a cast of the whole model turns into 16 bits, in training."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, Name, Related, SourceContext, SourceRule
from tclint.source.names.queries import is_test_path
from tclint.source.training.batch_norms import keeps_norms, norm_of, replaces_norms
from tclint.source.training.training_casts import trained_casts


class BatchNormInHalf(SourceRule):
    """Batch norms keep their running statistics in 16 bits while the model trains.

    What it does
    Finds `.half()`, `.bfloat16()` and `.to(torch.float16)` on a model that an optimizer trains and that
    has batch norms - in its classes, in this file or another file of the project, or as a torchvision or
    timm network chosen by a literal name - where nothing in the file casts the norms back to float32.

    Why it costs
    The cast converts the running mean and variance too. Each step moves them a tenth of the way to the
    batch's, and rounding loses changes below about 2^-11 (float16) or 2^-8 (bfloat16) of the statistic;
    variances above 65504 become infinite in float16. cuDNN's batch norm takes float16 activations only
    with float32 parameters, so PyTorch cannot use it either.

    Example
        model = torchvision.models.resnet50().cuda().half()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    Use instead
        model = torchvision.models.resnet50().cuda().half()
        for module in model.modules():
            if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
                module.float()

    When it does not apply
    Inference, models that are not trained, norms that go back to float32 (by hand, apex's
    keep_batchnorm_fp32), frozen batch norms, frameworks that cast, other norms.
    """

    code = "ARC019"
    name = "batchnorm-in-half"
    level = "warning"
    confidence = "high"
    sources = (
        "NVIDIA Train With Mixed Precision: batch norm keeps its statistics in float32",
        "PyTorch 2.13 aten/src/ATen/native/Normalization.cpp, _select_batch_norm_backend: cuDNN needs "
        "float32 parameters",
        "IEEE 754-2019: binary16 has 11 significant bits and holds at most 65504",
    )
    triggers = (".half(", "float16", "torch.half")
    requires = (".backward(", ".step(", "optim")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        amp = context.amp
        if amp.framework or not amp.steps_optimizer or is_test_path(context.path) or keeps_norms(context):
            return
        for cast, optimizer in trained_casts(context):
            function = context.tables.functions[cast.function]
            norm = norm_of(context, function, Name(cast.name))
            if norm is None or replaces_norms(context, cast.name):
                continue
            bits = 11 if cast.dtype == "float16" else 8
            yield self.finding(
                context.location(cast.written),
                f"`{cast.name}` has batch norms ({norm.name}), whose running statistics go to {cast.dtype} "
                f"with it: updates below about 2^-{bits} of a statistic are lost in training.",
                related=(
                    Related(norm.location, "the batch norm"),
                    context.related(optimizer, "the optimizer of the model"),
                ),
                evidence={"model": cast.name, "norm": norm.name, "dtype": cast.dtype},
                fix=Fix(
                    "Call .float() on every batch norm after the cast; or keep the model in float32 and "
                    "compute under torch.autocast."
                ),
                identity=cast.name,
            )

"""Models whose step computes in float32."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import PRECISION_FACTS, Change, Finding, Fix, GraphContext, GraphRule
from tclint.plugin.graph import autocast, gain_phrase, indices_of, rounded, tf32


def _finding(rule: GraphRule, context: GraphContext, change: Change | None, advice: str) -> Iterator[Finding]:
    products = indices_of(context.graph.products)
    if change is None or not products:
        return
    effect, other = context.effect(products, change), change.settings["precision"]
    yield rule.finding(
        context.root_location(),
        f"The step runs in {PRECISION_FACTS[context.settings.precision].title}; in "
        f"{PRECISION_FACTS[other].title} it "
        f"{gain_phrase(effect)}.",
        effect=effect,
        evidence={
            "precision": context.settings.precision,
            "other_precision": other,
            "share_percent": rounded(context.share_percent(products)),
        },
        fix=Fix(advice),
        identity="precision",
        change=change,
    )


class Float32Step(GraphRule):
    """The model's step computes in float32, where 16 bits would do.

    What it does
    Applies where the step is priced in float32 or TF32, because the settings or the training script given
    beside the model say so, and the model's own weights are float32. Prices the whole step under autocast:
    in bfloat16 where all of the GPUs have units for it, else in float16.

    Why it costs
    Matrix products and convolutions run up to 16 times as fast in 16 bits as in float32 on the same GPU,
    and activations take half of the memory and of its bandwidth.

    Example
        loss = criterion(model(images), labels)

    Use instead
        with torch.autocast("cuda", torch.bfloat16):
            loss = criterion(model(images), labels)

    When it does not apply
    Numerical work that needs float32. Models whose weights have another dtype.
    """

    code = "AMP016"
    name = "no-mixed-precision"
    level = "warning"
    confidence = "high"
    sources = (
        "PyTorch Performance Tuning Guide, Use mixed precision and AMP: up to three times the speed on "
        "Volta and newer",
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        change = context.once(autocast)
        advice = "Run the model under torch.autocast."
        if change is not None:
            dtype = "torch.bfloat16" if change.settings["precision"] == "bf16" else "torch.float16"
            advice = f"Run the model{' and its loss' * (context.settings.mode == 'train')} under "
            advice += f'torch.autocast("cuda", {dtype})'
            scaled = dtype == "torch.float16" and context.settings.mode == "train"
            advice += ", and scale the loss with torch.amp.GradScaler." if scaled else "."
        yield from _finding(self, context, change, advice)


class Tf32Step(GraphRule):
    """The model's float32 products leave the Tensor Cores unused, where TF32 would do.

    What it does
    Applies where the step is priced in float32 without TF32 in matrix products or in convolutions, because
    the settings or the training script given beside the model say so, on GPUs of compute capability 8.0 and
    newer. Prices the whole step with TF32 in both.

    Why it costs
    On an A100 TF32 Tensor Cores have 156 TFLOP/s, the float32 pipes 19.5. PyTorch's default leaves matrix
    products on the latter.

    Example
        model(x)      # torch.get_float32_matmul_precision() == "highest"

    Use instead
        torch.set_float32_matmul_precision("high")   # once, before the loop

    When it does not apply
    Numerical work that needs float32. Autocast gains more where 16 bits do (no-mixed-precision).
    """

    code = "PRC001"
    name = "tf32-matmul-off"
    level = "warning"
    confidence = "high"
    sources = (
        "PyTorch CUDA semantics, TensorFloat-32 (TF32) on Ampere (and later) devices: about 7 times the "
        "speed, relative error 2e-3",
        "NVIDIA A100 Tensor Core GPU Architecture: 156 TFLOP/s in TF32 and 19.5 in float32",
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        advice = (
            'Call torch.set_float32_matmul_precision("high") once, and leave torch.backends.cudnn.allow_tf32 '
            "True."
        )
        yield from _finding(self, context, context.once(tf32), advice)

"""bfloat16 on GPUs that have no Tensor Cores for it."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, Settings, SourceContext, SourceRule

_CAPABILITY = frozenset(("is_bf16_supported", "get_device_capability", "is_torch_bf16_gpu_available"))


class Bf16OnPreAmpere(SourceRule):
    """bfloat16 on a GPU whose Tensor Cores do not compute in it.

    What it does
    Finds autocast regions in bfloat16, and models cast to bfloat16, when you lint for a GPU of compute
    capability 7.0 or 7.5 (`--gpu v100`, `--gpu t4`). With the default GPUs it reports nothing.

    Why it costs
    Volta and Turing Tensor Cores compute in float16, not in bfloat16, which PyTorch emulates there: every
    matrix product runs on the CUDA cores, slower than in float32.

    Example
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(batch)

    Use instead
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(batch)
        scaler.scale(loss).backward()

    When it does not apply
    A dtype that is chosen by what the GPU supports (`torch.cuda.is_bf16_supported`, the device's
    capability), GPUs from compute capability 8.0 on, CPU autocast.
    """

    code = "AMP017"
    name = "bf16-on-pre-ampere"
    level = "warning"
    confidence = "high"
    sources = (
        "NVIDIA Matrix Multiplication Background User's Guide, Table 1: Tensor Core data types by cuBLAS "
        "and cuDNN version",
        "PyTorch 2.13 torch/cuda/__init__.py, is_bf16_supported: older GPUs emulate bfloat16 "
        "(including_emulation)",
    )
    triggers = ("bfloat16", "is_bf16_supported")
    requires = ()

    def applies(self, settings: Settings) -> bool:
        return bool(_gpus_without_bf16(settings))

    def check(self, context: SourceContext) -> Iterator[Finding]:
        gpus = _gpus_without_bf16(context.settings)
        if gpus:
            yield from self._asked(context, gpus)
        if not gpus or _CAPABILITY & context.tables.identifiers:
            return
        listed = ", ".join(gpus)
        uses: dict[int, str] = {}
        for function in context.tables.functions:
            for region in context.amp.autocasts.regions(function):
                autocast = region.autocast
                if autocast.dtype == "bfloat16" and autocast.enabled is not False and region.on_cuda:
                    uses.setdefault(autocast.node_id, "autocast")
        for cast in context.casts.model_casts:
            if cast.dtype == "bfloat16":
                uses.setdefault(cast.node_id, "cast")
        for node_id, kind in sorted(uses.items()):
            what = "bfloat16 autocast" if kind == "autocast" else "a bfloat16 model"
            yield self.finding(
                context.location(node_id),
                f"{what[0].upper()}{what[1:]} does not use the Tensor Cores of {listed}: they compute in "
                "float16 only (bfloat16 needs compute capability 8.0).",
                related=(context.related(node_id, what),),
                evidence={"use": context.excerpt(node_id), "gpus": list(gpus), "dtype": "bfloat16"},
                fix=Fix(
                    "Use float16 with torch.amp.GradScaler on these GPUs; choose the dtype by "
                    "`torch.cuda.is_bf16_supported(including_emulation=False)`."
                ),
                identity=context.excerpt(node_id),
            )

    def _asked(self, context: SourceContext, gpus: tuple[str, ...]) -> Iterator[Finding]:
        """`torch.cuda.is_bf16_supported()`, which emulation makes True on every GPU."""
        for called in context.program.calls("torch.cuda.is_bf16_supported"):
            if called.call.arguments or not context.torch_may_be((2, 4)):
                continue
            yield self.finding(
                context.location(called.call.node_id),
                f"`{context.excerpt(called.call.node_id)}` is True on {', '.join(gpus)} as well, where "
                "bfloat16 is emulated without Tensor Cores.",
                related=(context.related(called.call.node_id, "asked here"),),
                evidence={"including_emulation": True, "gpus": list(gpus)},
                fix=Fix("Check `torch.cuda.is_bf16_supported(including_emulation=False)`."),
                identity=f"{called.function.qualified_name}:is_bf16_supported",
            )
            return


def _gpus_without_bf16(settings: Settings) -> tuple[str, ...]:
    """Names of the chosen GPUs that cannot compute in bfloat16; none when nobody chose the default pair."""
    from tclint.config.settings import DEFAULT_GPUS
    from tclint.cost.gpu import load_gpu

    chosen = [load_gpu(gpu) for gpu in settings.gpus]
    lacking = tuple(gpu.name for gpu in chosen if not gpu.supports("bf16"))
    default = [load_gpu(gpu).id for gpu in DEFAULT_GPUS]
    if "gpus" in settings.explicit:
        return lacking
    if len(lacking) < len(chosen) and [gpu.id for gpu in chosen] == default:
        return ()
    return lacking

"""bfloat16 on GPUs that have no Tensor Cores for it."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Event, Finding, Fix, Settings, SourceContext, SourceRule, distinct, options_of
from tclint.plugin.source import FALSE, NONE, Value, dtype_named

_SUPPORTED = "torch.cuda.is_bf16_supported"
_CAPABILITY = (
    "is_bf16_supported",
    "get_device_capability",
    "is_torch_bf16_gpu_available",
    "get_device_properties",
)


class Bf16OnPreAmpere(SourceRule):
    """bfloat16 on a GPU whose Tensor Cores do not compute in it.

    What it does
    Finds autocast regions in bfloat16, those of frameworks included, and models cast to bfloat16, when you
    lint for a GPU of compute capability 7.0 or 7.5 (`--gpu v100`, `--gpu t4`). With the default GPUs it
    reports nothing.

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
    triggers = ("bfloat16", "bf16")
    requires = ()

    def applies(self, settings: Settings) -> bool:
        return bool(gpus_without_bf16(settings))

    def check(self, context: SourceContext) -> Iterator[Finding]:
        gpus = gpus_without_bf16(context.settings)
        if not gpus:
            return
        yield from self._asked(context, gpus)
        for event, what, chosen in distinct(self._uses(context)):
            paths = (event.path, *(path for value in chosen for _, path in options_of(value)))
            values = [*chosen, *(atom.subject for path in paths for atom in path)]
            names = {name.rpartition(".")[2] for value in values for name in context.facts.names_in(value)}
            if not names.isdisjoint(_CAPABILITY):
                context.skip(event, "it is chosen by what the GPU supports")
                continue
            made = next(context.facts.things(event.result), None)
            yield self.finding(
                context.at(event, made, "dtype"),
                f"{what[0].upper()}{what[1:]} does not use the Tensor Cores of {', '.join(gpus)}: they "
                "compute in float16 only (bfloat16 needs compute capability 8.0).",
                related=(context.also(event, what),),
                evidence={"use": context.code(event), "gpus": list(gpus), "dtype": "bfloat16"},
                fix=Fix(
                    "Use float16 with torch.amp.GradScaler on these GPUs; choose the dtype by "
                    "`torch.cuda.is_bf16_supported(including_emulation=False)`."
                ),
                identity=context.code(event),
            )

    def _uses(self, context: SourceContext) -> Iterator[tuple[Event, str, tuple[Value, ...]]]:
        """(event, description, deciding values) of autocast in bfloat16 and of models cast to it, in
        order."""
        for event in context.record.of("make", "to"):
            if event.kind == "to" and not context.facts.kinds(event.subject, "module"):
                continue
            given = event.arguments.get("dtype", event.arguments.get("torch_dtype", NONE))
            if dtype_named(given) == "torch.bfloat16" and not context.facts.kinds(event.result, "autocast"):
                yield event, "a bfloat16 model", (given,)
            for made in context.facts.kinds(event.result, "autocast"):
                enabled = made.fields.get("enabled", NONE)
                if context.autocasts.default_dtype_on_gpu(made) == "torch.bfloat16" and enabled != FALSE:
                    yield event, "bfloat16 autocast", (enabled, made.fields.get("dtype", NONE))

    def _asked(self, context: SourceContext, gpus: tuple[str, ...]) -> Iterator[Finding]:
        """Findings on `torch.cuda.is_bf16_supported()`, which emulation makes True on every GPU."""
        for event in context.record.of("call"):
            if event.name != _SUPPORTED or event.arguments or not context.torch_may_be((2, 4)):
                continue
            yield self.finding(
                context.at(event),
                f"`{context.code(event)}` is True on {', '.join(gpus)} as well, where "
                "bfloat16 is emulated without Tensor Cores.",
                related=(context.also(event, "asked here"),),
                evidence={"including_emulation": True, "gpus": list(gpus)},
                fix=Fix("Check `torch.cuda.is_bf16_supported(including_emulation=False)`."),
                identity=f"{event.place.function.qualified_name}:is_bf16_supported",
            )
            return


def gpus_without_bf16(settings: Settings) -> tuple[str, ...]:
    """The names of the chosen GPUs that cannot compute in bfloat16; none for the default GPUs."""
    from tclint.plugin import load_gpu

    chosen = [load_gpu(gpu) for gpu in settings.gpus]
    lacking = tuple(gpu.name for gpu in chosen if not gpu.supports("bf16"))
    default = [load_gpu(gpu).id for gpu in Settings().gpus]
    if "gpus" in settings.explicit:
        return lacking
    if len(lacking) < len(chosen) and [gpu.id for gpu in chosen] == default:
        return ()
    return lacking

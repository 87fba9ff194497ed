"""A rule on frozen networks that a 16-bit training keeps in float32."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Effect, Finding, Fix, SourceContext, SourceRule, Thing
from tclint.plugin.source import TRAINS, Frozen


class FrozenInFloat32(SourceRule):
    """A frozen network with float32 weights in 16-bit training.

    What it does
    Finds networks that are loaded from a checkpoint without a dtype, frozen - by `requires_grad_(False)`,
    under `no_grad`, or as the base of adapters - and run in the steps of a training whose loss is computed
    under autocast.

    Why it costs
    Float32 copies protect small updates, and a frozen network gets none. Under autocast each layer casts its
    weights in every call: autocast keeps the casts of weights only that require a gradient. Outside of
    autocast the network computes in float32, at a fraction of the speed. Either way it takes twice the
    memory.

    Example
        vae = AutoencoderKL.from_pretrained(name, subfolder="vae")
        vae.requires_grad_(False)
        vae.to(accelerator.device)

    Use instead
        vae = AutoencoderKL.from_pretrained(name, subfolder="vae")
        vae.requires_grad_(False)
        vae.to(accelerator.device, dtype=weight_dtype)   # that of the autocast

    When it does not apply
    A dtype that is named for the network or its input, float32 included (SDXL's VAE overflows in float16);
    autocast that only an option turns on while no launcher speaks of it, or that is off around the network;
    DeepSpeed, which casts what it gets; checkpoints whose dtype is not known: since version 5 transformers
    keeps the one that is stored; networks that the program builds itself.
    """

    code = "AMP033"
    name = "frozen-network-in-float32"
    level = "info"
    confidence = "medium"
    sources = (
        "PyTorch 2.13 aten/src/ATen/autocast_mode.cpp, cached_cast: it keeps casts of leaves that require a "
        "gradient",
        "diffusers training examples, weight_dtype: networks that are not trained are cast to half precision",
    )
    triggers = (".from_pretrained(",)
    program = TRAINS

    def check(self, context: SourceContext) -> Iterator[Finding]:
        found: dict[Thing, Frozen] = {}
        for item in context.frozen.in_float32():
            if context.concerns(item.made):
                found.setdefault(item.network, item)
        for item in found.values():
            yield self._report(context, item)

    def _report(self, context: SourceContext, item: Frozen) -> Finding:
        name = item.made.assigned_name.rpartition(".")[2] or "the network"
        is_base = "@adapters" in item.use.changed
        what = f"The frozen base of `{name}`" if is_base else f"`{name}` is frozen and"
        how = "runs in float32 beside a training under autocast: slower, and in twice the memory."
        if item.is_inside:
            how = "stays in float32 under the training's autocast: each call casts its weights, which take "
            how += "twice the memory."
        entered = item.region.entered
        return self.finding(
            context.at(item.made, item.network, "dtype"),
            f"{what} {how}",
            related=(
                context.also(item.use, "it runs here"),
                *((context.also(entered, "the training's autocast"),) if entered is not None else ()),
            ),
            evidence={"network": name, "under_autocast": item.is_inside},
            effect=Effect(unknown="how large the network is, the source does not show"),
            fix=Fix("Load it in the autocast's dtype, or cast it there: `.to(device, dtype=weight_dtype)`."),
            identity=name,
        )

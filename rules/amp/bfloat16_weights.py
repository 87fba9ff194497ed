"""A rule on bfloat16 weights that are trained without float32 masters."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Event, Finding, Fix, SourceContext, SourceRule, Thing
from tclint.plugin.source import TRAINS, Cast

_LARGE_LEARNING_RATE = 1e-3
"""A tenth of it, by which noisy steps of Adam move a weight, is still above the resolution at 0.02, the usual
size of a transformer's weights. A choice of this project."""
_STEPS_IN_A_WEIGHT = 512
"""bfloat16 has 8 significant bits: a sum rounds back to a weight if what is added is below half of the last
one, 1/512 to 1/256 of the weight."""


class Bfloat16Weights(SourceRule):
    """bfloat16 weights trained by Adam without float32 masters.

    What it does
    Finds models whose weights are loaded in or cast to bfloat16 and updated by Adam, AdamW or one of their
    kind at a learning rate below 0.001, where nothing keeps float32 copies of the weights.

    Why it costs
    bfloat16 has 8 significant bits, so that a weight takes no change below 1/512 of it. Adam changes a weight
    by about the learning rate: at 1e-5 all weights above 0.005 stay exactly as they are, which is most of
    them, and the rest is rounded coarsely. The loss stalls early, and nothing tells why.

    Example
        model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16)
        arguments = TrainingArguments("runs", bf16=True, learning_rate=1e-5)
        Trainer(model, arguments, train_dataset=dataset).train()

    Use instead
        model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)
        arguments = TrainingArguments("runs", bf16=True, learning_rate=1e-5)
        Trainer(model, arguments, train_dataset=dataset).train()

    When it does not apply
    Adapters, which PEFT keeps in float32; frozen weights; optimizers that keep masters or round
    stochastically (DeepSpeed, Megatron, torchao, optimi); FSDP; scripts beside which a launcher speaks of
    DeepSpeed or FSDP; configuration files, which leave that to a launcher; learning rates from 0.001 on,
    options with their defaults. SGD, whose steps depend on the gradients. Under an autocast of the program's
    own, half-model-with-autocast-or-scaler says so.
    """

    code = "AMP032"
    name = "bfloat16-weights-without-masters"
    level = "warning"
    confidence = "medium"
    sources = (
        "NVIDIA Train With Mixed Precision, Mixed Precision Training: a master copy of weights in float32",
        "Adam: A Method for Stochastic Optimization, 2.1: steps are bounded by the learning rate",
    )
    triggers = ("bfloat16", "bf16")
    program = TRAINS

    def check(self, context: SourceContext) -> Iterator[Finding]:
        found: dict[Event, list[tuple[Cast, Thing]]] = {}
        for step in context.record.of("step", "scaler_step"):
            optimizers = context.scaled_steps.optimizers_of(step)
            for cast, optimizer in context.weights.without_masters(step, optimizers):
                if context.concerns(cast.event):
                    found.setdefault(cast.optimizer, []).append((cast, optimizer))
        launcher = context.keeps_masters if found else ""
        for event, casts in found.items():
            rate = max(context.optimizers.learning_rates(casts[0][1]), default=None)
            if context.run.is_configuration:
                context.skip(event, "a launcher may choose DeepSpeed or FSDP, which may keep float32 masters")
            elif launcher:
                context.skip(event, f"{launcher} speaks of DeepSpeed or FSDP, which may keep float32 masters")
            elif rate is not None and rate >= _LARGE_LEARNING_RATE:
                context.skip(event, f"a learning rate of {rate:g} moves most bfloat16 weights")
            else:
                first, optimizer = min(casts, key=lambda item: item[0].event.index)
                yield self._report(context, first, optimizer, rate)

    def _report(self, context: SourceContext, cast: Cast, optimizer: Thing, rate: float | None) -> Finding:
        name = context.weights.model_name(cast)
        kind = optimizer.name.rpartition(".")[2]
        lost = "a weight takes no change below 1/512 of it"
        if rate is None:
            lost += f", and a step of {kind} changes it by about the learning rate"
        else:
            lost += f"; a step of {kind} changes it by about {rate:g}, "
            lost += f"so that those above {_STEPS_IN_A_WEIGHT * rate:.2g} stay as they are"
        return self.finding(
            context.at(cast.event, cast.module, "dtype"),
            f"`{name}` is trained in bfloat16 without float32 masters: {lost}.",
            related=(context.also(cast.optimizer, "the optimizer of the bfloat16 weights"),),
            evidence={"model": name, "optimizer": kind, "learning_rate": rate},
            fix=Fix(
                "Keep the weights in float32 and compute in bfloat16 under autocast (a Trainer's bf16), or "
                "use an optimizer that rounds stochastically or carries the rest along (torchao, optimi)."
            ),
            identity=name,
        )

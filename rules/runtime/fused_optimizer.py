"""A rule on optimizers that could update all parameters with few kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tclint.plugin import (
    OPTIMIZERS,
    Change,
    Effect,
    Event,
    Finding,
    Fix,
    Location,
    SourceContext,
    SourceRule,
    Thing,
)
from tclint.plugin.source import FALSE, TRUE, Defaults

_FUSED_SINCE = {"torch.optim.Adam": "2.0", "torch.optim.AdamW": "2.0", "torch.optim.SGD": "2.3"}
_OLD_ADAMW = "transformers.AdamW"
"""It updates parameter by parameter; torch's AdamW does the same work."""


class OptimizerNotFused(SourceRule):
    """Adam, AdamW or SGD without its fused kernel.

    What it does
    Finds `torch.optim.Adam`, `AdamW` and `SGD` without `fused` or `foreach`, or with `foreach=False`, in
    programs that step them on a GPU, the AdamW that transformers had before version 5, and the Trainer's
    `optim`: `adamw_torch`, `adamw_hf`, or the default of the releases that the project pins (the fused one
    since transformers 4.54 with torch 2.8). There is one finding for a program; it lists the other
    optimizers.

    Why it costs
    The default launches several kernels per group of parameters, each reading and writing all of them;
    the fused version launches one. The optimizer step is limited by memory, so this is most of its time.

    Example
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    Use instead
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    When it does not apply
    PyTorch before 2.0 (Adam, AdamW) or 2.3 (SGD), parameters that are not floating-point, training on the
    CPU, models of fewer than 100,000 parameters as far as seen, a few tensors in a list. Other optimizers
    have no fused version: the argument raises TypeError. Lightning and Fabric refuse to clip gradients of a
    fused optimizer in float16: the rule is silent where the program clips them; DeepSpeed, apex and sharded
    strategies bring their own.
    """

    code = "RUN012"
    name = "optimizer-not-fused"
    level = "info"
    confidence = "medium"
    sources = (
        "PyTorch torch.optim, Algorithms: for-loop, foreach and fused implementations (signatures tried "
        "on PyTorch 2.13)",
        "transformers TrainingArguments, optim: adamw_torch_fused by default with torch 2.8 and newer",
    )
    triggers = ("Adam(", "AdamW(", "SGD(", "adamw_", "torch_adam", "TrainingArguments(")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        found: dict[Location, tuple[Event, Thing]] = {}
        for made, optimizer in context.optimizers.all:
            if context.concerns(made) and self._applies_to(context, optimizer):
                found.setdefault(context.at(made, optimizer, "fused"), (made, optimizer))
        for at, (made, optimizer) in found.items():
            name = optimizer.name.rpartition(".")[2]
            is_old = optimizer.name == _OLD_ADAMW
            how = (
                "updates parameter by parameter"
                if "foreach" in optimizer.fields or is_old
                else "runs several kernels over all parameters per step"
            )
            option = context.spelled(optimizer, "fused")[1]
            option = "fused=True" if option == "fused" else option
            option = "torch.optim.AdamW(..., fused=True)" if is_old else option
            yield self.finding(
                at,
                f"This {name} {how}; {option} makes it one kernel.",
                evidence={
                    "optimizer": name,
                    "fused": False,
                    "argument": option if made.place.file.is_library or option != "fused=True" else None,
                },
                effect=Effect(unknown="how many parameters the optimizer has is not known from the source"),
                fix=Fix(
                    f"{'Pass' if option == 'fused=True' else 'Use' if is_old else 'Set'} {option}.",
                    needs=f"torch {_FUSED_SINCE[_torch_name(optimizer)]}",
                    places=context.places(written=[made] if context.is_written(made) else []),
                ),
                identity=f"{made.place.function.qualified_name}:{name}",
                group=option,
            )

    def _applies_to(self, context: SourceContext, optimizer: Thing) -> bool:
        given = optimizer.fields
        if _torch_name(optimizer) not in _FUSED_SINCE:
            return False
        if "@steps itself" in given and "@said" not in given:
            return False
        if Defaults().truth(given.get("@chosen", TRUE)) is not True:
            return False  # an option has to choose it
        if given.keys() & {"fused", "differentiable", "**"} or given.get("foreach", FALSE) != FALSE:
            return False
        optimizers = context.optimizers
        updated = optimizers.updated_by(optimizer)
        if not updated or optimizers.is_tiny(optimizer) or _refuses(context, optimizer):
            return False
        return any(map(context.devices.may_be_on_gpu, updated))

    def change(self, finding: Finding, context: Any) -> Any:
        present = context.settings.optimizer
        if (
            not present.startswith(finding.evidence["optimizer"].lower())
            or f"{present}-fused" not in OPTIMIZERS
        ):
            return None
        return Change(settings={"optimizer": f"{present}-fused"})


def _torch_name(optimizer: Thing) -> str:
    return "torch.optim.AdamW" if optimizer.name == _OLD_ADAMW else optimizer.name


def _refuses(context: SourceContext, optimizer: Thing) -> bool:
    """Whether a framework clips the gradients and refuses optimizers that unscale them, as fused ones do."""
    for scaler in context.facts.things(optimizer.fields.get("@scaler")):
        if "@clips unfused" in scaler.fields and context.facts.is_on(scaler) is not False:
            return bool(context.record.of("clip"))
    return False

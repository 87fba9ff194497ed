"""A rule on optimizers that could update all parameters in few kernels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tclint.plugin import Effect, Finding, Fix, SourceContext, SourceRule
from tclint.source.names.queries import has_star, is_test_path, keyword
from tclint.source.syntax.tables import Collection, Expression, Literal, Name, render
from tclint.source.training.trainers import optimizer_of_lightning

_FUSED = {"torch.optim.Adam": "Adam", "torch.optim.AdamW": "AdamW", "torch.optim.SGD": "SGD"}

_CHOSEN = frozenset(("fused", "foreach", "differentiable"))
_OWN_STEP = ("DeepSpeed", "apex", "Lightning", "Megatron", "fairseq", "Colossal-AI")
"""Frameworks that replace the optimizer's step, or that refuse fused ones in float16."""


class OptimizerNotFused(SourceRule):
    """Adam, AdamW or SGD without its fused kernel.

    What it does
    Finds `torch.optim.Adam`, `AdamW` and `SGD` without `fused` or `foreach` in files that train on a GPU,
    and in `configure_optimizers` of a Lightning module that a Trainer of the project trains on one.

    Why it costs
    The default launches several kernels per group of parameters, each reading and writing all of them;
    the fused version launches one. The optimizer step is limited by memory, so this is most of its time.

    Example
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    Use instead
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    When it does not apply
    PyTorch before 2.0 (Adam, AdamW) or 2.3 (SGD), parameters that are not floating-point, training on the
    CPU, a few tensors in a list. Other optimizers have no fused version: the argument raises TypeError.
    Lightning refuses to clip gradients of a fused optimizer in float16 (not Fabric in bfloat16 or float32):
    the rule is silent where the project clips them; DeepSpeed and apex bring their own.
    """

    code = "RUN012"
    name = "optimizer-not-fused"
    level = "info"
    confidence = "medium"
    sources = (
        "PyTorch torch.optim, Algorithms: for-loop, foreach and fused implementations (signatures tried "
        "on PyTorch 2.13)",
    )
    triggers = ("Adam(", "AdamW(", "SGD(")
    pattern = re.compile(rb"\.backward\(|def configure_optimizers")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        if is_test_path(context.path) or not context.on_gpu or not context.torch_may_be((2, 0)):
            return
        own_step = context.amp.framework in _OWN_STEP and not _fabric_without_scaler(context)
        loop = bool(program.trainings) and not own_step
        for called in program.calls(*_FUSED):
            given = {argument.keyword for argument in called.call.arguments}
            first = keyword(called.call, "params", 0)
            if given & _CHOSEN or has_star(called.call) or _tensors(first):
                continue
            if not loop and not optimizer_of_lightning(context, called):
                continue
            name = _FUSED[called.qualified]
            yield self.finding(
                context.location(called.call.node_id),
                f"This {name} runs several kernels over all parameters per step; fused=True makes it one.",
                evidence={"optimizer": name, "fused": False},
                effect=Effect(unknown="how many parameters the optimizer has is not known from the source"),
                fix=Fix("Pass fused=True."),
                identity=f"{called.function.qualified_name}:{name}",
            )

    def change(self, finding: Finding, context: Any) -> Any:
        from tclint.analysis.change import Change
        from tclint.config.settings import OPTIMIZERS

        present = context.settings.optimizer
        if (
            not present.startswith(finding.evidence["optimizer"].lower())
            or f"{present}-fused" not in OPTIMIZERS
        ):
            return None
        return Change(settings={"optimizer": f"{present}-fused"})


def _fabric_without_scaler(context: SourceContext) -> bool:
    """`Fabric()` and `Fabric(precision="bf16-mixed")`: no scaler, which would refuse a fused optimizer's
    gradients."""
    calls = [(function, event.call) for function, event, _ in context.program.methods("Fabric")]
    if any(has_star(call) or "deepspeed" in render(call) for _, call in calls):
        return False
    precisions = [
        context.resolver.evaluate(function, keyword(call, "precision", 4) or Literal("32-true")).values
        for function, call in calls
    ]
    if "xla" in context.program.words:
        return False
    return bool(precisions) and all(
        values and all(str(value).startswith(("bf16", "32")) for value in values) for values in precisions
    )


def _tensors(given: Expression | None) -> bool:
    """`[x]`: a few tensors, not a model's parameters."""
    return (
        isinstance(given, Collection)
        and given.kind in ("list", "tuple")
        and all(isinstance(item, Name) for item in given.items)
    )

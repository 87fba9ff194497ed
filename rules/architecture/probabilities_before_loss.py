"""A rule on losses that are handed probabilities instead of logits."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule, distinct, render
from tclint.plugin.source import Place

_LOSSES = {
    "torch.nn.functional.binary_cross_entropy": "bce",
    "torch.nn.BCELoss": "bce",
    "torch.nn.functional.nll_loss": "nll",
    "torch.nn.NLLLoss": "nll",
}
_GIVES = {
    "bce": frozenset(
        {
            "torch.sigmoid",
            "torch.nn.functional.sigmoid",
            "torch.special.expit",
            ".sigmoid",
            "torch.nn.Sigmoid",
        }
    ),
    "nll": frozenset({"torch.softmax", "torch.nn.functional.softmax", ".softmax", "torch.nn.Softmax"}),
}
_LOG = frozenset({"torch.log", ".log"})
_INSTEAD = {
    "bce": ("binary_cross_entropy_with_logits", "sigmoid", "the sigmoid"),
    "nll": ("cross_entropy", "log of a softmax", "the log of a softmax"),
}
"""Kind of loss -> (loss that takes logits, function applied to the logits, words for that function)."""


class ProbabilitiesBeforeLoss(SourceRule):
    """Sigmoid before binary cross-entropy, or log of a softmax before NLL.

    What it does
    Finds `binary_cross_entropy(torch.sigmoid(x), y)` and `nll_loss(torch.log(torch.softmax(x)), y)`, as
    functions and as `nn.BCELoss` and `nn.NLLLoss`, where the probabilities come from the same function, or
    from a model of the project whose forward ends in a sigmoid.

    Why it costs
    Probabilities close to 0 or 1 round to 0 or 1, in float16 already from 1 - 2^-12 on, and their
    logarithm is lost or infinite. The versions that take logits use the log-sum-exp form, which is
    stable, with one kernel fewer; and autocast refuses `binary_cross_entropy` on CUDA.

    Example
        loss = F.binary_cross_entropy(torch.sigmoid(logits), labels)

    Use instead
        loss = F.binary_cross_entropy_with_logits(logits, labels)

    When it does not apply
    Metrics under `torch.no_grad()`, probabilities that are clamped on purpose, `log_softmax` before
    `nll_loss`, which is stable.
    """

    code = "ARC012"
    name = "sigmoid-bceloss"
    level = "warning"
    confidence = "high"
    sources = (
        "PyTorch Automatic Mixed Precision package, Prefer binary_cross_entropy_with_logits over "
        "binary_cross_entropy: autocast raises an error for the latter",
        "PyTorch torch.nn.BCEWithLogitsLoss: more stable by the log-sum-exp trick",
    )
    triggers = ("binary_cross_entropy(", "BCELoss", "nll_loss", "NLLLoss")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        flow, models = context.flow, set[Place]()
        for event in distinct(context.record.of("op", "forward")):
            loss = _LOSSES.get(flow.layer(event.subject) if event.kind == "forward" else event.name)
            if loss is None or not context.concerns(event) or not context.autocasts.records_gradients(event):
                continue
            made = flow.origins(event.first)
            if loss == "nll":
                # Only the logarithm of a softmax counts, since log_softmax itself is stable.
                logs = [item for item in made if flow.runs(item) in _LOG]
                made = (
                    [inner for item in logs for inner in flow.origins(item.inputs[0])] if made == logs else []
                )
            if not made or not all(flow.runs(item) in _GIVES[loss] for item in made):
                continue
            better, what, where = _INSTEAD[loss]
            model = flow.outermost(made[0], event)
            if model is not None and model.call is not None:
                where = f"the forward of `{render(model.call.function)}` ends in it"
                if made[0].place in models:
                    continue
                models.add(made[0].place)
            function = event.place.function.qualified_name
            yield self.finding(
                context.at(event),
                f"`{context.code(event)}` gets the {what} of logits: where a probability rounds to 0 or 1, "
                "its logarithm is lost.",
                related=(context.also(model or made[0], where),),
                evidence={"loss": loss, "instead": better, "function": function},
                fix=Fix(f"Use torch.nn.functional.{better} on the logits (or its module)."),
                identity=f"{function}:{render(event.call) if event.call is not None else loss}",
            )

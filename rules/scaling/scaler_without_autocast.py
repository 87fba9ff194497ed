"""Loss scalers where nothing runs in float16."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from tclint.plugin import Call, Finding, Fix, SourceContext, SourceRule
from tclint.source.facts.scaling_view import Op, View
from tclint.source.names.queries import contains, names_in, words

_KNOWN = words("torch torchvision numpy tqdm PIL matplotlib sklearn pandas wandb cv2")
"""Packages that hide no float16."""


class ScalerWithoutAutocast(SourceRule):
    """A loss scaler where nothing computes in float16.

    What it does
    Finds a GradScaler that scales losses in a file where neither it nor anything that it imports from its
    project mentions autocast, float16 or half.

    Why it costs
    Gradients computed in float32 do not underflow, so the scaler only costs time, and nothing uses the
    Tensor Cores' 16-bit rate: autocast was probably forgotten.

    Example
        scaler = torch.amp.GradScaler("cuda")
        loss = model(batch)
        scaler.scale(loss).backward()

    Use instead
        with torch.autocast("cuda"):
            loss = model(batch)
        scaler.scale(loss).backward()

    When it does not apply
    Autocast inside the model or in other files of the project, explicit casts, scalers that are disabled,
    models of libraries that are not known to leave the dtype alone, losses that are computed by callers
    outside the file.
    """

    code = "AMP012"
    name = "scaler-without-autocast"
    level = "info"
    confidence = "medium"
    sources = (
        "PyTorch Automatic Mixed Precision package: autocast and GradScaler are modular, and used "
        "together for float16",
    )
    triggers = ("GradScaler",)
    requires = (".scale(",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        computes_in_16_bits = ("autocast", "float16", "half", "bfloat16", "fp16", "amp_autocast")
        if any(word in context.tables.identifiers for word in computes_in_16_bits) or context.amp.framework:
            return
        if any("autocast" in name or "fp16" in name for name in context.tables.identifiers):
            return
        made = [item for item in context.scaling.made if item.enabled is not False]
        if not made or not self._imports_known(context):
            return
        if context.neighbours.mention(("autocast", "float16", ".half(", "fp16")) is not None:
            return
        for view in context.scaling.views:
            for backward in view.of("scaled_backward"):
                origins, _ = context.scaling.origins_of(view, backward)
                if not any(item in made or item.node_id == made[0].node_id for item in origins):
                    continue
                if self._loss_is_given(context, view, backward):
                    continue
                yield self.finding(
                    context.location(backward.node_id),
                    "The loss is scaled, but nothing here computes in float16: no autocast, no cast.",
                    related=(context.related(origins[0].node_id, "the scaler"),),
                    evidence={"scaler": context.excerpt(origins[0].node_id), "autocast": None},
                    fix=Fix('Compute the loss under `torch.autocast("cuda")`, or drop the scaler.'),
                    identity=view.function.qualified_name,
                )
                return

    def _loss_is_given(self, context: SourceContext, view: View, backward: Op) -> bool:
        """A caller outside the file computes the loss, under an autocast of its own perhaps."""
        function = view.function
        if backward.loss is None or context.resolver.callers.get(function.index):
            return False
        loss = (
            backward.loss.arguments[0].value
            if isinstance(backward.loss, Call) and backward.loss.arguments
            else None
        )
        if loss is None or contains(loss, lambda part: isinstance(part, Call)):
            return False
        return not names_in(loss).isdisjoint(parameter.name for parameter in function.parameters)

    def _imports_known(self, context: SourceContext) -> bool:
        """Everything imported is torch, the standard library, numpy or a file of the project."""
        project = {
            part
            for path in context.neighbours.imported()
            for part in path.replace("\\", "/").removesuffix(".py").split("/")
        }
        for function in context.tables.functions:
            for item in function.imports:
                root = item.qualified.lstrip(".").partition(".")[0]
                if root not in _KNOWN | project and root not in sys.stdlib_module_names:
                    return False
        return True

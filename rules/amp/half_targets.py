"""A rule on targets that are cast to float16 by hand."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tclint.plugin import Effect, Finding, Fix, SourceContext, SourceRule
from tclint.source.names.queries import is_test_path, keyword
from tclint.source.names.resolve import dtype_of
from tclint.source.syntax.tables import Call, Function, dotted, method_of

_TARGETS = re.compile(r"(?:^|_)(?:targets?|labels?|gts?|boxes|bboxes|gt_boxes|ground_truth)(?:_|$)")


class HalfTargets(SourceRule):
    """Targets of a loss cast to float16 by hand.

    What it does
    Finds `targets = targets.half()` and `targets.to(dtype)` with a dtype that is, or can be, float16, for
    variables named like targets, labels or boxes, in functions that call backward.

    Why it costs
    float16 keeps 11 significant bits: above 2048 it cannot represent every whole number, near 500 it
    rounds to multiples of 0.25, and the loss compares with the rounded value. Nothing is gained: autocast
    casts what matrix products need, and computes losses in float32.

    Example
        targets = targets.to(torch.float16)
        with torch.autocast("cuda"):
            loss = model(images, targets)

    Use instead
        with torch.autocast("cuda"):
            loss = model(images, targets)

    When it does not apply
    Class indices, which are integers; targets that a model in float16 throughout needs as its own dtype;
    bfloat16, which is a different trade-off.
    """

    code = "AMP030"
    name = "half-targets"
    level = "info"
    confidence = "medium"
    sources = (
        "PyTorch Automatic Mixed Precision package, CUDA Ops that can autocast to float32: losses are "
        "among them",
        "IEEE 754-2019: binary16 has 11 bits of precision",
    )
    triggers = ("autocast",)
    requires = ("backward(",)
    pattern = re.compile(rb"(?:target|label|gt|box)\w*\s*\.\s*(?:half|to|type)\s*\(")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        if is_test_path(context.path):
            return
        training = {item.function.index for item in context.program.trainings}
        for function, event, _ in context.program.methods("half", "to", "type"):
            receiver, method = method_of(event.call)
            name = dotted(receiver) if receiver is not None else ""
            if function.index not in training or not _TARGETS.search(name.rpartition(".")[2].lower()):
                continue
            if method != "half" and not _may_be_float16(context, function, event.call):
                continue
            yield self.finding(
                context.location(event.call.node_id),
                f"`{context.excerpt(event.call.node_id)}` rounds `{name}` to float16's 11 bits: from 2048 on "
                "whole numbers are lost, and autocast needs no such cast.",
                evidence={"targets": name, "dtype": "float16", "function": function.qualified_name},
                effect=Effect(unknown="it costs accuracy, not time"),
                fix=Fix("Keep the targets in float32; autocast casts what products need."),
                identity=f"{function.qualified_name}:{name}",
            )
            return


def _may_be_float16(context: SourceContext, function: Function, call: Call) -> bool:
    given = keyword(call, "dtype", 0)
    possible = context.resolver.evaluate(function, given).values if given is not None else ()
    return any(dtype_of(value) == "float16" for value in possible)

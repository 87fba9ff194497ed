"""A rule on apex.amp, which torch.amp has replaced."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tclint.plugin import Event, Finding, Fix, SourceContext, SourceRule

_APEX = ("apex.amp.", "apex.parallel.", "apex.fp16_utils.")
_WHY = {
    "precision": "torch.amp does mixed precision since torch 1.6; apex.amp is no longer developed",
    "batch norm": "torch.nn.SyncBatchNorm does the same since torch 1.1",
    "parallel": "torch.nn.parallel.DistributedDataParallel overlaps the exchange of gradients as well",
}
_INSTEAD = {
    "precision": "torch.autocast and torch.amp.GradScaler",
    "batch norm": "torch.nn.SyncBatchNorm.convert_sync_batchnorm(model), or torch.nn.SyncBatchNorm",
    "parallel": "torch.nn.parallel.DistributedDataParallel with device_ids=[rank]",
}
_WITHOUT_SUCCESSOR = ("apex.parallel.LARC",)
"""Names without a successor: torch has no layer-wise adaptive rates."""


class ApexAmp(SourceRule):
    """apex.amp, which torch.amp has replaced.

    What it does
    Finds calls of apex.amp (`initialize`, `scale_loss`, ...), apex.parallel and apex.fp16_utils in files
    that do not also use torch's own mixed precision. Reports once per file.

    Why it costs
    apex.amp is no longer developed, patches torch functions at run time, does not work with torch.compile
    or FSDP, and must be built from source. torch.amp has replaced it since torch 1.6; apex.parallel's
    DistributedDataParallel and convert_syncbn_model have equivalents in torch.nn.

    Example
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()

    Use instead
        with torch.autocast("cuda"):
            loss = model(batch)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    When it does not apply
    apex.optimizers, apex.normalization, apex.multi_tensor_apply and apex.contrib, which have no such
    drawbacks; scripts that offer apex next to torch's own autocast.
    """

    code = "AMP015"
    name = "apex-amp"
    level = "warning"
    confidence = "high"
    sources = ("NVIDIA apex, README: apex.amp is deprecated in favour of torch.amp",)
    triggers = ("apex",)
    # Its optimizers and layers have no successor in torch.
    pattern = re.compile(
        rb"\bapex\.(?:amp|parallel|fp16_utils)\b|\bfrom\s+apex\s+import\b|\bimport\s+apex\s+as\b"
    )

    def check(self, context: SourceContext) -> Iterator[Finding]:
        amp = ("autocast", "scaler")
        for made in context.record.of("make"):
            if not made.place.file.is_library and any(context.facts.kinds(made.result, kind) for kind in amp):
                return
        found = {
            context.at(event): (event, name) for event in context.record.events if (name := _named(event))
        }
        if not found:
            return
        uses = [found[at] for at in sorted(found, key=lambda at: (at.path, at.line))]
        event, first = uses[0]
        kinds = list(dict.fromkeys(_kind(name) for _, name in uses))
        yield self.finding(
            context.at(event),
            f"{first} is superseded: {_WHY[kinds[0]]}.",
            related=tuple(context.also(use, name) for use, name in uses[:8]),
            evidence={"used": sorted({name for _, name in uses}), "uses": len(uses)},
            fix=Fix(f"Use {'; '.join(_INSTEAD[kind] for kind in kinds)}."),
            identity="apex",
        )


def _named(event: Event) -> str:
    """The name in apex that an event uses; '' if it uses none."""
    if event.place.file.is_library and event.place.file.name == "apex.amp" and event.stack:
        return f"apex.amp.{event.place.function.name}"
    return event.name if event.name.startswith(_APEX) and event.name not in _WITHOUT_SUCCESSOR else ""


def _kind(name: str) -> str:
    """The part of apex that a name belongs to: a key of the tables above."""
    last = name.rpartition(".")[2]
    if last in ("SyncBatchNorm", "convert_syncbn_model", "create_syncbn_process_group"):
        return "batch norm"
    return "parallel" if name.startswith("apex.parallel.") else "precision"

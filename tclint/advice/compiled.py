"""What torch.compile mends by itself: reported as information, so that it fails no run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tclint.finding import Level

if TYPE_CHECKING:
    from tclint.context import GraphContext


def level_if_compiled(context: GraphContext) -> Level | None:
    """'info' under torch.compile, else None: the rule's own."""
    return "info" if context.settings.compiled else None


def note_if_compiled(context: GraphContext, what: str) -> str:
    """' (torch.compile handles this: it pads such products)' under torch.compile, else ''."""
    return f" (torch.compile handles this: it {what})" if context.settings.compiled else ""


def evidence_if_compiled(context: GraphContext) -> dict[str, Any]:
    return {"torch_compile_handles_this": True} if context.settings.compiled else {}


PADS = "pads such products"

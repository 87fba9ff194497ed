"""Values before they are moved to a device."""

from __future__ import annotations

from tclint.source.tables import (
    Call,
    Expression,
    method_of,
)


def unplaced(value: Expression) -> Expression:
    """`nn.BCELoss()` of `nn.BCELoss().cuda()`."""
    while isinstance(value, Call):
        receiver, method = method_of(value)
        if method not in ("cuda", "to") or receiver is None:
            return value
        value = receiver
    return value

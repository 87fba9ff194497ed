"""A rule on precisions that torch does not know."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule, distinct
from tclint.plugin.source import Switch, constants_of

_SETTER = "torch.set_float32_matmul_precision"
_MATMUL_PRECISIONS = ("highest", "high", "medium")
_PRECISIONS = ("ieee", "tf32", "bf16", "none")
_CUDA_PRECISIONS = ("ieee", "tf32", "none")
_MEANT = {
    _SETTER: {"tf32": "high", "ieee": "highest", "fp32": "highest", "float32": "highest", "bf16": "medium",
              "bfloat16": "medium", "default": "highest", "low": "medium"},
    "": {"fp32": "ieee", "float32": "ieee", "highest": "ieee", "high": "tf32", "medium": "bf16",
         "bfloat16": "bf16", "tensorfloat32": "tf32", "default": "none"},
}  # fmt: skip


class PrecisionBadValue(SourceRule):
    """A precision switch set to a value it does not have.

    What it does
    Finds values other than 'ieee', 'tf32', 'bf16' (not for CUDA and cuDNN) and 'none' for `fp32_precision`,
    and other than 'highest', 'high' and 'medium' for `torch.set_float32_matmul_precision`.

    Why it costs
    `fp32_precision = "fp32"` raises RuntimeError. `set_float32_matmul_precision("High")` only warns and
    changes nothing: matrix products stay in float32 and nobody notices.

    Example
        torch.set_float32_matmul_precision("High")

    Use instead
        torch.set_float32_matmul_precision("high")

    When it does not apply
    Values read at run time, and tests of the error itself.
    """

    code = "PRC005"
    name = "precision-bad-value"
    level = "error"
    confidence = "high"
    sources = (
        "PyTorch torch.set_float32_matmul_precision: its values (behaviour tried on PyTorch 2.13)",
        "PyTorch torch.backends: the values of fp32_precision",
    )
    triggers = ("fp32_precision", "set_float32_matmul_precision")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        switches = {switch.event: switch for switch in context.switches.all if _allowed(switch.name)}
        for event in distinct(switches):
            allowed = _allowed(event.name)
            values = constants_of(switches[event].value) or ()
            bad = [value for value in values if value not in allowed]
            if not bad or not context.lints(event) or _expects_error(context, switches[event]):
                continue
            raises = event.name != _SETTER or not isinstance(bad[0], str)
            what = "raises" if raises else "is ignored with a warning"
            meant = _meant(event.name, bad[0], allowed)
            instead = f'Write "{meant}".' if meant else "Choose one of them."
            yield self.finding(
                context.at(event),
                f"{bad[0]!r} is not a value of `{event.name.removeprefix('torch.')}` and {what}; "
                f"it takes {', '.join(map(repr, allowed))}.",
                evidence={
                    "switch": event.name,
                    "value": bad[0],
                    "allowed": list(allowed),
                    "replacement": meant,
                },
                fix=Fix(instead),
                identity=f"{event.place.function.qualified_name}:{event.name}:{bad[0]}",
            )


def _expects_error(context: SourceContext, switch: Switch) -> bool:
    """Whether a test that expects the error is around the switch."""
    return any(
        thing.made is not None and thing.made.name in ("pytest.raises", "pytest.warns", ".assertRaises")
        for region in switch.event.regions
        for thing in context.facts.things(region.context)
    )


def _allowed(name: str) -> tuple[str, ...]:
    if name == _SETTER:
        return _MATMUL_PRECISIONS
    if not name.endswith(".fp32_precision"):
        return ()
    cuda = name.startswith(("torch.backends.cuda.matmul", "torch.backends.cudnn"))
    return _CUDA_PRECISIONS if cuda else _PRECISIONS


def _meant(name: str, value: object, allowed: tuple[str, ...]) -> str | None:
    if not isinstance(value, str):
        return None
    lowered = value.lower().strip()
    if lowered in allowed:
        return lowered
    known = _MEANT[_SETTER if name == _SETTER else ""].get(lowered)
    if known in allowed:
        return known
    close = difflib.get_close_matches(lowered, allowed, 1, 0.6)
    return close[0] if close else None

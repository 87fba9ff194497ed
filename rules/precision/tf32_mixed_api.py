"""A rule on programs that set TF32 by both of its APIs."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.facts.switches import Switch
from tclint.source.names.queries import is_test_path
from tclint.source.training.precision_switches import CUDNN, MATMUL, SETTER


class Tf32MixedApi(SourceRule):
    """Both TF32 APIs used with different values.

    What it does
    Follows `allow_tf32`, `torch.set_float32_matmul_precision` and `fp32_precision` in the order in which a
    file sets them, and reports the `fp32_precision` after which the two APIs disagree.

    Why it costs
    It raises. Since PyTorch 2.9 reading an older switch (`allow_tf32`, `get_float32_matmul_precision`,
    and with them `torch.backends.cudnn.flags` and some library code) is a RuntimeError while it
    contradicts the newer one. Setting an older switch also sets the newer one, but not the other way
    round.

    Example
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cuda.matmul.fp32_precision = "ieee"

    Use instead
        torch.backends.cuda.matmul.fp32_precision = "ieee"

    When it does not apply
    One API only; equal values; branches of which only one runs (older and newer PyTorch); an older switch
    that is set after the newer one.
    """

    code = "PRC004"
    name = "tf32-mixed-api"
    level = "error"
    confidence = "high"
    sources = (
        "PyTorch CUDA semantics, TensorFloat-32 (TF32) on Ampere (and later) devices: do not mix the APIs",
        "PyTorch 2.13 aten/src/ATen/Context.cpp: checks of the older getters (behaviour tried on PyTorch "
        "2.13)",
    )
    triggers = ("fp32_precision",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        if is_test_path(context.path):
            return
        program = context.program
        functions = {switch.function.index for switch in program.switches}
        for index in sorted(functions):
            # A function's own switches, after those that the module sets when it is imported.
            ordered = [switch for switch in program.switches if switch.function.index == index]
            if index and any(f.index == 0 for f in program.outer_functions(ordered[0].function)):
                ordered = [switch for switch in program.switches if switch.function.index == 0] + ordered
            yield from self._follow(context, index, ordered)

    def _follow(self, context: SourceContext, index: int, ordered: list[Switch]) -> Iterator[Finding]:
        legacy: dict[str, tuple[str, Switch]] = {}
        newer: dict[str, tuple[str, Switch]] = {}
        for switch in ordered:
            value = _tf32_value(switch)
            if value is None:
                return
            is_newer = switch.name.endswith(".fp32_precision")
            for operator in _operators(switch.name):
                if not is_newer:
                    # The older setters write the newer setting of the same operator as well.
                    legacy[operator] = (value, switch)
                    newer.pop(operator, None)
                else:
                    newer[operator] = (value, switch)
        for operator, (value, switch) in newer.items():
            if operator not in legacy or switch.function.index != index:
                continue
            older, other = legacy[operator]
            same_function = other.function.index == switch.function.index
            if older == value or (
                same_function
                and context.program.mutually_exclusive(switch.function, switch.block, other.block)
            ):
                continue
            if other.node_id > switch.node_id:
                continue
            yield self.finding(
                context.location(switch.node_id),
                f"`{context.excerpt(switch.node_id)}` contradicts `{context.excerpt(other.node_id)}` on line "
                f"{context.location(other.node_id).line}: reading the older switch raises RuntimeError.",
                related=(context.related(other.node_id, f"the older API says {older}"),),
                evidence={"operator": operator, "legacy": older, "fp32_precision": value},
                fix=Fix("Set TF32 through one API only: remove one of the two lines."),
                identity=f"{switch.function.qualified_name}:{operator}",
            )
            return


def _tf32_value(switch: Switch) -> str | None:
    """'tf32' or 'ieee' for a TF32 switch, '' for other switches, None when unknown."""
    tf32 = switch.name == SETTER or switch.name.rpartition(".")[2] in ("allow_tf32", "fp32_precision")
    if not tf32:
        return ""
    if not switch.value.certain:
        return None
    value = switch.value.values[0]
    if switch.name == SETTER:
        return "ieee" if value == "highest" else "tf32"
    if isinstance(value, bool):
        return "tf32" if value else "ieee"
    return str(value) if value in ("tf32", "ieee") else None


def _operators(name: str) -> tuple[str, ...]:
    """What a switch is for: 'matmul', 'conv', 'rnn'."""
    return {
        SETTER: ("matmul",),
        f"{MATMUL}.allow_tf32": ("matmul",),
        f"{CUDNN}.allow_tf32": ("conv", "rnn"),
        f"{MATMUL}.fp32_precision": ("matmul",),
        f"{CUDNN}.fp32_precision": ("conv", "rnn"),
        f"{CUDNN}.conv.fp32_precision": ("conv",),
        f"{CUDNN}.rnn.fp32_precision": ("rnn",),
        "torch.backends.fp32_precision": ("matmul", "conv", "rnn"),
    }.get(name, ())

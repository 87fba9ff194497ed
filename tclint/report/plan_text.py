"""A plan of fixes for people: what each gains, where it is edited, what is left to do."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.core.text import printable
from tclint.core.units import percent_text, plural, time_text
from tclint.engine.fixes.plan import FixPlan, PlanStep
from tclint.graph.weights.plan import WeightPlan

_MOST_LISTED = 20


def plan_text(plan: FixPlan) -> str:
    """All steps in their order, and how many of them are edited and proved."""
    lines = list(_lines(plan))
    return "".join(f"{printable(line)}\n" for line in lines)


def _lines(plan: FixPlan) -> Iterator[str]:
    if not plan.steps:
        yield f"{plan.target}: no fix with a known price"
        return
    times = ", ".join(f"{time_text(time)} on {gpu}" for gpu, time in plan.step_time_us.items())
    fixes = plural(len(plan.steps), "fix", "fixes")
    yield f"{plan.target}: {fixes}, in this order; the step takes {times} now"
    numbers = {step.fingerprint: number for number, step in enumerate(plan.steps, start=1)}
    for number, step in enumerate(plan.steps, start=1):
        yield from _step(step, number, numbers)
    yield from _weights(plan)
    proved = sum(step.proved for step in plan.steps)
    yield f"{proved} of {len(plan.steps)} edited and proved"


def _weights(plan: FixPlan) -> Iterator[str]:
    """Whether pretrained weights give the same model, and what is in the way."""
    if plan.weights is None:
        return
    proof = WeightPlan.from_json(plan.weights).proof
    numbers = [edit.text for edit in proof.edits if edit.kind != "slice_output"]
    if proof.is_exact:
        same = "the model computes the same, as runs of both showed"
        if numbers:
            same = "the model computes the same only with these numbers, as runs of both showed:"
        yield f"pretrained weights: tclint pad carries them over; {same}"
        yield from (f"     by hand: {text}" for text in numbers[:_MOST_LISTED])
    elif proof.verdict == "inexact":
        yield f"pretrained weights: the padded model does not compute the same: {proof.reason}"
    else:
        yield f"pretrained weights: whether the padded model computes the same is not known: {proof.reason}"


def _step(step: PlanStep, number: int, numbers: dict[str, int]) -> Iterator[str]:
    module = f" ({step.module_path})" if step.module_path else ""
    sizes = ", ".join(f"{old} -> {new}" for old, new in step.sizes)
    yield f"{number}. {step.path}:{step.line}: {step.code} {step.name}{module}" + (
        f": {sizes}" if sizes else ""
    )
    for gpu, gain in step.gain_percent.items():
        yield f"   gains {percent_text(gain)} of the step: {time_text(step.step_time_us[gpu])} on {gpu}"
    if any(new < old for old, new in step.sizes):
        yield (
            "   another architecture: weights of the present one do not fit; --keep-architecture pads instead"
        )
    if step.parameters_added:
        verb = "adds" if step.parameters_added > 0 else "removes"
        yield f"   {verb} {abs(step.parameters_added):,} parameters"
    for gpu, time in step.cuts_us.items():
        without = time_text(step.step_time_us[gpu] - time)
        yield f"   cutting the padded outputs back takes {time_text(time)} of it: {without} without, on {gpu}"
    unlocked = [str(numbers[name]) for name in step.unlocks if name in numbers]
    if unlocked:
        yield f"   makes {plural(len(unlocked), 'fix', 'fixes')} pay: {', '.join(unlocked)}"
    if step.proved:
        yield "   proved: built from an edited copy and linted again, the shapes are as predicted"
    else:
        yield f"   not edited: {step.reason}"
    for edit in step.edits:
        what = f"{edit.old} -> {edit.new}" if edit.old else f"insert {edit.new.strip()}"
        yield f"     {edit.path}:{edit.line}:{edit.column}: {what}"
    for label, items in (("by hand", step.by_hand), ("note", step.notes)):
        for item in items[:_MOST_LISTED]:
            place = f"{item.path}:{item.line}: " if item.path else ""
            text = f"    {item.text}" if item.text else ""
            yield f"     {label}: {place}{item.what}{text}"
        if len(items) > _MOST_LISTED:
            yield f"     and {len(items) - _MOST_LISTED} more places"

"""Where regions of autocast would go in trainings that compute in float32."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tclint.source.questions.flow import Flow
from tclint.source.questions.precision.float32 import Float32, Training
from tclint.source.run.record import Record
from tclint.source.run.values import Event, Thing

_COMPUTE = frozenset({"forward", "op", "call"})
_IN_THREADS = frozenset(
    {"torch.nn.DataParallel", "torch.nn.parallel.data_parallel", "torch.nn.parallel.parallel_apply"}
)
"""They compute in threads, where autocast has its default dtype, float16, whatever their caller chose."""


def computed(float32: Float32, flow: Flow, trainings: Sequence[Training]) -> dict[str, list[Event]]:
    """The backward passes of trainings, and what computes their losses as seen from the functions that go
    backward.

    Empty if regions of bfloat16 around the latter would break the program, or would leave some of it in
    float32 unnoticed, since no training of a program with autocast is reported.
    """
    found: dict[str, list[Event]] = {"backward": [], "forward": [], "loss": []}
    facts, made = float32.facts, set[Event]()
    for training in trainings:
        backward, loss = training.backward, facts.loss_of(training.backward)
        if training.settings is not None or facts.scalers_of(loss):
            return {}  # its framework or its scaler has to know
        found["backward"].append(backward)
        events = float32.autocasts.differentiated(loss)
        forwards = {event for event in events if event.kind == "forward"}
        for event in events:
            is_data = all(forwards.isdisjoint(facts.made_by(value)) for value in event.inputs)
            if event.kind not in _COMPUTE or (is_data and event not in forwards):
                continue
            made.add(event)
            depth = len(backward.stack)
            here = event.places[depth : depth + 1]
            if event.places[:depth] != backward.stack or here[0].function is not backward.place.function:
                return {}
            role = "forward" if event in forwards else "loss"
            found[role].append(replace(event, place=here[0], stack=backward.stack))
    files = {backward.place.file for backward in found["backward"]}
    numpy = [event for event in float32.record.events if event.name == ".numpy"]
    if (
        len(files) > 1
        or any(event.place.file in files for event, _ in float32.doubtful)
        or any(flow.is_bce(event) or _is_of_function(event) for event in made)
        or computes_in_threads(float32.record)
        or any(not made.isdisjoint(facts.made_by(event.subject)) for event in numpy)
    ):
        return {}
    return found


def computes_in_threads(record: Record) -> bool:
    """Whether a program computes in threads, to which an autocast around them does not pass its dtype."""
    return any(map(_runs_in_threads, record.events))


def _is_of_function(event: Event) -> bool:
    """Whether an event is or happens in an autograd.Function, whose kernels may lack bfloat16."""
    return event.name == ".apply" or any(
        place.file.is_library and place.function.qualified_name == "Function.apply" for place in event.places
    )


def _runs_in_threads(event: Event) -> bool:
    cls = event.result.cls if isinstance(event.result, Thing) else None
    names = (base.name for base in cls.library_bases()) if cls is not None else ()
    return event.name in _IN_THREADS or not _IN_THREADS.isdisjoint(names)

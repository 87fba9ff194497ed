"""Gives the model of a configuration file the settings of that file, so that its step can be priced.

`tclint sft.yaml` prices the step that sft.yaml sets up, if it names a model. Launchers' files beside it
(Accelerate's, DeepSpeed's) define how the step is distributed. Flags and configuration win over all of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tclint.config.settings import OPTIMIZERS, PARALLEL, PRECISIONS, Settings
from tclint.core.target import is_recipe_file
from tclint.core.text import listed
from tclint.engine.script.join import Joined, settle
from tclint.engine.script.settings import Evidence
from tclint.graph.ops import Assumption, Site
from tclint.source.recipes.reading import NotReadable, read_recipe
from tclint.source.recipes.step import Stated, Step, step_of
from tclint.source.syntax.discovery import Skipped
from tclint.source.syntax.parse import NotPython

if TYPE_CHECKING:
    from tclint.tracing import TraceResult

_SETTINGS: Mapping[str, tuple[object, ...] | None] = {
    "precision": PRECISIONS,
    "batch": None,
    "accumulation": None,
    "optimizer": OPTIMIZERS,
    "compiled": (True, False),
    "parallel": PARALLEL,
    "gpu_count": None,
    "tensor_parallel": None,
}
"""Field of Settings that a file can state -> its valid values; None: a count."""
_BUILT = (
    "model", "length", "weights", "checkpointing", "rank", "targets", "also_targets", "also_trained",
    "dropout", "adapters", "bits", "double_quantized", "attention", "fused_loss", "tokens",
    "vocabulary_multiple",
)  # fmt: skip
"""Settings that define how the model is built (tclint.tracing.recipes.build)."""
_OF_LAUNCHERS = (
    "precision", "parallel", "gpu_count", "tensor_parallel", "has_master_weights", "checkpointing",
)  # fmt: skip


@dataclass
class RecipeSteps:
    """The files that name a model which can be priced, and notes on the others."""

    joined: dict[str, Joined] = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)

    @staticmethod
    def not_traced(result: TraceResult) -> Skipped:
        """A note on a file whose model could not be built or traced."""
        return not_priced(result.target, str(result.error).rstrip("."))


def recipe_steps(paths: Sequence[str], settings: Settings) -> RecipeSteps:
    """Target (the file as it was named) -> its settings and their assumptions.

    Args:
        paths: as named; folders and files of other kinds are ignored.
    """
    found = RecipeSteps()
    steps = {path: step for path in paths if (step := _step(path)) is not None}
    launchers = [step for step in steps.values() if "model" not in step.stated]
    for path, step in steps.items():
        if "model" not in step.stated:
            continue
        reason = _why_not(step)
        if reason is None:
            found.joined[path] = _joined(step, launchers, settings)
        else:
            found.skipped.append(not_priced(path, reason))
    return found


def not_priced(path: str, reason: str) -> Skipped:
    """A note on a file that is linted but whose step has no price."""
    return Skipped(path, f"its step is not priced: {reason}", is_part=True)


def _step(path: str) -> Step | None:
    """The step that a file describes; None if it has no known format or cannot be read, which the lint
    reports."""
    if not is_recipe_file(path):
        return None
    try:
        with open(path, "rb") as file:
            recipe = read_recipe(os.path.abspath(path), file.read())
    except (OSError, NotReadable, NotPython):
        return None
    return None if recipe is None else step_of(recipe)


def _why_not(step: Step) -> str | None:
    missing = [name for name in ("torch", "transformers") if find_spec(name) is None]
    if missing:
        return f"that takes {listed(missing, 2)}, which tclint does not find here"
    if "objective" in step.stated:
        objective = step.stated["objective"]
        return f"{objective.words} trains on {objective.value}, whose step tclint does not build"
    if step.get("bits") and "rank" not in step.stated:
        return f"{step.stated['bits'].words} goes with adapters, which it does not set up"
    if "length" not in step.stated:
        return "it says no length of sequences"
    if not isinstance(step.get("length"), int):
        return f"{step.stated['length'].words} is no number"
    return None


def _joined(step: Step, launchers: Sequence[Step], settings: Settings) -> Joined:
    """The settings of one file, with those of the launchers beside it and of the file that it names."""
    others = [*_files_of(step), *launchers]
    stated = dict(step.stated)
    for other in others:
        for name in _OF_LAUNCHERS:
            found = other.stated.get(name)
            # A launcher's setting wins over a default of the recipe.
            if found is not None and (name not in stated or stated[name].is_default):
                stated[name] = found
    gpus = stated.get("gpu_count")
    if gpus is not None and gpus.value not in (0, 1) and not {"parallel", "deepspeed"} & set(stated):
        stated["parallel"] = replace(gpus, value="ddp")
    stated = _with_master_weights(stated)
    evidence = list(_evidence(stated))
    settings, notes = settle(evidence, settings)
    if settings.gpu_count % settings.tensor_parallel and not ("gpu_count" in settings.explicit or gpus):
        settings = replace(settings, gpu_count=settings.tensor_parallel)
        notes = (*notes, Assumption(f"GPUs: {settings.gpu_count}: nothing in the file says how many"))
    built = {name: stated[name].value for name in _BUILT if name in stated}
    lines = {name: stated[name].line for name in built}
    argument = f"recipe={ {'settings': built, 'lines': lines}!r}"
    assumptions = (*notes, *_remarks(step, others, stated, settings))
    return replace(settings, arguments=(argument,)), assumptions, frozenset()


_HALF = {"bf16": ("pure-bf16", "bfloat16"), "fp16": ("pure-fp16", "float16")}


def _with_master_weights(stated: dict[str, Stated]) -> dict[str, Stated]:
    """The step under DeepSpeed, which casts the model instead of using autocast and whose optimizer keeps
    float32 copies of the weights (deepspeed/runtime/bf16_optimizer.py, fp16/fused_optimizer.py)."""
    precision = stated.get("precision")
    half = (
        _HALF.get(str(precision.value))
        if precision is not None and stated.get("has_master_weights")
        else None
    )
    if half is None or precision is None:
        return stated
    precision = replace(precision, words=f"{precision.words} under DeepSpeed")
    dtype = replace(precision, value=half[1])
    changed = {**stated, "precision": replace(precision, value=half[0]), "weights": dtype, "adapters": dtype}
    if stated.get("optimizer") is None or stated["optimizer"].value in ("adamw", "adamw-fused"):
        changed["optimizer"] = replace(stated.get("optimizer", precision), value="adamw-master")
    return changed


_NAMES_A_FILE = ("launcher", "deepspeed")


def _files_of(step: Step, seen: frozenset[str] = frozenset()) -> Iterator[Step]:
    """The settings files of Accelerate and DeepSpeed that a step names, and those that these name."""
    for name in _NAMES_A_FILE:
        found = _file_of(step, step.get(name))
        if found is not None and found.path not in seen:
            yield found
            yield from _files_of(found, seen | {step.path})


def _file_of(step: Step, name: object) -> Step | None:
    """The file of that name, relative to the folder of a step's file or one above it."""
    if not isinstance(name, str):
        return None
    folder = os.path.dirname(step.path)
    for start in (os.getcwd(), folder, *_above(folder)):
        found = _step(os.path.join(start, name))
        if found is not None and found.path != step.path:
            return found
    return None


def _above(folder: str) -> Iterator[str]:
    while (parent := os.path.dirname(folder)) != folder:
        yield parent
        folder = parent


def _evidence(stated: Mapping[str, Stated]) -> Iterator[Evidence]:
    for name, values in _SETTINGS.items():
        found = stated.get(name)
        if found is None:
            continue
        if _is_known(found.value, values):
            yield Evidence(name, found.value, found.path, found.line, found.words)


def _is_known(value: object, values: tuple[object, ...] | None) -> bool:
    if values is not None:
        return value in values
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _remarks(
    step: Step, others: Sequence[Step], stated: Mapping[str, Stated], settings: Settings
) -> Iterator[Assumption]:
    """Assumptions about what the price omits or presupposes."""
    for name in ("precision", "batch"):
        if name not in stated and name not in settings.explicit:
            value = getattr(settings, name) or 1
            yield Assumption(f"nothing in the file says the {name}: it is {value} here; --{name} sets it")
    for one in (step, *others):
        for item in one.not_priced:
            yield Assumption(f"not priced: {item.value} ({item.words})", Site(item.path, item.line))
        unknown = (
            found
            for name, values in _SETTINGS.items()
            if (found := one.stated.get(name)) is not None and not _is_known(found.value, values)
        )
        for item in (*one.unread.values(), *unknown):
            what = f"{item.words} is not known to tclint, which prices the step as if it were not there"
            yield Assumption(what, Site(item.path, item.line))
    length = stated["length"]
    if stated.get("packed") is None or not stated["packed"].value:
        what = (
            f"every sequence has {length.value} tokens in this price ({length.words}); shorter ones cost less"
        )
        yield Assumption(what, Site(length.path, length.line))
    for name in _NAMES_A_FILE if "parallel" not in stated else ():
        named = step.stated.get(name)
        if named is not None and isinstance(named.value, str):
            what = f"{named.words} is not found, so how the step is split is not known: --parallel says it"
            yield Assumption(what, Site(named.path, named.line))

"""What a trace had to assume, with the line that asked; and answers to questions about single values."""

from __future__ import annotations

import re
import sys
from collections import Counter
from dataclasses import replace
from types import FrameType
from typing import Literal, NamedTuple

import torch

from tclint.graph.ops import Assumption, Site
from tclint.tracing.values.branch_policy import Guard, extremum_at, guard_at
from tclint.tracing.values.constants import RANDOM_FACTORIES
from tclint.tracing.values.contents import likely_values
from tclint.tracing.values.layers import calls_a_layer
from tclint.tracing.values.makers import call_of, maker_of, operator_name
from tclint.tracing.values.origin import origin_of
from tclint.tracing.values.sites import SiteFinder

Instruction = tuple[str, int, int]
"""File, line and bytecode offset."""
MAX_ATTEMPTS = 12
"""At a run or a build that fails after a guess."""

Policy = Literal["likely", "least", "most"]
"""Which answer data are taken to give: the likeliest, or one with less or more work that is as plausible."""
SELECTED_LEAST = 100
"""One of so many elements is selected where the least are."""
_ROUNDS_MOST = 10
"""Of a loop that ends by a value."""

_MAX_ANSWERS = 10_000
"""To one condition in a `while` of a run: the loop waits for the other one, as adaptive steps do."""

# Operators looked at between a random number and the question about it.
_CHANCE_STEPS = 8

# What repairs these is not the usual work.
_FLAWS = frozenset({"isinf", "isnan"})
_FLAW_STEPS = 3
"""`isnan(x)`, `.any()`, and one that joins it or makes a number of it."""

# Frames looked at for the name of a checking function, such as torch.distributions' validation.
_NAMED_FRAMES = 6


_TRACED = re.compile(r"(?:a )?traced (?:tensors?|data|mask|counts)")
"""What a guess says of a tensor that has no values."""


_WHY = {"assert": "as is asserted", "raise": "so that nothing is raised"}


class EndlessLoop(RuntimeError):
    """A loop asks on and on, and gets the same guess."""


class GuessedBranch(NamedTuple):
    """A Boolean that was guessed, identified by the instruction that asked for it."""

    instruction: Instruction
    value: bool


class Assumptions:
    """Collects the guesses of one run.

    Args:
        sites: finds the user's line.
        flipped: instructions whose Boolean is to be answered with this value instead of the guess; common
            to all attempts at the same run or build.
    """

    def __init__(
        self, sites: SiteFinder, flipped: dict[Instruction, bool] | None = None, policy: Policy = "likely"
    ) -> None:
        self.policy = policy
        self.branches: list[GuessedBranch] = []
        self._sites = sites
        self._flipped = {} if flipped is None else flipped
        self._counts: dict[tuple[str, Site | None], int] = {}
        self._rounds: dict[tuple[str, int], int] = {}
        self._answers: Counter[Instruction] = Counter()

    def listed(self) -> tuple[Assumption, ...]:
        """Every guess with its line and how often it was made there."""
        return tuple(Assumption(what, site, count) for (what, site), count in self._counts.items())

    def listed_of_build(self) -> tuple[Assumption, ...]:
        """The guesses of a build, where tensors have no values because they are weights or large tables."""
        return tuple(
            replace(assumption, what=f"{_TRACED.sub('a weight or table', assumption.what)}, while building")
            for assumption in self.listed()
        )

    def flip_last_branch(self) -> GuessedBranch | None:
        """Let the next attempt take the opposite of the last Boolean guess that was not turned round yet.

        Returns:
            that guess; None if there is none left.
        """
        guessed = (branch for branch in reversed(self.branches) if branch.instruction not in self._flipped)
        last = next(guessed, None)
        if last is not None:
            self._flipped[last.instruction] = not last.value
        return last

    @property
    def are_made(self) -> bool:
        """Whether anything was assumed so far."""
        return bool(self._counts)

    def add(self, what: str) -> None:
        """Note a guess at the line that is running."""
        key = (what, self._sites.find(sys._getframe(1)).site)
        self._counts[key] = self._counts.get(key, 0) + 1

    def scalar(self, tensor: torch.Tensor) -> bool | int | float:
        """The Python value of a traced one-element tensor: False, 1 or 1.0 unless more is known."""
        if tensor.dtype is not torch.bool:
            counts = likely_values(tensor)
            unknown = _ROUNDS_MOST if self.policy == "most" else 1
            value: int | float = unknown if counts is None else counts[0]
            if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
                value = float(value)
            self.add(f"value of a traced tensor: {value} assumed")
            return value
        origin = origin_of(tensor)
        truth = bool(origin.truth) if origin is not None and origin.truth is not None else False
        why = ""
        asking, frame, names = self._asking_frames()
        if asking is not None and frame is not None:
            instruction = (frame.f_code.co_filename, frame.f_lineno, frame.f_lasti)
            guard = guard_at(asking)
            if any("check" in name or "assert" in name for name in names):
                truth = True
            elif (known := _picks_the_known(tensor, extremum_at(asking))) is not None:
                truth, why = known, ", which takes the size that is known"
            elif not _is_made_by(tensor, _FLAWS):
                truth, why = self._showing_the_work(asking, guard, truth)
            truth = self._flipped.get(instruction, truth)
            self.branches.append(GuessedBranch(instruction, truth))
            self._answers[instruction] += guard is not None and guard.may_wait
            if self._answers[instruction] > _MAX_ANSWERS:
                raise EndlessLoop(f"a condition on traced data was asked {_MAX_ANSWERS} times for one run")
        what = "a random number" if _is_chance(tensor) else "traced data"
        self.add(f"condition on {what}: {truth} assumed{why}")
        return truth

    def _showing_the_work(self, frame: FrameType, guard: Guard | None, truth: bool) -> tuple[bool, str]:
        """The answer with which work is done that the guess would skip, and the reason; or the guess."""
        if guard is None:
            return truth, ""
        if guard.body_calls or guard.else_calls:
            body, other = (calls_a_layer(frame, calls) for calls in (guard.body_calls, guard.else_calls))
            answer = (body != guard.is_negated) != (self.policy == "least")
            return (answer, ", so that layers run") if body != other and answer != truth else (truth, "")
        if guard.is_loop:
            # Not by instruction: Python tests once on the way in, and elsewhere after each round.
            loop = (frame.f_code.co_filename, guard.first_line)
            self._rounds[loop] = rounds = self._rounds.get(loop, 0) + 1
            most = {"least": 0, "likely": 1, "most": _ROUNDS_MOST}[self.policy]
            answer = guard.working_value if rounds % (most + 1) else not guard.working_value
            return answer, f", {'one round' if most == 1 else f'{most} rounds'} of the loop"
        if self.policy == "least" and guard.leaves in ("break", "continue", "return"):
            return not guard.working_value, ""
        # "If all are valid, return" is the usual way.
        if not guard.leaves or truth == guard.working_value or (guard.leaves == "return" and truth):
            return truth, ""
        why = _WHY.get(guard.leaves, f"so that the {guard.leaves} does not leave work out")
        return guard.working_value, f", {why}"

    def _asking_frames(self) -> tuple[FrameType | None, FrameType | None, list[str]]:
        """The frame that asks, the user's (or the first again), and the functions' names up to there."""
        frame: FrameType | None = sys._getframe(1)
        names: list[str] = []
        while frame is not None and self._sites.is_own_file(frame.f_code.co_filename):
            frame = frame.f_back
        asking = frame
        for _ in range(_NAMED_FRAMES):
            if frame is None:
                break
            names.append(frame.f_code.co_name)
            if self._sites.is_user_file(frame.f_code.co_filename):
                return asking, frame, names
            frame = frame.f_back
        return asking, asking, names


def _picks_the_known(tensor: torch.Tensor, extremum: str) -> bool | None:
    """The answer with which `max(positions.max() + 1, capacity)` is the number, not what depends on data.

    Python asks `item > best` for max and `item < best` for min, and turns it round where only the second is
    a tensor.
    """
    maker = maker_of(tensor)
    if not extremum or maker is None or len(maker.all_input_nodes) != 1:
        return None
    turned = {"max": "lt", "min": "gt"}[extremum]
    name = operator_name(maker)
    return name == turned if name in ("lt", "gt") else None


def _is_made_by(tensor: torch.Tensor, names: frozenset[str]) -> bool:
    """Whether one of these operators is among the last that the tensor was computed with."""
    maker = maker_of(tensor)
    for _ in range(_FLAW_STEPS):
        if maker is None or not maker.all_input_nodes:
            return False
        if operator_name(maker) in names:
            return True
        maker = call_of(maker.all_input_nodes[0])
    return False


def _is_chance(tensor: torch.Tensor) -> bool:
    """Whether all that the tensor was computed from was drawn at random."""
    if origin_of(tensor) is None:
        return False
    waiting = [maker_of(tensor)]
    for _ in range(_CHANCE_STEPS):
        if not waiting:
            return True
        maker = waiting.pop()
        if maker is None or not (maker.all_input_nodes or operator_name(maker) in RANDOM_FACTORIES):
            return False
        waiting += map(call_of, maker.all_input_nodes)
    return False

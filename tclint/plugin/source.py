"""What rules on training programs import besides `tclint.plugin`: values, parts of events, and answers.

A rule asks its `SourceContext` (`context.gradients`, `context.steps`, ...); the classes below are what the
answers consist of.
"""

from __future__ import annotations

from tclint.source.project.scripts import HALVES, SCALES, TRAINS
from tclint.source.questions.defaults import Defaults
from tclint.source.questions.flow import Flow
from tclint.source.questions.gradients import UNSEEN, Backward
from tclint.source.questions.launches import LaunchLoop
from tclint.source.questions.networks import Network
from tclint.source.questions.precision.dtypes import HALF_DTYPES, operator_of
from tclint.source.questions.precision.float32 import Training
from tclint.source.questions.precision.frozen import Frozen
from tclint.source.questions.precision.quantized import Mismatch
from tclint.source.questions.precision.scaled_steps import ScaledSteps
from tclint.source.questions.precision.switches import DETERMINISTIC, Switch
from tclint.source.questions.precision.weights import Cast, dtype_named
from tclint.source.questions.projections import Projection
from tclint.source.questions.recording import Unused
from tclint.source.questions.steps import Step
from tclint.source.run.conditions import exclude
from tclint.source.run.values import (
    FALSE,
    NONE,
    TRUE,
    Device,
    FunctionValue,
    Loop,
    Place,
    Region,
    Value,
    constant_of,
    constants_of,
    modules_in,
)
from tclint.source.syntax.tables import Function

__all__ = [  # noqa: RUF022 (by subject)
    # Values, and what to ask of them
    "FALSE", "NONE", "TRUE", "Device", "FunctionValue", "Value", "constant_of", "constants_of", "dtype_named",
    "modules_in", "HALF_DTYPES", "Defaults",
    # Where and when an event happens
    "Function", "Loop", "Place", "Region", "exclude", "operator_of", "UNSEEN",
    # What programs contain that a rule is about
    "DETERMINISTIC", "HALVES", "SCALES", "TRAINS",
    # Answers
    "Backward", "Cast", "Flow", "Frozen", "LaunchLoop", "Mismatch", "Network", "Projection", "ScaledSteps",
    "Step", "Switch", "Training", "Unused",
]  # fmt: skip

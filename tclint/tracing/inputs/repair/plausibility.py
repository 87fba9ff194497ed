"""Whether inferred inputs that a forward ran on can be meant at all."""

from __future__ import annotations

import math
import shlex

from tclint.graph.lowering.step import forward_flops
from tclint.graph.ops import Graph, TensorSpec
from tclint.tracing.inputs.guesses.named_inputs import may_be_images
from tclint.tracing.inputs.specs import SYNTAX, InputSpec

MOST_FLOPS = 1e15
"""Of one example's forward; a clip of video takes 3e14 (Wan 2.1, 14 billion parameters, 81 frames)."""
_MOST_CHANNELS = 4
"""Of pictures, and of the latents that diffusion models make of them."""
_SMALLEST_SIDE = 5
_LONGEST_RATIO = 3.2
"""Of a picture's sides; lines of text are 32x100."""


def absurdity(graph: Graph) -> str | None:
    """Why the inputs of a trace are hardly those that the model is used with; None where they may be.

    Args:
        graph: traced on inputs that were changed until the forward ran.
    """
    for spec in graph.inputs:
        if (reason := _as_picture(spec)) is not None:
            return reason
    batch = max(next((spec.shape[0] for spec in graph.inputs if spec.shape), 1), 1)
    flops = forward_flops(graph) / batch
    return f"one example would take {flops:.0e} FLOPs" if flops > MOST_FLOPS else None


def _as_picture(spec: TensorSpec) -> str | None:
    shape = spec.shape
    if len(shape) < 4 or not spec.dtype.startswith(("float", "bfloat")):
        return None
    name = spec.input_name or ""
    sides = shape[2:]
    if shape[1] > _MOST_CHANNELS or not may_be_images(name) or math.prod(sides) == 1:
        return None
    size = "x".join(str(side) for side in sides)
    if min(sides[-2:]) < _SMALLEST_SIDE:
        return f"{name} of {size} is too small for a picture"
    if max(sides[-2:]) > _LONGEST_RATIO * min(sides[-2:]) and shape[1] == 3:
        return f"{name} of {size} is too long for a picture"
    return None


def options_for(graph: Graph) -> str:
    """The options that give the inputs of a trace; '' where one of them has no name."""
    specs = [InputSpec(spec.shape, spec.dtype, spec.input_name) for spec in graph.inputs]
    if not all(spec.name is not None and spec.name[:1].isidentifier() for spec in specs):
        return ""
    return " ".join(f"--input {shlex.quote(str(spec))}" for spec in specs)  # shells expand brackets


def unknown_inputs(graph: Graph, reason: str, name: str, option: str) -> str:
    """The sentence for a model whose forward ran on nothing but absurd inputs."""
    shown = options_for(graph)
    what = f" ({shown})" if shown else ""
    advice = (
        f"give one {option} per tensor ({SYNTAX})" if option.startswith("--") else f"give them with {option}"
    )
    return (
        f"The inputs of {name} are unknown: the only ones that its forward accepted{what} are implausible, "
        f"because {reason}; {advice}."
    )

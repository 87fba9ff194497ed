"""Changes of a float32 step to a faster precision."""

from __future__ import annotations

from tclint.analysis.change import Change
from tclint.analysis.graph_context import GraphContext
from tclint.config.precisions import PRECISION_FACTS
from tclint.config.settings import Precision
from tclint.cost.transforms.casts import own_dtype

_AUTOCAST: tuple[Precision, ...] = ("bf16", "fp16")
"""bfloat16 first, which needs no loss scaling."""


def autocast(context: GraphContext) -> Change | None:
    """The change of a float32 step to autocast in a dtype that all of the GPUs have units for; else None."""
    if not _is_float32(context):
        return None
    gpus = [context.estimate(scenario).gpu for scenario in context.scenarios]
    for precision in _AUTOCAST:
        if all(gpu.supports(precision) for gpu in gpus):
            return Change(settings={"precision": precision})
    return None


def tf32(context: GraphContext) -> Change | None:
    """The change of a float32 step to TF32 in products and convolutions; None if it has it or no GPU can."""
    facts = PRECISION_FACTS[context.settings.precision]
    gpus = (context.estimate(scenario).gpu for scenario in context.scenarios)
    if not _is_float32(context) or (facts.matmul_tf32 and facts.cudnn_tf32):
        return None
    return Change(settings={"precision": "tf32"}) if any(gpu.supports("tf32") for gpu in gpus) else None


def _is_float32(context: GraphContext) -> bool:
    facts = PRECISION_FACTS[context.settings.precision]
    return facts.dtype == "float32" and own_dtype(context.graph) == "float32"

"""Which tensors of a state dict a plan speaks of."""

from __future__ import annotations

from collections.abc import Mapping

from tclint.core.errors import UsageError
from tclint.core.text import printable
from tclint.graph.weights.plan import TensorPlan, WeightPlan

Shape = tuple[int, ...]


def planned_tensors(
    shapes: Mapping[str, Shape], plan: WeightPlan, *, is_part: bool = False
) -> dict[str, TensorPlan]:
    """The tensors to pad by their names in a state dict.

    Args:
        shapes: of all its tensors.
        is_part: it is one of several files, which need not hold every weight.

    Raises:
        UsageError: a weight is missing, or has another shape than the plan was made for.
    """
    found: dict[str, TensorPlan] = {}
    prefix = prefix_of(shapes, plan)
    for tensor in plan.tensors:
        names = [prefix + name for name in tensor.names if prefix + name in shapes]
        if not names and not is_part:
            raise UsageError(
                f"The checkpoint has no {printable(tensor.name)}, which the plan pads; is it of this model?"
            )
        for name in names:
            if shapes[name] == tensor.new_shape:
                raise UsageError(
                    f"{printable(name)} has the shape {_text(tensor.new_shape)} already: the checkpoint is "
                    "padded."
                )
            if shapes[name] != tensor.old_shape:
                raise UsageError(
                    f"{printable(name)} has the shape {_text(shapes[name])}, not {_text(tensor.old_shape)} "
                    "as in the plan: make the plan with the sizes that this checkpoint was trained with."
                )
            found[name] = tensor
    if not found and plan.tensors and not is_part:
        raise UsageError("The checkpoint has none of the weights that the plan pads; is it of this model?")
    return found


def prefix_of(names: Mapping[str, object], plan: WeightPlan) -> str:
    """What stands before the model's own names: 'module.' of DistributedDataParallel, for example."""
    own = plan.tensors[0].names if plan.tensors else ()
    found = {name[: -len(one)] for one in own for name in names if name.endswith("." + one)}

    def count(prefix: str) -> int:
        return sum(any(prefix + name in names for name in tensor.names) for tensor in plan.tensors)

    return max(("", *found), key=lambda prefix: (count(prefix), -len(prefix)))


def _text(shape: Shape) -> str:
    return "x".join(map(str, shape)) or "()"

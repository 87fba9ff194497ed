"""A checkpoint padded to a plan: what may be padded, and into which file."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tclint.checkpoints.safetensors_file import pad_safetensors
from tclint.core.errors import UsageError
from tclint.core.files import check_writable, replacing
from tclint.core.text import printable
from tclint.graph.weights.plan import WeightPlan

_PART_NAME = re.compile(r"-\d+-of-\d+\.safetensors$")
"""How Hugging Face names the parts of a large checkpoint."""


@dataclass(frozen=True, slots=True)
class PaddedFile:
    """What was written."""

    padded: int
    """Tensors that grew, of `tensors`."""
    tensors: int
    bytes_before: int
    bytes_after: int
    remarks: tuple[str, ...] = ()


def read_plan(path: str) -> WeightPlan:
    """The weights of a plan file that `tclint fix --plan` wrote.

    Raises:
        UsageError: it cannot be read or is none.
    """
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except FileNotFoundError:
        raise UsageError(f"There is no plan {printable(path)!r}; tclint fix --plan writes one.") from None
    except OSError as error:
        raise UsageError(f"Cannot read {printable(path)!r}: {error.strerror or error}.") from None
    except ValueError:
        raise UsageError(
            f"{printable(path)!r} is not a plan: it is not JSON; make one with tclint fix --plan."
        ) from None
    return weights_of(data, path)


def weights_of(plan: Any, name: str = "the plan") -> WeightPlan:
    """The weights of a plan, whether it is a file, JSON, or an object that has them.

    Raises:
        UsageError: it has none.
    """
    if isinstance(plan, (str, os.PathLike)):
        return read_plan(os.fspath(plan))
    weights = getattr(plan, "weights", plan)
    if isinstance(plan, Mapping):
        # A plan of fixes that make something smaller has none.
        weights = plan.get("weights", None if "steps" in plan else plan)
    if isinstance(weights, WeightPlan):
        return weights
    if weights is None:
        raise UsageError(
            f"{printable(name)!r} pads no weights: its edits make no size of them larger, or make one "
            "smaller; tclint fix --plan FILE --keep-architecture writes a plan that only pads."
        )
    try:
        return WeightPlan.from_json(weights)
    except ValueError as error:
        raise UsageError(
            f"{printable(name)!r} has no weights to be read ({error}); make it with tclint fix --plan."
        ) from None


def check_exact(plan: WeightPlan, *, inexact: bool) -> None:
    """Refuse a plan after which the model is not known to compute the same, unless that is wanted.

    Raises:
        UsageError: it is not exact, or nothing has shown that it is.
    """
    if plan.proof.is_exact or inexact:
        return
    if plan.proof.verdict == "inexact":
        raise UsageError(
            "These sizes cannot grow without changing what the model computes; --inexact pads the checkpoint "
            "anyway, to continue training."
        )
    raise UsageError(
        f"It is not known whether the padded model computes the same: {plan.proof.reason}; compare both "
        "models with --check OLD NEW, or pad the checkpoint anyway with --inexact."
    )


def pad_checkpoint(path: str, plan: WeightPlan, output: str, *, optimizer: bool = False) -> PaddedFile:
    """Write a padded checkpoint; a safetensors file is read and written tensor by tensor.

    Raises:
        UsageError: the file cannot be read, does not fit the plan, or cannot be written; nothing is written.
    """
    check_writable(output)
    if os.path.isdir(path):
        raise UsageError(f"Cannot read {printable(path)!r}: it is a folder; name a file in it.")
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise UsageError(f"Cannot read {printable(path)!r}: {error.strerror or error}.") from None
    if os.path.exists(output) and os.path.samefile(path, output):
        raise UsageError("--output is the checkpoint itself; name another file to keep it.")
    if path.endswith(".index.json"):
        raise UsageError("Pad each part of a checkpoint on its own: name the files that the index lists.")
    remarks: list[str] = []
    with replacing(output) as temporary:
        if path.endswith(".safetensors"):
            if optimizer:
                raise UsageError("A safetensors file holds no optimizer state: leave out --optimizer.")
            is_part = _PART_NAME.search(path) is not None
            padded, tensors = pad_safetensors(path, temporary, plan, is_part=is_part)
        else:
            from tclint.checkpoints.torch_file import pad_torch_file

            padded, tensors, remarks = pad_torch_file(path, temporary, plan, optimizer=optimizer)
        after = os.path.getsize(temporary)
    return PaddedFile(padded, tensors, os.path.getsize(path), after, tuple(remarks))

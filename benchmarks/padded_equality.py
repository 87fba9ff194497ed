"""Whether what `tclint.verify_padding` says of two models is so, by a run of its own with other weights."""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

import tclint
from tclint.checkpoints.torch_file import pad_state_dict
from tclint.graph.ops import Graph, Op
from tclint.graph.weights.plan import WeightEdit, WeightPlan

TOLERANCE = 1e-9
"""Relative, in float64."""


@dataclass(slots=True)
class Equality:
    """What came of one padding."""

    verdict: str
    """'exact', 'exact_with', 'inexact' or 'unproved'."""
    reason: str = ""
    equal: bool | None = None
    """None where it was not compared."""
    difference: str = ""
    grown: int = 0
    """Weights that grew."""
    edits: tuple[WeightEdit, ...] = ()
    plan: WeightPlan | None = field(default=None, repr=False)

    @property
    def is_lie(self) -> bool:
        """Said to be exact, and it is not."""
        return self.verdict in ("exact", "exact_with") and self.equal is False


def compare(
    original: nn.Module,
    larger: nn.Module,
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    gradients: bool = True,
    always: bool = False,
) -> Equality:
    """Pad the original's weights to the larger model's sizes, and compare what both compute.

    Args:
        original, larger: one architecture at two sizes, in float32; both are turned to float64.
        inputs, kwargs: real tensors, for both; those of float32 are turned to float64.
        gradients: compare those of the original's entries too.
        always: compare also where they are not called equal.
    """
    given = dict(kwargs or {})
    models = [model.eval() for model in (original, larger)]
    plan = tclint.verify_padding(original, larger, tuple(inputs), given)
    proof = plan.proof
    result = Equality(proof.verdict, proof.reason, grown=len(plan.tensors), edits=proof.edits, plan=plan)
    if not plan.tensors or not (proof.is_exact or always):
        return result
    has_numbers = any(edit.value is not None for edit in proof.edits)
    graphs = [tclint.trace(model, tuple(inputs), given) for model in models] if has_numbers else []
    models[1].load_state_dict(pad_state_dict(models[0].state_dict(), plan))
    for model in models:
        model.double()
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _Edited(plan, graphs) as edited:
            doubled = _doubled(inputs), _doubled(given)
            result.difference = _difference(models, *doubled, plan, edited, gradients=gradients)
    finally:
        torch.set_default_dtype(default)
    result.equal = not result.difference
    return result


# ------------------------------------------------------------------------------ edits

_ARITHMETIC = frozenset(
    {"add", "sub", "mul", "div", "truediv", "pow", "full", "full_like", "tensor", "baddbmm", "clamp", "iadd",
     "isub", "imul", "itruediv", "multiply", "divide", "true_divide"}
)  # fmt: skip


class _Edited(TorchFunctionMode):
    """Runs the larger model's code as if the plan's edits were made in it.

    Numbers that differ between the two traces are put back, where an edit says so. A number without an edit
    stays as it is, and the results differ.
    """

    def __init__(self, plan: WeightPlan, graphs: Sequence[Graph]) -> None:
        super().__init__()
        self.active = False
        edits = plan.proof.edits
        known = [edit.value for edit in edits if edit.kind in ("constant", "attention_scale")]
        self.numbers: dict[tuple[str, int], dict[float, float]] = {}
        """By line, the larger model's numbers and what they were."""
        self.scales: dict[int, float] = {}
        for old, new in zip(*(graph.ops for graph in graphs), strict=False):
            if old.name == "scaled_dot_product_attention" and old.attributes.get("scale") is None:
                scale = old.inputs[0].shape[-1] ** -0.5
                if any(value is not None and _close(scale, value) for value in known):
                    self.scales[new.inputs[0].shape[-1]] = scale
            for before, after in _numbers(old, new):
                if before != after and any(value is not None and _close(before, value) for value in known):
                    site = old.call_site or old.construct_site
                    place = ("", 0) if site is None else (site.path, site.line)
                    self.numbers.setdefault(place, {})[after] = before

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if not self.active:
            return func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if func is torch.nn.functional.scaled_dot_product_attention:
            kwargs.setdefault("scale", self.scales.get(args[0].shape[-1]))
            kwargs["scale"] = self._put_back(kwargs["scale"], self._numbers_here())
            return func(*args, **kwargs)
        if self.numbers and name.strip("_").removeprefix("r") in _ARITHMETIC:
            numbers = self._numbers_here()
            args = tuple(self._put_back(value, numbers) for value in args)
            kwargs = {key: self._put_back(value, numbers) for key, value in kwargs.items()}
        return func(*args, **kwargs)

    def _numbers_here(self) -> dict[float, float]:
        """What is put back in the line that runs."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            found = self.numbers.get((frame.f_code.co_filename, frame.f_lineno))
            if found is not None:
                return found
            frame = frame.f_back
        return {}

    @staticmethod
    def _put_back(value: Any, numbers: Mapping[float, float]) -> Any:
        if _is_number(value):
            return next((old for new, old in numbers.items() if _close(new, value)), value)
        return value


def _numbers(old: Op, new: Op) -> Iterator[tuple[float, float]]:
    if old.name != new.name:
        return
    for name, before in old.attributes.items():
        after = new.attributes.get(name)
        if old.kind not in ("view", "conv", "pool") and _is_number(before) and _is_number(after):
            yield before, after
    for one, other in zip(old.inputs, new.inputs, strict=False):
        if one.value is not None and other.value is not None:
            yield one.value, other.value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-6)


# ------------------------------------------------------------------------------ results


def _difference(
    models: Sequence[nn.Module],
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any],
    plan: WeightPlan,
    edited: _Edited,
    *,
    gradients: bool,
) -> str:
    """How the two models' results differ; '' where they do not."""
    results = []
    for model in models:
        edited.active = model is models[1]
        with torch.set_grad_enabled(gradients):
            results.append(_results(model, inputs, kwargs))
    if len(results[0]) != len(results[1]):
        return "another number of outputs"
    for position, (old, new) in enumerate(zip(*results, strict=True)):
        if old.dim() != new.dim():
            return f"output {position} has another rank"
        results[1][position] = new[tuple(slice(size) for size in old.shape)]
        difference = _relative(old, results[1][position])
        if not difference <= TOLERANCE:
            return f"output {position} differs by {difference:.1e}"
    if not gradients:
        return ""
    edited.active = False
    made = [_gradients(model, tensors) for model, tensors in zip(models, results, strict=True)]
    difference_of_gradients = _difference_of_gradients(made[0], made[1], plan, {})
    if difference_of_gradients:
        # Deep nets make much of how kernels round: how much, the original tells of images in another layout.
        other = _gradients(models[0], _results(models[0], _channels_last(inputs), kwargs))
        noise = {name: _largest(old, other[name]) for name, old in made[0].items()}
        return _difference_of_gradients(made[0], made[1], plan, noise)
    return ""


def _results(model: nn.Module, inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return list(_tensors(model(*copy.deepcopy(list(inputs)), **copy.deepcopy(dict(kwargs)))))


def _channels_last(inputs: Sequence[Any]) -> list[Any]:
    return [
        value.contiguous(memory_format=torch.channels_last)
        if isinstance(value, torch.Tensor) and value.dim() == 4
        else value
        for value in inputs
    ]


def _gradients(model: nn.Module, results: Sequence[torch.Tensor]) -> dict[str, torch.Tensor | None]:
    """Those of a sum of the results with random weights."""
    generator = torch.Generator().manual_seed(1)
    loss = torch.zeros((), dtype=torch.float64)
    for tensor in results:
        if tensor.is_floating_point() and tensor.requires_grad:
            weights = torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype)
            loss = loss + (tensor * weights).sum()
    for parameter in model.parameters():
        parameter.grad = None
    if loss.requires_grad:
        loss.backward()
    return {name: weight.grad for name, weight in model.named_parameters()}


def _largest(one: torch.Tensor | None, other: torch.Tensor | None) -> float:
    if one is None or other is None or not one.numel():
        return 0.0
    return float((one - other).abs().max())


def _difference_of_gradients(
    before: Mapping[str, torch.Tensor | None],
    after: Mapping[str, torch.Tensor | None],
    plan: WeightPlan,
    noise: Mapping[str, float],
) -> str:
    """How gradients of the original entries differ by more than rounding; '' where they do not."""
    planned = {tensor.name: tensor for tensor in plan.tensors}
    scale = max(
        (float(grad.abs().max()) for grad in before.values() if grad is not None and grad.numel()), default=0
    )
    for name, old in before.items():
        new = after[name]
        if old is None or new is None:
            if old is not new:
                return f"{name} has a gradient in one of the models only"
            continue
        for axis in planned[name].axes if name in planned else ():
            index = torch.cat([torch.arange(start, start + length) for _, start, length in axis.segments])
            new = new.index_select(axis.axis, index)
        if not old.numel():
            continue
        # Sums that cancel are rounded as their terms are: a small gradient is not told to 1e-9 of itself.
        size = max(float(old.abs().max()), 1e-3 * scale)
        difference = _largest(old, new)
        if not difference <= max(TOLERANCE * size, 2 * noise.get(name, 0.0)):
            return f"the gradient of {name} differs by {difference / size:.1e}"
    return ""


def _doubled(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, dict):
        return {key: _doubled(item) for key, item in value.items()}
    return [_doubled(item) for item in value] if isinstance(value, (list, tuple)) else value


def _relative(old: torch.Tensor, new: torch.Tensor) -> float:
    if not old.numel():
        return 0.0
    if not (old.is_floating_point() or old.is_complex()):
        return 0.0 if torch.equal(old, new) else 1.0
    if torch.equal(old, new):
        return 0.0  # infinite ones too
    return float((old - new).abs().max() / old.abs().max().clamp_min(1e-300))


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)

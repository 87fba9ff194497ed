"""Runs of the original and of the padded model, and what they show."""

from __future__ import annotations

import contextlib
import functools
import math
import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from tclint.graph.weights.plan import PaddingProof, WeightEdit, WeightPlan
from tclint.tracing.equality.watch import Difference, Record, Watch
from tclint.tracing.equality.weights import NamedWeights, OtherWeights, old_entries
from tclint.tracing.patches.modules import named_modules
from tclint.tracing.session.trace import tensors_of
from tclint.tracing.values.sites import SiteFinder

TOLERANCE = 1e-9
"""The tolerance for outputs, relative to the largest entry."""
GRADIENT_TOLERANCE = 1e-6
"""The tolerance for gradients, relative to the largest of all: sums that cancel are rounded like their
terms."""
SEEDS = 3
_GRADIENT_SEEDS = (1, 0, 2)
"""The first one's gradients are compared."""
_SIGNS = torch.cos(1.3 * torch.arange(997, dtype=torch.float64))
"""Numbers between -1 and 1. Their count is prime, so that they fall differently in each row of a weight."""
_LEAST_INFLUENCE = 1e-6
"""The least influence on the outputs that added entries must have: with less, a difference would stay
hidden."""


@dataclass
class Run:
    """One of the original model."""

    seed: int
    """The seed for the weights that `given` leaves out."""
    given: dict[str, torch.Tensor]
    outputs: list[torch.Tensor]
    record: Record


@dataclass
class Original:
    """What the padded model is compared with."""

    inputs: list[torch.Tensor]
    """The tensors among the arguments, in pytree's order."""
    runs: list[Run]
    gradients: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By parameter: the norm of its gradient, and its sum with some signs; empty where there is none."""
    gradient_record: Record = field(default_factory=Record)


class CannotTell(Exception):
    """No run tells whether two models compute the same; the message is half a sentence."""


@dataclass(frozen=True)
class Arguments:
    """What a forward is called with."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    @property
    def tensors(self) -> list[torch.Tensor]:
        leaves = pytree.tree_leaves((self.args, dict(self.kwargs)))
        return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]

    def with_tensors(self, tensors: Sequence[torch.Tensor]) -> Arguments:
        """With others in their place."""
        rest = iter(tensors)
        args, kwargs = pytree.tree_map(
            lambda leaf: next(rest) if isinstance(leaf, torch.Tensor) else leaf,
            (self.args, dict(self.kwargs)),
        )
        return Arguments(args, kwargs)


@contextlib.contextmanager
def in_double_precision() -> Iterator[None]:
    """Tensors that code makes without a dtype are float64."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def run_original(
    model: nn.Module,
    arguments: Arguments,
    plan: WeightPlan,
    sites: SiteFinder,
    given: Mapping[str, torch.Tensor] | None = None,
) -> Original:
    """Run the original model with several sets of weights, which stay in it.

    Args:
        model: in float64 and in evaluation mode.
        arguments: tensors with values.
        plan: of the padding.
        sites: tells user code from library code.
        given: weights of one more run: all that a state dict holds.

    Raises:
        CannotTell: its outputs are nothing that could be compared.
        Exception: of the model's own code.
    """
    tensors = [_as_double(tensor) for tensor in arguments.tensors]
    arguments = arguments.with_tensors(tensors)
    weights = NamedWeights(model)
    own = weights.given()
    found = Original(tensors, [])
    fitting = {
        name: value
        for name, value in (given or {}).items()
        if name in weights.tensors and value.shape == weights.tensors[name].shape
    }
    unfelt = [group.tensors for group in plan.groups]
    # First, because what a forward keeps in inference mode has no gradients later.
    for seed in _GRADIENT_SEEDS:
        weights.fill(own, seed)
        watch = Watch(sites)
        try:
            gradients, outputs = _gradients(model, arguments, watch, None)
        except _NoGradients:
            unfelt = []
            break
        if not found.gradients:
            found.gradients = {name: _summed(tensor) for name, tensor in gradients.items()}
            found.gradient_record = watch.record
        unfelt = [names for names in unfelt if not _is_felt(names, weights, gradients, outputs)]
        if not unfelt:
            break
    if unfelt:
        raise CannotTell(f"its outputs hardly depend on {unfelt[0][0]} for random weights")
    for seed in range(SEEDS + 1 if fitting else SEEDS):
        chosen = own if seed < SEEDS else {**own, **fitting}
        weights.fill(chosen, seed)
        watch = Watch(sites)
        outputs = _outputs(model, arguments, watch)
        if not any(tensor.is_floating_point() or tensor.is_complex() for tensor in outputs):
            raise CannotTell("its outputs are no numbers that change with every weight")
        if not any(bool(tensor.isnan().any()) for tensor in outputs):
            found.runs.append(Run(seed, chosen, outputs, watch.record))
    if len(found.runs) < 2:
        raise CannotTell("its outputs are no numbers for random weights")
    if not any(map(_largest, found.runs[0].outputs)):
        raise CannotTell("its outputs are zero for random weights")
    return found


def _is_felt(
    names: Sequence[str],
    weights: NamedWeights,
    gradients: Mapping[str, torch.Tensor],
    outputs: Sequence[torch.Tensor],
) -> bool:
    """Whether a difference in one of these weights would show in the outputs; so it is with unread ones."""
    largest = max(map(_largest, outputs), default=0.0)
    felt = [
        float((gradients[name] * weights.tensors[name].detach()).norm())
        for name in names
        if name in gradients
    ]
    return not felt or not max(felt) < _LEAST_INFLUENCE * largest  # of what is no number, nothing is known


def compare_padded(
    model: nn.Module, arguments: Arguments, plan: WeightPlan, original: Original, sites: SiteFinder
) -> PaddingProof:
    """Run the padded model with the original's weights, padded, and compare.

    Args:
        model: in float64 and in evaluation mode.
        arguments: their tensors are replaced by the original's inputs.
        plan: of the padding.
        original: what the original's runs came to.
        sites: tells user code from library code.

    Raises:
        CannotTell: the models cannot be compared.
        Exception: of the model's own code.
    """
    if len(arguments.tensors) != len(original.inputs):
        raise CannotTell("the padded model takes other inputs")
    comparison = _Comparison(model, arguments.with_tensors(original.inputs), plan, original, sites)
    shown = comparison.run()
    inputs = tuple(
        f"{str(tensor.dtype).removeprefix('torch.')}[{','.join(map(str, tensor.shape))}]"
        for tensor in original.inputs
    )
    return replace(shown, runs=len(original.runs), inputs=inputs)


@dataclass
class _Comparison:
    model: nn.Module
    arguments: Arguments
    plan: WeightPlan
    original: Original
    sites: SiteFinder
    difference: float = 0.0
    """The largest so far."""
    slices: dict[WeightEdit, None] = field(default_factory=dict)
    where: Difference | None = None

    def run(self) -> PaddingProof:
        try:
            weights = NamedWeights(self.model, self.plan)
            of_gradients = self._gradients(weights)
            problem, numbers = self._outputs(weights, keeps_numbers=False)
            if numbers:
                plain, as_it_is = problem, self.slices
                problem, _ = self._outputs(weights, keeps_numbers=True)
                if problem and not plain:
                    # They follow the size as they should: the places along an axis, say.
                    problem, numbers, self.slices = "", (), as_it_is
                else:
                    of_gradients = None  # autograd has the numbers of the code as it is
        except OtherWeights as error:
            raise CannotTell(str(error)) from None
        problem = problem or of_gradients or ""
        if problem:
            return self._inexact(problem)
        edits = (*numbers, *self.slices)
        return PaddingProof(
            "exact_with" if edits else "exact",
            edits,
            difference=self.difference,
            gradients=of_gradients is not None,
        )

    def _inexact(self, problem: str) -> PaddingProof:
        where, site = self.where, None if self.where is None else self.where.site
        if where is not None:
            place = f" at {os.path.basename(site.path)}:{site.line}" if site is not None else ""
            module = f" in {where.module}" if where.module else ""
            problem = f"{where.op}{place}{module} {where.how}, and {problem}"
        return PaddingProof(
            "inexact",
            reason=problem,
            path=None if site is None else site.path,
            line=None if site is None else site.line,
            difference=self.difference,
        )

    def _outputs(self, weights: NamedWeights, *, keeps_numbers: bool) -> tuple[str, tuple[WeightEdit, ...]]:
        """What differs, '' for nothing; and the numbers that the code computes from other sizes."""
        self.difference, self.where, self.slices = 0.0, None, {}
        numbers, problem = dict[WeightEdit, None](), ""
        for run in self.original.runs:
            weights.fill(run.given, run.seed)
            with _module_names(self.model) as modules:
                watch = Watch(
                    self.sites,
                    run.record,
                    keeps_numbers=keeps_numbers,
                    plan=self.plan if self.where is None else None,
                    modules=modules,
                )
                made = _outputs(self.model, self.arguments, watch)
            numbers.update(watch.edits)
            found = self._compared(run.outputs, made)
            if found:
                self.where = self.where or watch.other_call or watch.difference or watch.other_way
                problem = problem or found
            elif watch.other_call is not None:
                raise CannotTell(f"{watch.other_call.op} runs at the new sizes only")
        return problem, tuple(numbers)

    def _compared(self, before: Sequence[torch.Tensor], after: Sequence[torch.Tensor]) -> str:
        if len(before) != len(after):
            return f"there are {len(after)} outputs, not {len(before)}"
        for number, (old, new) in enumerate(zip(before, after, strict=True)):
            if old.dim() != new.dim() or any(a > b for a, b in zip(old.shape, new.shape, strict=True)):
                return f"output {number} has the shape {tuple(new.shape)}, not {tuple(old.shape)}"
            for axis, (size, larger) in enumerate(zip(old.shape, new.shape, strict=True)):
                if size != larger:
                    cut = WeightEdit("slice_output", size=size, axis=axis - old.dim(), output=number)
                    self.slices[cut] = None
            difference = _relative(old, _cut(new, old))
            self.difference = max(self.difference, difference)
            if not difference <= TOLERANCE:
                return f"output {number} differs by {difference:.1e}"
        return ""

    def _gradients(self, weights: NamedWeights) -> str | None:
        """How gradients of the old entries differ; '' where they do not, None where the original has none."""
        if not self.original.gradients:
            return None
        like = self.original.runs[0]
        weights.fill(like.given, _GRADIENT_SEEDS[0])
        watch = Watch(self.sites, self.original.gradient_record, keeps_numbers=True)
        try:
            found, _ = _gradients(self.model, self.arguments, watch, like.outputs)
        except _NoGradients:
            return "the padded model has no gradients"
        planned = {tensor.name: {axis.axis: axis for axis in tensor.axes} for tensor in self.plan}
        largest = max(norm for norm, _ in self.original.gradients.values())
        for name, before in self.original.gradients.items():
            if name not in found:
                return f"{name} has no gradient"
            after = _summed(old_entries(found[name], planned.get(name, {})))
            difference = max(abs(one - other) for one, other in zip(before, after, strict=True))
            if not difference <= GRADIENT_TOLERANCE * max(before[0], 1e-3 * largest):
                return f"its outputs are equal, but the gradient of {name} differs"
        return ""


class _NoGradients(Exception):
    """The model's outputs do not depend on parameters that are trained."""


def _outputs(model: nn.Module, arguments: Arguments, watch: Watch) -> list[torch.Tensor]:
    with torch.inference_mode():
        return [tensor.clone() for tensor in _called(model, arguments, watch)]


def _gradients(
    model: nn.Module, arguments: Arguments, watch: Watch, like: Sequence[torch.Tensor] | None
) -> tuple[dict[str, torch.Tensor], list[torch.Tensor]]:
    """The gradients of a signed sum of the outputs, and the outputs.

    Args:
        like: the outputs to cut these to; None: they stay as they are.
    """
    parameters = {
        name: tensor for name, tensor in NamedWeights(model).tensors.items() if tensor.requires_grad
    }
    try:
        with torch.enable_grad():
            outputs = _called(model, arguments, watch)
            if like is not None:
                outputs = [_cut(new, old) for new, old in zip(outputs, like, strict=True)]
            parts = [
                _signed_sum(tensor)
                for tensor in outputs
                if tensor.requires_grad and tensor.is_floating_point()
            ]
            if not parts or not parameters:
                raise _NoGradients
            made = torch.autograd.grad(sum(parts[1:], parts[0]), list(parameters.values()), allow_unused=True)
    except RuntimeError as error:  # inference tensors, operators without a derivative
        raise _NoGradients from error
    gradients = zip(parameters, made, strict=True)
    found = {name: gradient.detach() for name, gradient in gradients if gradient is not None}
    return found, [tensor.detach() for tensor in outputs]


def _called(model: nn.Module, arguments: Arguments, watch: Watch) -> list[torch.Tensor]:
    torch.manual_seed(0)
    fresh = arguments.with_tensors([tensor.clone() for tensor in arguments.tensors])
    with in_double_precision(), watch:
        made = model(*fresh.args, **fresh.kwargs)
        return list(tensors_of(list(made) if isinstance(made, Generator) else made))


@contextlib.contextmanager
def _module_names(model: nn.Module) -> Iterator[list[str]]:
    """The names of the modules that run, outermost first."""
    running: list[str] = []

    def enter(name: str, *_: Any) -> None:
        running.append(name)

    def leave(*_: Any) -> None:
        running.pop()

    hooks = []
    for name, module in named_modules(model):
        hooks.append(module.register_forward_pre_hook(functools.partial(enter, name)))
        hooks.append(module.register_forward_hook(leave, always_call=True))
    try:
        yield running
    finally:
        for hook in hooks:
            hook.remove()


def _as_double(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_floating_point():
        return tensor.detach()
    tensor = tensor.detach().double()
    if tensor.numel() > 1 and bool((tensor == tensor.flatten()[0]).all()):
        # Zeros or ones stand for any values, and would hide most of them.
        generator = torch.Generator().manual_seed(0)
        tensor = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
    return tensor


def _signed_sum(tensor: torch.Tensor) -> torch.Tensor:
    """The sum of a tensor's entries, each times one of `_SIGNS` that its place chooses."""
    flat = tensor.flatten().double()
    rest = flat.numel() % len(_SIGNS)
    rows, last = flat[: flat.numel() - rest].view(-1, len(_SIGNS)), flat[flat.numel() - rest :]
    return (rows @ _SIGNS).sum() + last @ _SIGNS[:rest]


def _summed(tensor: torch.Tensor) -> tuple[float, float]:
    return float(tensor.norm()), float(_signed_sum(tensor))


def _cut(new: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
    return new[tuple(slice(size) for size in old.shape)]


def _largest(tensor: torch.Tensor) -> float:
    finite = tensor[tensor.isfinite()]
    return float(finite.abs().max()) if finite.numel() else 0.0


def _relative(old: torch.Tensor, new: torch.Tensor) -> float:
    if not old.numel() or torch.equal(old, new):
        return 0.0
    if not (old.is_floating_point() or old.is_complex()):
        return math.inf
    differences = torch.where(old == new, 0.0, (old - new).abs())  # infinite ones may be equal
    difference = float(differences.max()) / max(_largest(old), 1e-300)
    return math.inf if math.isnan(difference) else difference

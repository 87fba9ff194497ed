"""Explains the price of one operator: its kernels as priced, beside those of another size."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from math import prod

from tclint.analysis.graph_context import GraphContext
from tclint.analysis.layers import OpDim, width_dims
from tclint.analysis.widths.alignment import is_misaligned, largest_power_of_two_in
from tclint.analysis.widths.padding import Padding, best_padding
from tclint.config.precisions import precision_title
from tclint.config.settings import Settings
from tclint.core.errors import TargetError, UsageError
from tclint.core.target import is_model_target
from tclint.cost.estimate import Estimate, Row, estimate
from tclint.graph.dims.coupled import DimGroup, DimsUnresolved
from tclint.graph.lowering.work import Convolution, Gemm
from tclint.graph.ops import Graph, Op

SUGGESTIONS = 6
OPTIMIZER = -1
"""The op index of the kernels of the optimizer's step."""
LISTED = 12
"""The most names to show if a name fits several ops."""


@dataclass(frozen=True, slots=True)
class KernelPair:
    """One kernel of the op, and the same one with dims resized."""

    before: Row | None
    after: Row | None
    """None if nothing was resized or the kernel no longer exists."""


@dataclass(frozen=True, slots=True)
class GpuExplanation:
    """The op's kernels on one GPU, forward first."""

    estimate: Estimate
    changed: Estimate | None
    kernels: tuple[KernelPair, ...]
    op_indices: tuple[int, ...]

    @property
    def time_us(self) -> float:
        return self.estimate.time_of_us(self.op_indices)

    @property
    def changed_time_us(self) -> float | None:
        return None if self.changed is None else self.changed.time_of_us(self.op_indices)

    @property
    def uncertainty_percent(self) -> float:
        return self.estimate.uncertainty_of_percent(self.op_indices)


@dataclass(frozen=True, slots=True)
class CostExplanation:
    """One op, the ops of one module, or the optimizer's step explained."""

    ops: tuple[Op, ...]
    """The explained ops; empty for the optimizer."""
    sizes: tuple[tuple[int, int], ...]
    """(present, other) sizes of the coupled dims that differ on the right-hand side; empty if there is
    none."""
    coupled: tuple[str, ...]
    """Parameters whose sizes change with these dims."""
    note: str
    """The reason why there is no right-hand side, or why some dims could not be resized."""
    gpus: tuple[GpuExplanation, ...]


def explain_target(
    target: str,
    settings: Settings,
    name: str,
    pads: Sequence[str] = (),
    on_progress: Callable[[str], None] | None = None,
) -> tuple[CostExplanation, str]:
    """Build and trace a target, and explain the price of one op of it.

    Raises:
        UsageError: the target is not a model, or nothing in it has that name.
        TargetError: the target could not be built or traced.
    """
    from tclint.analysis.what_if.usual_batch import with_usual_batch
    from tclint.engine.script.as_built import trace_as_built

    settings = settings.in_phase()
    if not is_model_target(target):
        raise UsageError(
            f"{target!r} is not a model target; write 'path/file.py:callable' or 'package.module:callable'."
        )
    (result,) = trace_as_built([target], settings, on_progress=on_progress)
    if result.graph is None:
        raise result.error or TargetError(f"{target} was not traced: unknown error.")
    settings = result.made_so(settings)
    context, fitted = with_usual_batch(GraphContext(result.graph, settings, target))
    explanation = explain_cost(context, name, pads)
    how = ", ".join((target, settings.mode, precision_title(settings.precision), *(f.what for f in fitted)))
    how += ", compiled" if settings.compiled else ""
    parts = settings.tensor_parallel
    return explanation, how + (f", on one of {parts} GPUs under tensor parallelism" if parts > 1 else "")


def explain_cost(context: GraphContext, name: str, pads: Sequence[str] = ()) -> CostExplanation:
    """Price the op of that name, and price it again with dims padded.

    Args:
        name: path of a module ('transformer.h.0.mlp.fc1', or a unique end of it), name of an operator that
            occurs once, '#12' for the 12th op, or 'optimizer' for the optimizer's step.
        pads: 'DIM=SIZE': DIM is a role ('out_features', 'in_channels', 'batch'), or the present size;
            empty: misaligned widths are padded as the DIM rules advise.

    Raises:
        UsageError: no op or dim has that name, or several have; a dim cannot take that size.
    """
    note, changed, groups = "", None, {}
    ops: tuple[Op, ...] = ()
    if is_optimizer(context.graph, name):
        if context.settings.mode != "train":
            raise UsageError("There is no optimizer in --mode infer; --mode train has its step.")
        if pads:
            raise UsageError("The optimizer has no dims to pad; it follows the parameters' sizes.")
    else:
        ops = find_ops(context.graph, name)
    if pads:
        groups = _asked_for(context, ops, pads)
        try:
            changed = context.dims.resize(groups)
        except DimsUnresolved as error:
            raise UsageError(f"{', '.join(pads)} cannot be tried: {error}.") from None
    elif ops:
        groups, note = _as_the_rules_do(context, ops)
        changed = context.dims.resize(groups) if groups else None
    sizes = sorted({(group.size, size) for group, size in groups.items() if group.size != size})
    coupled = dict.fromkeys(parameter for group in groups for parameter, _ in group.parameters)
    indices = tuple(op.index for op in ops) or (OPTIMIZER,)
    explanations = []
    for scenario in context.scenarios:
        before = context.estimate(scenario)
        after = None if changed is None else estimate(changed, scenario)
        explanations.append(GpuExplanation(before, after, _pairs(before, after, indices), indices))
    return CostExplanation(ops, tuple(sizes), tuple(coupled), note, tuple(explanations))


def is_optimizer(graph: Graph, name: str) -> bool:
    """Whether a name means the optimizer's step: 'optimizer', unless a module or op has that name."""
    called = {op.name for op in graph.ops} | {part for op in graph.ops for part in op.module_path.split(".")}
    return name == "optimizer" and name not in called


def _pairs(before: Estimate, after: Estimate | None, indices: Iterable[int]) -> tuple[KernelPair, ...]:
    """Pair kernels of two estimates: the n-th of an op, phase and role with the n-th of the same."""
    pairs = []
    for index in indices:
        others: dict[tuple[str, str, str], list[Row]] = {}
        for row in after.rows_of(index) if after is not None else ():
            others.setdefault(_key(row), []).append(row)
        for row in before.rows_of(index):
            matching = others.get(_key(row))
            pairs.append(KernelPair(row, matching.pop(0) if matching else None))
        pairs += [KernelPair(None, row) for rows in others.values() for row in rows]
    return tuple(sorted(pairs, key=lambda pair: (pair.before or pair.after).phase != "forward"))  # type: ignore[union-attr]


def _key(row: Row) -> tuple[str, str, str]:
    return row.phase, row.role, type(row.work).__name__


# --- which op


def find_ops(graph: Graph, name: str) -> tuple[Op, ...]:
    """The op of that name, or all ops of the module of that name that do work.

    Raises:
        UsageError: there is none, or the name fits several; the message lists the closest.
    """
    ops = [op for op in graph.ops if op.kind != "view"]
    if re.fullmatch(r"#\d+", name):
        chosen = [op for op in graph.ops if op.index == int(name[1:])]
        if not chosen:
            raise UsageError(f"There is no op {name}; the model has {len(graph.ops)}, #0 being the first.")
        return tuple(chosen)
    paths = dict.fromkeys(op.module_path for op in ops if op.module_path)
    if name in paths:
        return tuple(op for op in ops if op.module_path == name)
    ends = [path for path in paths if path.endswith(f".{name}")]
    if len(ends) == 1:
        return tuple(op for op in ops if op.module_path == ends[0])
    inside = [path for path in paths if path.startswith(f"{name}.")]
    named = [op for op in ops if op.name == name]
    if len(named) == 1 and not ends and not inside:
        return tuple(named)
    if ends or inside or named:
        found = ends or inside or list(dict.fromkeys(_label(op) for op in named))
        raise UsageError(f"--op {name!r} fits {len(found)} places: {_listed(found)}.")
    known = [*paths, *dict.fromkeys(op.name for op in ops if op.is_product)]
    close = _closest(name, known)
    guess = f" The closest are {_listed(close)}." if close else f" There are {_listed(known)}."
    raise UsageError(f"No op or module of the model is called {name!r}.{guess}")


def _label(op: Op) -> str:
    return f"{op.module_path} (#{op.index})" if op.module_path else f"#{op.index}"


def _closest(name: str, known: Sequence[str]) -> list[str]:
    by_end = {path.rsplit(".", 1)[-1]: path for path in reversed(known)}
    close = get_close_matches(name, known, n=SUGGESTIONS, cutoff=0.5)
    close += [by_end[end] for end in get_close_matches(name, list(by_end), n=SUGGESTIONS, cutoff=0.5)]
    return list(dict.fromkeys(close))[:SUGGESTIONS]


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:LISTED])
    return shown + (f" and {len(names) - LISTED} more" if len(names) > LISTED else "")


# --- which dims


def _as_the_rules_do(context: GraphContext, ops: Sequence[Op]) -> tuple[dict[DimGroup, int], str]:
    """The padding that gains most for the misaligned widths of these ops, and the reason if there is none."""
    precision = context.settings.precision
    dims = [dim for op in ops for dim in width_dims(op, context.dims)]
    misaligned = [dim for dim in dims if is_misaligned(dim.size, precision)]
    groups = list({dim.group.id: dim.group for dim in misaligned if dim.group is not None}.values())
    if not dims:
        return {}, "no dim of it is a width that could be padded"
    if not misaligned:
        return {}, f"every width of it is aligned for {precision}; --pad DIM=SIZE tries another size"
    if not groups:
        return {}, f"{_roles(misaligned)} cannot be padded: nothing is known of what depends on it"
    padding = best_padding(context, groups, tuple(op.index for op in ops))
    if not isinstance(padding, Padding):
        return {}, f"{_roles(misaligned)} cannot be padded: {padding.unknown}"
    chosen = dict(padding.sizes)
    return {group: chosen[group.size] for group in groups if group.size in chosen}, ""


def _roles(dims: Sequence[OpDim]) -> str:
    return ", ".join(dict.fromkeys(f"{dim.role}={dim.size}" for dim in dims))


def _asked_for(context: GraphContext, ops: Sequence[Op], pads: Sequence[str]) -> dict[DimGroup, int]:
    groups: dict[DimGroup, int] = {}
    for pad in pads:
        dim, equals, size = pad.partition("=")
        if not equals or not re.fullmatch(r"[0-9]{1,9}", size.strip()) or int(size) < 1:
            raise UsageError(f"--pad takes DIM=SIZE, such as out_features=50304; you gave {pad!r}.")
        for group in _groups_called(context, ops, dim.strip()):
            groups[group] = int(size)
    return groups


def _groups_called(context: GraphContext, ops: Sequence[Op], name: str) -> list[DimGroup]:
    dims = [dim for op in ops for dim in width_dims(op, context.dims)]
    if name == "batch":
        groups = [group for group in context.dims.groups if group.is_batch]
        found = [group for group in groups if group.size == groups[0].size]
    else:
        chosen = [dim for dim in dims if name in (dim.role, str(dim.size))]
        found = list({dim.group.id: dim.group for dim in chosen if dim.group is not None}.values())
        if chosen and not found:
            raise UsageError(f"{name!r} cannot be resized: nothing is known of what depends on it.")
    if not found:
        known = _roles(dims) or "none"
        raise UsageError(f"The op has no dim {name!r}; its dims are {known}, and batch.")
    return found


# --- what a kernel multiplies


@dataclass(frozen=True, slots=True)
class Product:
    """The matrix product that a kernel is, or implies."""

    m: int
    n: int
    k: int
    batch: int
    contiguous: tuple[tuple[str, int], ...] = ()
    """Letter and size of the contiguous dim of A, B and C; empty for convolutions."""

    @property
    def alignments(self) -> tuple[int, ...]:
        """For each contiguous dim the largest power of two, up to 16 elements, that divides it."""
        return tuple(min(largest_power_of_two_in(size), 16) for _, size in self.contiguous)


def product_of(row: Row) -> Product | None:
    """M, N, K of a product, or of the product that a convolution implies in its direction."""
    work = row.work
    if isinstance(work, Gemm):
        contiguous = tuple((letter.upper(), size) for letter, size in work.contiguous)
        return Product(work.m, work.n, work.k, work.batch, contiguous)
    if not isinstance(work, Convolution):
        return None
    channels, filters = work.in_channels // work.groups, work.out_channels // work.groups
    taps, positions = prod(work.kernel_size), work.batch * prod(work.output_size)
    if work.direction == "forward":
        return Product(positions, filters, channels * taps, work.groups)
    if work.direction == "dgrad":
        return Product(work.batch * prod(work.input_size), channels, filters * taps, work.groups)
    return Product(channels * taps, filters, positions, work.groups)

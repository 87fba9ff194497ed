"""The layers of a model as a table: shapes, parameters, FLOPs, time, and whether Tensor Cores run them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tclint.config.settings import Settings
from tclint.core.document import Table
from tclint.core.text import listed
from tclint.core.units import count, flops_text, percent_text, time_text
from tclint.cost.rows import Estimate, Row
from tclint.engine.report import Entry
from tclint.graph.dims.tensor_parallel import split_over
from tclint.graph.lowering.work import Attention, Convolution, Gemm
from tclint.graph.ops import Graph

ROOT = "(model)"
OPTIMIZER = "(optimizer)"
LEFT = "(not in a layer above)"
_OPTIMIZER_INDEX = -1
_MOST_OPERATORS = 1
_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")
"""A part of a module's path that numbers it."""


@dataclass(frozen=True, slots=True)
class Layer:
    """What the operators of one module, or of several that are alike, take."""

    path: str
    """'blocks.*.qkv' of several."""
    operators: str
    shape: str
    """Shapes of what it returns, first to last; '' for the optimizer."""
    parameters: int
    flops: int
    """Total of all its kernels: in training, forward and backward."""
    times_us: Mapping[str, float]
    """By GPU."""
    tensor_cores: str
    """On the first GPU: 'yes', or why not; '' where it has no matrix product."""
    count: int = 1
    """How many modules are alike; the other numbers are their totals."""


@dataclass(slots=True)
class _Sum:
    ops: list[int] = field(default_factory=list)
    flops: int = 0
    times_us: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    products: list[Row] = field(default_factory=list)
    by_name: dict[str, float] = field(default_factory=lambda: defaultdict(float))


def layers(entry: Entry, settings: Settings, *, each: bool = False) -> list[Layer]:
    """The layers of a traced model in the order of their first operators, the optimizer last.

    Args:
        entry: of the model; nothing where its graph was not kept.
        settings: of the run.
        each: repeated blocks one by one.
    """
    if entry.graph is None:
        return []
    from tclint.analysis.graph_context import GraphContext

    settings = entry.settings or settings
    context = GraphContext(entry.graph, settings)
    estimates = [context.estimate(scenario) for scenario in context.scenarios]
    found = list(_layers(split_over(entry.graph, settings.tensor_parallel).graph, estimates))
    return found if each else _alike(found)


def _layers(graph: Graph, estimates: Sequence[Estimate]) -> Iterator[Layer]:
    sums: dict[str, _Sum] = {op.module_path or ROOT: _Sum() for op in graph.ops}
    for op in graph.ops:
        sums[op.module_path or ROOT].ops.append(op.index)
    for estimate in estimates:
        for row in estimate.rows:
            path = OPTIMIZER if row.op_index == _OPTIMIZER_INDEX else row.module_path or ROOT
            own = sums.setdefault(path, _Sum())
            own.times_us[estimate.gpu.id] += row.time_us
            if estimate is estimates[0]:
                own.flops += row.flops
                own.by_name[row.name if row.op_index < 0 else graph.ops[row.op_index].name] += row.time_us
                own.products += [row] if isinstance(row.work, (Gemm, Convolution, Attention)) else []
    parameters = _parameters(graph, sums)
    # What updates weights comes last, whatever ran it.
    for path, own in sorted(sums.items(), key=lambda item: item[0] == OPTIMIZER):
        if not any(own.times_us.values()) and not parameters.get(path):
            continue  # views and other bookkeeping
        names = sorted(own.by_name, key=lambda name: -own.by_name[name]) if path != OPTIMIZER else ()
        shapes = [spec.shape for index in own.ops for spec in graph.ops[index].outputs]
        yield Layer(
            path,
            listed(names, _MOST_OPERATORS) if names else "",
            "x".join(map(str, shapes[-1])) if shapes and path != OPTIMIZER else "",
            parameters.get(path, 0),
            own.flops,
            dict(own.times_us),
            _tensor_cores(own.products),
        )
    if parameters.get(LEFT):
        yield Layer(LEFT, "", "", parameters[LEFT], 0, {}, "")


def _parameters(graph: Graph, rows: Mapping[str, _Sum]) -> dict[str, int]:
    """By row: the parameters of the module, and of modules inside of it that have no row."""
    found: dict[str, int] = defaultdict(int)
    for parameter in graph.parameters:
        if parameter.is_buffer:
            continue
        path = parameter.name.removeprefix("_orig_mod.").rpartition(".")[0]
        while path and path not in rows:
            path = path.rpartition(".")[0]
        found[path or (ROOT if ROOT in rows else LEFT)] += parameter.numel
    return found


def _tensor_cores(products: Sequence[Row]) -> str:
    if not products:
        return ""
    longest = max(products, key=lambda row: row.time_us)
    if not longest.uses_tensor_cores:
        return f"no: {longest.tensor_core_reason}"
    if longest.is_efficient:
        return "yes"
    at_peak = f"{percent_text(100.0 * longest.fraction_of_peak)} of the peak"
    return f"poorly: {longest.tensor_core_reason.partition(', ')[2] or at_peak}"


def _alike(found: Sequence[Layer]) -> list[Layer]:
    """Layers at the same place of repeated blocks as one, where all but their numbers is the same."""
    groups: dict[tuple[str, ...], list[Layer]] = {}
    for layer in found:
        path = _NUMBER.sub("*", layer.path)
        key = (path, layer.operators, layer.shape, str(layer.parameters), layer.tensor_cores)
        groups.setdefault(key, []).append(layer)
    return [own[0] if len(own) == 1 else _together(key[0], own) for key, own in groups.items()]


def _together(path: str, own: Sequence[Layer]) -> Layer:
    parameters, flops = (sum(getattr(one, name) for one in own) for name in ("parameters", "flops"))
    gpus = dict.fromkeys(gpu for one in own for gpu in one.times_us)
    times_us = {gpu: sum(one.times_us.get(gpu, 0.0) for one in own) for gpu in gpus}
    return replace(own[0], path=path, parameters=parameters, flops=flops, times_us=times_us, count=len(own))


def layer_table(found: Sequence[Layer], steps_us: Mapping[str, float]) -> tuple[Table, list[str]]:
    """A row per layer, and notes, '1: why', for the numbers that stand behind 'no' and 'poorly'; the share is
    of the step on the first GPU.

    Args:
        found: the layers.
        steps_us: the step by GPU, in the order of the columns.
    """
    reasons: dict[str, int] = {}
    step_us = next(iter(steps_us.values()), 0.0)
    rows = []
    for layer in found:
        times = [layer.times_us.get(gpu, 0.0) for gpu in steps_us]
        name = f"{layer.path} ({layer.count}x)" if layer.count > 1 else layer.path
        use, _, reason = layer.tensor_cores.partition(": ")
        rows.append(
            (
                f"{name}: {layer.operators}" if layer.operators else name,
                layer.shape,
                count(layer.parameters) if layer.parameters else "",
                flops_text(layer.flops) if layer.flops else "",
                *(time_text(time_us) if time_us else "" for time_us in times),
                percent_text(100.0 * times[0] / step_us) if times and times[0] and step_us else "",
                f"{use} ({reasons.setdefault(reason, len(reasons) + 1)})" if reason else use,
            )
        )
    header = ("layer", "returns", "parameters", "FLOPs", *steps_us, "share", "Tensor Cores")
    return Table(header, rows, words=1), [f"{number}: {why}" for why, number in reasons.items()]

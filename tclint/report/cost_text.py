"""`tclint explain-cost`: one operator's kernels, as they are and with dims padded, side by side."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from tclint.core.saved import picked
from tclint.core.table import table
from tclint.core.text import printable
from tclint.core.units import bytes_text, flops_text, percent_text, significant, time_text, uncertainty_text
from tclint.cost.estimate import Row
from tclint.cost.gpu import Gpu
from tclint.cost.gpu.factors import factors_note
from tclint.engine.check import relative_path
from tclint.engine.explain_cost import OPTIMIZER, CostExplanation, GpuExplanation, KernelPair, product_of
from tclint.graph.lowering.work import Attention, Convolution, Gemm, Traffic
from tclint.report.formats.json import rounded

SHOWN_PARAMETERS = 4


def render(explanation: CostExplanation, how: str) -> str:
    """The explanation for people; `how` says mode and precision."""
    return "".join(f"{line}\n".replace(" \n", "\n") for line in _lines(explanation, how))


def _lines(explanation: CostExplanation, how: str) -> Iterator[str]:
    if not explanation.ops:
        assumed = explanation.gpus[0].estimate.assumptions if explanation.gpus else ()
        yield from (text for text in assumed if text.startswith("optimizer"))
    for op in explanation.ops:
        site = op.construct_site or op.call_site
        at = f" at {relative_path(site.path)}:{site.line}" if site else ""
        yield printable(f"#{op.index} {op.name}{f' ({op.module_path})' if op.module_path else ''}{at}")
    yield how
    if explanation.sizes:
        changes = ", ".join(f"{before} -> {after}" for before, after in explanation.sizes)
        shown = ", ".join(explanation.coupled[:SHOWN_PARAMETERS])
        more = len(explanation.coupled) - SHOWN_PARAMETERS
        with_it = f", with {shown}{f' and {more} more' if more > 0 else ''}" if shown else ""
        yield printable(f"beside it: {changes}{with_it}")
    if explanation.note:
        yield printable(f"nothing beside it: {explanation.note}")
    for gpu in explanation.gpus:
        yield ""
        yield from _gpu(gpu, explanation)


def _gpu(gpu: GpuExplanation, explanation: CostExplanation) -> Iterator[str]:
    yield f"{gpu.estimate.gpu.name} ({gpu.estimate.gpu.id})"
    if not gpu.kernels:
        yield "  no kernel: it moves no data, or tclint has no formula for it"
        for gap in gpu.estimate.gaps:
            if set(gap.op_indices) & set(gpu.op_indices):
                yield f"  {gap.name}: {gap.reason}"
        return
    several = len(explanation.ops) > 1
    for number, pair in enumerate(gpu.kernels):
        if number:
            yield ""
        yield from _kernel(pair, gpu.changed is not None, several, gpu.estimate.gpu)
    yield from _totals(gpu)


def _kernel(pair: KernelPair, compared: bool, several: bool, gpu: Gpu) -> Iterator[str]:
    row = pair.before or pair.after
    assert row is not None
    op = f"#{row.op_index} {row.name}, " if several else ""
    heading = f"{op}{row.phase}: {_kind(row)}"
    sides = [_cells(side, gpu) for side in ((pair.before, pair.after) if compared else (pair.before,))]
    labels = max(sides, key=len)
    rows = [(label, *(side.get(label, "") for side in sides)) for label in labels]
    header = (heading, *(("as is", "resized") if compared else ("as is",)))
    yield from table(header, [cells for cells in rows if any(cells[1:])])


def _kind(row: Row) -> str:
    work = row.work
    if isinstance(work, Gemm):
        return f"{row.role} GEMM in {work.dtype}" if row.role != row.phase else f"GEMM in {work.dtype}"
    if isinstance(work, Convolution):
        layout = "channels last" if work.channels_last else "channels first"
        name = "depthwise convolution" if work.is_depthwise else "convolution"
        return f"{work.direction} {name} in {work.dtype}, {layout}"
    if isinstance(work, Attention):
        return f"fused attention in {work.dtype}"
    if row.role == "cast" and work.operation == "_to_copy":
        return f"cast to {work.dtype}"
    return f"{work.operation} in {work.dtype}"


def _cells(row: Row | None, gpu: Gpu) -> dict[str, str]:
    """What is known of a kernel, by what each line is called; '' what does not apply to it."""
    if row is None:
        return {}
    work, product, parts_us = row.work, product_of(row), dict(row.parts_us)
    cells = dict.fromkeys(_LABELS, "")
    if product is not None:
        batch = f"{product.batch} x " if product.batch > 1 else ""
        cells["M x N x K"] = f"{batch}{product.m} x {product.n} x {product.k}"
        cells["contiguous in A, B, C"] = ", ".join(f"{letter} {size}" for letter, size in product.contiguous)
        multiples = ("16+" if value >= 16 else str(value) for value in product.alignments)
        cells["multiples of"] = ", ".join(multiples)
    if not isinstance(work, Traffic):
        # The reason's first clause is the format; what slows it down follows, shortened for the column.
        unit, _, slowdown = row.tensor_core_reason.partition(", ")
        cells["Tensor Cores"] = unit if row.uses_tensor_cores else row.tensor_core_reason
        if row.uses_tensor_cores:
            cells[""] = slowdown.replace("by a misaligned contiguous dim", "by misalignment")
        cells["share of peak"] = percent_text(100 * row.fraction_of_peak)
    # Depthwise convolutions have no tiles: they run as bytes.
    if row.tile is not None and not (isinstance(work, Convolution) and work.is_depthwise):
        cells["tile"] = f"{row.tile[0]}x{row.tile[1]}"
        cells["split-K"] = str(row.split_k)
        cells["waves"] = significant(row.waves)
        cells["tile efficiency"] = percent_text(100 * row.tile_efficiency)
        cells["wave efficiency"] = percent_text(100 * row.wave_efficiency)
    if row.flops:
        cells["FLOPs"] = flops_text(row.flops)
        cells["FLOP/B (GPU's balance)"] = f"{significant(row.arithmetic_intensity)} ({row.balance:.0f})"
    cells["bytes read"], cells["bytes written"] = bytes_text(row.bytes_read), bytes_text(row.bytes_written)
    cells["limited by"] = row.limiter
    for part in ("math", "L2", "memory", "layout copies", "launch"):
        label = part if part in _LABELS else f"{part} alone"  # what one limit alone would take
        cells[label] = time_text(parts_us[part]) if parts_us.get(part) else ""
    if row.time_us:
        # Of the DRAM's datasheet rate; above 100 % a part of the bytes lay in the L2.
        rate_gb_per_s = (row.bytes_read + row.bytes_written) / (1e3 * row.time_us)
        cells["share of DRAM bandwidth"] = percent_text(100 * rate_gb_per_s / gpu.dram_gb_per_s)
    cells["time"] = f"{time_text(row.time_us)} {uncertainty_text(row.uncertainty_percent)}"
    cells["time"] += "" if row.calibrated else " *"
    return cells


_LABELS = (
    "M x N x K", "contiguous in A, B, C", "multiples of", "Tensor Cores", "", "tile", "split-K", "waves",
    "tile efficiency", "wave efficiency", "FLOPs", "bytes read", "bytes written", "FLOP/B (GPU's balance)",
    "limited by", "share of peak", "math alone", "L2 alone", "memory alone", "layout copies", "launch",
    "share of DRAM bandwidth", "time",
)  # fmt: skip


def _total_label(gpu: GpuExplanation) -> str:
    if gpu.op_indices == (OPTIMIZER,):
        return "the optimizer"
    return "this op, forward and backward" if gpu.estimate.scenario.mode == "train" else "this op"


def _totals(gpu: GpuExplanation) -> Iterator[str]:
    before, after = gpu.estimate, gpu.changed
    yield ""
    rows: list[tuple[str, ...]] = []
    for label, own, other in (
        (_total_label(gpu), gpu.time_us, gpu.changed_time_us),
        ("the whole step", before.step_time_us, None if after is None else after.step_time_us),
    ):
        cells: tuple[str, ...] = (time_text(own),)
        if other is not None:
            gain = 100 * (own - other) / own if own else 0.0
            cells += (time_text(other), percent_text(gain))
        rows.append((label, *cells))
    yield from table(("together", "as is", *(("resized", "gain") if after is not None else ())), rows)
    if not all(row.calibrated for pair in gpu.kernels for row in (pair.before,) if row is not None):
        yield "  * constants of another GPU or precision: none was measured here"
    if before.gpu.factors:
        yield f"  {factors_note(before.gpu.factors, before.scenario.calibration)}"
    if after is not None:
        gain_us = before.step_time_us - after.step_time_us
        if abs(gain_us) < gpu.time_us * gpu.uncertainty_percent / 100:
            yield (
                "  the gain is smaller than the uncertainty of this op's own time "
                f"({uncertainty_text(gpu.uncertainty_percent)})"
            )


def render_json(explanation: CostExplanation) -> str:
    """The explanation for machines."""
    document = {
        "ops": [picked(op, "index", "name", "module_path", "kind") for op in explanation.ops],
        "sizes": explanation.sizes,
        "coupled_parameters": explanation.coupled,
        "note": explanation.note or None,
        "gpus": {
            gpu.estimate.gpu.id: {
                "kernels": [
                    {"as_is": _kernel_dict(pair.before), "resized": _kernel_dict(pair.after)}
                    for pair in gpu.kernels
                ],
                "time_us": gpu.time_us,
                "resized_time_us": gpu.changed_time_us,
                "step_time_us": gpu.estimate.step_time_us,
                "resized_step_time_us": gpu.changed and gpu.changed.step_time_us,
                "uncertainty_percent": gpu.uncertainty_percent,
                "factors": list(map(asdict, gpu.estimate.gpu.factors)),
            }
            for gpu in explanation.gpus
        },
    }
    return json.dumps(rounded(document, 4), indent=2) + "\n"


def _kernel_dict(row: Row | None) -> dict[str, Any] | None:
    if row is None:
        return None
    product = product_of(row)
    return {
        "what": _kind(row),
        "m": product and product.m,
        "n": product and product.n,
        "k": product and product.k,
        "batch": product and product.batch,
        "contiguous": product.contiguous if product else [],
        "parts_us": dict(row.parts_us),
        **picked(row, *_ROW_FIELDS),
    }


_ROW_FIELDS = (
    "phase", "role", "uses_tensor_cores", "tensor_core_reason", "tile", "split_k", "waves", "tile_efficiency",
    "wave_efficiency", "flops", "bytes_read", "bytes_written", "arithmetic_intensity", "balance", "limiter",
    "fraction_of_peak", "time_us", "uncertainty_percent", "calibrated",
)  # fmt: skip

"""What the text report says of a step's memory, its launches, and what-if tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tclint.core.document import Table
from tclint.core.units import (
    bytes_text,
    count,
    hours_text,
    percent_text,
    plural,
    significant,
    time_text,
    uncertainty_text,
)

if TYPE_CHECKING:
    from tclint.analysis.what_if.comparisons import BatchLimits, ComparedStep, Comparison
    from tclint.config.settings import Settings
    from tclint.cost.rows import Memory
    from tclint.engine.report import Entry, Metrics
    from tclint.graph.lowering.work import Gap

TITLES = {
    "gpu": "on every GPU",
    "precision": "in every precision",
    "batch": "at other batches",
    "layout": "in other memory formats",
    "compiled": "eager and compiled",
}


def memory_lines(entry: Entry) -> Iterator[str]:
    """The parts of the memory, once where GPUs need the same; then what batch fits each."""
    metrics = list(entry.metrics.values())
    needed: dict[Memory, list[str]] = {}
    for each in metrics:
        if each.memory is not None:
            needed.setdefault(each.memory, []).append(each.gpu)
    each_gpu = " of each GPU" if entry.settings is not None and _is_spread(entry.settings) else ""
    for memory, gpus in needed.items():
        yield from _memory_lines(memory, each_gpu, f" on {', '.join(gpus)}" if len(needed) > 1 else "")
    if needed:
        is_alone = entry.mode == "train" and not each_gpu
        yield from _batch_line(metrics, "; --parallel fsdp splits it over several" if is_alone else "")


def _is_spread(settings: Settings) -> bool:
    return settings.tensor_parallel > 1 or (settings.parallel != "none" and settings.mode == "train")


def memory_parts(memory: Memory) -> tuple[tuple[str, int], ...]:
    """What the memory is needed for, and its bytes."""
    return (
        ("weights", memory.parameters_bytes + memory.buffers_bytes),
        ("half-precision copies", memory.autocast_bytes),
        ("gradients", memory.gradients_bytes),
        ("optimizer", memory.optimizer_bytes),
        ("activations", memory.activations_bytes),
        ("inputs and working memory", memory.inputs_bytes + memory.working_bytes),
    )


def _memory_lines(memory: Memory, whose: str, where: str) -> Iterator[str]:
    shown = ", ".join(f"{name} {bytes_text(size)}" for name, size in memory_parts(memory) if size)
    yield f"memory{whose} {bytes_text(memory.total_bytes)}{where}: {shown}"
    if memory.checkpointed_total_bytes is not None:
        yield f"with every repeated block checkpointed {bytes_text(memory.checkpointed_total_bytes)}"
    for unknown in memory.unknown:
        yield f"memory not known: {unknown}"


def _batch_line(metrics: list[Metrics], otherwise: str) -> Iterator[str]:
    limits = [(m.gpu, m.batch_limits) for m in metrics if m.batch_limits is not None]
    known = [(gpu, limit) for gpu, limit in limits if limit.largest is not None]
    for gpu, limit in known:
        if limit.batch is not None and limit.largest is not None and limit.largest < limit.batch:
            yield f"the step does not fit into the memory of one {gpu}: {_what_fits(limit, otherwise)}"
    if known:
        yield "largest batch: " + ", ".join(_limit(gpu, limit) for gpu, limit in known)
    elif limits:
        yield f"largest batch unknown: {limits[0][1].unknown}"


def _what_fits(limit: BatchLimits, otherwise: str) -> str:
    most = limit.largest or limit.largest_checkpointed
    if not most:
        fewer = "" if limit.batch == 1 else f" instead of {limit.batch}"
        return f"not even with a batch of 1{fewer}{otherwise}"
    how = "" if limit.largest else " and every repeated block checkpointed"
    return f"it does with --batch {min(most, limit.batch or most)}{how}"


_NO_LIMIT = 65536
"""Nobody trains with more on one GPU: of a larger batch it is enough to know that memory is no limit."""


def _limit(gpu: str, limit: BatchLimits) -> str:
    if (limit.largest or 0) > _NO_LIMIT:
        return f"more than {_NO_LIMIT} on {gpu}"
    text = f"{limit.largest or 'none'} on {gpu}"
    if limit.largest_checkpointed and limit.largest_checkpointed > (limit.largest or 0):
        text += f" ({limit.largest_checkpointed} checkpointed)"
    return text


def gap_text(gap: Gap) -> str:
    """'2 x fft_rfft (no formula for the operator fft_rfft; 3.2 % of the forward FLOPs)'."""
    share = (
        "FLOPs unknown"
        if gap.flops_percent is None
        else f"{percent_text(gap.flops_percent)} of the forward FLOPs"
    )
    return f"{len(gap.op_indices)} x {gap.name} ({gap.reason}; {share})"


def entry_lines(entry: Entry) -> Iterator[str]:
    """What is said of a model besides its times: fixes made together, a run, memory, launches, messages."""
    yield from fixed_lines(entry)
    yield from plan_lines(entry)
    if entry.plan and ".py:" in entry.target:
        yield f"tclint fix {entry.target} makes the edits that it can prove"
    for lines in (run_lines, memory_lines, _host_lines, _communication_lines):
        yield from lines(entry)


def fixed_lines(entry: Entry) -> Iterator[str]:
    """'all 3 fixes: 12.3 ms -> 9.8 ms, readiness 61 -> 84 % (a100-sxm4-80gb)', priced together."""
    for metrics in entry.metrics.values():
        after_us, ready_percent = metrics.step_time_fixed_us, metrics.readiness_fixed_percent
        if after_us is None or ready_percent is None:
            continue
        cut_us, cut = metrics.step_time_cut_back_us, ""
        if cut_us is not None and time_text(cut_us) != time_text(after_us):
            cut = f" ({time_text(cut_us)} where tclint fix cuts the padded outputs back)"
        fixes = "the one priced fix" if entry.fixes_made == 1 else f"all {entry.fixes_made} priced fixes"
        yield (
            f"{fixes}: {time_text(metrics.step_time_us)} -> {time_text(after_us)}{cut}, readiness "
            f"{metrics.readiness_percent:.0f} -> {ready_percent:.0f} ({metrics.gpu})"
        )


def plan_lines(entry: Entry) -> Iterator[str]:
    """The fixes in the order in which to make them, on the GPU where they gain most together:

    'in this order, on a100-sxm4-80gb:', '1. net.py:7 DIM001 linear-misaligned: 12.3 ms -> 10.1 ms, ...'.
    """
    fixed = [found for found in entry.metrics.values() if found.step_time_fixed_us and found.step_time_us]
    if len(entry.plan) < 2 or not fixed:
        return
    metrics = min(fixed, key=lambda found: (found.step_time_fixed_us or 0.0) / found.step_time_us)
    yield f"in this order, on {metrics.gpu}:"
    before_us, before_percent = metrics.step_time_us, metrics.readiness_percent
    for number, fix in enumerate(entry.plan, start=1):
        after_us, percent = fix.step_time_us[metrics.gpu], fix.readiness_percent[metrics.gpu]
        line = (
            f"{number}. {fix.location.path}:{fix.location.line} {fix.code} {fix.name}: "
            f"{time_text(before_us)} -> {time_text(after_us)}, "
            f"readiness {before_percent:.0f} -> {percent:.0f}"
        )
        if round(percent) < round(before_percent):
            line += f" ({_why_less_ready(before_us, before_percent, after_us, percent)})"
        if fix.needs_others:
            line += "; worth it only after those above"
        yield line
        before_us, before_percent = after_us, percent


def _why_less_ready(before_us: float, before_percent: float, after_us: float, percent: float) -> str:
    """Readiness is a share: it falls too where the efficient part alone gets shorter."""
    rest_before_us, rest_us = before_us * (1 - before_percent / 100), after_us * (1 - percent / 100)
    if rest_us <= rest_before_us * 1.001:
        return "the ready part gets shorter, so the rest is a larger share"
    return f"{time_text(rest_us - rest_before_us)} more in kernels that are not ready"


def run_lines(entry: Entry) -> Iterator[str]:
    """What a run takes, where its steps are given, and how a measured step relates to the predicted one."""
    for metrics in entry.metrics.values():
        if metrics.run_steps is None or metrics.run_gpu_hours is None:
            continue
        if metrics.measured_step_time_us is not None:
            ratio = metrics.step_time_us / metrics.measured_step_time_us
            yield (
                f"measured step {time_text(metrics.measured_step_time_us)}, predicted "
                f"{time_text(metrics.step_time_us)} ({ratio:.2f} of it): runs are of the measured step, and "
                "fixes save the predicted share of it"
            )
        takes = hours_text(metrics.run_gpu_hours, metrics.run_price)
        line = f"a run of {metrics.run_steps} steps takes {takes}"
        if metrics.run_gpu_hours_fixed is not None:
            line += f", with all fixes {hours_text(metrics.run_gpu_hours_fixed, metrics.run_price_fixed)}"
        yield f"{line} ({metrics.gpu})"


def _communication_lines(entry: Entry) -> Iterator[str]:
    """What a step that is spread over several GPUs sends, beside its time."""
    from tclint.cost.gpu import load_gpu

    if entry.settings is None:
        return
    replicas = entry.settings.gpu_count // entry.settings.tensor_parallel
    per = "step" if entry.settings.accumulation == 1 or entry.mode != "train" else "batch"
    for metrics in entry.metrics.values():
        ways = (
            (
                f"{entry.settings.parallel} over {replicas} GPUs",
                metrics.communication_bytes or None,
                metrics.communication_bound_us,
                per if per == "step" else f"{per} on average",
                f"the backward pass ({time_text(metrics.backward_time_us)}) may hide it",
            ),
            (
                f"tensor parallel over {entry.settings.tensor_parallel} GPUs",
                metrics.tensor_parallel_bytes or None,
                metrics.tensor_parallel_bound_us,
                f"{per} in {plural(metrics.tensor_parallel_sums or 0, 'all-reduce')}",
                "layers wait for them",
            ),
        )
        for spread, sent_bytes, bound_us, each, hidden in ways:
            if sent_bytes is not None and bound_us is not None:
                sent = f"each {metrics.gpu} sends {bytes_text(sent_bytes)} per {each}"
                least = f"at least {time_text(bound_us)} over {load_gpu(metrics.gpu).link}"
                yield f"{spread}: {sent}, {least}, which is not in the step; {hidden}"


def _host_lines(entry: Entry) -> Iterator[str]:
    """Where launching takes longer than the kernels: the only case in which it shows."""
    for metrics in entry.metrics.values():
        if metrics.bound != "host" or metrics.host_time_us is None or not metrics.launch_count:
            continue
        each = metrics.host_time_us / metrics.launch_count
        yield (
            f"host-bound on {metrics.gpu}: {metrics.launch_count:,} launches take about "
            f"{time_text(metrics.host_time_us)} ({time_text(each)} each), the kernels "
            f"{time_text(metrics.step_time_us)}, so faster kernels will not be felt; a larger batch or CUDA "
            "graphs (torch.compile with mode='reduce-overhead') will"
        )


def comparison_table(comparison: Comparison) -> tuple[str, Table, list[str]]:
    """Title, table and footnotes of a what-if."""
    title = f"the step {TITLES[comparison.kind]}"
    if comparison.gpu is not None:
        title += f" ({comparison.gpu})"
    with_samples = any(row.samples_per_s is not None for row in comparison.rows)
    header = (comparison.kind, "step", "speed", *(("samples/s",) if with_samples else ()))
    header += ("ready", "on TC", "memory")
    rows: list[tuple[str, ...]] = []
    said = list(dict.fromkeys(row.note for row in comparison.rows if row.note))
    notes = [f"[{number}] {note}" for number, note in enumerate(said, start=1)]
    for row in comparison.rows:
        mark = f" [{said.index(row.note) + 1}]" if row.note else ""
        rows.append(_cells(row, mark, with_samples))
    if any(not row.calibrated for row in comparison.rows):
        notes.append("* inherited constants: measured on another GPU or in another precision")
    if any(not row.fits for row in comparison.rows):
        notes.append("! more than the GPU has")
    if any(row.present for row in comparison.rows):
        notes.append("> as this run is set")
    return title, Table(header, rows), notes


def _cells(row: ComparedStep, mark: str, with_samples: bool) -> tuple[str, ...]:
    label = f"{'>' if row.present else ' '} {row.label}{'' if row.calibrated else ' *'}{mark}"
    samples: tuple[str, ...] = ()
    if with_samples:
        rate = row.samples_per_s
        samples = ("" if rate is None else count(round(rate)) if rate >= 1 else significant(rate),)
    return (
        label,
        f"{time_text(row.step_time_us)} {uncertainty_text(row.uncertainty_percent)}",
        f"{row.speedup:.2f}x",
        *samples,
        percent_text(row.readiness_percent),
        percent_text(row.tensor_core_time_percent),
        bytes_text(row.memory_bytes) + ("" if row.fits else " !"),
    )

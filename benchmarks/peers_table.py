"""docs/explanation/peers.md from the rows of peers.py: every figure is computed from them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from statistics import median

TCLINT = "tclint"
REFERENCES = ("flop_counter on meta", "flop_counter on CPU")

_INTRODUCTION = """# Comparison with other tools

`python benchmarks/peers.py` runs tclint's trace, other FLOP counters and `torch.export` in turn on the same
models, each run in a separate process with all imports done, on one thread. tclint's time is for tracing
and counting a model that it builds on meta tensors; the other tools get a built model with real weights on
the CPU, as their READMEs recommend, or on meta tensors where the name says so. Construction is not
included. The machine had 2 cores shared with other work, so CPU seconds are more reliable than wall
seconds. *Memory* is the peak above that of the imports, including the model as the tool needs it; *over the
model* excludes the model. Resident memory is sampled just before memory is released
(`benchmarks/peak_memory.c`), because the kernel's own peak may be off by a quarter of a MiB. Memory that
the imports left free is filled first, since it would hide an equal amount of growth. Counts are FLOPs at 2
per multiply-add; those of tools that count multiply-adds are doubled. They are compared with torch's own
counter on meta tensors, or on the CPU for models that do not run on meta tensors; some tools also count
normalisation, activations or pooling, so a difference is not necessarily an error. On the CPU, torch's
counter has no figure for fused attention or for grouped products of experts; tclint's larger counts there
are those of the formulas.
"""


def page(rows: list[dict[str, str]], versions: dict[str, str]) -> str:
    """The whole page."""
    tools = list(dict.fromkeys(row["tool"] for row in rows))
    by_tool = {tool: _by_model(rows, tool) for tool in tools}
    models = list(dict.fromkeys(row["model"] for row in rows))
    lines = [_INTRODUCTION, f"{len(models)} models: {', '.join(models)}.", ""]
    lines += [f"Versions: {', '.join(f'{name} {version}' for name, version in versions.items())}.", ""]
    lines += [*_main_table(by_tool, models), "", *_flops_table(by_tool, models), ""]
    lines += [*_lost(by_tool), *_failures(by_tool)]
    return "\n".join(lines) + "\n"


def _by_model(rows: list[dict[str, str]], tool: str) -> dict[str, list[dict[str, str]]]:
    found: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in rows:
        if row["tool"] == tool:
            found[row["model"]].append(row)
    return found


def value(runs: list[dict[str, str]], column: str) -> float | None:
    """The median over the repeats of a model, None where the tool failed."""
    values = [float(row[column]) for row in runs if row["result"] == "ok" and row[column]]
    return median(values) if values else None


ByTool = dict[str, dict[str, list[dict[str, str]]]]


def _main_table(by_tool: ByTool, models: list[str]) -> Iterator[str]:
    yield (
        "| tool | succeeded | time, s: median / max | against tclint's: median | tclint faster "
        "| CPU s: median | against tclint's: median | tclint faster "
        "| memory, MiB: median / max | over the model: median | tclint needs no more memory |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    ours = by_tool[TCLINT]
    for tool, runs in by_tool.items():
        figures = {
            column: {model: found for model in models if (found := value(runs[model], column)) is not None}
            for column in ("seconds", "cpu_s", "peak_mib", "over_model_mib")
        }
        seconds, memory = figures["seconds"], figures["peak_mib"]
        if not seconds:
            yield f"| {tool} | 0 of {len(models)} |{' |' * 9}"
            continue
        row = [
            tool,
            f"{len(seconds)} of {len(models)}",
        ]
        for column, text in (
            ("seconds", f"{median(seconds.values()):.3f} / {max(seconds.values()):.2f}"),
            ("cpu_s", f"{median(figures['cpu_s'].values()):.3f}"),
        ):
            theirs = figures[column]
            row.append(text)
            row += (
                ["1", ""]
                if tool == TCLINT
                else _against(theirs, {model: value(ours[model], column) for model in theirs})
            )
        row += [
            f"{median(memory.values()):.1f} / {max(memory.values()):.0f}",
            f"{median(figures['over_model_mib'].values()):.1f}",
        ]
        if tool == TCLINT:
            row.append("")
        else:
            mine = {model: value(ours[model], "peak_mib") for model in memory}
            both = [model for model in memory if mine[model] is not None]
            fewer = sum(1 for model in both if (mine[model] or 0) <= memory[model])
            row.append(f"{fewer} of {len(both)}")
        yield f"| {' | '.join(row)} |"


def _against(theirs: dict[str, float], ours: dict[str, float | None]) -> list[str]:
    pairs = [(theirs[model], own) for model, own in ours.items() if own is not None]
    ratios = [their / own for their, own in pairs]
    return [f"{median(ratios):.1f} x", f"{sum(1 for ratio in ratios if ratio > 1)} of {len(ratios)}"]


def _flops_table(by_tool: ByTool, models: list[str]) -> Iterator[str]:
    reference = {}
    for model in models:
        for tool in REFERENCES:
            found = value(by_tool.get(tool, {}).get(model, []), "flops")
            if found:
                reference[model] = found
                break
    yield "| FLOPs | counted | equal within 0.1 % | within 5 % | difference: median / worst |"
    yield "|---|---|---|---|---|"
    for tool, runs in by_tool.items():
        differences = [
            found / reference[model] - 1
            for model in reference
            if (found := value(runs[model], "flops")) is not None
        ]
        if not differences:
            continue
        equal, near = (
            sum(1 for difference in differences if abs(difference) <= limit) for limit in (0.001, 0.05)
        )
        worst = max(differences, key=abs)
        middle = median(differences)
        yield (
            f"| {tool} | {len(differences)} of {len(reference)} | {equal} | {near} "
            f"| {100 * middle:+.2f} % / {100 * worst:+.1f} % |"
        )


def _lost(by_tool: ByTool) -> Iterator[str]:
    """Where tclint is slower or needs more memory, with the figures."""
    ours = by_tool[TCLINT]
    for title, column, unit in (
        ("tclint is slower", "cpu_s", "CPU s"),
        ("tclint needs more memory", "peak_mib", "MiB"),
    ):
        lines = []
        for tool, runs in by_tool.items():
            found = []
            for model, theirs in runs.items():
                mine, their = value(ours[model], column), value(theirs, column)
                if tool != TCLINT and mine is not None and their is not None and mine > their:
                    found.append((mine - their, f"`{model}`: {mine:.2f} against {their:.2f} {unit}"))
            if found:
                middle = median(more for more, _ in found)
                worst = max(found)[1]
                lines.append(
                    f"- than {tool}: {len(found)} models, by {middle:.2f} {unit} (median), most in {worst}"
                )
        if lines:
            yield from (f"## Where {title}", "", *lines, "")
    yield "torch's counter keeps only sums; tclint keeps every operator with its tensors and lines."
    yield ""


def _failures(by_tool: ByTool) -> Iterator[str]:
    yield "## What failed"
    yield ""
    for tool, runs in by_tool.items():
        failed = {
            model: found[-1]["result"]
            for model, found in runs.items()
            if found and value(found, "seconds") is None
        }
        for model, result in failed.items():
            yield f"- {tool}, `{model}`: {_clean(result)}"


def _clean(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")[:160]

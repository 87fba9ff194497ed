"""docs/explanation/backward.md from the rows of backward_truth.py: every figure is computed from them.

python benchmarks/backward_table.py benchmarks/backward.csv docs/explanation/backward.md
"""

from __future__ import annotations

import csv
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

Row = dict[str, Any]

_INTRODUCTION = """# The derived backward pass against recorded ones

tclint does not run a backward pass; it derives one from the traced forward. `python
benchmarks/backward_truth.py` checks the result: every model also runs forward and backward under autograd,
on meta tensors (on the CPU if it reads values), with the sum of its outputs as the loss. Each matrix
product, convolution and fused attention of the recorded backward pass is compared with the derived ones by
its sizes (M, N, K and batch; channels, window and image sizes), and again including the contiguous dims of
its operands. *Or in steps* also counts recurrent layers as identical if the products of single time steps
in the real run add up to the derived ones, or to one step less, whose gradient belongs to the initial
state. *Kept* is what `torch.autograd.graph.saved_tensors_hooks` still holds when the forward ends: distinct
storages, excluding parameters and buffers. The real run uses CUDA's fused dropout and recurrent cells, and
fused attention where torch chooses it for tensors of these shapes. Every sixth model runs again with the
first half of its parameters frozen, with all but one-dimensional parameters frozen, and with its own blocks
checkpointed if it supports that.
"""

_RECURRENT = re.compile(r" of (?:lstm|gru|rnn_tanh|rnn_relu)\)")
_ITEM = re.compile(r"(\d+) x only (derived|real): gemm (\d+) (\d+) (\d+) (\d+) \(")

ASSUMED = "the trace assumed values of data that the real run computed"
STEPS = (
    "recurrent layers: over all time steps at once as cuDNN does, step by step in the real run; the same "
    "FLOPs, or those of one step more, whose gradient belongs to the initial state"
)
UNFUSED = "attention with other head dims for values: fused on a GPU, written-out products in the real run"
SOLVER = "products inside a matrix decomposition's backward, which tclint takes as one operator"


def summarize(rows: list[Row]) -> Iterator[str]:
    """The tables of the page."""
    compared = [row for row in rows if row["result"] == "compared"]
    yield f"{len({(row['library'], row['name']) for row in compared})} models, {len(compared)} runs:"
    yield ""
    yield from _table(compared)
    yield ""
    yield from _reasons(compared)
    yield ""
    yield from _kept(compared)
    yield ""
    other = Counter(row["result"].split(":")[0] for row in rows if row["result"] != "compared")
    if other:
        yield (
            "Not compared: " + ", ".join(f"{count} x {result}" for result, count in other.most_common()) + "."
        )


def _table(compared: list[Row]) -> Iterator[str]:
    yield (
        "| | runs | products | identical | or in steps | with layouts | all identical | kept, total "
        "| within 1 % |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in compared:
        groups[row["variant"] or row["library"]].append(row)
    for title, members in groups.items():
        yield _line(title, members)
    yield _line("**all**", compared)
    plain = [row for row in compared if reason_of(row) not in (ASSUMED, STEPS)]
    yield _line("without recurrent layers and assumed values", plain)
    yield _line("and without matrix decompositions", [row for row in plain if reason_of(row) != SOLVER])


def _line(title: str, rows: list[Row]) -> str:
    total = sum(map(_products, rows))
    identical = sum(int(row["identical"]) for row in rows)
    in_steps = sum(_products(row) if reason_of(row) == STEPS else int(row["identical"]) for row in rows)
    layouts = sum(int(row["identical_layouts"]) for row in rows)
    exact = sum(1 for row in rows if not row["differences"])
    kept = sum(int(row["saved_bytes"]) for row in rows)
    estimate = sum(int(row["saved_estimate_bytes"]) for row in rows)
    close = sum(1 for row in rows if abs(_error(row)) <= 0.01)
    return (
        f"| {title} | {len(rows)} | {total} | {_percent(identical, total)} | {_percent(in_steps, total)} "
        f"| {_percent(layouts, total)} | {exact} "
        f"| {100 * (estimate / kept - 1) if kept else 0:+.2f} % | {close} |"
    )


def _products(row: Row) -> int:
    return max(int(row["traced"]), int(row["real"]))


def reason_of(row: Row) -> str:
    """Why a model's products differ, '' where they do not or the reason is not one of the general ones."""
    if not row["differences"]:
        return ""
    if int(row["assumptions"] or 0):
        return ASSUMED
    if _RECURRENT.search(row["differences"]) and _same_in_other_pieces(row["differences"]):
        return STEPS
    items = row["differences"].split("; ")
    derived = [item for item in items if "only derived" in item]
    if all("Householder" in item or "Linalg" in item for item in items):
        return SOLVER
    if derived and all(": attention backward" in item for item in derived):
        lengths = [item.split("(")[0].split() for item in derived]
        if all(sizes[-1] != sizes[-2] for sizes in lengths) and all(
            "Bmm" in i for i in items if i not in derived
        ):
            return UNFUSED
    return ""


def _same_in_other_pieces(differences: str) -> bool:
    """Whether what is left over on both sides adds up, along K for weights and along M for activations."""
    over_k: Counter[tuple[int, int]] = Counter()
    over_m: Counter[tuple[int, int]] = Counter()
    for count, side, batch, m, n, k in _ITEM.findall(differences):
        sign = int(count) * int(batch) * (1 if side == "derived" else -1)
        over_k[int(m), int(n)] += sign * int(k)
        over_m[int(n), int(k)] += sign * int(m)
    # Every leftover product is settled in one of the two ways; the initial state's step may remain.
    settled_k = {sizes for sizes, left in over_k.items() if left == 0}
    for _, _, batch, m, n, k in _ITEM.findall(differences):
        if (int(m), int(n)) not in settled_k:
            left = over_m[int(n), int(k)]
            largest = max(int(item[3]) for item in _ITEM.findall(differences) if (item[4], item[5]) == (n, k))
            if not 0 <= left <= 4 * largest * int(batch):
                return False
    return True


def _reasons(compared: list[Row]) -> Iterator[str]:
    yield "Products that differ, by reason:"
    yield ""
    counts: Counter[str] = Counter()
    models: dict[str, set[str]] = defaultdict(set)
    for row in compared:
        missing = _products(row) - int(row["identical"])
        reason = reason_of(row)
        if row["differences"] and reason:
            counts[reason] += missing
            models[reason].add(row["name"])
        elif row["differences"]:
            name = f"`{row['name']}`" + (f" ({row['variant']})" if row["variant"] else "")
            counts[f"{name}: {_short(row['differences'])}"] += missing
    for reason, count in counts.most_common():
        where = f" ({len(models[reason])} models)" if reason in models else ""
        yield f"- {count} in {reason}{where}" if not where else f"- {count}{where}: {reason}"


def _short(differences: str) -> str:
    items = differences.split("; ")
    return "; ".join(items[:4]) + (f"; and {len(items) - 4} more sizes" if len(items) > 4 else "")


def _kept(compared: list[Row]) -> Iterator[str]:
    counted = [row for row in compared if int(row["saved_bytes"])]
    if not counted:
        return
    # What cuDNN keeps of a recurrent layer is one block of its own, and no CPU run shows it.
    plain = [row for row in counted if reason_of(row) not in (ASSUMED, STEPS)]
    yield (
        f"What autograd keeps: {_spread(counted)}; without recurrent layers, of which a GPU keeps something "
        f"else than these runs, and assumed values: {_spread(plain)}. More than 5 % off:"
    )
    yield ""
    for row in sorted(counted, key=lambda row: -abs(_error(row))):
        if abs(_error(row)) > 0.05:
            name = f"`{row['name']}`" + (f" ({row['variant']})" if row["variant"] else "")
            why = ", formula unknown: " + row["unknown_savers"] if row["unknown_savers"] else ""
            reason = reason_of(row)
            why += (
                ", assumed values" if reason == ASSUMED else ", recurrent layers" if reason == STEPS else ""
            )
            yield f"- {name}: {100 * _error(row):+.1f} % of {int(row['saved_bytes']) / 2**20:.1f} MiB{why}"


def _spread(rows: list[Row]) -> str:
    errors = sorted(abs(_error(row)) for row in rows)
    if not errors:
        return "no runs"
    return (
        f"median error of {len(errors)} runs {100 * median(errors):.2f} %, "
        f"95th percentile {100 * errors[int(len(errors) * 0.95)]:.1f} %"
    )


def _error(row: Row) -> float:
    real, estimate = int(row["saved_bytes"]), int(row["saved_estimate_bytes"])
    return estimate / real - 1 if real else float(estimate > 0)


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f} %" if whole else "-"


def main() -> None:
    source, target = map(Path, sys.argv[1:3])
    with source.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    target.write_text("\n".join([_INTRODUCTION, *summarize(rows)]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

#!/usr/bin/env python
"""Compare traces with what the same models really do on the CPU, operator by operator.

    python benchmarks/trace_truth.py --library custom timm transformers [--limit N] [--out FILE.csv]

Every model is traced on meta tensors, then built again with real weights and run under a plain recorder. Both
lists hold (operator, shapes, dtypes, strides) of what works on inputs or parameters; work on constants alone,
which a trace computes and does not record, is left out of both. Each line of the result is one model; the
summary groups the differences by their reason.

Words are drawn at random, and zeros alone stand for noise (truth_inputs.py). Where the zoo has no inputs for
a model, or its inputs do not fit, those that tclint finds by itself are used. Models of transformers have two
layers; those still too large get fewer words and experts, and narrower layers in between.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":  # tests import this module, and are no benchmark
    os.environ.setdefault("PYTORCH_JIT", "0")
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from truth_inputs import Build, with_different_words  # noqa: E402
from truth_recorder import Call, real_calls, traced_calls  # noqa: E402
from zoo_case import Case, fails_the_same, find_inputs, note  # noqa: E402
from zoo_child import run_in_child  # noqa: E402

if TYPE_CHECKING:
    from tclint.graph.ops import Graph

COLUMNS = ("name", "library", "result", "traced", "real", "identical", "assumptions", "differences")
MAX_WEIGHT_BYTES = 3 << 30


def compare(traced: list[Call], real: list[Call]) -> tuple[int, Counter[str]]:
    """How many calls are identical, and why the others differ, by reason."""
    identical, reasons = 0, Counter[str]()
    names = [call.name for call in traced], [call.name for call in real]
    if names[0] == names[1]:
        pairs: list[tuple[str, int, int, int, int]] = [("equal", 0, len(traced), 0, len(real))]
    else:
        pairs = list(SequenceMatcher(None, names[0], names[1], autojunk=False).get_opcodes())
    for tag, first, first_end, second, second_end in pairs:
        if tag == "equal":
            for have, want in zip(traced[first:first_end], real[second:second_end], strict=True):
                reason = have.difference(want)
                identical += reason is None
                if reason is not None:
                    reasons[reason] += 1
            continue
        for call in traced[first:first_end]:
            reasons[f"only in the trace: {call.name}"] += 1
        for call in real[second:second_end]:
            reasons[f"only in the real run: {call.name}"] += 1
    return identical, reasons


def report(say: Callable[..., None], case: Case) -> None:
    """In the child: trace, run for real, compare."""
    try:
        build, graph = _traced(case)
        if _weight_bytes(graph) > MAX_WEIGHT_BYTES and case.smaller is not None:
            case = case.smaller
            build, graph = _traced(case)
    except BaseException as error:
        cause = (error.__cause__ or error) if type(error).__name__ == "TargetError" else error
        what = "not traced" if _runs_without_tclint(case, cause) else "does not run without tclint either"
        say(result=f"{what}: {type(cause).__name__}: {str(cause)[:150]}")
        return
    weights = _weight_bytes(graph)
    if weights > MAX_WEIGHT_BYTES:
        say(result=f"too large to run: {weights >> 20} MiB of weights")
        return
    say(assumptions=len(graph.assumptions))
    try:
        real = real_calls(build)
    except BaseException as error:
        say(result=f"does not run: {type(error).__name__}: {str(error)[:150]}")
        return
    traced = traced_calls(graph)
    identical, reasons = compare(traced, real)
    listed = "; ".join(f"{count} x {reason}" for reason, count in reasons.most_common())
    say(traced=len(traced), real=len(real), identical=identical, differences=listed, result="compared")


def _traced(case: Case) -> tuple[Build, Graph]:
    """The trace, and the model and inputs that it is of: the case's inputs, else those that tclint finds."""
    from tclint.tracing import trace_callable

    case.prepare()
    build = without_random_skips(with_different_words(case.build))
    try:
        return build, trace_callable(build)
    except Exception:
        if case.build_model is None:
            raise
        build_model = case.build_model
        try:
            found = find_inputs(build_model)
        except Exception:
            found = None
        if found is None:
            raise
    build = without_random_skips(lambda: (build_model(), found))
    return build, trace_callable(build)


def _runs_without_tclint(case: Case, error: BaseException) -> bool:
    return not isinstance(error, LookupError) and not fails_the_same(case, error, [])


def _weight_bytes(graph: Graph) -> int:
    return sum(parameter.bytes for parameter in graph.parameters)


_SKIPS = ("layerdrop", "encoder_layerdrop", "decoder_layerdrop")


def without_random_skips(build: Build) -> Build:
    """The same model with LayerDrop off: which layers it leaves out differs from run to run."""

    def make() -> Any:
        model, inputs = build()
        for module in model.modules():
            for owner in (module, getattr(module, "config", None)):
                for name in _SKIPS:
                    if isinstance(getattr(owner, name, None), float):
                        setattr(owner, name, 0.0)
        return model, inputs

    return make


def cases_of(library: str) -> Iterator[Case]:
    """Small versions of the library's models, one of every family first."""
    if library == "custom":
        yield from importlib.import_module("zoo_custom.cases").cases()
    elif library == "timm":
        yield from importlib.import_module("zoo_timm").small_cases()
    else:
        yield from importlib.import_module("zoo_transformers").small_cases()


def main() -> int:
    arguments = options(__doc__, 120.0).parse_args()
    importlib.import_module("tclint.tracing.worker.objects")
    out = Path(arguments.out) if arguments.out else None
    rows = read_rows(out)
    done = {row["name"] for row in rows}
    for library in arguments.library:
        chosen = [case for position, case in enumerate(cases_of(library)) if position % arguments.every == 0]
        for case in chosen[: arguments.limit or None]:
            if case.name in done or (arguments.only and case.name not in arguments.only):
                continue
            said, ending = run_in_child(lambda say, case=case: report(say, case), arguments.timeout)
            row = {"name": case.name, "library": library, **said}
            row.setdefault("result", ending or "no result")
            rows.append(row)
            note(
                f"{row['name']}: {row['result']} {row.get('identical', '')}/{row.get('real', '')} "
                f"{row.get('differences', '')[:200]}"
            )
            if out is not None:
                append_row(out, row, COLUMNS)
    print("\n".join(summarize(rows)))
    return 0


def read_rows(out: Path | None) -> list[dict[str, Any]]:
    """The rows of an earlier run."""
    if out is None or not out.exists():
        return []
    with out.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def append_row(out: Path, row: dict[str, Any], columns: Sequence[str]) -> None:
    """Add a row to a CSV, which is made if there is none."""
    is_new = not out.exists()
    with out.open("a", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, columns, restval="")
        if is_new:
            writer.writeheader()
        writer.writerow(row)


def summarize(rows: list[dict[str, Any]]) -> Iterator[str]:
    """The share of identical operators, and the differences by reason."""
    compared = [row for row in rows if row["result"] == "compared"]
    for title, group in (
        ("Models whose trace assumed nothing", [row for row in compared if not _asks(row)]),
        ("Models that ask for values of their data", [row for row in compared if _asks(row)]),
        ("All models", compared),
    ):
        total = sum(map(_operators, group))
        identical = sum(int(row["identical"]) for row in group)
        exact = sum(1 for row in group if not row["differences"])
        # A long loop in one model outweighs many others.
        mean = sum(int(row["identical"]) / max(_operators(row), 1) for row in group) / max(len(group), 1)
        yield (
            f"{title}: {len(group)}; operators: {total}, identical: {identical} "
            f"({100 * identical / max(total, 1):.2f} %; mean over models {100 * mean:.2f} %); "
            f"all identical in {exact} models."
        )
    reasons: Counter[str] = Counter()
    models: defaultdict[str, set[str]] = defaultdict(set)
    for row in compared:
        for item in filter(None, row["differences"].split("; ")):
            count, _, reason = item.partition(" x ")
            reason = "[follows from assumed values]" if _asks(row) else reason
            reasons[reason] += int(count)
            models[reason].add(row["name"])
    for reason, count in reasons.most_common(40):
        yield f"{count:7d} in {len(models[reason]):3d} models: {reason}"
    for result, count in Counter(row["result"].split(":")[0] for row in rows).most_common():
        yield f"{count:7d} models {result}"


def _operators(row: dict[str, Any]) -> int:
    return max(int(row["traced"]), int(row["real"]))


def _asks(row: dict[str, Any]) -> bool:
    return bool(int(row.get("assumptions") or 0))


def options(description: str | None, timeout_s: float) -> argparse.ArgumentParser:
    """The options of benchmarks that run every model in a process of its own."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--library", nargs="+", default=["custom"], choices=("custom", "timm", "transformers")
    )
    parser.add_argument("--limit", type=int, default=0, metavar="N", help="models per library")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every Nth model")
    parser.add_argument("--only", nargs="+", default=(), metavar="NAME", help="these models")
    parser.add_argument(
        "--out", metavar="FILE.csv", help="append a row per model; models that are in it are skipped"
    )
    parser.add_argument("--timeout", type=float, default=timeout_s, metavar="S", help="seconds per model")
    return parser


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python
"""Judge the inputs that tclint infers against those that public models are really used with.

    python benchmarks/inputs/run.py --repositories ~/checkouts --out benchmarks/inputs/results.csv
    python benchmarks/inputs/run.py --repositories ~/checkouts --only nanoGPT --how python
    python benchmarks/inputs/run.py --repositories ~/checkouts --how first --out benchmarks/inputs/first.csv
    python benchmarks/inputs/run.py --repositories ~/checkouts --truth     # writes truth.csv, infers nothing

models/*.toml lists the models with their true inputs and where these are stated; truth.csv records those that
were run on them, with their FLOPs. Each of these is traced without inputs, as somebody would who types
`tclint FILE:CALLABLE --arg ...` in the repository, and inputs_judge.py says what is right. Rows whose
repository or package is not here are skipped, and so are those that truth.csv lacks (with what was installed
they did not run on their true inputs); both are counted. An inference that fails is wrong.

--repositories is a folder of checkouts, named OWNER+NAME or NAME; `git clone` makes them. Packages are those
of the environment.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import importlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

# Before torch is imported: as tclint's own worker processes have it, and one core per run.
if __name__ == "__main__":  # tests import this module, and are no benchmark
    os.environ.setdefault("PYTORCH_JIT", "0")
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Some repositories install what they miss when they are imported (yolov5 does): nothing may be installed.
os.environ.update(PIP_NO_INDEX="1", PIP_REQUIRE_VIRTUALENV="1", UV_OFFLINE="1")

HERE = Path(__file__).resolve().parent
TRUTH = HERE / "truth.csv"
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1])]

from inputs_judge import Traced, Verdict, judge  # noqa: E402
from inputs_rows import Row, read_rows  # noqa: E402
from zoo_case import note  # noqa: E402
from zoo_child import run_in_child  # noqa: E402

COLUMNS = (
    "name",
    "family",
    "status",
    "traced",
    "rank_ok",
    "flops_ok",
    "flops_ratio",
    "inferred",
    "true",
    "inferred_flops",
    "true_flops",
    "error",
)

TRUTH_COLUMNS = ("name", "flops", "shapes", "inputs")

# Statuses of a row.
JUDGED, MISSING, NOT_RUN = "judged", "missing", "not run on the true inputs"


def main() -> int:
    arguments = _parse()
    for module in ("tclint.tracing.worker.objects", "inputs_truth"):
        importlib.import_module(module)
    rows = [
        row
        for row in read_rows()
        if not arguments.only or any(name.lower() in row.name.lower() for name in arguments.only)
    ]
    if arguments.truth:
        _record_truth(rows, arguments)
        return 0
    truth = read_truth()
    results = []
    for row in rows:
        results.append(_judged(row, truth.get((row.name, _stated(row))), arguments))
        note(_line(results[-1]))
        if arguments.out:
            _write(arguments.out, COLUMNS, results)
    print(table(results))
    return 0


def _record_truth(rows: Iterable[Row], arguments: argparse.Namespace) -> None:
    """Run the rows that truth.csv does not have as they are stated now, and write it."""
    known = read_truth()
    for row in rows:
        folder = row.folder(arguments.repositories)
        if (row.name, _stated(row)) in known or folder is None:
            continue
        true, error = _in_child(partial(_trace_as_python, row, folder, True), arguments.timeout)
        if true is None:
            true, _ = _in_child(partial(_run_as_python, row, folder), arguments.timeout)
        note(f"{row.name}: {error or _text(true)}")
        if true is not None:
            known[row.name, _stated(row)] = true
            _write_truth(known)
    _write_truth(known)


def _write_truth(known: Mapping[tuple[str, str], Traced]) -> None:
    """Those that are still stated so, in the order of the list."""
    current = [(row.name, _stated(row)) for row in read_rows()]
    lines = [
        {
            "name": key[0],
            "flops": f"{known[key].flops:.6g}",
            "shapes": json.dumps(list(known[key].shapes.items())),
            "inputs": key[1],
        }
        for key in current
        if key in known
    ]
    _write(TRUTH, TRUTH_COLUMNS, lines)


def read_truth() -> dict[tuple[str, str], Traced]:
    """What true inputs gave, by the row's name and what it stated."""
    if not TRUTH.exists():
        return {}
    with TRUTH.open(newline="", encoding="utf-8") as stream:
        return {
            (line["name"], line["inputs"]): Traced(_shapes(line["shapes"]), float(line["flops"]))
            for line in csv.DictReader(stream)
        }


def _stated(row: Row) -> str:
    """All that a run on the true inputs depends on, short."""
    stated = (row.repository, row.target, row.arguments, dict(row.inputs), row.mode, row.positional)
    return hashlib.sha256(repr(stated).encode()).hexdigest()[:12]


def _judged(row: Row, true: Traced | None, arguments: argparse.Namespace) -> dict[str, str]:
    """The columns of a row."""
    columns = {"name": row.name, "family": row.family}
    folder = row.folder(arguments.repositories)
    if folder is None or true is None:
        return {**columns, "status": MISSING if folder is None else NOT_RUN}
    columns |= {"status": JUDGED, "true": _text(true), "true_flops": f"{true.flops:.6g}"}
    if arguments.how == "python":
        inferred, error = _in_child(lambda: _trace_as_python(row, folder, False), arguments.timeout)
    else:
        given = () if arguments.how == "first" else row.arguments
        settings = {"arguments": tuple(given), "run_programs": arguments.run_programs}
        trace = partial(_trace_as_command, row, folder, settings)
        inferred, error = _in_child(trace, arguments.timeout, may_fork=True)
    return {**columns, **_columns(judge(row, true, inferred), inferred), "error": error}


def _columns(verdict: Verdict, inferred: Traced | None) -> dict[str, str]:
    said = {
        "traced": _yes(inferred is not None),
        "rank_ok": _yes(verdict.rank_ok),
        "flops_ok": _yes(verdict.flops_ok),
        "flops_ratio": "" if verdict.flops_ratio is None else f"{verdict.flops_ratio:.3g}",
    }
    if inferred is not None:
        said |= {"inferred": _text(inferred), "inferred_flops": f"{inferred.flops:.6g}"}
    return said


def _trace_as_python(row: Row, folder: Path, on_true_inputs: bool) -> Any:
    from inputs_truth import trace_row

    return trace_row(row, folder, on_true_inputs=on_true_inputs)


def _run_as_python(row: Row, folder: Path) -> Any:
    from inputs_truth import run_row

    return run_row(row, folder)


def _trace_as_command(row: Row, folder: Path, settings: Mapping[str, Any]) -> Any:
    """As the command line does, in the repository: with `--arg`, and without `--input`."""
    from tclint.config.settings import Settings
    from tclint.engine.script.as_built import trace_as_built

    os.chdir(folder)
    mode: Any = row.mode
    (result,) = trace_as_built([row.target], Settings(mode=mode, jobs=1, **settings))
    if result.graph is None:
        raise result.error or RuntimeError("nothing was traced")
    return result.graph


def _in_child(
    trace: Callable[[], Any], timeout_s: float, *, may_fork: bool = False
) -> tuple[Traced | None, str]:
    """What a trace (a graph, or shapes and FLOPs) in a process of its own says, or the error."""

    def work(say: Callable[..., None]) -> None:
        from tclint.graph.lowering.step import forward_flops

        try:
            found = trace()
            if not isinstance(found, tuple):
                shapes = {spec.input_name: spec.shape for spec in found.inputs}
                found = shapes, forward_flops(found)
            say(flops=found[1], shapes=json.dumps(list(found[0].items())))
        except BaseException as error:
            say(error=f"{type(error).__name__}: {str(error)[:300]}")

    said, ending = run_in_child(work, timeout_s, may_fork=may_fork)
    if "shapes" not in said:
        return None, said.get("error", ending)
    return Traced(_shapes(said["shapes"]), float(said["flops"])), ""


def _shapes(text: str) -> dict[str, tuple[int, ...]]:
    return {name: tuple(shape) for name, shape in json.loads(text)}


def _write(path: Path, columns: Sequence[str], lines: Iterable[Mapping[str, str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


def table(results: Iterable[dict[str, str]]) -> str:
    """Counts by family, and the two shares of all rows that ran."""
    rows = list(results)
    ran = [row for row in rows if row["status"] == JUDGED]
    lines = [f"{'family':24} {'rows':>5} {'traced':>7} {'rank':>6} {'FLOPs':>6}"]
    for family in sorted({row["family"] for row in ran}):
        lines.append(_counts(family, [row for row in ran if row["family"] == family]))
    lines.append(_counts("all", ran))
    for column, what in (("rank_ok", "right rank"), ("flops_ok", "FLOPs within 2x")):
        right = sum(row.get(column) == "yes" for row in ran)
        lines.append(f"{what}: {right} of {len(ran)} ({100 * right / max(1, len(ran)):.1f} %)")
    skipped = {status: sum(row["status"] == status for row in rows) for status in (MISSING, NOT_RUN)}
    lines.append("skipped: " + ", ".join(f"{count} {status}" for status, count in skipped.items()))
    return "\n".join(lines)


def _counts(name: str, rows: list[dict[str, str]]) -> str:
    right = [sum(row.get(column) == "yes" for row in rows) for column in ("traced", "rank_ok", "flops_ok")]
    return f"{name:24} {len(rows):5} {right[0]:7} {right[1]:6} {right[2]:6}"


def _line(result: dict[str, str]) -> str:
    shown = ("status", "rank_ok", "flops_ratio", "inferred", "error")
    return f"{result['name']}: " + " | ".join(filter(None, (result.get(column, "") for column in shown)))


def _text(traced: Traced | None) -> str:
    if traced is None:
        return ""
    return "; ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in traced.shapes.items())


def _yes(truth: bool) -> str:
    return "yes" if truth else "no"


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repositories", type=Path, metavar="FOLDER", help="a folder of checkouts")
    parser.add_argument("--only", nargs="+", default=(), metavar="NAME", help="rows with this in their name")
    parser.add_argument(
        "--how",
        choices=("command", "first", "python"),
        default="command",
        help="what builds the model: the command line, as it is typed first, without arguments, or Python",
    )
    parser.add_argument(
        "--no-run-programs",
        dest="run_programs",
        action="store_false",
        help="only read the repositories' programs",
    )
    parser.add_argument("--truth", action="store_true", help="only run the true inputs; write truth.csv")
    parser.add_argument("--timeout", type=float, default=300.0, metavar="S", help="seconds per trace")
    parser.add_argument("--out", type=Path, default=None, metavar="FILE.csv", help="write the rows there")
    arguments = parser.parse_args()
    if arguments.repositories is not None:
        arguments.repositories = arguments.repositories.resolve()
    return arguments


if __name__ == "__main__":
    sys.exit(main())

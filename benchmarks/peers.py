#!/usr/bin/env python
"""tclint's trace against other tools that count a model's FLOPs or capture its graph, on the same models.

    python benchmarks/peers.py --repeats 3              # appends to benchmarks/peers.csv; restartable
    python benchmarks/peers.py --table docs/explanation/peers.md    # writes the page from the rows

Needs timm, transformers and the tools themselves: fvcore, thop, ptflops, calflops, torchinfo, deepspeed.

Every measurement runs in a process of its own, forked from a server that has imported the libraries and
the tools and done nothing else; the tools take turns on each model. The child runs its tool on a two-layer
model first, so that what the tool imports late is not part of the figures. Building the model is timed apart.
Peak memory is that of the child over this state: `peak_mib` includes the model, as the tool needs it (real
weights for those that run it on the CPU), `over_model_mib` does not. It is exact where a C compiler (cc) is
installed, for peak_memory.c.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from peers_models import MODELS  # noqa: E402
from peers_tools import TOOLS, Tool  # noqa: E402
from zoo_case import as_call, note  # noqa: E402
from zoo_child import run_in_child  # noqa: E402
from zoo_memory import (  # noqa: E402
    exact_peaks,
    fill_free_memory,
    memory_baseline_kib,
    peak_kib,
    reset_peak,
    status_kib,
)

COLUMNS = (
    "model",
    "library",
    "tool",
    "repeat",
    "result",
    "build_s",
    "seconds",
    "cpu_s",
    "peak_mib",
    "over_model_mib",
    "flops",
)
TCLINT = "tclint"
SEED = 0


def main() -> int:
    arguments = _parse()
    if arguments.serve:
        return serve(arguments.serve == TCLINT, arguments.timeout)
    out = Path(arguments.out)
    if arguments.table:
        from peers_table import page

        Path(arguments.table).write_text(page(_rows(out), _versions()), encoding="utf-8")
        return 0
    tools = [TCLINT, *(name for name in TOOLS if _is_installed(TOOLS[name]))]
    for name in set(TOOLS) - set(tools):
        note(f"{name} is not installed")
    if arguments.against:
        tools = [TCLINT, *(name for name in tools if name in arguments.against)]
    measure_all([name for name in MODELS if not arguments.only or name in arguments.only], tools, arguments)
    return 0


def measure_all(models: list[str], tools: list[str], arguments: argparse.Namespace) -> None:
    """Append the rows that are missing, all tools in turn for each model."""
    out = Path(arguments.out)
    done = {(row["model"], row["tool"], row["repeat"]) for row in _rows(out)}
    folder = tempfile.TemporaryDirectory()
    peaks = exact_peaks(Path(folder.name))
    if not peaks:
        note("there is no C compiler (cc): peaks may be a quarter of a MiB off")
    servers = {is_tclint: _Server(is_tclint, arguments.timeout, peaks) for is_tclint in (True, False)}
    is_new = not out.exists()
    with out.open("a", newline="", encoding="utf-8") as stream:
        rows = csv.DictWriter(stream, COLUMNS, restval="")
        if is_new:
            rows.writeheader()
        for repeat in range(arguments.repeats):
            for model in models:
                # Each repeat starts with another tool.
                for tool in tools[repeat:] + tools[:repeat]:
                    if (model, tool, str(repeat)) in done:
                        continue
                    row = servers[tool == TCLINT].ask(model, tool)
                    row.update(model=model, library=MODELS[model].library, tool=tool, repeat=repeat)
                    rows.writerow(row)
                    stream.flush()
                    note(f"{model}, {tool}: {row['result']} {row.get('seconds', '')}")
    for server in servers.values():
        server.close()
    folder.cleanup()


class _Server:
    """A process with the imports done, that forks a child per measurement."""

    def __init__(self, is_tclint: bool, timeout_s: float, environment: dict[str, str]) -> None:
        environment = {
            **os.environ,
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "OMP_NUM_THREADS": "1",
            **environment,
        }
        if is_tclint:
            # As the command's own worker has it.
            environment.update(PYTORCH_JIT="0", TORCHDYNAMO_DISABLE="1")
        self._process = subprocess.Popen(
            [
                sys.executable,
                __file__,
                "--serve",
                TCLINT if is_tclint else "peers",
                "--timeout",
                str(timeout_s),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )

    def ask(self, model: str, tool: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([model, tool]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit("the measuring process ended; what it said is above")
        return dict(json.loads(answer))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def serve(is_tclint: bool, timeout_s: float) -> int:
    """Answer requests from stdin until it ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # some of the tools print while they are imported
    for library in ("timm", "transformers"):
        importlib.import_module(library)
    if is_tclint:
        importlib.import_module("tclint.tracing.worker.objects")
        importlib.import_module(
            "tclint.tracing.patches.modules"
        ).wrap_modules()  # as the command's own worker does
    else:
        for tool in TOOLS.values():
            if tool.package != "torch" and _is_installed(tool):
                importlib.import_module(tool.package)
    for line in sys.stdin:
        model, tool = json.loads(line)
        said, ending = run_in_child(lambda say, m=model, t=tool: _measure(say, m, t), timeout_s)
        if ending == "Timeout":
            said["result"] = f"no result after {timeout_s:.0f} s"
        elif "result" not in said:
            said["result"] = "the process died"
        answers.write(json.dumps(said) + "\n")
        answers.flush()
    return 0


def _measure(say: Callable[..., None], model: str, tool: str) -> None:
    """In the child: one tool on one model."""
    import torch

    case = MODELS[model].case()
    case.prepare()
    run = _run_tclint if tool == TCLINT else _runner(TOOLS[tool])
    run(_two_layers, lambda: None)
    torch.manual_seed(SEED)
    fill_free_memory()
    before_kib = memory_baseline_kib()
    built: dict[str, float] = {}

    def note_built() -> None:
        built["peak"] = peak_kib() - before_kib
        reset_peak()
        built["resident"] = status_kib("VmRSS")
        built["at"], built["cpu"] = time.perf_counter(), time.process_time()

    started = time.perf_counter()
    try:
        flops = run(case.build, note_built)
    except BaseException as error:
        lines = str(error).strip().splitlines()
        at = "" if built else "build: "
        say(result=f"{at}{type(error).__name__}: {lines[0][:150] if lines else ''}")
        return
    seconds, cpu_s = time.perf_counter() - built["at"], time.process_time() - built["cpu"]
    most_kib = peak_kib()
    say(
        build_s=f"{built['at'] - started:.4f}",
        seconds=f"{seconds:.4f}",
        cpu_s=f"{cpu_s:.4f}",
        peak_mib=f"{max(built['peak'], most_kib - before_kib) / 1024:.3f}",
        over_model_mib=f"{(most_kib - built['resident']) / 1024:.3f}",
        flops="" if flops is None else flops,
        result="ok",
    )


Build = Callable[[], tuple[Any, Any]]


def _run_tclint(build: Build, note_built: Callable[[], None]) -> int:
    """Trace and count; construction on meta is the build's share."""
    from tclint.graph.lowering.step import forward_flops
    from tclint.tracing import trace_callable

    def build_in_eval() -> tuple[Any, Any]:
        model, inputs = build()
        model.eval()
        note_built()
        return model, inputs

    return forward_flops(trace_callable(build_in_eval))


def _runner(tool: Tool) -> Callable[[Build, Callable[[], None]], int | None]:
    """Builds the model on the tool's device, then runs the tool on it."""
    import torch

    def run(build: Build, note_built: Callable[[], None]) -> int | None:
        with torch.device(tool.device):
            model, inputs = build()
            model.eval()
            on_device = _meta_input if tool.device == "meta" else _real_input
            args, kwargs = as_call(inputs, on_device)
        note_built()
        with torch.no_grad(), torch.device(tool.device):
            return tool.run(model, args, kwargs)

    return run


def _meta_input(tensor: Any) -> Any:
    return tensor.to("meta")


def _real_input(tensor: Any) -> Any:
    """The model's own values, else noise or ones."""
    import torch

    if not tensor.is_meta:
        return tensor
    real = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
    return real.normal_() if tensor.is_floating_point() else real.fill_(1)


def _two_layers() -> tuple[Any, Any]:
    import torch
    from torch import nn

    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4))
    return model, torch.zeros(2, 3, 8, 8)


def _is_installed(tool: Tool) -> bool:
    return importlib.util.find_spec(tool.package) is not None


def _versions() -> dict[str, str]:
    from importlib import metadata

    names = {"torch", "timm", "transformers", *(tool.package for tool in TOOLS.values())}
    found = {}
    for name in sorted(names):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", metavar="FILE.csv", default=str(HERE / "peers.csv"))
    parser.add_argument("--repeats", type=int, default=1, metavar="N", help="measurements per model and tool")
    parser.add_argument("--only", nargs="+", default=(), metavar="MODEL", help="these models")
    parser.add_argument("--against", nargs="+", default=(), metavar="TOOL", help="these tools")
    parser.add_argument("--timeout", type=float, default=180.0, metavar="S", help="seconds per measurement")
    parser.add_argument("--table", metavar="FILE.md", help="write the page from the rows")
    parser.add_argument("--serve", choices=(TCLINT, "peers"), help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

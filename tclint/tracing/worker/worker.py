"""The process that runs user code: imports torch once, then forks a child for every target.

    python -m tclint.tracing.worker.worker        reads requests from stdin, one JSON object a line
    python -m tclint.tracing.worker.worker --one  traces the single request on stdin in this very process

Answers are JSON lines on the original stdout. Graphs go through files that the request names, so that
nothing the user's code prints can garble them. End of input ends the process and all its children.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
import tempfile
import time
import traceback
from types import SimpleNamespace
from typing import Any

from tclint.core.errors import TargetError
from tclint.tracing.patches.made_folders import remove_later
from tclint.tracing.stand_ins.absent import names_of_absent
from tclint.tracing.stand_ins.install import replaced
from tclint.tracing.values.sites import SiteFinder
from tclint.tracing.worker.isolation import limit_resources, read_only, refuse_downloads, refuse_network
from tclint.tracing.worker.project_files import watch
from tclint.tracing.worker.result_file import TraceResult, write_runs
from tclint.tracing.worker.targets import describe, is_out_of_memory, where_in_user_code
from tclint.tracing.worker.zygote import Zygote, send, silence_stdin

_OLDEST_TORCH = (2, 4)
_SPARE_CPU_S = 1.0
"""The wall-clock limit, whose message says more, comes first."""


def main(argv: list[str]) -> int:
    """Entry point; 0 at the end of input."""
    answers = os.dup(1)
    # Anything printed from here on, by torch or by user code, must not reach the answers.
    os.dup2(2, 1)
    if "--one" in argv:
        request = json.loads(sys.stdin.readline())
        _import_torch()
        silence_stdin()
        if not request["network"]:
            refuse_network()
        run_target(request)
        return 0
    started = time.perf_counter()
    problem = _import_torch() or _prepare_for_forks()
    seconds = time.perf_counter() - started
    send(answers, {"ready": problem is None, "problem": problem, "seconds": seconds})
    if problem is not None:
        return 1
    Zygote(answers, run_target).serve()
    return 0


def run_target(request: dict[str, Any]) -> None:
    """Do in this process what is asked of the request's target, and write the result to its file."""
    import torch

    from tclint.tracing.worker.entry import TraceOptions, trace_target

    torch.set_num_threads(1)
    if request.get("root"):
        _move_to(request["root"])
    limit_resources(request["memory_limit_mib"], request["timeout_s"] + _SPARE_CPU_S)
    owner = os.getpid()
    target: str = request["target"]
    sys.argv = [target.rpartition(":")[0] or target]
    folder = os.path.dirname(os.path.abspath(sys.argv[0]))
    _prepare_environment(request)
    if not request["network"]:
        refuse_downloads()
    if request.get("program"):
        from tclint.tracing.worker.program.run import run_program

        if read_only(request["scratch"]):
            run_program(target, request["program"], request["answer"])
        return
    if request.get("library"):
        from tclint.tracing.worker.libraries import model_names

        with open(request["answer"], "w", encoding="utf-8") as file:
            json.dump(model_names(request["library"]), file)
        return
    files = watch(folder)
    seconds: dict[str, float] = {}
    runs: list[TraceResult] = []
    try:
        options = TraceOptions.of(SimpleNamespace(**request["options"]))
        if request.get("padding"):
            from tclint.tracing.worker.padding_runs import run_of_padding

            run_of_padding(target, options, request["padding"])
        else:
            runs.extend(trace_target(target, options, seconds))
        read = files()
        for run in runs:
            if run.graph is not None:
                run.graph.metadata["source_files"] = read
                run.graph.metadata["absent"] = [*names_of_absent(), *replaced()]
    except BaseException as error:
        problem = (
            error if isinstance(error, TargetError) else TargetError(_cause(target, request, error, folder))
        )
        problem.details = problem.details or _traceback(error)
        runs.append(TraceResult(target, error=problem, seconds=seconds))
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        # They may be closed, or replaced by anything.
        with contextlib.suppress(BaseException):
            stream.flush()  # type: ignore[union-attr]
    write_runs(request["result"], runs, owner)


def _cause(target: str, request: dict[str, Any], error: BaseException, folder: str) -> str:
    """A sentence on an error that no code of tclint's expected."""
    if is_out_of_memory(error):
        limit = f"{request['memory_limit_mib']} MiB of memory"
        return f"{target} needed more than {limit}: build it smaller, or raise --memory-limit."
    if isinstance(error, KeyboardInterrupt):
        # No key was pressed: this process is in a group of its own.
        return f"{target} raised KeyboardInterrupt."
    if isinstance(error, RecursionError):
        return f"{target} or its inputs nest without an end."
    line = where_in_user_code(error, SiteFinder(roots=(folder,)).is_user_file)
    cause = "its code changed something that tracing relies on"
    if not line:
        cause = "please report it with the output of --debug"
    return f"tclint failed on {target} ({describe(error)}{line}); {cause}."


def _move_to(root: str) -> None:
    """Build from the copies below a folder: the working directory's, and those of folders that are imported
    from."""
    os.chdir(root + os.path.abspath(os.getcwd()))
    copies = [root + os.path.abspath(entry) for entry in sys.path]
    sys.path[:0] = [copy for copy in copies if os.path.isdir(copy)]


def _prepare_environment(request: dict[str, Any]) -> None:
    remove_later(request["made"])
    # Temporary files of the target vanish with the run.
    os.environ.update(dict.fromkeys(("TMPDIR", "TEMP", "TMP"), request["scratch"]))
    tempfile.tempdir = None
    if not request["network"]:
        # What is in its cache is found at once, instead of after some timeouts.
        os.environ.setdefault("HF_HUB_OFFLINE", "1")


def _traceback(error: BaseException) -> str:
    with contextlib.suppress(BaseException):
        return "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return ""


def _import_torch() -> str | None:
    """Import torch; what is wrong with it, or None."""
    # Scripted and compiled modules run as the plain Python they were made from.
    os.environ.setdefault("PYTORCH_JIT", "0")
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    for threads in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(threads, "1")  # several targets are traced at once
    gc.disable()  # an import makes objects by the million, and hardly any garbage
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name == "torch":
            return "missing"
        return f"torch cannot be imported here: {type(error).__name__}: {error}."
    except Exception as error:
        return f"torch cannot be imported here: {type(error).__name__}: {error}."
    finally:
        gc.freeze()
        gc.enable()
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if version < _OLDEST_TORCH:
        return f"tclint needs torch 2.4 or newer to trace models, and {torch.__version__} is installed here."
    return None


def _prepare_for_forks() -> str | None:
    """Import and install what children inherit; what is wrong with it, or None."""
    try:
        import tclint.tracing.worker.entry  # noqa: F401
        from tclint.tracing.patches.modules import wrap_modules
        from tclint.tracing.worker import light_imports
    except Exception as error:
        import torch

        return f"tclint cannot run with torch {torch.__version__} ({type(error).__name__}: {error})."
    light_imports.install()
    wrap_modules()
    gc.freeze()  # else each child goes through all of it, and copies its pages
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

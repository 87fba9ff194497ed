"""Runs targets in worker processes and yields their graphs; imports no torch."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias, TypeVar

from tclint.config.settings import Settings
from tclint.core.errors import TargetError, UsageError
from tclint.core.saved import from_json, picked
from tclint.graph.weights.plan import PaddingProof, WeightPlan
from tclint.tracing.inputs.specs import parse_input_set, parse_inputs
from tclint.tracing.patches.made_folders import remove_made
from tclint.tracing.worker.program.seen import ProgramRun, ProgramStart
from tclint.tracing.worker.result_file import EXIT_BROKEN, TraceResult, read_runs
from tclint.tracing.worker.target_arguments import parse_arguments
from tclint.tracing.worker.targets import check_file, parse_target

TORCH_MISSING = (
    "Tracing a model needs PyTorch, which is not installed beside tclint: install 'tensorcore-lint[torch]', "
    "or run tclint in the environment that trains the model."
)
_GRACE_S = 2.0
_PROGRAM_S = 15.0
"""The most CPU seconds that a program may take to make its model."""
_OPTIONS = ("inputs", "input_sets", "arguments", "batch", "mode", "phase", "phase_tokens")
"""Settings that TraceOptions are made of."""


def trace_targets(
    targets: Sequence[str],
    settings: Settings,
    *,
    own: Mapping[str, Settings] | None = None,
    on_progress: Callable[[str], None] | None = None,
) -> Iterator[TraceResult]:
    """Build and trace each target in a process of its own, several at a time.

    The worker process starts with this call, not with the first `next()`, so that torch is imported while
    the caller does other work. A target that hangs, exits, crashes or exhausts memory becomes an error;
    the others go on.

    Args:
        targets: 'path/file.py:callable', 'package.module:callable', 'timm:resnet50' or 'hf:gpt2'.
        settings: uses inputs, input_sets, arguments, batch, mode, network, timeout_s,
            memory_limit_mib and jobs.
        own: by target, settings whose batch counts instead.
        on_progress: called with one line when a target starts.

    Yields:
        A TraceResult per target and set of inputs, in the order of the targets.

    Raises:
        UsageError: a spec in `settings.inputs` is malformed; nothing was started.
    """
    check_inputs(settings)
    runs = []
    for target in targets:
        stated = (own or {}).get(target, settings)
        given = {name: getattr(stated, name) for name in ("batch", "arguments", "inputs")}
        runs.append((target, replace(settings, **given)))
    found = trace_runs(runs, jobs=settings.jobs, on_progress=on_progress)
    return (result for results in in_order(found) for result in results)


_T = TypeVar("_T")


def in_order(found: Generator[tuple[int, _T], None, None]) -> Iterator[_T]:
    """What comes with its position in any order, from the first position on; then the generator is closed."""
    early: dict[int, _T] = {}
    following = 0
    with contextlib.closing(found):
        for index, one in found:
            early[index] = one
            while following in early:
                yield early.pop(following)
                following += 1


def trace_runs(
    runs: Sequence[tuple[str, Settings]],
    *,
    jobs: int = 0,
    on_progress: Callable[[str], None] | None = None,
    roots: Sequence[str | None] | None = None,
    more: Mapping[str, Any] | None = None,
) -> Generator[tuple[int, list[TraceResult]], None, None]:
    """As `trace_targets`, with every target under its own settings; one may come several times.

    Args:
        runs: targets and their settings.
        jobs: how many are traced at once; 0: one per CPU core.
        on_progress: called with one line when a target starts.
        roots: by run, a folder that holds copies of the files that the target reads, at their absolute paths
            below it; the target is built from these.
        more: what else is asked of the worker.

    Yields:
        The position of a run, and a TraceResult per set of its inputs, as they come.

    Raises:
        UsageError: a spec of a run's inputs is malformed; nothing was started.
    """
    for own in {settings for _, settings in runs}:
        check_inputs(own)
    folder = _result_folder()
    refused, requests = _requests(runs, folder, roots, more)
    given = list(requests.values())
    # The worker starts importing torch now, while the caller does something else.
    runner = _runner(given, jobs)
    return _as_they_come([target for target, _ in runs], refused, requests, runner, folder, on_progress)


@contextlib.contextmanager
def shared_worker() -> Iterator[None]:
    """For the length of the block, a worker that is done serves whoever needs one next: importing torch takes
    longer than most traces. Blocks of several threads are one."""
    with _LOCK:
        _blocks.append(None)
    try:
        yield
    finally:
        with _LOCK:
            _blocks.pop()
            ended = [] if _blocks else [*_idle]
            del _idle[: len(ended)]
        for process, _ in ended:
            _end(process)


_LOCK = threading.Lock()
_blocks: list[None] = []
"""One for each block of `shared_worker` that is not over."""
_idle: list[tuple[subprocess.Popen[bytes], float | None]] = []
"""Workers that wait for their next requests, and how long each took to import torch."""


Side: TypeAlias = "tuple[str, str | None]"
"""A target, and the folder of the copies that it is built from; None: it is built from its own files."""
Traced: TypeAlias = tuple[str, str, tuple[int, ...]]
"""Name, dtype and sizes of a traced model's input."""


def compare_runs(
    pair: Sequence[Side],
    settings: Settings,
    plan: WeightPlan,
    inputs: Sequence[Traced],
    shapes: Sequence[Sequence[tuple[int, ...]]],
    *,
    given: str | None = None,
    fewer_layers: bool = False,
) -> PaddingProof:
    """Run a model and its padded copy, one after the other, in processes of their own.

    Args:
        pair: both targets, each with the folder of its copies as `trace_runs` takes it.
        settings: of both.
        plan: of the padding.
        inputs: of a trace of the original, used where nothing gives values.
        shapes: of the inputs, in the order in which they are tried; more than is needed is cut off.
        given: a file with weights of the original, for one more run.
        fewer_layers: both are built without memory, and run with the first layers of their stacks.
    """
    with tempfile.TemporaryDirectory(prefix="tclint-") as folder:
        names = {name: os.path.join(folder, name) for name in ("plan", "runs", "proof")}
        with open(names["plan"], "w", encoding="utf-8") as file:
            json.dump(plan.to_json(), file)
        request = {**names, "inputs": inputs, "shapes": shapes, "given": given, "fewer_layers": fewer_layers}
        for is_padded, (target, root) in zip((False, True), pair, strict=True):
            more = {"padding": {**request, "is_padded": is_padded}}
            [(_, found)] = trace_runs([(target, settings)], roots=[root], more=more)
            if found:
                return PaddingProof("unproved", reason=str(found[0].error).rstrip("."))
            if os.path.exists(names["proof"]):
                with open(names["proof"], encoding="utf-8") as file:
                    return PaddingProof.from_json(json.load(file))
    return PaddingProof("unproved", reason="the runs left no result")


def run_programs(
    target: str, programs: Sequence[ProgramStart], settings: Settings
) -> Generator[ProgramRun, None, None]:
    """Run programs of a project, one by one, up to where they make the target; yield what each showed.

    They run without a network, and cannot change files or start other programs.

    Args:
        settings: uses timeout_s and memory_limit_mib.
    """
    seconds = min(_PROGRAM_S, settings.timeout_s)
    own = replace(settings, network=False, timeout_s=4 * seconds)
    with shared_worker():
        for program in programs:
            answer = _answer(target, own, {"program": {**asdict(program), "seconds": seconds}})
            yield ProgramRun() if answer is None else from_json(answer)


def library_models(library: str) -> list[str]:
    """The names of all models of 'timm', or of all model types of 'hf', listed in a process of its own.

    Raises:
        UsageError: the library's package cannot be imported.
    """
    names: list[str] | None = _answer(f"{library}:*", Settings(), {"library": library})
    if names is None:
        raise UsageError(
            f"The models of {library!r} cannot be listed, because its package cannot be imported here; "
            "install it in the environment that runs tclint."
        )
    return names


def _answer(target: str, settings: Settings, asked: Mapping[str, Any]) -> Any:
    """What a process of its own writes as JSON; None where it writes none."""
    folder = _result_folder()
    path = os.path.join(folder, "tmp", "answer")
    _, requests = _requests([(target, settings)], folder, more={**asked, "answer": path})
    runner = _runner([*requests.values()], 1)
    try:
        for _ in runner.outcomes():
            pass
        with open(path, "rb") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None
    finally:
        runner.close()
        _remove(folder)


def _remove(folder: str) -> None:
    """Remove a folder of results, and the folders that models made elsewhere."""
    remove_made(os.path.join(folder, "made"))
    shutil.rmtree(folder, ignore_errors=True)


def _result_folder() -> str:
    folder = tempfile.mkdtemp(prefix="tclint-")
    os.mkdir(os.path.join(folder, "tmp"))
    return folder


def _requests(
    runs: Sequence[tuple[str, Settings]],
    folder: str,
    roots: Sequence[str | None] | None = None,
    more: Mapping[str, Any] | None = None,
) -> tuple[dict[int, list[TraceResult]], dict[int, dict[str, Any]]]:
    """By run: what is refused at once, and what is asked of the worker."""
    refused: dict[int, list[TraceResult]] = {}
    requests: dict[int, dict[str, Any]] = {}
    for index, (target, settings) in enumerate(runs):
        try:
            check_file(parse_target(target))
        except TargetError as error:
            refused[index] = [TraceResult(target, error=error)]
            continue
        requests[index] = {
            "id": index,
            "target": target,
            "root": roots[index] if roots is not None else None,
            "result": os.path.join(folder, f"{index}.json"),
            "scratch": os.path.join(folder, "tmp"),
            "made": os.path.join(folder, "made"),
            "options": picked(settings, *_OPTIONS),
            **picked(settings, "network", "timeout_s", "memory_limit_mib"),
            **(more or {}),
        }
    return refused, requests


def _runner(requests: list[dict[str, Any]], jobs: int) -> _Zygote | _FreshProcesses:
    if hasattr(os, "fork"):
        return _Zygote(requests, jobs)
    return _FreshProcesses(requests)


def _as_they_come(
    targets: Sequence[str],
    refused: Mapping[int, list[TraceResult]],
    requests: Mapping[int, dict[str, Any]],
    runner: _Zygote | _FreshProcesses,
    folder: str,
    on_progress: Callable[[str], None] | None,
) -> Generator[tuple[int, list[TraceResult]], None, None]:
    try:
        yield from _results_of(targets, refused, requests, runner, folder, on_progress)
    finally:
        runner.close()
        _remove(folder)


def _results_of(
    targets: Sequence[str],
    refused: Mapping[int, list[TraceResult]],
    requests: Mapping[int, dict[str, Any]],
    runner: _Zygote | _FreshProcesses,
    folder: str,
    on_progress: Callable[[str], None] | None = None,
) -> Generator[tuple[int, list[TraceResult]], None, None]:
    started = 0
    yield from refused.items()
    for outcome in runner.outcomes():
        if outcome.started is not None:
            started += 1
            if on_progress:
                on_progress(f"tracing {targets[outcome.started]}{progress(started, len(targets))}")
            continue
        found = _results(targets[outcome.id], outcome, folder, requests[outcome.id])
        if runner.torch_s is not None:
            torch_s = {"torch": runner.torch_s}
            found = [replace(result, seconds={**torch_s, **result.seconds}) for result in found]
        yield outcome.id, found


def progress(number: int, of: int) -> str:
    """' (2 of 60)'; '' where there is one."""
    return f" ({number} of {of})" if of > 1 else ""


def check_inputs(settings: Settings) -> None:
    """Refuse specs that are malformed, before anything starts.

    Raises:
        UsageError: one is.
    """
    parse_inputs(settings.inputs)
    parse_arguments(settings.arguments)
    for text in settings.input_sets:
        parse_input_set(text)
    if settings.inputs and settings.input_sets:
        raise UsageError("--input and --input-set exclude each other; give every set with --input-set.")
    if settings.phase != "none" and (settings.inputs or settings.input_sets):
        raise UsageError("--phase makes its own inputs; leave out --input and --input-set, or --phase.")


@dataclass(frozen=True)
class _Outcome:
    """How a child ended, or that it started."""

    id: int = -1
    started: int | None = None
    timed_out: bool = False
    signal: int | None = None
    exit_code: int | None = None
    output: str = ""
    problem: str | None = None
    """Why no child could be started."""


class _Zygote:
    """A worker that forks a child for every request."""

    def __init__(self, requests: list[dict[str, Any]], jobs: int) -> None:
        self.torch_s: float | None = None
        self._requests = requests
        self._process: subprocess.Popen[bytes] | None = None
        if not requests:
            return
        self._process, self.torch_s = _waiting_worker() or (_start_worker(), None)
        assert self._process.stdin is not None
        lines = [{"jobs": jobs or os.cpu_count() or 1}, *requests]
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
            self._process.stdin.flush()

    def outcomes(self) -> Iterator[_Outcome]:
        """One for every start and every end; one for every request even if the worker dies."""
        open_ids = [request["id"] for request in self._requests]
        problem = "the worker process ended unexpectedly."
        if self._process is not None and self._process.stdout is not None:
            for line in self._process.stdout:
                message = json.loads(line)
                if "ready" in message:
                    problem = message["problem"] or problem
                    self.torch_s = message["seconds"]
                elif "started" in message:
                    yield _Outcome(started=message["started"])
                else:
                    open_ids.remove(message["id"])
                    if not open_ids:
                        self._pass_on()
                    yield _Outcome(**message)
                if not open_ids:
                    return
        for index in open_ids:
            yield _Outcome(id=index, problem=problem)

    def _pass_on(self) -> None:
        """Leave the worker to others, if there may be any: it has nothing left to do."""
        with _LOCK:
            if _blocks and self._process is not None:
                _idle.append((self._process, self.torch_s))
                self._process = None

    def close(self) -> None:
        """End a worker that nobody else may use, and everything it started."""
        if self._process is not None:
            _end(self._process)
            self._process = None


def _waiting_worker() -> tuple[subprocess.Popen[bytes], float | None] | None:
    """One that is done with what it was asked for, and was not ended from outside."""
    with _LOCK:
        while _idle:
            process, torch_s = _idle.pop()
            if process.poll() is None:
                return process, torch_s
    return None


class _FreshProcesses:
    """One new process for every request, one after another, where there is no fork."""

    def __init__(self, requests: list[dict[str, Any]]) -> None:
        self.torch_s: float | None = None
        self._requests = requests
        self._process: subprocess.Popen[bytes] | None = None

    def outcomes(self) -> Iterator[_Outcome]:
        """One for every start and every end."""
        for request in self._requests:
            yield _Outcome(started=request["id"])
            self._process = process = _start_worker("--one", stderr=subprocess.STDOUT)
            timed_out = False
            try:
                output, _ = process.communicate(json.dumps(request).encode() + b"\n", request["timeout_s"])
            except subprocess.TimeoutExpired:
                timed_out = True
                process.kill()
                output, _ = process.communicate()
            code = process.returncode
            yield _Outcome(
                id=request["id"],
                timed_out=timed_out,
                signal=-code if code < 0 else None,
                exit_code=code if code >= 0 else None,
                output=output.decode("utf-8", "replace"),
            )

    def close(self) -> None:
        """End the process that still runs."""
        if self._process is not None:
            _end(self._process)


def _start_worker(*arguments: str, stderr: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    # Not `-m`: that would put the working directory, and any `random.py` in it, before the standard library.
    path = [entry for entry in sys.path if entry]
    # Not sys.exit: taking torch down takes a quarter of a second, and the caller waits for the end.
    code = (
        f"import os, sys; sys.path[:] = {path!r}; "
        "from tclint.tracing.worker.worker import main; os._exit(main(sys.argv[1:]))"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        start_new_session=True,
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """Close the worker's input, which makes it kill its children; kill it if it does not."""
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _results(target: str, outcome: _Outcome, folder: str, limits: dict[str, Any]) -> list[TraceResult]:
    message = _problem(target, outcome, limits)
    details = ""
    if message is None:
        started = time.perf_counter()
        file = os.path.join(folder, f"{outcome.id}.json")
        try:
            runs = read_runs(file, target, outcome.output)
            os.unlink(file)  # those of thousands of targets would fill the disk
        except FileNotFoundError:
            ended = _end_text(outcome.signal, outcome.exit_code, outcome.output, limits["timeout_s"])
            message, details = f"{target} {ended}", outcome.output
        except (OSError, ValueError) as problem:
            message = f"{target} spoilt the file with the result of its trace ({type(problem).__name__})."
        else:
            read_s = (time.perf_counter() - started) / max(1, len(runs))
            return [replace(run, seconds={**run.seconds, "read": read_s}) for run in runs]
    error = TargetError(message, details=details, captured_output=outcome.output)
    return [TraceResult(target, error=error, captured_output=outcome.output)]


def _problem(target: str, outcome: _Outcome, limits: dict[str, Any]) -> str | None:
    """Why there cannot be a result, if that is known."""
    if outcome.problem == "missing":
        return TORCH_MISSING
    if outcome.problem is not None:
        return f"{target} was not traced: {outcome.problem}"
    if outcome.timed_out:
        return (
            f"{target} took longer than {limits['timeout_s']:g} s to build and trace, and was stopped; "
            "--timeout gives it more time."
        )
    return None


def end_of_process(status: int | None, output: str, timeout_s: float) -> str:
    """What a target's process did that left no result behind, as the rest of a sentence.

    Args:
        status: the wait status; None where it is not known.
        output: what it wrote.
        timeout_s: what it was allowed to take.
    """
    if status is None:
        return "ended its process before it returned a model; remove what does so from what the target runs."
    if os.WIFSIGNALED(status):
        return _end_text(os.WTERMSIG(status), None, output, timeout_s)
    return _end_text(None, os.WEXITSTATUS(status), output, timeout_s)


def _end_text(number: int | None, exit_code: int | None, output: str, timeout_s: float) -> str:
    if number is None:
        if exit_code == EXIT_BROKEN:
            last = output.strip().rpartition("\n")[2]
            return f"left Python unable to report its result ({last or 'no output'})."
        return (
            f"ended its process with exit code {exit_code} (os._exit) before it returned a model; "
            "remove that call from what the target runs."
        )
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    if name == "SIGKILL":
        return (
            "was killed, by itself or by the system because memory ran out; build it smaller, or close other "
            "programs."
        )
    if name == "SIGXCPU":
        return f"used more than {timeout_s:g} s of CPU time, and was stopped; --timeout gives it more."
    if name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGUSR1", "SIGUSR2", "SIGPIPE"):
        return f"was ended by the signal {name}, which its own code sent; remove that from what it runs."
    crash = "a segmentation fault" if name == "SIGSEGV" else name
    return f"crashed with {crash} in native code while it was built or run; try it in plain Python first."

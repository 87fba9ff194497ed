"""A trace changes nothing in the process that asks for it, and hands back all that it should."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import tclint
from tclint.config.settings import Settings
from tclint.core.errors import TargetError
from tclint.tracing.worker import forked
from tclint.tracing.worker.forked import run_forked
from tclint.tracing.worker.signals import HeldSignals

ROOT = Path(__file__).parents[2]


@pytest.fixture
def way(request: pytest.FixtureRequest) -> str:
    if request.param == "here":
        request.getfixturevalue("in_this_process")
    return str(request.param)


BOTH_WAYS = pytest.mark.parametrize("way", ["forked", "here"], indirect=True)


class Calling(nn.Module):
    """Runs something in its forward."""

    def __init__(self, call: Callable[[], object]) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.call = call

    def forward(self, x: torch.Tensor) -> Any:
        self.call()
        return self.layer(x)


def trace(call: Callable[[], object]) -> Any:
    return tclint.trace(Calling(call), torch.ones(2, 8))


@pytest.mark.parametrize("options", [[], ["--without-forks"]], ids=["forked", "here"])
def test_threads_and_interrupts_leave_nothing_behind(options: list[str]) -> None:
    few = ["--threads", "4", "--traces", "1", "--interrupts", "10"]
    command = [sys.executable, str(ROOT / "benchmarks" / "left_behind.py"), *few, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 traces in 4 threads" in done.stdout
    assert "Nothing is left behind." in done.stdout


class Unhappy(ValueError):
    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


@BOTH_WAYS
def test_errors_keep_their_type(way: str) -> None:
    def fail() -> None:
        raise LookupError("not there")

    with pytest.raises(TargetError, match=r"The forward of Calling raised LookupError: not there") as caught:
        trace(fail)
    assert isinstance(caught.value.__cause__, LookupError)
    with pytest.raises(TargetError, match=r"fail raised LookupError: not there") as caught:
        tclint.trace(fail)
    assert isinstance(caught.value.__cause__, LookupError)
    for error in (KeyboardInterrupt("enough"), SystemExit(3), GeneratorExit()):

        def end(error: BaseException = error) -> None:
            raise error

        with pytest.raises(type(error)) as ended:
            tclint.trace(end)
        assert ended.value.args == error.args


@BOTH_WAYS
def test_errors_that_cannot_leave_their_process_are_told(way: str) -> None:
    class Own(Exception):
        pass

    class Wild(BaseException):
        pass

    def fail(error: BaseException) -> None:
        raise error

    for error in (Own("mine"), Unhappy("not pickled", 3)):
        with pytest.raises(TargetError, match=f"{type(error).__name__}: {error}"):
            trace(lambda error=error: fail(error))
    with pytest.raises((TargetError, Wild), match="mine"):
        tclint.trace(lambda: fail(Wild("mine")))


def test_the_traceback_of_a_child_is_shown() -> None:
    with pytest.raises(TargetError) as caught:
        trace(lambda: {}["missing"])
    told = caught.value.__cause__
    assert isinstance(told, KeyError)
    assert "test_callers_process.py" in str(told.__cause__)
    assert "in forward" in str(told.__cause__)


@BOTH_WAYS
def test_what_a_model_prints_is_printed(way: str, capsys: pytest.CaptureFixture[str]) -> None:
    def speak() -> None:
        print("shapes: 2x8")
        print("an error", file=sys.stderr)

    print("before")
    trace(speak)
    said = capsys.readouterr()
    assert said.out.splitlines()[0] == "before"
    assert said.out.splitlines().count("shapes: 2x8") >= 1
    assert "an error" in said.err


@BOTH_WAYS
def test_warnings_are_the_callers(way: str) -> None:
    def warn() -> None:
        warnings.warn("it is old", FutureWarning, stacklevel=1)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trace(warn)
    (told,) = {(str(one.message), one.category, one.filename) for one in caught if "old" in str(one.message)}
    assert told == ("it is old", FutureWarning, __file__)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        with pytest.raises(TargetError, match="FutureWarning: it is old"):
            trace(warn)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (os.abort, "Calling crashed with SIGABRT"),
        (lambda: os._exit(3), r"Calling ended its process with exit code 3 \(os._exit\)"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "Calling was killed"),
        (lambda: os.closerange(3, 100), r"Calling left Python unable to report its result \(OSError"),
    ],
    ids=["abort", "exit", "kill", "close"],
)
def test_a_model_ends_its_own_process_alone(
    call: Callable[[], object], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(TargetError, match=message):
        trace(call)


def test_what_takes_too_long_is_stopped_and_told_by_its_line(spawned: Any) -> None:
    lock = threading.Lock()
    held = threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            done.wait()

    done = threading.Event()
    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()

    def wait() -> None:
        lock.acquire()

    line = wait.__code__.co_firstlineno + 1
    report = tclint.check(Calling(wait), Settings(timeout_s=1.0, inputs=("2,8",)))
    done.set()
    holder.join()
    (error,) = report.errors
    assert error.message.startswith("Calling took longer than 1 s to build and trace, and was stopped at ")
    assert f"test_callers_process.py:{line}; tclint.check gives it" in error.message
    spawned.assert_gone()


class Held:
    """A lock that another thread held when the first children were forked."""

    def __init__(self, folder: Path, children: int) -> None:
        self._folder, self._children = folder, children
        self.avoided = 0

    def avoid(self) -> None:
        self.avoided += 1

    def take(self) -> None:
        if len(list(self._folder.iterdir())) < self._children:
            (self._folder / str(os.getpid())).touch()
            time.sleep(100)


@pytest.mark.parametrize("children", [0, 1, 9])
def test_a_child_with_a_locked_lock_is_replaced(
    children: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spawned: Any
) -> None:
    monkeypatch.setattr(forked, "_READY_S", (0.5, 0.5, 60.0) if children < 2 else (0.5, 0.5))
    locks = Held(tmp_path, children)
    assert run_forked(lambda: b"done", 60, locks).result == b"done"
    assert locks.avoided >= min(children + 1, 2)
    spawned.assert_gone()


def test_a_thread_that_draws_random_numbers_stops_no_trace() -> None:
    stop = threading.Event()

    def draw() -> None:
        numbers = torch.empty(1_000_000)
        while not stop.is_set():
            numbers.uniform_()

    thread = threading.Thread(target=draw)
    thread.start()
    try:
        assert [len(trace(lambda: None).ops) for _ in range(3)] == [1, 1, 1]
    finally:
        stop.set()
        thread.join()


def test_results_are_larger_than_pipes(tmp_path: Path) -> None:
    size = 10_000_000
    assert run_forked(lambda: b"x" * size, 60, Held(tmp_path, 0)).result == b"x" * size


def test_another_part_of_the_process_may_wait_for_all_children(monkeypatch: pytest.MonkeyPatch) -> None:
    wait = os.waitpid

    def waited_for(pid: int, options: int) -> tuple[int, int]:
        if wait(pid, options)[0]:
            raise ChildProcessError
        return 0, 0

    monkeypatch.setattr(forked.os, "waitpid", waited_for)
    assert len(trace(lambda: None).ops) == 1
    with pytest.raises(TargetError, match="Calling ended its process before it returned a model"):
        trace(lambda: os._exit(1))


def test_children_of_a_child_end_with_it(spawned: Any) -> None:
    trace(lambda: subprocess.Popen(["sleep", "100"]))
    spawned.assert_gone()


def test_a_child_needs_no_threads_of_its_parent() -> None:
    many = torch.ones(600, 600)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        product = float((many @ many).sum())  # in as many threads, which no child has

        def multiply() -> None:
            with torch.utils._python_dispatch._disable_current_modes():
                assert float((many @ many).sum()) == product

        assert len(trace(multiply).ops) == 1
    finally:
        torch.set_num_threads(before)


@BOTH_WAYS
def test_the_callers_autocast_is_the_traces(way: str) -> None:
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        graph = trace(lambda: None)
    assert [spec.dtype for spec in graph.outputs] == ["bfloat16"]
    assert [spec.dtype for spec in trace(lambda: None).outputs] == ["float32"]


def test_ctrl_c_ends_the_child(spawned: Any, tmp_path: Path) -> None:
    code = (
        "import sys, time, torch, tclint\n"
        "class Slow(torch.nn.Linear):\n"
        "    def forward(self, x):\n"
        "        open(sys.argv[1], 'w').close()\n"
        "        time.sleep(100)\n"
        "tclint.trace(Slow(8, 8), torch.ones(2, 8))\n"
    )
    begun = tmp_path / "begun"
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(begun)], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    while not begun.exists():
        assert process.poll() is None
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode in (1, -signal.SIGINT)
    assert "KeyboardInterrupt" in errors
    spawned.assert_gone()


def test_a_device_that_only_this_process_can_use_is_used_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    here, used = os.getpid(), threading.Event()

    def use() -> None:
        if os.getpid() != here:
            raise RuntimeError("Cannot re-initialize CUDA in forked subprocess. To use CUDA with ...")
        used.set()

    model = Calling(use)
    before = torch.get_rng_state()
    assert len(tclint.trace(model, torch.ones(2, 8)).ops) == 1
    assert used.is_set()
    assert torch.equal(torch.get_rng_state(), before)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(TargetError, match="forked subprocess"):
        trace(use)


def test_patches_hold_for_the_thread_that_traces(in_this_process: None) -> None:
    started, done = threading.Event(), threading.Event()
    told: queue.Queue[Any] = queue.Queue()  # which is not looked at for what the trace changed

    def use() -> None:
        started.wait()
        found: dict[str, Any] = {}
        weight = torch.full((64, 64), 7.0)
        nn.init.normal_(weight)
        found["mean"] = float(weight.mean())
        try:
            torch.load("/nonexistent.pt")
        except FileNotFoundError:
            found["load"] = "refused"
        with torch.autocast("cpu", torch.bfloat16):
            found["dtype"] = nn.Linear(2, 2)(torch.ones(1, 2)).dtype
        found["site"] = "_tclint_site" in vars(nn.Linear(2, 2))
        found["fast path"] = torch.backends.mha.get_fastpath_enabled()
        told.put(found)
        done.set()

    def let_it() -> None:
        started.set()
        assert done.wait(30)
        told.put(torch.backends.mha.get_fastpath_enabled())

    thread = threading.Thread(target=use)
    thread.start()
    trace(let_it)
    thread.join()
    found = told.get_nowait()
    assert abs(found.pop("mean")) < 1
    assert found == {"load": "refused", "dtype": torch.bfloat16, "site": False, "fast path": True}
    assert told.get_nowait() is False


def test_an_interrupt_here_waits_for_the_next_operator(in_this_process: None) -> None:
    reached: queue.Queue[str] = queue.Queue()

    def interrupt() -> None:
        signal.raise_signal(signal.SIGINT)
        reached.put("after the signal")
        torch.ones(2) + 1
        reached.put("after the operator")

    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        trace(interrupt)
    assert (reached.get_nowait(), reached.empty()) == ("after the signal", True)
    assert signal.getsignal(signal.SIGINT) is handler


class TestHeldSignals:
    """What handlers raise is raised when the block has ended."""

    @pytest.fixture(autouse=True)
    def handlers(self) -> Any:
        numbers = signal.SIGUSR1, signal.SIGUSR2
        before = [signal.getsignal(number) for number in numbers]
        yield
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)

    def test_the_first_error_comes_at_the_end(self) -> None:
        def fail(number: int, _frame: Any) -> None:
            raise LookupError(number)

        signal.signal(signal.SIGUSR1, fail)
        steps: list[BaseException | None] = []

        def block() -> None:
            with HeldSignals() as signals:
                signal.raise_signal(signal.SIGUSR1)
                steps.append(signals.raised)

        with pytest.raises(LookupError) as caught:
            block()
        assert steps == [caught.value]
        assert signal.getsignal(signal.SIGUSR1) is fail

    def test_handlers_run_at_once(self) -> None:
        calls: list[int] = []
        signal.signal(signal.SIGUSR1, lambda number, _frame: calls.append(number))
        with HeldSignals():
            signal.raise_signal(signal.SIGUSR1)
            assert calls == [signal.SIGUSR1]

    def test_a_handler_that_is_set_meanwhile_stays(self) -> None:
        def second(*_: Any) -> None:
            pass

        signal.signal(signal.SIGUSR1, lambda *_: signal.signal(signal.SIGUSR1, second))
        with HeldSignals():
            signal.raise_signal(signal.SIGUSR1)
        assert signal.getsignal(signal.SIGUSR1) is second

    def test_a_signal_while_they_are_put_back_splits_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: Any) -> None:
            raise LookupError

        def other(*_: Any) -> None:
            raise AssertionError("never called")

        signal.signal(signal.SIGUSR2, fail)
        signal.signal(signal.SIGUSR1, other)
        put = signal.signal

        def and_interrupt(number: int, handler: Any) -> Any:
            before = put(number, handler)
            if number == signal.SIGUSR2 and handler is fail:
                signal.raise_signal(signal.SIGUSR2)
            return before

        held = HeldSignals()
        held.__enter__()
        monkeypatch.setattr(signal, "signal", and_interrupt)
        with pytest.raises(LookupError):
            held.__exit__(None, None, None)
        monkeypatch.undo()
        assert signal.getsignal(signal.SIGUSR1) is other
        assert signal.getsignal(signal.SIGUSR2) is fail

    def test_other_threads_have_no_signals(self) -> None:
        done: list[bool] = []

        def block() -> None:
            with HeldSignals() as signals:
                done.append(signals.raised is None)

        thread = threading.Thread(target=block)
        thread.start()
        thread.join()
        assert done == [True]

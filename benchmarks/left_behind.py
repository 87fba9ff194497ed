"""What traces leave behind in the process that asks for them, from many threads and under interrupts.

    python benchmarks/left_behind.py [--threads 10] [--traces 3] [--interrupts 100] [--without-forks]

Threads trace models while the main thread is interrupted at random moments of its own traces, as a stop
button does it. Meanwhile one thread uses torch as any program does, and one draws random numbers. Before and
after, everything is compared that a trace could leave: every name of torch's modules and classes, what
functions do, random states, hooks, defaults, handlers of signals, modes, the models, child processes, threads
and open files. Prints what differs; exit 1 if something does.

--without-forks traces where there are none, in this process. There a thread's random numbers may come again,
as the state of the one generator is put back; they are counted and not held against it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import numpy as np
import torch
import torch.distributed
import torch.nn.utils.parametrize
import torch.utils.checkpoint
from torch import nn

import tclint

OWNERS: tuple[Any, ...] = (
    torch, torch.nn.init, torch.cuda, torch.distributed, torch.nn.functional, torch.nn.parameter, torch.jit,
    torch.hub, torch.amp.autocast_mode, torch.backends.mha, torch.utils.checkpoint, torch.nn.modules.module,
    nn.Module, torch.Tensor, nn.Parameter, torch.autocast, torch.autograd.Function, torch.optim.Optimizer,
)  # fmt: skip
"""Whose names are compared, one by one."""


class Net(nn.Module):
    """Draws, counts and keeps: a trace that stops half way would show."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(layers))
        self.norm = nn.BatchNorm1d(16)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> Any:
        self.calls += 1
        torch.manual_seed(self.calls)
        for layer in self.layers:
            x = nn.functional.dropout(torch.relu(layer(x)), random.random() / 2)
        return self.norm(x) * float(np.random.rand())


def everything(model: nn.Module) -> dict[str, Any]:
    """By what it is, everything that a trace could leave changed; compared with `is` and `==`."""
    found: dict[str, Any] = {}
    for owner in OWNERS:
        for name, value in list(vars(owner).items()):
            place = f"{owner.__name__}.{name}"
            found[place] = value
            if isinstance(value, FunctionType):
                found[f"{place}'s code"] = value.__code__
    found |= {
        "random state of torch": torch.get_rng_state().tolist(),
        "random state of Python": random.getstate(),
        "random state of NumPy": str(np.random.get_state()),
        "finders": list(sys.meta_path),
        "filters of warnings": list(warnings.filters),
        "hook of warnings": warnings.showwarning,
        "streams": (sys.stdin, sys.stdout, sys.stderr, sys.excepthook, threading.excepthook),
        "handlers of signals": {n: signal.getsignal(n) for n in signal.valid_signals()},
        "working directory": os.getcwd(),
        "environment": dict(os.environ),
        "default dtype": torch.get_default_dtype(),
        "default device": str(torch.get_default_device()),
        "threads of torch": torch.get_num_threads(),
        "modes": (
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            torch.is_autocast_enabled("cpu"),
        ),
        "stacks of modes": (torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()),
        "determinism": (torch.are_deterministic_algorithms_enabled(), torch.get_float32_matmul_precision()),
        "fast path of attention": torch.backends.mha.get_fastpath_enabled(),
        "model": {key: id(value) for key, value in model.state_dict(keep_vars=True).items()},
        "model's attributes": {key: repr(value) for key, value in vars(model).items()},
        "model's values": {key: value.tolist() for key, value in model.state_dict().items()},
        "children": children(),
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "open files": open_files(),
    }
    return found


def children() -> int:
    """-1: there is not one, not even an ended one that nobody has asked for."""
    try:
        return os.waitpid(-1, os.WNOHANG)[0]
    except ChildProcessError:
        return -1


def open_files() -> int | None:
    """How many; None where the system does not tell."""
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else None


def differences(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    """What is not as it was."""
    for place in before.keys() | after.keys():
        one, other = before.get(place, "missing"), after.get(place, "missing")
        if one is not other and not (type(one) in (dict, list, tuple, str, int, bool) and one == other):
            yield f"{place}: {str(one)[:90]} -> {str(other)[:90]}"


def use_torch(stop: threading.Event, harm: Counter[str]) -> None:
    """What an ordinary program finds in its process meanwhile."""
    while True:
        weight = torch.full((64, 64), 7.0)
        nn.init.normal_(weight)
        harm["an initialiser did nothing"] += float(weight.mean()) > 6
        with contextlib.suppress(FileNotFoundError):
            torch.load("/nonexistent.pt")
            harm["a missing file was read"] += 1
        with contextlib.suppress(RuntimeError):
            nn.Linear(2, 2).load_state_dict({"weight": torch.ones(3, 3), "bias": torch.ones(2)})
            harm["wrong weights were loaded"] += 1
        with contextlib.suppress(AssertionError, AttributeError, RuntimeError):
            torch.cuda.set_device(99)
            harm["a GPU that is not there was taken"] += 1
        with torch.autocast("cpu", torch.bfloat16):
            made = nn.Linear(2, 2)(torch.ones(1, 2)).dtype
        harm["autocast did not cast"] += made != torch.bfloat16
        if stop.wait(0.001):
            return


def draw(stop: threading.Event, drawn: list[float]) -> None:
    """Numbers of 53 bits: none comes twice."""
    while not stop.is_set():
        drawn.append(float(torch.rand((), dtype=torch.float64)))
        if len(drawn) % 100 == 0:
            time.sleep(0.001)


def trace_often(times: int, model: nn.Module, problems: list[BaseException]) -> None:
    """Models that are there, and models that are built."""
    for number in range(times):
        try:
            tclint.trace(model if number % 2 else lambda: Net(3), torch.ones(2, 16))
        except BaseException as error:
            problems.append(error)


def interrupted(times: int, model: nn.Module, chance: random.Random, full_s: float) -> Counter[str]:
    """How traces ended in whose middle a handler of a signal raised KeyboardInterrupt."""
    ends: Counter[str] = Counter()

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, stop)
    try:
        for number in range(times):
            given = model if number % 2 else lambda: Net(3)
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-5, full_s))
                    tclint.trace(given, torch.ones(2, 16))
                finally:  # within the other `try`, since the signal may come as late as here
                    signal.setitimer(signal.ITIMER_REAL, 0)
                ends["finished"] += 1
            except BaseException as error:
                ends[type(error).__name__] += 1
    finally:
        signal.signal(signal.SIGALRM, before)
    return ends


def run(threads: int, traces: int, interrupts: int, chance: random.Random) -> list[str]:
    """What is left behind and what went wrong."""
    model = Net(3)
    tclint.trace(model, torch.ones(2, 16))  # everything is imported now
    started = time.perf_counter()
    tclint.trace(model, torch.ones(2, 16))
    full_s = time.perf_counter() - started
    problems: list[BaseException] = []
    harm: Counter[str] = Counter()

    def together(*others: threading.Thread) -> Counter[str]:
        for thread in others:
            thread.start()
        ends = interrupted(interrupts // 2, model, chance, full_s)
        for thread in others:
            thread.join()
        return ends

    def tracers() -> list[threading.Thread]:
        return [threading.Thread(target=trace_often, args=(traces, model, problems)) for _ in range(threads)]

    # What torch sets when it is first used so is not a trace's.
    stop = threading.Event()
    stop.set()
    use_torch(stop, harm)
    before = everything(model)
    ends = together(*tracers())
    left = list(differences(before, everything(model)))
    # Again beside threads that change random states themselves.
    stop, drawn = threading.Event(), list[float]()
    beside = [
        threading.Thread(target=use_torch, args=(stop, harm)),
        threading.Thread(target=draw, args=(stop, drawn)),
    ]
    for thread in beside:
        thread.start()
    try:
        ends += together(*tracers())
    finally:
        stop.set()
    for thread in beside:
        thread.join()
    left += (one for one in differences(before, everything(model)) if not one.startswith("random state"))
    again = len(drawn) - len(set(drawn))
    print(
        f"{2 * threads * traces} traces in {threads} threads; {sum(ends.values())} to interrupt: {dict(ends)}"
    )
    print(f"{len(before)} things compared; {len(drawn)} numbers drawn meanwhile, {again} of them again")
    if again and forked_here():
        left.append(f"{again} random numbers of another thread came again")
    left += (f"{what}, {count} times" for what, count in harm.items() if count)
    return left + [f"a trace failed: {error!r}" for error in problems]


def forked_here() -> bool:
    """Whether traces run in children."""
    return hasattr(os, "fork")


def main() -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=10)
    parser.add_argument("--traces", type=int, default=3, help="of each thread, twice")
    parser.add_argument("--interrupts", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--without-forks", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.without_forks and forked_here():
        del os.fork
    left = run(arguments.threads, arguments.traces, arguments.interrupts, random.Random(arguments.seed))
    print("\n".join(["LEFT BEHIND", *left]) if left else "Nothing is left behind.")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())

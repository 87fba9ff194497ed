"""Builds and traces what a caller hands over as an object, unnoticed by the caller's process.

A forked child does it, which sees the object and hands back the graph. Where that cannot be, this process
does: one trace at a time, with patches that hold for its thread alone, all undone at the end.
"""

from __future__ import annotations

import contextlib
import gc
import re
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch import nn

from tclint.core.errors import TargetError
from tclint.tracing.patches.modules import named_modules, wrap_modules
from tclint.tracing.patches.patch import confine_no_more, confined
from tclint.tracing.record.placeholder_weights import take_values_from, values_elsewhere
from tclint.tracing.session.restore_state import left_as_it_was, random_states_as_they_were
from tclint.tracing.worker import light_imports
from tclint.tracing.worker.client import end_of_process
from tclint.tracing.worker.forked import CannotFork, Ended, run_forked
from tclint.tracing.worker.handed_back import packed, unpacked
from tclint.tracing.worker.signals import HeldSignals
from tclint.tracing.worker.targets import shown_path

Keep = Callable[..., contextlib.AbstractContextManager[None]]
"""Called with values: a context that leaves them, and all that they refer to, as they were."""

_T = TypeVar("_T")
_OF_A_DEVICE = re.compile(
    "in forked subprocess|fork-based multiprocessing|(CUDA|HIP) error|No (CUDA|HIP) GPUs are available"
)
"""What torch says where a child uses a GPU, or threads of autograd, that its parent has used."""
_lock = threading.RLock()


def apart(work: Callable[[Keep], _T], name: str, timeout_s: float, model: nn.Module | None = None) -> _T:
    """What `work` returns.

    Args:
        work: called with the means to leave values as they were. What it returns or raises is handed back.
        name: of what it builds and traces, for messages.
        timeout_s: how long a child may take.
        model: the module that it traces, if that is built already: children cannot read what lies on a GPU.

    Raises:
        TargetError: the child took too long, or ended early.
        BaseException: what `work` raised.
    """
    slots = () if model is None else (module._buffers for _, module in named_modules(model))
    values = values_elsewhere(tensor for buffers in slots for tensor in buffers.values())
    try:
        return _in_child(lambda: work(_as_it_is), values, name, timeout_s)
    except CannotFork:
        pass
    except Exception as error:
        if not (torch.cuda.is_available() and _is_of_a_device(error)):
            raise
    with _in_this_process():
        return work(left_as_it_was)


def _as_it_is(*_values: Any) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


def _is_of_a_device(error: BaseException) -> bool:
    return any(one and _OF_A_DEVICE.search(str(one)) for one in (error, error.__cause__, error.__context__))


def _in_child(work: Callable[[], _T], values: dict[int, torch.Tensor], name: str, timeout_s: float) -> _T:
    def trace() -> bytes:
        _become_tracer(values)
        return packed(work, name)

    ended = run_forked(trace, timeout_s, _Generators())
    for stream, text in ((sys.stdout, ended.stdout), (sys.stderr, ended.stderr)):
        if text and stream is not None:
            stream.write(text)
    if ended.result is None:
        raise TargetError(f"{name} {_end_of(ended, timeout_s)}", details=ended.stderr)
    result: _T = unpacked(ended.result)
    return result


def _end_of(ended: Ended, timeout_s: float) -> str:
    if not ended.timed_out:
        return end_of_process(ended.status, ended.stderr, timeout_s)
    where = f" at {shown_path(ended.place[0])}:{ended.place[1]}" if ended.place is not None else ""
    return (
        f"took longer than {timeout_s:g} s to build and trace, and was stopped{where}; tclint.check gives it "
        "more with Settings(timeout_s=...)."
    )


class _Generators:
    """Those of random numbers, which another thread may be drawing."""

    def avoid(self) -> None:
        # It keeps the GIL, without which a thread that has drawn cannot draw again.
        torch.default_generator.get_state()

    def take(self) -> None:
        torch.default_generator.get_state()
        if "numpy.random" in sys.modules:
            sys.modules["numpy.random"].get_state()


def _become_tracer(values: dict[int, torch.Tensor]) -> None:
    """Make a forked child a process that only builds and traces models."""
    gc.freeze()  # collecting what the parent has would copy it
    torch.set_num_threads(1)  # the threads of OpenMP are the parent's
    confine_no_more()
    torch.set_grad_enabled(True)
    # No child can use the GPU of its parent.
    torch.cuda.is_available = lambda: False
    torch.cuda.device_count = lambda: 0
    take_values_from(values)
    light_imports.install()
    wrap_modules()


@contextlib.contextmanager
def _in_this_process() -> Iterator[None]:
    """For the length of the block, what is patched is patched for this thread; it is undone at the end.

    A signal, such as Ctrl-C, takes effect at the next operator or constructor of a module that the trace
    reaches, or at the end of the block: never while something is patched or put back. Numbers that other
    threads draw meanwhile are drawn again, since the states of torch, Python and NumPy are put back.
    """
    with (
        _lock,
        HeldSignals() as signals,
        confined(signals.raise_in_block),
        random_states_as_they_were(),
        torch.enable_grad(),
    ):
        yield

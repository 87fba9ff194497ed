"""Keeps what handlers of signals raise, Ctrl-C first of all, from splitting what has to stay whole."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

_Handler = Callable[[int, FrameType | None], Any]


class Interruption(BaseException):
    """Ends a block that a signal wants to end; at its end comes what the signal's handler raised."""


class HeldSignals:
    """For the length of the block, what a handler raises is kept; it is raised when the block has ended.

    Handlers run when they always would. Python runs them in the main thread alone: in any other one there is
    nothing to hold.
    """

    def __init__(self) -> None:
        self.raised: BaseException | None = None
        """What a handler raised first."""
        self.is_active = False
        self._is_left = False
        self._held: list[tuple[int, _Held]] = []

    def __enter__(self) -> HeldSignals:
        self.is_active = True
        try:
            for number in signal.valid_signals():
                handler = signal.getsignal(number)
                if callable(handler):
                    held = _Held(self, handler)
                    self._held.append((number, held))
                    signal.signal(number, held)
        except ValueError:  # not the main thread
            self._held.clear()
        except BaseException:
            self._put_back()
            raise
        return self

    def raise_in_block(self) -> None:
        """Leave the block, once: what comes while it is being left must not disturb that."""
        if self.raised is not None and not self._is_left:
            self._is_left = True
            raise Interruption

    def __exit__(self, *_: object) -> None:
        self._put_back()
        if self.raised is not None:
            raise self.raised

    def _put_back(self) -> None:
        self.is_active = False
        while self._held:
            try:
                number, held = self._held[-1]
                current: object = signal.getsignal(number)
                if current is held:  # else another one was set meanwhile
                    signal.signal(number, held.handler)
                self._held.pop()
            except BaseException as error:  # of a handler that stands in its place again
                self.raised = self.raised or error


class _Held:
    """Stands for a handler while what it raises is held."""

    def __init__(self, holder: HeldSignals, handler: _Handler) -> None:
        self.handler = handler
        self._holder = holder

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if not self._holder.is_active:
            self.handler(number, frame)
            return
        try:
            self.handler(number, frame)
        except BaseException as error:
            self._holder.raised = self._holder.raised or error

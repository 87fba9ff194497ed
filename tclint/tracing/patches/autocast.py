"""torch.autocast regions inside the model, reproduced on meta tensors.

Inside a dispatch mode torch reports autocast as off, so entering and leaving a region is patched to keep
the state; the recorder converts inputs by it (record/autocast_casts.py).
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

import torch

from tclint.tracing.patches.patch import patch, patched


@patch(
    replaces="`amp_definitely_not_available` of `torch.amp.autocast_mode` and `torch.cuda.amp.common`",
    why="autocast and GradScaler switch themselves off where there is no GPU",
)
def autocast_without_gpu() -> Iterator[None]:
    replacements = []
    for name in ("torch.cuda.amp.common", "torch.amp.autocast_mode"):
        with contextlib.suppress(ImportError):  # not in every version
            module = importlib.import_module(name)
            replacements.append((module, "amp_definitely_not_available", lambda: False))
    with patched(replacements):
        yield


@patch(
    replaces="`torch.autocast.__init__`, `__enter__` and `__exit__`, `torch.amp.autocast_mode._cast`",
    why="inside a dispatch mode torch reports autocast as off, so the recorder has to be told of regions",
)
def watched_autocast(recorder: Any) -> Iterator[None]:
    """Keep `recorder.autocast_dtype` and `.autocast_disabled` in step with torch.autocast; undone on exit."""
    autocast: Any = torch.autocast
    init, enter, leave = autocast.__init__, autocast.__enter__, autocast.__exit__
    cast = getattr(torch.amp.autocast_mode, "_cast", None)
    regions: list[Any] = []

    def patched_init(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        # `x.device.type` of a traced tensor.
        init(self, "cuda" if device_type == "meta" else device_type, *args, **kwargs)

    def patched_enter(self: Any) -> Any:
        result = enter(self)
        regions.append(self)
        update()
        return result

    def patched_exit(self: Any, *exception: Any) -> Any:
        result = leave(self, *exception)
        if self in regions:
            regions.remove(self)
        update()
        return result

    def patched_cast(value: Any, _device_type: str, dtype: torch.dtype) -> Any:
        assert cast is not None
        return cast(value, "meta", dtype)

    def update() -> None:
        recorder.autocast_dtype = _current_dtype()
        on_gpu = [region for region in regions if region.device != "cpu"]
        recorder.autocast_disabled = bool(on_gpu) and not on_gpu[-1]._enabled

    with patched(
        [
            (autocast, "__init__", patched_init),
            (autocast, "__enter__", patched_enter),
            (autocast, "__exit__", patched_exit),
            (torch.amp.autocast_mode, "_cast", patched_cast),  # of custom_fwd(cast_inputs=)
        ]
    ):
        update()
        yield


def _current_dtype() -> torch.dtype | None:
    for device in ("cuda", "cpu"):
        if torch.is_autocast_enabled(device):
            return torch.get_autocast_dtype(device)
    return None


def casts_to_float32(function: Any) -> bool:
    """Whether `custom_fwd(cast_inputs=torch.float32)` decorates a custom autograd.Function's forward."""
    forward: Any = getattr(function, "forward", None)
    names = getattr(getattr(forward, "__code__", None), "co_freevars", ())
    if "cast_inputs" not in names:
        return False
    cell = forward.__closure__[names.index("cast_inputs")]
    return bool(cell.cell_contents is torch.float32)

"""Attention stays visible as linear layers and attention."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch

from tclint.tracing.patches.patch import nothing, patch, patched


@patch(
    replaces="`torch.backends.mha.set_fastpath_enabled`",
    why="nn.MultiheadAttention and nn.TransformerEncoderLayer would run in inference as one fused operator",
)
def without_attention_fast_path() -> Iterator[None]:
    mha: Any = getattr(torch.backends, "mha", None)
    if mha is None or not hasattr(mha, "set_fastpath_enabled"):
        yield
        return
    before = mha.get_fastpath_enabled()
    mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        mha.set_fastpath_enabled(before)


@patch(
    replaces="`torch.nn.attention.flex_attention._validate_device`",
    why="it refuses tensors on meta",
)
def flex_attention_on_meta() -> Iterator[None]:
    flex = sys.modules.get("torch.nn.attention.flex_attention")
    with patched([(flex, "_validate_device", nothing)]):
        yield

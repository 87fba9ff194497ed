"""All patches that hold while a model is built or run, so that it runs as plain torch and needs no GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tclint.tracing.patches.attention import flex_attention_on_meta, without_attention_fast_path
from tclint.tracing.patches.autocast import autocast_without_gpu
from tclint.tracing.patches.compilers import without_compilation, without_scripting
from tclint.tracing.patches.custom_functions import patched_apply, visible_checkpoints
from tclint.tracing.patches.derivatives import derivatives_need_autograd
from tclint.tracing.patches.gpu import without_cuda
from tclint.tracing.patches.late_imports import single_process
from tclint.tracing.patches.weights import lazy_parameters


@contextlib.contextmanager
def without_gpu() -> Iterator[None]:
    """Let code that asks for CUDA, compiles or scripts itself, or takes shortcuts run as plain torch."""
    with (
        without_compilation(),
        without_scripting(),
        autocast_without_gpu(),
        without_cuda(),
        lazy_parameters(),
        single_process(),
        visible_checkpoints(),
        patched_apply(),
        flex_attention_on_meta(),
        without_attention_fast_path(),
        derivatives_need_autograd(),
    ):
        yield

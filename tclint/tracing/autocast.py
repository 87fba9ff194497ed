"""torch.autocast regions inside the model, reproduced on meta tensors.

Inside a dispatch mode torch reports autocast as off, so entering and leaving a region is patched to keep
the state, and inputs are converted here by the lists of the C++ implementation
(aten/src/ATen/autocast_mode.h, "CUDA" section of the Autocast Op Reference).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from tclint.graph import Cast
from tclint.tracing.fx_graph import dtype_name
from tclint.tracing.meta_kernels import empty_meta
from tclint.tracing.origin import origin_of, set_origin

LOWER_PRECISION = frozenset(
    {
        "_convolution",
        "_scaled_dot_product_attention_math",
        "addbmm",
        "addmm",
        "addmv",
        "addr",
        "baddbmm",
        "bmm",
        "chain_matmul",
        "conv1d",
        "conv2d",
        "conv3d",
        "conv_tbc",
        "conv_transpose1d",
        "conv_transpose2d",
        "conv_transpose3d",
        "convolution",
        "einsum",
        "gru",
        "gru_cell",
        "linalg_multi_dot",
        "linalg_vecdot",
        "linear",
        "lstm",
        "lstm_cell",
        "matmul",
        "mm",
        "mv",
        "prelu",
        "rnn_relu",
        "rnn_relu_cell",
        "rnn_tanh",
        "rnn_tanh_cell",
        "scaled_dot_product_attention",
    }
)
FLOAT32 = frozenset(
    {
        "acos",
        "asin",
        "binary_cross_entropy_with_logits",
        "cdist",
        "cosh",
        "cosine_embedding_loss",
        "cosine_similarity",
        "cross_entropy_loss",
        "cumprod",
        "cumsum",
        "dist",
        "erfinv",
        "exp",
        "expm1",
        "frobenius_norm",
        "group_norm",
        "hinge_embedding_loss",
        "huber_loss",
        "kl_div",
        "l1_loss",
        "layer_norm",
        "linalg_matrix_norm",
        "linalg_vector_norm",
        "log",
        "log10",
        "log1p",
        "log2",
        "log_softmax",
        "logsumexp",
        "margin_ranking_loss",
        "mse_loss",
        "multi_margin_loss",
        "multilabel_margin_loss",
        "native_layer_norm",
        "nll_loss",
        "nll_loss2d",
        "norm",
        "nuclear_norm",
        "pdist",
        "poisson_nll_loss",
        "pow",
        "prod",
        "reciprocal",
        "renorm",
        "rsqrt",
        "sinh",
        "smooth_l1_loss",
        "soft_margin_loss",
        "softmax",
        "softplus",
        "sum",
        "tan",
        "triplet_margin_loss",
        "upsample_bicubic2d",
        "upsample_bilinear2d",
        "upsample_linear1d",
        "upsample_nearest1d",
        "upsample_nearest2d",
        "upsample_nearest3d",
        "upsample_trilinear3d",
    }
)
WIDEST = frozenset(
    {
        "addcdiv",
        "addcmul",
        "atan2",
        "bilinear",
        "cat",
        "cross",
        "dot",
        "grid_sampler",
        "index_put",
        "scatter_add",
        "stack",
        "tensordot",
        "vdot",
    }
)
_CASTABLE = (torch.float32, torch.float16, torch.bfloat16)


@contextlib.contextmanager
def watched_autocast(recorder: Any) -> Iterator[None]:
    """Keep `recorder.autocast_dtype` in step with torch.autocast regions; undone on exit."""
    autocast: Any = torch.autocast
    enter, leave = autocast.__enter__, autocast.__exit__

    def current() -> torch.dtype | None:
        for device in ("cuda", "cpu"):
            if torch.is_autocast_enabled(device):
                return torch.get_autocast_dtype(device)
        return None

    def patched_enter(self: Any) -> Any:
        result = enter(self)
        recorder.autocast_dtype = current()
        return result

    def patched_exit(self: Any, *exception: Any) -> Any:
        result = leave(self, *exception)
        recorder.autocast_dtype = current()
        return result

    autocast.__enter__, autocast.__exit__ = patched_enter, patched_exit
    recorder.autocast_dtype = current()
    try:
        yield
    finally:
        autocast.__enter__, autocast.__exit__ = enter, leave


def cast_arguments(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], low: torch.dtype
) -> tuple[tuple[Any, ...], dict[str, Any], tuple[Cast, ...]]:
    """The arguments as autocast would hand them to operator `name`, and the conversions made."""
    if name in LOWER_PRECISION:
        target = low
    elif name in FLOAT32:
        if kwargs.get("dtype") is not None or any(isinstance(value, torch.dtype) for value in args):
            return args, kwargs, ()
        target = torch.float32
    elif name in WIDEST and len(_dtypes(args)) > 1:
        target = torch.float32
    else:
        return args, kwargs, ()
    casts: list[Cast] = []

    def convert(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if value.dtype == target or value.dtype not in _CASTABLE:
                return value
            converted = empty_meta((tuple(value.shape), value.stride(), target))
            origin = origin_of(value)
            if origin is not None:
                set_origin(converted, origin)
            casts.append(
                Cast(
                    tuple(value.shape),
                    dtype_name(value.dtype),
                    dtype_name(target),
                    origin.parameter if origin else None,
                )
            )
            return converted
        if type(value) in (list, tuple):
            return type(value)(convert(item) for item in value)
        return value

    return (
        tuple(convert(value) for value in args),
        {key: convert(value) for key, value in kwargs.items()},
        tuple(casts),
    )


def _dtypes(args: tuple[Any, ...]) -> set[torch.dtype]:
    found = set()
    for value in args:
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(item, torch.Tensor) and item.dtype in _CASTABLE:
                found.add(item.dtype)
    return found

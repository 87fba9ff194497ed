"""torch's names of dtypes, as Graph has them."""

from __future__ import annotations

import torch


class _Names(dict[torch.dtype, str]):
    def __missing__(self, dtype: torch.dtype) -> str:
        name = self[dtype] = str(dtype).removeprefix("torch.")
        return name


DTYPE_NAMES: dict[torch.dtype, str] = _Names()


def dtype_name(dtype: torch.dtype) -> str:
    """'float16' for torch.float16."""
    return DTYPE_NAMES[dtype]

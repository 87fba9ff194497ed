"""Errors of torch that say nothing to who reads them, in plain words."""

from __future__ import annotations

import re

_WORDS = (
    (
        r"QuantizedMeta|QuantizedCPU|quantized::|quantized_decomposed",
        "quantized weights cannot be traced; name the model before it is quantized, and give "
        "--quantized int8 to check its dims for int8",
    ),
    (
        r"NestedTensorImpl|NestedIntNode|NestedTensor\b",
        "nested tensors cannot be traced; give the model a padded tensor",
    ),
)


def in_plain_words(message: str) -> str | None:
    """What the message means and what to do about it, where that is known."""
    return next((words for pattern, words in _WORDS if re.search(pattern, message)), None)

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
        r"Couldn't load custom C\+\+ ops|operator torchvision::\w+ does not exist",
        "the compiled operators of torchvision do not fit the torch installed here; install the torchvision "
        "that was built for it",
    ),
    (
        r"Sparse(Csr)?Meta'",
        "this use of a sparse tensor cannot be traced; give the model a dense one",
    ),
    (
        r"NestedTensorImpl",
        "nested tensors of the strided layout cannot be traced; make them with layout=torch.jagged, or give "
        "the model a padded tensor",
    ),
    (
        r"NestedIntNode|NestedTensor\b",
        "this use of nested tensors cannot be traced; give the model a padded tensor",
    ),
)


def in_plain_words(message: str) -> str | None:
    """What the message means and what to do about it, where that is known."""
    return next((words for pattern, words in _WORDS if re.search(pattern, message)), None)

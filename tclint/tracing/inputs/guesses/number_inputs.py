"""Inputs that are plain numbers or series of them, told by annotations and names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import torch
from torch import nn

from tclint.tracing.inputs.forward import parameters_of, required_arguments
from tclint.tracing.inputs.given import CallInputs, inferred, listed
from tclint.tracing.inputs.guesses.named_inputs import floating_dtype
from tclint.tracing.inputs.stated_sizes import sequence_length, stated_number

_META = torch.device("meta")
_WITH_TIMES = ["x_enc", "x_mark_enc", "x_dec", "x_mark_dec"]
"""Series and their times, of the encoder and of the decoder, as Informer and its successors take them."""
_HOURLY_FEATURES = 4
"""Hour, day of the week, of the month and of the year: `timeF` of hourly data (arXiv 2012.07436)."""


def time_series(required: Sequence[str], model: nn.Module, batch: int) -> Iterator[CallInputs]:
    """Series of the stated length and number of variables; nothing where either is not stated."""
    length, variables = stated_number(model, "seq_len"), stated_number(model, "enc_in", "n_vars", "c_in")
    if length is None or variables is None:
        return
    dtype = floating_dtype(model)

    def series(steps: int, width: int) -> torch.Tensor:
        return torch.empty((batch, steps, width), dtype=dtype, device=_META)

    if list(required) == _WITH_TIMES:
        ahead = stated_number(model, "pred_len", "out_len") or length
        steps = ahead + (stated_number(model, "label_len") or 0)
        width = stated_number(model, "dec_in") or variables
        made = [
            series(length, variables),
            series(length, _HOURLY_FEATURES),
            series(steps, width),
            series(steps, _HOURLY_FEATURES),
        ]
    elif len(required) == 1:
        made = [series(length, variables)]
    else:
        return
    named = dict(zip(required, made, strict=True))
    yield inferred(
        tuple(made), {}, f"inputs {listed(named)}, by the lengths and variables that the model states"
    )


_KINDS: dict[object, type[bool | int | float]] = {
    kind: named for named in (bool, int, float) for kind in (named, named.__name__)
}
_ROUNDS = 4
"""Rounds of a loop: more than one, so that what repeats is seen, and few, so that the trace stays short."""


def numbers_for(model: nn.Module) -> dict[str, bool | int | float]:
    """Values for those required arguments of the model's forward that are annotated as numbers, by name."""
    parameters = parameters_of(model)
    found: dict[str, bool | int | float] = {}
    for name in required_arguments(model):
        annotation = parameters[name].annotation if name in parameters else None
        kind = _KINDS.get(annotation) if isinstance(annotation, (type, str)) else None
        if kind is int:
            is_length = re.search(r"len|max|size", name.lower()) is not None
            found[name] = sequence_length(model) if is_length else _ROUNDS
        elif kind is not None:
            found[name] = kind()
    return found

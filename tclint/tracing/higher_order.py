"""Operators that take functions: torch.cond runs one of its branches, flex_attention is one attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from tclint.tracing.meta_kernels import to_meta
from tclint.tracing.operators import OperatorFacts

if TYPE_CHECKING:
    from tclint.tracing.recorder import Recorder

_META = torch.device("meta")


def run_higher_order(recorder: Recorder, function: Any, args: tuple[Any, ...]) -> Any:
    """The outputs of a higher-order operator, with what it does recorded.

    Raises:
        NotImplementedError: there is no rule for it.
    """
    name = getattr(function, "_name", getattr(function, "__name__", str(function)))
    if name == "cond":
        return _cond(recorder, *args)
    if name == "flex_attention":
        return _flex_attention(recorder, function, name, args)
    raise NotImplementedError(f"the higher-order operator {name} cannot be traced")


def _cond(recorder: Recorder, predicate: Any, if_true: Any, if_false: Any, operands: Any) -> Any:
    taken = if_true
    if isinstance(predicate, torch.Tensor) and predicate.is_meta:
        recorder.assumptions.add("torch.cond on traced data: its first branch assumed")
    elif not predicate:
        taken = if_false
    with recorder:
        return taken(*operands)


def _flex_attention(recorder: Recorder, function: Any, name: str, args: tuple[Any, ...]) -> Any:
    query, key, value = (tensor if tensor.is_meta else to_meta(tensor) for tensor in args[:3])
    output = torch.empty((*query.shape[:-1], value.shape[-1]), dtype=query.dtype, device=_META)
    logsumexp = torch.empty(query.shape[:-1], dtype=torch.float32, device=_META)
    facts = OperatorFacts(name, name, False, False, False, False, False)
    recorder.record(function, facts, (query, key, value), {}, (output, logsumexp), ())
    return output, logsumexp, torch.empty_like(logsumexp)

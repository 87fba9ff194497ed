"""Operators that take functions, as torch runs them eagerly: loops unrolled, branches taken, bodies run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch.utils._pytree import tree_map

from tclint.tracing.meta_ops.meta_kernels import to_meta
from tclint.tracing.values.assumptions import Assumptions
from tclint.tracing.values.operators import Args, Argument, Kwargs, OperatorFacts

_META = torch.device("meta")


class Recording(Protocol):
    """What is asked of the recorder; as a context, it records what runs inside."""

    assumptions: Assumptions

    def record(self, facts: OperatorFacts, args: Any, kwargs: Any, output: Any, casts: Any, /) -> None: ...

    def __enter__(self) -> Any: ...

    def __exit__(self, *exception: Any) -> Any: ...


def run_higher_order(recorder: Recording, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """The outputs of a higher-order operator, with what it does recorded.

    Raises:
        NotImplementedError: there is no rule for it.
    """
    name = name_of(function)
    rule = _RULES.get(name)
    if rule is None:
        raise NotImplementedError(f"the higher-order operator {name} cannot be traced")
    # Newer versions say which arguments are written to; that shows in what runs.
    kwargs = {key: value for key, value in kwargs.items() if key != "mutated_arg_indices"}
    return rule(recorder, *args, **kwargs)


def name_of(function: Any) -> str:
    """The operator's own name: 'while_loop'."""
    return getattr(function, "_name", None) or getattr(function, "__name__", None) or str(function)


def has_rule(function: Any) -> bool:
    """Whether `run_higher_order` can run it."""
    return name_of(function) in _RULES


def _cond(recorder: Recording, predicate: Any, if_true: Any, if_false: Any, operands: Any = ()) -> Any:
    taken = if_true
    if isinstance(predicate, torch.Tensor) and predicate.is_meta:
        recorder.assumptions.add("torch.cond on traced data: its first branch assumed")
    elif not predicate:
        taken = if_false
    with recorder:
        return taken(*operands)


def _while_loop(
    recorder: Recording,
    condition: Any,
    body: Any,
    carried: Sequence[Any],
    additional: Sequence[Any],
    **_: Any,
) -> Any:
    """Runs the loop; once, where the condition depends on traced data."""
    values = tuple(carried)
    with recorder:
        while True:
            goes_on = condition(*values, *additional)
            if isinstance(goes_on, torch.Tensor) and goes_on.is_meta:
                recorder.assumptions.add("while_loop on traced data: one iteration assumed")
                return tuple(body(*values, *additional))
            if not goes_on:
                return values
            values = tuple(body(*values, *additional))


def _scan(recorder: Recording, step: Any, first: Sequence[Any], xs: Sequence[Any], *others: Any) -> Any:
    """`others` ends with the additional inputs; older versions have dim and reverse before them."""
    additional = others[-1] if others else ()
    dim, backwards = others[:2] if len(others) == 3 else (0, False)
    carry = list(first)
    results: list[list[Any]] = []
    with recorder:
        order = range(xs[0].shape[dim])
        for position in reversed(order) if backwards else order:
            made = step(*carry, *(x.select(dim, position) for x in xs), *additional)
            carry, result = list(made[: len(carry)]), list(made[len(carry) :])
            results.append(result)
        if backwards:
            results.reverse()
        return [*carry, *_stacked(results)]


def _map(recorder: Recording, body: Any, xs: Sequence[Any], shared: Sequence[Any]) -> Any:
    with recorder:
        return _stacked([body(*parts, *shared) for parts in zip(*(x.unbind(0) for x in xs), strict=True)])


def _stacked(results: Sequence[Any]) -> Any:
    """Results of equal structure, stacked leaf by leaf; what is no tensor as the first has it."""
    return tree_map(
        lambda *leaves: torch.stack(list(leaves)) if isinstance(leaves[0], torch.Tensor) else leaves[0],
        *results,
    )


def _flex_attention(recorder: Recording, *args: Any, **_: Any) -> Any:
    query, key, value = (tensor if tensor.is_meta else to_meta(tensor) for tensor in args[:3])
    output = torch.empty((*query.shape[:-1], value.shape[-1]), dtype=query.dtype, device=_META)
    logsumexp = torch.empty(query.shape[:-1], dtype=torch.float32, device=_META)
    function = torch.ops.higher_order.flex_attention
    name = name_of(function)
    arguments = tuple(Argument(given, False) for given in ("query", "key", "value", "seen_share"))
    operator = f"higher_order::{name}"
    facts = OperatorFacts(name, name, False, False, False, False, False, arguments, {}, operator, function)
    share = _seen_share(args[4] if len(args) > 4 else (), query.shape[-2], key.shape[-2])
    if share is None:
        recorder.assumptions.add("a block mask that depends on data leaves nothing out")
    seen = {} if share is None else {"seen_share": share}
    recorder.record(facts, (query, key, value), seen, (output, logsumexp), ())
    # Who can ask for the scores' maximum as well is handed it always.
    if hasattr(torch.nn.attention.flex_attention, "AuxRequest"):
        return output, logsumexp, torch.empty_like(logsumexp)
    return output, logsumexp


_BLOCK = 128
"""Queries and keys of a block of scores, which is computed whole or not at all."""
_MOST_POSITIONS = 1024


def _seen_share(block_mask: Sequence[Any], queries: int, keys: int) -> float | None:
    """The share of the blocks in which a mask leaves any score, from scores at even distances of the first
    head; None where it depends on data."""
    allows = next((part for part in reversed(block_mask) if callable(part)), None)
    if allows is None or not queries or not keys:
        return 1.0
    steps = [max(_BLOCK // 8, -(-size // _MOST_POSITIONS)) for size in (queries, keys)]
    first = torch.zeros((), dtype=torch.int64)
    rows, columns = torch.arange(0, queries, steps[0])[:, None], torch.arange(0, keys, steps[1])[None]
    try:
        seen = allows(first, first, rows, columns).expand(len(rows), columns.shape[1])
    except Exception:  # whatever the user's function makes of many positions at once
        return None
    if seen.is_meta:
        return None
    window = [max(_BLOCK // step, 1) for step in steps]
    blocks = torch.nn.functional.max_pool2d(seen[None].float(), window, ceil_mode=True)
    return float(blocks.mean())


def _invoke_subgraph(recorder: Recording, body: Any, identifier: Any, *operands: Any) -> Any:
    del identifier
    with recorder:
        return body(*operands)


def _strict_mode(recorder: Recording, body: Any, operands: Any) -> Any:
    with recorder:
        return body(*operands)


def _hints_wrapper(recorder: Recording, body: Any, args: Any, kwargs: Any, hints: Any = None) -> Any:
    del hints
    with recorder:
        return body(*args, **kwargs)


_RULES: dict[str, Callable[..., Any]] = {
    "cond": _cond,
    "flex_attention": _flex_attention,
    "hints_wrapper": _hints_wrapper,
    "invoke_subgraph": _invoke_subgraph,
    "map": _map,
    "map_impl": _map,
    "scan": _scan,
    "strict_mode": _strict_mode,
    "while_loop": _while_loop,
}

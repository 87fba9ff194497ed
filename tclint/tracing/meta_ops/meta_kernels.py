"""Runs an operator on meta tensors: shape rules first, then remembered results, then torch's meta kernel."""

from __future__ import annotations

from typing import Any

import torch

from tclint.tracing.meta_ops.argument_checks import check_arguments
from tclint.tracing.meta_ops.shape_rules import RULES, Metadata
from tclint.tracing.values.aliasing import shares_memory
from tclint.tracing.values.formats import is_dense
from tclint.tracing.values.operators import Args, Kwargs, OperatorFacts
from tclint.tracing.values.origin import map_tensors

_META = torch.device("meta")
_CPU = torch.device("cpu")

# Without a meta kernel an operator may run for real on zeros of at most this many elements.
_MAX_ZERO_ELEMENTS = 1 << 24

_LIKE = frozenset({"empty_like", "full_like", "ones_like", "zeros_like"})


def empty_meta(metadata: Metadata) -> torch.Tensor:
    """A meta tensor of given (shape, strides, dtype)."""
    return torch.empty_strided(metadata[0], metadata[1], dtype=metadata[2], device=_META)


def to_meta(tensor: torch.Tensor) -> torch.Tensor:
    """A meta tensor with the same shape, strides and dtype."""
    if tensor.layout == torch.strided:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=_META)
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=_META)


def made_like(name: str, source: torch.Tensor | None, kwargs: Kwargs) -> torch.Tensor | None:
    """What `zeros_like` and its kind make on meta of a dense tensor: its strides; None for other calls."""
    if source is None or name not in _LIKE or source.layout is not torch.strided or not is_dense(source):
        return None
    if any(value is not None and key not in ("device", "dtype") for key, value in kwargs.items()):
        return None
    return empty_meta((tuple(source.shape), source.stride(), kwargs.get("dtype") or source.dtype))


class MetaKernels:
    """Output metadata of operators; equal calls of what is slow are computed once."""

    def __init__(self) -> None:
        self._memory: dict[Any, Any] = {}

    def recall(self, facts: OperatorFacts, args: Args, kwargs: Kwargs) -> tuple[Any, Any]:
        """What the call is remembered by, and its outputs if they are known without torch's kernel.

        Raises:
            RuntimeError, IndexError: torch's kernels refuse such arguments.
        """
        if facts.returns_view or facts.mutates:
            return None, None
        metadata = _known_metadata(facts, args, kwargs)
        if metadata is not None:
            check_arguments(facts.full_name, args, kwargs)
            return None, empty_meta(metadata)
        key = _key(facts.function, args, kwargs)
        try:
            remembered = self._memory.get(key)
        except TypeError:
            return None, None  # an argument that cannot be hashed
        return key, None if remembered is None else _replay(remembered)

    def run(self, key: Any, function: Any, args: Args, kwargs: Kwargs, tensors: list[torch.Tensor]) -> Any:
        """The operator's outputs as meta tensors, remembered by `key` where that is not None.

        Raises:
            Exception: whatever torch raises for arguments that do not fit.
        """
        output = function(*args, **kwargs)
        remembered = None if key is None else _as_remembered(output, tensors)
        if remembered is not None:
            self._memory[key] = remembered
        return output


def _known_metadata(facts: OperatorFacts, args: Args, kwargs: Kwargs) -> Metadata | None:
    """What a shape rule says of a call; None where there is none, or it is not certain."""
    # Operators of other libraries may have the names of PyTorch's.
    rule = RULES.get(facts.full_name) if facts.operator.startswith("aten::") else None
    if rule is None:
        return None
    try:
        return rule(*args, **kwargs)
    except (AttributeError, IndexError, NotImplementedError, RuntimeError, TypeError, ValueError):
        return None  # malformed call: torch's own kernel words the error


def _key(function: Any, args: Args, kwargs: Kwargs) -> Any:
    return (
        id(function),  # facts_of keeps every operator that it was asked about
        tuple([_freeze(value) for value in args]),
        tuple([(name, _freeze(value)) for name, value in kwargs.items()]) if kwargs else None,
    )


def _as_remembered(output: Any, tensors: list[torch.Tensor]) -> Any:
    """What `_replay` makes equal outputs of; None if it could not."""
    if isinstance(output, torch.Tensor):
        if _is_plain(output) and not shares_memory(output, tensors):
            return _metadata(output)
    elif isinstance(output, (tuple, list)) and all(
        item is None
        or (isinstance(item, torch.Tensor) and _is_plain(item) and not shares_memory(item, tensors))
        for item in output
    ):
        kind = list if isinstance(output, list) else tuple
        return [kind, *(None if item is None else _metadata(item) for item in output)]
    return None


def _replay(remembered: Any) -> Any:
    if isinstance(remembered, list):
        return remembered[0](None if item is None else empty_meta(item) for item in remembered[1:])
    return empty_meta(remembered)


def _metadata(tensor: torch.Tensor) -> Metadata:
    return tuple(tensor.shape), tensor.stride(), tensor.dtype


def run_on_zeros(
    function: Any, args: Args, kwargs: Kwargs, tensors: list[torch.Tensor], error: Exception
) -> Any:
    """Metadata of an operator that has no meta kernel, found by running it for real on zeros.

    Raises:
        Exception: `error`, where that is not about a missing kernel, or the tensors are large; what the real
            run raised.
    """
    message = str(error)
    no_meta_kernel = isinstance(error, NotImplementedError) or any(
        sign in message for sign in ("Meta", "meta", "Could not run")
    )
    if not no_meta_kernel or sum(tensor.numel() for tensor in tensors) > _MAX_ZERO_ELEMENTS:
        raise error
    zeros_kwargs = map_tensors(kwargs, _zeros)
    if zeros_kwargs.get("device") is not None:
        zeros_kwargs["device"] = _CPU
    try:
        output = function(*map_tensors(args, _zeros), **zeros_kwargs)
    except NotImplementedError:
        raise error from None
    except Exception as refusal:
        raise refusal from None
    return map_tensors(output, to_meta)


def _zeros(tensor: torch.Tensor) -> torch.Tensor:
    return torch.zeros(tensor.shape, dtype=tensor.dtype)


def _is_plain(tensor: torch.Tensor) -> bool:
    return bool(tensor.is_meta and tensor.layout == torch.strided)


def _freeze(value: Any) -> Any:
    """What stands for an argument in a key: equal for arguments of which the outputs' metadata are."""
    kind = type(value)
    if kind is int or kind is str or value is None:
        return value
    if isinstance(value, torch.Tensor):
        return _metadata(value)
    if isinstance(value, (list, tuple)):
        return tuple([_freeze(item) for item in value])
    return kind, value  # 1.0 and True are equal to 1, and differ in what they make

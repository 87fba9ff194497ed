"""What a model does on real tensors, written down by a dispatch mode that changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tclint.graph.ops import Graph, TensorSpec

Metadata = tuple[tuple[int, ...], str, tuple[int, ...]]

_MARK = "_truth_traced"

# Operators that a trace records together with the products they become.
DECOMPOSED = frozenset({"einsum", "tensordot", "chain_matmul", "linalg_multi_dot"})


# Beside the sums, kernels return notes for their own backward, which differ from device to device.
ONE_OUTPUT = frozenset({"embedding_bag"})


@dataclass(frozen=True)
class Call:
    """One operator call: its name and the (shape, dtype, strides) of its tensors."""

    name: str
    inputs: tuple[Metadata, ...]
    outputs: tuple[Metadata, ...]

    def difference(self, other: Call) -> str | None:
        """Why the two are not the same, or None."""
        if self == other:
            return None
        for side, mine, theirs in (
            ("input", self.inputs, other.inputs),
            ("output", self.outputs, other.outputs),
        ):
            if len(mine) != len(theirs):
                return f"number of {side}s of {self.name}"
            for position, what in enumerate(("shape", "dtype", "strides")):
                if any(a[position] != b[position] for a, b in zip(mine, theirs, strict=True)):
                    return f"{side} {what} of {self.name}"
        return None


def _meaningful(shape: Any, strides: Any) -> tuple[int, ...]:
    # The stride of a dim of size 1, or in an empty tensor, says nothing.
    if 0 in tuple(shape) or strides is None:
        return ()
    return tuple(stride for size, stride in zip(shape, strides, strict=True) if size != 1)


def _of_tensor(tensor: torch.Tensor) -> Metadata:
    strides = tensor.stride() if tensor.layout == torch.strided else None
    return tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), _meaningful(tensor.shape, strides)


def _of_spec(spec: TensorSpec) -> Metadata:
    return spec.shape, spec.dtype, _meaningful(spec.shape, spec.strides)


def traced_calls(graph: Graph) -> list[Call]:
    """The trace's operators that work on inputs or parameters."""
    from tclint.tracing.values.constants import FACTORIES

    buffers = {parameter.name for parameter in graph.parameters if parameter.is_buffer}
    follows: list[bool] = []
    calls = []
    for op in graph.ops:
        is_traced = op.name not in FACTORIES and any(
            follows[spec.producer]
            if spec.producer is not None and spec.producer < len(follows)
            else spec.input_name is not None or (spec.parameter is not None and spec.parameter not in buffers)
            for spec in op.inputs
        )
        follows.append(is_traced)
        # Writes through views are the trace's own notes; parts of an operator run inside of its kernel.
        is_part = op.parent is not None and graph.ops[op.parent].name not in DECOMPOSED
        if is_traced and not is_part and op.name != "as_strided_scatter":
            outputs = op.outputs[:1] if op.name in ONE_OUTPUT else op.outputs
            calls.append(Call(op.name, tuple(map(_of_spec, op.inputs)), tuple(map(_of_spec, outputs))))
    return calls


class PlainRecorder(TorchDispatchMode):
    """Writes down calls on marked tensors, and marks what they return."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []
        # Memory of constants that traced data was written into; kept alive, so that keys stay unique.
        self._written: dict[int, Any] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        from tclint.tracing.values.operators import facts_of

        kwargs = kwargs or {}
        facts = facts_of(func)
        given = flat([*args, *kwargs.values()])
        # `zeros_like(x)` reads nothing of x.
        if facts is None or facts.is_factory or not any(map(self._is_traced, given)):
            return func(*args, **kwargs)
        if facts.in_place and not self._is_traced(given[0]) and given[0].layout == torch.strided:
            storage = given[0].untyped_storage()
            self._written[storage._cdata] = storage
        before = tuple(_of_tensor(tensor) for tensor in given)
        position = len(self.calls)
        if facts.name in DECOMPOSED:
            with self:
                output = func.decompose(*args, **kwargs)
        else:
            output = _as_on_gpu(facts.name, args, kwargs, func(*args, **kwargs))
        made = flat([output])
        # A constant that `type_as(x)` hands back has not read x.
        handed_back = not facts.mutates and all(any(one is other for other in given) for one in made)
        if made and not handed_back:
            for tensor in made:
                tensor.__dict__[_MARK] = True
            compared = made[:1] if facts.name in ONE_OUTPUT else made
            self.calls.insert(
                position, Call(facts.name, before, tuple(_of_tensor(tensor) for tensor in compared))
            )
        return output

    def _is_traced(self, tensor: torch.Tensor) -> bool:
        if _MARK in tensor.__dict__:
            return True
        return (
            bool(self._written)
            and tensor.layout == torch.strided
            and tensor.untyped_storage()._cdata in self._written
        )


def _as_on_gpu(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
    """The same values, laid out as the CUDA kernels lay them out where the CPU's differ.

    For fused attention torch's own meta kernels say how (flash without, memory-efficient with a mask);
    group_norm makes its output contiguous on every device but the CPU (aten/src/ATen/native/group_norm.cpp).
    """
    if name == "scaled_dot_product_attention" and output.dim() == 4:
        query, key, value = (
            torch.empty_strided(tensor.shape, tensor.stride(), dtype=torch.float16, device="meta")
            for tensor in args[:3]
        )
        if any(tensor.stride(-1) != 1 for tensor in (query, key, value)):
            return output.contiguous()  # no fused kernel takes that (sdp_utils.cpp): it is two products
        mask = args[3] if len(args) > 3 else kwargs.get("attn_mask")
        if mask is None and value.shape[-1] == query.shape[-1]:
            made = torch.ops.aten._scaled_dot_product_flash_attention(query, key, value)[0]
        else:
            made = torch.ops.aten._scaled_dot_product_efficient_attention(query, key, value, None, False)[0]
        return torch.empty_strided(output.shape, made.stride(), dtype=output.dtype).copy_(output)
    if name == "group_norm":
        return output.contiguous()
    return output


def real_calls(build: Callable[[], tuple[Any, Any]]) -> list[Call]:
    """Build the model with real weights, run it on real inputs, and return what it called.

    Raises:
        Exception: what the model raised on noise, where it also refuses numbers between 0 and 1.
    """
    from truth_inputs import positive_input, real_input

    try:
        return _calls(build, real_input)
    except Exception as first:
        try:
            return _calls(build, positive_input)
        except Exception:
            raise first from None


def _calls(
    build: Callable[[], tuple[Any, Any]], convert: Callable[[torch.Tensor], torch.Tensor]
) -> list[Call]:
    from zoo_case import as_call

    torch.manual_seed(0)
    model, inputs = build()
    model = getattr(model, "_orig_mod", model)
    args, kwargs = as_call(inputs, convert)
    if any(torch.nn.parameter.is_lazy(parameter) for parameter in model.parameters()):
        with torch.no_grad():
            model(*args, **kwargs)
    for tensor in (*model.parameters(), *flat([*args, *kwargs.values()])):
        tensor.__dict__[_MARK] = True
    fast_path = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    recorder = PlainRecorder()
    try:
        with torch.inference_mode(), torch.enable_grad(), recorder:
            returned = model(*args, **kwargs)
            if isinstance(returned, Generator):
                list(returned)  # a forward that yields runs only now
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)
    return recorder.calls


def flat(values: Any) -> list[torch.Tensor]:
    """The tensors in nested lists, tuples and dicts, in order."""
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += flat(value)
        elif isinstance(value, dict):
            found += flat(value.values())
    return found

"""What a real backward pass runs and what autograd kept for it, on meta tensors or on the CPU.

The run imitates a GPU where torch chooses by device and says so in its sources: dropout is the fused
operator that keeps a mask of one byte per element (`dropout_impl` in aten/src/ATen/native/Dropout.cpp),
RMS norm and recurrent cells are fused, attention is fused where torch's own choice for the CPU is (dropout
and biases of three dims set aside, which only the CPU's lacks), and on meta tensors it is the
memory-efficient kernel, whose output lies as on a GPU.
"""

from __future__ import annotations

import contextlib
import dataclasses
import weakref
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

Key = tuple[Any, ...]
"""('gemm', batch, M, N, K), ('conv', role, sizes...) or ('attention', role, sizes...)."""


@dataclass
class Backward:
    """One recorded backward pass."""

    products: Counter[tuple[Key, Key]] = field(default_factory=Counter)
    """How often each product ran: its sizes, and which dims of its operands were contiguous."""
    nodes: dict[Key, str] = field(default_factory=dict)
    """The autograd node that ran a product of that size, for the list of differences."""
    saved_bytes: int = 0
    """Distinct storages that autograd kept, parameters, buffers and scalars excepted."""
    flops: int = 0


def run_backward(model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Backward:
    """Forward, then backward of the sum of all floating outputs."""
    found = Backward()
    kept = _Kept(model)
    keep = torch.autograd.graph.saved_tensors_hooks(kept.pack, kept.unpack)
    with torch.enable_grad(), _as_on_gpu(), keep:
        returned = model(*args, **kwargs)
        if isinstance(returned, Generator):
            returned = list(returned)  # a forward that yields runs only now
        made = {id(t): t for t in tensors_of(returned) if t.requires_grad and t.grad_fn is not None}
    found.saved_bytes = kept.bytes
    outputs = list(made.values())
    if outputs:
        # Ones of the outputs' own layout: the gradient of their sum, without its zero strides.
        ones = [torch.ones_like(tensor) for tensor in outputs]
        with _as_on_gpu(), _Products(found):
            torch.autograd.backward(outputs, ones)
    return found


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in what a model returned."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_of(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_of(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for item in dataclasses.fields(value):
            yield from tensors_of(getattr(value, item.name))


class _Saved:
    """What stands for a tensor that autograd keeps; lives as long as the graph does."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


class _Kept:
    """Counts the storages that autograd keeps and still holds when the forward is over."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._saved: list[weakref.ref[_Saved]] = []

    def pack(self, tensor: torch.Tensor) -> _Saved:
        saved = _Saved(tensor.detach())  # a result that keeps itself would live for ever
        self._saved.append(weakref.ref(saved))
        return saved

    @staticmethod
    def unpack(saved: _Saved) -> torch.Tensor:
        return saved.tensor

    @property
    def bytes(self) -> int:
        """After the forward, when lazy parameters have their shape."""
        own = {
            tensor.untyped_storage()._cdata
            for tensor in (*self._model.parameters(), *self._model.buffers())
            if tensor.layout == torch.strided
        }
        sizes = {}
        for reference in self._saved:
            saved = reference()
            if saved is not None and saved.tensor.dim() and saved.tensor.layout == torch.strided:
                storage = saved.tensor.untyped_storage()
                sizes[storage._cdata] = storage.nbytes()
        return sum(size for key, size in sizes.items() if key not in own)


@contextlib.contextmanager
def _as_on_gpu() -> Iterator[None]:
    """Fused dropout, attention and recurrent cells, as CUDA runs them."""
    functional = torch.nn.functional
    # The functions of torch.nn.functional call each other by name; others hold the C functions themselves.
    names = {"dropout": _dropout, "scaled_dot_product_attention": _attention, "rms_norm": _rms_norm}
    before = {name: getattr(functional, name) for name in names}
    for name, replacement in names.items():
        setattr(functional, name, replacement)
    try:
        with _fused_cells(), _CalledByReference():
            yield
    finally:
        for name, function in before.items():
            setattr(functional, name, function)


class _CalledByReference(TorchFunctionMode):
    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.dropout or func is _ORIGINAL_DROPOUT:
            return _dropout(*args, **(kwargs or {}))
        if func is _ORIGINAL_ATTENTION:
            return _attention(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") in _CELLS and not kwargs:
            return _cell(func.__name__, *args)
        return func(*args, **(kwargs or {}))


_ORIGINAL_DROPOUT = torch.nn.functional.dropout
_ORIGINAL_RMS_NORM = torch.nn.functional.rms_norm
_ORIGINAL_ATTENTION = torch.nn.functional.scaled_dot_product_attention


def _dropout(
    input: torch.Tensor,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    train: bool | None = None,
) -> torch.Tensor:
    active = training if train is None else train
    if not active or not p:
        return input
    dropped, _ = torch.ops.aten.native_dropout(input, float(p), True)
    return input.copy_(dropped) if inplace else dropped


def _rms_norm(
    input: torch.Tensor,
    normalized_shape: list[int],
    weight: torch.Tensor | None = None,
    eps: float | None = None,
) -> torch.Tensor:
    fused = getattr(torch.ops.aten, "_fused_rms_norm", None)
    if fused is None or not input.is_meta:
        return _ORIGINAL_RMS_NORM(input, normalized_shape, weight, eps)
    return fused(input, list(normalized_shape), weight, eps)[0]


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    trains = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
    bias_trains = attn_mask is not None and attn_mask.requires_grad
    if not (trains or bias_trains) or not _is_fused(query, key, value, attn_mask, is_causal, enable_gqa):
        return _ORIGINAL_ATTENTION(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill(~attn_mask, -torch.inf)
    if query.is_meta and query.shape[1] == key.shape[1]:
        shape = (*query.shape[:-1], key.shape[-2])
        mask = None if attn_mask is None else attn_mask.expand(shape)
        return torch.ops.aten._scaled_dot_product_efficient_attention(
            query, key, value, mask, True, 0.0, is_causal, scale=scale
        )[0]
    if bias_trains or (enable_gqa and not query.is_meta):
        return _ORIGINAL_ATTENTION(
            query, key, value, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, is_causal, attn_mask=attn_mask, scale=scale
    )[0]


_CELLS = {"lstm_cell": 4, "gru_cell": 3}


def _cell(
    name: str,
    x: torch.Tensor,
    state: Any,
    w_ih: torch.Tensor,
    w_hh: torch.Tensor,
    b_ih: torch.Tensor | None = None,
    b_hh: torch.Tensor | None = None,
) -> Any:
    """Two products, and all gates in one kernel with its own backward (aten/src/ATen/native/RNN.cpp)."""
    hidden = state[0] if name == "lstm_cell" else state
    products = torch.matmul(x, w_ih.t()), torch.matmul(hidden, w_hh.t())
    if name == "lstm_cell":
        return torch.ops.aten._thnn_fused_lstm_cell(*products, state[1], b_ih, b_hh)[:2]
    return torch.ops.aten._thnn_fused_gru_cell(*products, hidden, b_ih, b_hh)[0]


def _fused_lstm(
    input_gates: torch.Tensor,
    hidden_gates: torch.Tensor,
    cell: torch.Tensor,
    input_bias: torch.Tensor | None = None,
    hidden_bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The last is what the kernel in aten/src/ATen/native/cuda/RNN.cu keeps: the gates."""
    gates = input_gates + hidden_gates
    for bias in (input_bias, hidden_bias):
        gates = gates if bias is None else gates + bias
    enter, forget, new, leave = gates.chunk(4, 1)
    made = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
    return leave.sigmoid() * made.tanh(), made, gates


def _fused_gru(
    input_gates: torch.Tensor,
    hidden_gates: torch.Tensor,
    state: torch.Tensor,
    input_bias: torch.Tensor | None = None,
    hidden_bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The last is what the kernel keeps: five values a unit."""
    mine = input_gates if input_bias is None else input_gates + input_bias
    fed_back = hidden_gates if hidden_bias is None else hidden_gates + hidden_bias
    (reset, update, new), (reset_2, update_2, new_2) = mine.chunk(3, 1), fed_back.chunk(3, 1)
    kept = (update + update_2).sigmoid()
    fresh = (new + (reset + reset_2).sigmoid() * new_2).tanh()
    return fresh + kept * (state - fresh), state.new_zeros((state.shape[0], 5 * state.shape[1]))


# The gradients' values change no size: zeros.
def _fused_lstm_backward(
    grad_state: torch.Tensor | None,
    grad_cell: torch.Tensor | None,
    cell: torch.Tensor,
    new_cell: torch.Tensor,
    gates: torch.Tensor,
    has_bias: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    bias = gates.new_zeros((gates.shape[1],)) if has_bias else None
    return torch.zeros_like(gates), torch.zeros_like(cell), bias


def _fused_gru_backward(
    gradient: torch.Tensor, workspace: torch.Tensor, has_bias: bool
) -> tuple[torch.Tensor | None, ...]:
    gates = gradient.new_zeros((gradient.shape[0], 3 * gradient.shape[1]))
    bias = gates.new_zeros((gates.shape[1],)) if has_bias else None
    return gates, torch.zeros_like(gates), torch.zeros_like(gradient), bias, bias


@contextlib.contextmanager
def _fused_cells() -> Iterator[None]:
    """Kernels that torch has for CUDA alone, and for one of them on meta."""
    with torch.library._scoped_library("aten", "IMPL") as kernels:
        for device in ("CPU", "Meta"):
            kernels.impl("_thnn_fused_gru_cell", _fused_gru, device)
            kernels.impl("_thnn_fused_gru_cell_backward", _fused_gru_backward, device)
        kernels.impl("_thnn_fused_lstm_cell", _fused_lstm, "CPU")
        kernels.impl("_thnn_fused_lstm_cell_backward_impl", _fused_lstm_backward, "CPU")
        yield


def _is_fused(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    is_causal: bool,
    enable_gqa: bool,
) -> bool:
    """torch's choice for such tensors on the CPU; their memory is reserved and never touched.

    A bias of three dims, which the CPU's kernel alone refuses, counts as one of four.
    """
    if mask is not None and mask.dim() == 3:
        mask = mask.unsqueeze(0)
    like = [
        torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
        for tensor in (query, key, value)
    ]
    on_cpu = (
        None
        if mask is None
        else torch.empty_strided(mask.shape, mask.stride(), dtype=mask.dtype, device="cpu")
    )
    grouped = {"enable_gqa": True} if enable_gqa else {}  # which torch 2.4 does not know
    return bool(torch._fused_sdp_choice(*like, on_cpu, 0.0, is_causal, **grouped))


class _Products(TorchDispatchMode):
    """Writes down the products of a backward pass."""

    def __init__(self, found: Backward) -> None:
        super().__init__()
        self._found = found

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        reader = _READERS.get(func._schema.name.removeprefix("aten::"))
        output = func(*args, **(kwargs or {}))
        if reader is not None:
            for sizes, layout, flops in reader(*args, **(kwargs or {})):
                if flops:
                    self._note(sizes, layout, flops)
        return output

    def _note(self, sizes: Key, layout: Key, flops: int) -> None:
        self._found.products[sizes, layout] += 1
        self._found.flops += flops
        node = torch._C._current_autograd_node()
        self._found.nodes.setdefault(sizes, "" if node is None else node.name())


Product = tuple[Key, Key, int]

# The readers below take the arguments of ATen operators as these are called.
# ruff: noqa: ARG001


def contiguous_dim(rows: int, columns: int, row_stride: int, column_stride: int, names: str) -> str:
    """Which of a matrix's dims is contiguous, by the two `names`; '*' where sizes of 1 leave it open."""
    if rows == 1 or columns == 1:
        return "*"
    return names[1] if column_stride == 1 else names[0] if row_stride == 1 else "?"


def _matrices(a: torch.Tensor, b: torch.Tensor, **_: Any) -> Iterator[Product]:
    if a.layout != torch.strided or b.layout != torch.strided:
        return
    batch = a.shape[0] if a.dim() == 3 else 1
    (m, k), n = a.shape[-2:], b.shape[-1]
    layout = (
        contiguous_dim(m, k, *a.stride()[-2:], "mk"),
        contiguous_dim(k, n, *b.stride()[-2:], "kn"),
    )
    yield ("gemm", batch, m, n, k), layout, 2 * batch * m * n * k


def _sum_and_matrices(_: torch.Tensor, a: torch.Tensor, b: torch.Tensor, **__: Any) -> Iterator[Product]:
    yield from _matrices(a, b)


def _matrix_and_vector(a: torch.Tensor, x: torch.Tensor) -> Iterator[Product]:
    (m, k) = a.shape
    yield ("gemm", 1, m, 1, k), (contiguous_dim(m, k, *a.stride(), "mk"), "*"), 2 * m * k


def _sum_matrix_and_vector(_: torch.Tensor, a: torch.Tensor, x: torch.Tensor, **__: Any) -> Iterator[Product]:
    yield from _matrix_and_vector(a, x)


def _convolutions(
    gradient: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias_sizes: Any,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    output_mask: list[bool],
) -> Iterator[Product]:
    for role, wanted in (("dgrad", output_mask[0]), ("wgrad", output_mask[1])):
        if wanted:
            yield _one_convolution(role, x, weight, gradient, stride, padding, dilation, transposed, groups)


def _convolution_again(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: Any,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
) -> Iterator[Product]:
    output = torch.ops.aten.convolution(
        x.detach().to("meta"),
        weight.detach().to("meta"),
        None,
        stride,
        padding,
        dilation,
        transposed,
        output_padding,
        groups,
    )
    yield _one_convolution("forward", x, weight, output, stride, padding, dilation, transposed, groups)


def _one_convolution(
    role: str,
    x: torch.Tensor,
    weight: torch.Tensor,
    output: torch.Tensor,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    groups: int,
) -> Product:
    sizes = [tuple(x.shape[2:]), tuple(output.shape[2:])]
    if transposed:
        sizes.reverse()
    dims = weight.dim() - 2
    window = tuple(tuple(list(v) * dims if len(v) == 1 else v) for v in (stride, padding, dilation))
    key = (
        "conv",
        role,
        x.shape[0],
        weight.shape[1] * groups,
        weight.shape[0],
        *sizes,
        tuple(weight.shape[2:]),
        *window,
        groups,
    )
    positions = x.shape[0] * torch.Size(sizes[1]).numel()
    return key, (), 2 * positions * weight.numel()


def _attention_reader(role: str, first: int) -> Callable[..., Iterator[Product]]:
    def read(*args: Any, **_: Any) -> Iterator[Product]:
        query, key, value = args[first : first + 3]
        (batch, heads, length, dim), kv_heads = query.shape, key.shape[1]
        key_length, value_dim = key.shape[-2], value.shape[-1]
        qk, pv = (2 * batch * heads * length * key_length * size for size in (dim, value_dim))
        sizes = ("attention", role, batch, heads, kv_heads, length, key_length, dim, value_dim)
        yield sizes, (), 3 * qk + 2 * pv if role == "backward" else qk + pv

    return read


_FUSED = ("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_efficient_attention")
_READERS: dict[str, Callable[..., Iterator[Product]]] = {
    "mm": _matrices,
    "bmm": _matrices,
    "addmm": _sum_and_matrices,
    "baddbmm": _sum_and_matrices,
    "mv": _matrix_and_vector,
    "addmv": _sum_matrix_and_vector,
    "convolution": _convolution_again,
    "convolution_backward": _convolutions,
    **{name: _attention_reader("forward", 0) for name in _FUSED},
    **{f"{name}_backward": _attention_reader("backward", 1) for name in _FUSED},
}

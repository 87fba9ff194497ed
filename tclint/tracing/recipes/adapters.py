"""LoRA and its frozen base: modules that compute what peft's and bitsandbytes' do, for any model.

Small modules of our own stand for those libraries, which need a GPU or weights, or are not installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase

import torch
from torch import nn

_BLOCK = 64
"""Weights that share a scale (bitsandbytes' default blocksize)."""
_BLOCK_OF_SCALES = 256
"""Scales that share one of their own, where these are in 8 bits, too (arXiv 2305.14314, section 3)."""


class LoraLinear(nn.Module):
    """A frozen layer and a product of two small ones beside it, as peft/tuners/lora/layer.py computes it.

    Args:
        base: the layer, of any class that takes (..., inputs) and returns (..., outputs).
    """

    def __init__(
        self, base: nn.Module, inputs: int, outputs: int, rank: int, dropout: float, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.base_layer = base
        self.lora_dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        self.lora_A = nn.Linear(inputs, rank, bias=False, dtype=dtype)
        self.lora_B = nn.Linear(rank, outputs, bias=False, dtype=dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., inputs) -> (..., outputs)."""
        result: torch.Tensor = self.base_layer(x)
        low = self.lora_A(self.lora_dropout(x.to(self.lora_A.weight.dtype)))
        # The scale is a number; any but 1 costs the same.
        return result + (self.lora_B(low) * 2.0).to(result.dtype)


class QuantizedLinear(nn.Module):
    """A frozen linear layer whose weight is stored in 4 or 8 bits, and expanded to `dtype` for each product.

    The weight is packed as bitsandbytes packs it: two 4-bit values to a byte, a scale for each block. The
    kernel that expands it reads the bytes and writes the weight; what it looks up is not modelled.
    """

    def __init__(self, base: nn.Linear, bits: int, dtype: torch.dtype, *, double_quantized: bool) -> None:
        super().__init__()
        self.in_features, self.out_features = base.in_features, base.out_features
        self.dtype = dtype
        per_byte = 8 // bits
        packed = torch.empty(base.out_features, base.in_features // per_byte, dtype=torch.uint8)
        self.weight = nn.Parameter(packed, requires_grad=False)
        self.weight.values_per_element = per_byte
        blocks = base.weight.numel() // (_BLOCK if bits == 4 else base.in_features)
        scale_dtype = torch.uint8 if double_quantized and bits == 4 else torch.float32
        self.register_buffer("absmax", torch.empty(blocks, dtype=scale_dtype))
        if scale_dtype == torch.uint8:
            self.register_buffer("absmax_of_absmax", torch.empty(-(-blocks // _BLOCK_OF_SCALES)))
        self.register_buffer("code", torch.empty(per_byte, dtype=dtype))
        self.bias = base.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., in_features) -> (..., out_features), in the dtype of x (bitsandbytes/nn/modules.py)."""
        expanded = torch.mul(self.weight.unsqueeze(-1), self.code).view(self.out_features, self.in_features)
        bias = None if self.bias is None else self.bias.to(self.dtype)
        return nn.functional.linear(x.to(self.dtype), expanded, bias).to(x.dtype)


def quantize(model: nn.Module, bits: int, dtype: torch.dtype, *, double_quantized: bool) -> int:
    """Store the linear layers but the head in few bits, as `load_in_4bit` does.

    Returns:
        how many weights that concerns.
    """
    count = 0
    for owner, name, layer in _layers(model, "all"):
        if isinstance(layer, nn.Linear):
            count += layer.weight.numel()
            setattr(owner, name, QuantizedLinear(layer, bits, dtype, double_quantized=double_quantized))
    return count


def adapt(
    model: nn.Module, rank: int, targets: str | list[str], dropout: float, dtype: torch.dtype
) -> list[str]:
    """Freeze a model and put adapters of a rank on the layers that targets name.

    Args:
        targets: 'all' linear layers but the head; or names, which are the last of a layer's path or patterns.
        dtype: of the adapters.

    Returns:
        the last names of the layers that got one, sorted; empty where none fits.
    """
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    adapted = set()
    for owner, name, layer in list(_layers(model, targets)):
        inputs, outputs = _sizes(layer)
        setattr(owner, name, LoraLinear(layer, inputs, outputs, rank, dropout, dtype))
        adapted.add(name)
    return sorted(adapted)


def train_whole(model: nn.Module, names: list[str]) -> list[str]:
    """Train layers whole beside adapters, as peft does: a copy is trained, and the original stays.

    Args:
        names: the last of the layers' paths, or patterns.

    Returns:
        those last names that are there, sorted.
    """
    fits, found = _matcher(names), set()
    for path, module in list(model.named_modules()):
        if path and fits(path):
            found.add(path.rpartition(".")[2])
            for name, parameter in list(module.named_parameters(recurse=False)):
                parameter.requires_grad_(True)
                original = nn.Parameter(torch.empty_like(parameter), requires_grad=False)
                module.register_parameter(f"original_{name}", original)
    return sorted(found)


def _layers(model: nn.Module, targets: str | list[str]) -> Iterator[tuple[nn.Module, str, nn.Module]]:
    """The owner, name and module of each layer that targets name."""
    head = getattr(model, "get_output_embeddings", lambda: None)()
    fits = _matcher(targets)
    for path, module in list(model.named_modules()):
        if module is head or not _is_linear(module) or not fits(path):
            continue
        owner_path, _, name = path.rpartition(".")
        yield model.get_submodule(owner_path), name, module


def _matcher(targets: str | list[str]) -> Callable[[str], bool]:
    names = [targets] if isinstance(targets, str) else targets
    names = [part.strip() for name in names for part in str(name).split(",")]
    if any(name in ("all", "all-linear") for name in names):
        return lambda _: True
    return lambda path: any(
        fnmatchcase(f".{path}", pattern) for name in names for pattern in (f".{name}", f"*.{name}")
    )


def _is_linear(module: nn.Module) -> bool:
    # GPT-2's layers are transformers' Conv1D, which is linear with the weight the other way round.
    return isinstance(module, nn.Linear | QuantizedLinear) or type(module).__name__ == "Conv1D"


def _sizes(layer: nn.Module) -> tuple[int, int]:
    """Inputs and outputs of a linear layer."""
    if isinstance(layer, nn.Linear | QuantizedLinear):
        return layer.in_features, layer.out_features
    inputs, outputs = layer.weight.shape
    return int(inputs), int(outputs)

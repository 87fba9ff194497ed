"""A loss that never holds the logits of all tokens, as Liger's and Cut Cross-Entropy's kernels compute it."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

_LEAST = 1024


def fuse_loss(model: Any) -> None:
    """Make the forward of a causal language model of transformers end in the loss, chunk by chunk of tokens.

    A chunk's logits are computed again for its gradients, which Liger computes in its forward at once: the
    product with the vocabulary is priced once more than its kernels run it.
    """
    decoder, head = model.base_model, model.get_output_embeddings()

    def forward(input_ids: Tensor, labels: Tensor) -> Tensor:
        """input_ids and labels (batch, tokens), int64 -> a number."""
        hidden = decoder(input_ids=input_ids)[0].flatten(0, 1)
        size = _chunk_size(len(hidden), head.weight.shape[0], head.weight.shape[1])
        parts = zip(hidden.split(size), labels.flatten().split(size), strict=True)
        losses = [checkpoint(_loss, head, part, wanted, use_reentrant=False) for part, wanted in parts]
        return sum(losses[1:], losses[0])

    model.forward = forward


def _loss(head: nn.Module, hidden: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(head(hidden).float(), labels, reduction="sum")


def _chunk_size(tokens: int, words: int, width: int) -> int:
    """Tokens whose logits take as much as the hidden states of all, rounded up to a power of two
    (liger_kernel/ops/fused_linear_cross_entropy.py), or _LEAST: autograd adds up the gradients of the head's
    weight chunk by chunk, which the kernels do in place."""
    chunks = -(-words // width)
    return max(_LEAST, 1 << max(-(-tokens // chunks) - 1, 0).bit_length())

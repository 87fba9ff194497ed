"""Smaller configurations of the same architectures, so that their weights fit into memory."""

from __future__ import annotations

from typing import Any

from zoo_hf_configs import parts_of

_DEPTHS = (
    "num_hidden_layers",
    "num_layers",
    "n_layer",
    "n_layers",
    "encoder_layers",
    "decoder_layers",
    "num_encoder_layers",
    "num_decoder_layers",
)


def shrink(config: Any, depth: int, level: int = 0) -> None:
    """At most `depth` layers everywhere, in parts too; lists that run along the layers are cut to fit.

    Where layers are of several kinds, one of each is kept.
    """
    import transformers

    for name in _DEPTHS:
        before = getattr(config, name, None)
        if isinstance(before, int) and before > depth:
            try:
                setattr(config, name, depth)
            except (AttributeError, NotImplementedError):
                continue
            along = {
                other: value
                for other, value in vars(config).items()
                if isinstance(value, list) and len(value) == before and "layer" in other
            }
            kept = _one_of_each(list(zip(*along.values(), strict=True)), depth)
            for other, value in along.items():
                setattr(config, other, [value[position] for position in kept])
            _shrink_periods(config, depth)
    if level < 2:
        for value in list(vars(config).values()):
            if isinstance(value, transformers.PreTrainedConfig):
                shrink(value, depth, level + 1)


def _one_of_each(kinds: list[Any], depth: int) -> list[int]:
    """Positions of the first layers of their kinds, then of the first others, in their order."""
    firsts = [position for position, kind in enumerate(kinds) if kinds.index(kind) == position]
    others = [position for position in range(len(kinds)) if position not in firsts]
    return sorted([*firsts, *others][:depth])


def _shrink_periods(config: Any, depth: int) -> None:
    """Attention in every eighth layer comes in every second of two, in layer 9 in the last of two."""
    for name, value in list(vars(config).items()):
        if name.endswith("layer_period") and type(value) is int:
            setattr(config, name, min(value, depth))
        elif name.endswith("layer_offset") and type(value) is int:
            setattr(config, name, min(value, depth - 1))
        elif name.endswith("layer_indices") and isinstance(value, list) and value:
            setattr(config, name, [index for index in value if index < depth] or [depth - 1])


MAX_WORDS = 8192
MAX_EXPERTS = 16
MAX_MIDDLE = 2048
_EXPERTS = (
    "moe_num_experts",
    "n_routed_experts",
    "num_experts",
    "num_local_experts",
    "num_routed_experts",
)
_MIDDLE = ("ffn_dim", "ffn_hidden_size", "inner_dim", "intermediate_size", "n_inner")
_IDS = ("token_id", "token_index", "token_idx", "token_ids")


def narrow(config: Any) -> None:
    """Fewer words and experts and narrower feed-forward layers; what couples layers to each other stays."""
    parts = list(parts_of(config))
    moved: dict[int, int] = {}
    for part in parts:
        for name, value in list(vars(part).items()):
            if name.endswith("vocab_size"):
                _set(part, name, _at_most(value, MAX_WORDS))
            elif name.endswith(_IDS):
                _set(part, name, _moved(value, moved))
            elif name in _EXPERTS and _chosen(part) <= MAX_EXPERTS:
                _set(part, name, _at_most(value, MAX_EXPERTS))
            elif name.endswith(_MIDDLE):
                _set(part, name, _at_most(value, MAX_MIDDLE))


def _chosen(part: Any) -> int:
    names = ("num_experts_per_tok", "num_experts_per_token", "moe_k", "moe_topk", "top_k_experts")
    return max((value for name in names if type(value := getattr(part, name, None)) is int), default=1)


def _at_most(value: Any, limit: int) -> Any:
    if isinstance(value, list):
        return [_at_most(item, limit) for item in value]
    return min(value, limit) if type(value) is int else value


def _moved(value: Any, moved: dict[int, int]) -> Any:
    """A special word beyond the table gets one of the last rows, the same everywhere."""
    if isinstance(value, list):
        return [_moved(item, moved) for item in value]
    if type(value) is not int or value < MAX_WORDS:
        return value
    return moved.setdefault(value, MAX_WORDS - 1 - len(moved))


def _set(part: Any, name: str, value: Any) -> None:
    try:
        setattr(part, name, value)
    except (AttributeError, NotImplementedError):  # derived from other settings
        return

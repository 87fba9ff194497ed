"""What is known about one argument of a forward."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import nn

LENGTHS = "lengths"
"""The role of what pack_padded_sequence takes beside the sequences."""

WAVEFORM = "waveform"
"""The role of what a spectrogram is made of."""


@dataclass
class Use:
    """What the source tells about one argument."""

    layer: nn.Module | None = None
    """The first layer that takes it."""
    layers: int = 1
    """How many layers share it, where a loop gives each of them a part."""
    position: int = 0
    """Which argument of that layer it is."""
    role: str = ""
    """What that layer calls the argument, where it is one of PyTorch's."""
    width: int | None = None
    """The size of its last dim, where a bare parameter multiplies it."""
    is_direct: bool = True
    """The layer takes it without another dim put in, and not joined with anything."""
    is_unsqueezed: bool = False
    """Another dim is put in on its way."""
    joined: tuple[str, ...] = ()
    """The arguments that it is concatenated with before a layer takes them, itself included, in order."""
    is_part: bool = False
    """A layer takes it in a tuple with others."""
    is_index: bool = False
    """It selects elements of something else."""
    iterated: int = 0
    """It is a list with an item for each of so many layers."""
    parts: int = 0
    """How many names it is unpacked into."""
    keys: dict[str, Use] = field(default_factory=dict)
    """Of a mapping or an object: what is known about its items or attributes."""
    by_attribute: bool = False
    """The keys are attributes."""

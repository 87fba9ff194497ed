"""What a kernel's name tells: its kind, and whether and how it uses Tensor Cores (kernel_names.toml)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from tclint.core.toml import packaged_toml

TensorCores = Literal["yes", "no", "16-bit", "unknown"]

MATRIX_KINDS = frozenset({"product", "convolution", "attention"})
"""The only work that Tensor Cores do."""

GENERATIONS = ("volta", "turing", "ampere", "hopper", "blackwell")
"""By the instruction that each was the first to have, oldest first."""

_BY_ARCH = {"7": "volta", "75": "turing", "8": "ampere", "9": "hopper", "10": "blackwell", "12": "ampere"}
"""By compute capability, the longest match; consumer Blackwell (12) runs the instructions of Ampere."""
_TURING_INSTRUCTION = "1688"


@dataclass(frozen=True, slots=True)
class KernelName:
    """What is known of a kernel by its name alone; None where the name does not tell."""

    kind: str
    """A kind of kernel_names.toml, or 'unknown'."""
    tensor_cores: TensorCores
    generation: str | None = None
    """The first with the instruction that it uses."""
    precision: str | None = None
    tile: tuple[int, int] | None = None
    """Rows and columns of the output per thread block."""
    alignment: int | None = None
    """Elements that operands must be aligned to; 1: any."""
    layout: str | None = None
    """'nn', 'nt', 'tn', 'tt' as BLAS counts (columns first), or 'nhwc', 'nchw'."""
    source: str = ""
    """What that rests on."""


UNKNOWN = KernelName("unknown", "unknown")


@dataclass(frozen=True, slots=True)
class _Pattern:
    match: re.Pattern[str]
    kind: str
    tensor_cores: TensorCores
    source: str
    generation: str | None = None
    precision: str | None = None


@cache
def _tables() -> tuple[tuple[_Pattern, ...], dict[str, re.Pattern[str]], dict[str, re.Pattern[str]]]:
    data: dict[str, Any] = packaged_toml("tclint.profile", "kernel_names.toml")
    patterns = tuple(_Pattern(**{**entry, "match": re.compile(entry["match"])}) for entry in data["pattern"])
    fields = {name: re.compile(text) for name, text in data["fields"].items()}
    return patterns, fields, {name: re.compile(text) for name, text in data["precision"].items()}


@cache
def kernel_name(name: str) -> KernelName:
    """What the first pattern that is found in a name says of it."""
    patterns, fields, precisions = _tables()
    for pattern in patterns:
        match = pattern.match.search(name)
        if match is not None:
            break
    else:
        return UNKNOWN
    if pattern.kind not in MATRIX_KINDS:
        return KernelName(pattern.kind, pattern.tensor_cores, source=pattern.source)
    named = (word for word, words in precisions.items() if words.search(name))
    precision = pattern.precision or next(named, None)
    tile, alignment, layout = (fields[field].search(name) for field in ("tile", "alignment", "layout"))
    return KernelName(
        kind=pattern.kind,
        tensor_cores=pattern.tensor_cores,
        generation=_generation(pattern, match, name, precision) if pattern.tensor_cores == "yes" else None,
        precision=precision,
        tile=(int(tile[1]), int(tile[2])) if tile else None,
        alignment=int(alignment[1]) if alignment else None,
        layout=(layout[1] or layout[2]) if layout else None,
        source=pattern.source,
    )


def _generation(pattern: _Pattern, match: re.Match[str], name: str, precision: str | None) -> str | None:
    _, fields, _ = _tables()
    instruction = fields["instruction"].search(name)
    # 16-bit products on m16n8k8 are Turing's, whatever GPU the kernel is named after.
    if instruction is not None and instruction[1] == _TURING_INSTRUCTION and precision in ("fp16", "bf16"):
        return "turing"
    found = match.groupdict()
    if found.get("arch"):
        return instructions_of(found["arch"])
    if found.get("era") or pattern.generation:
        return found.get("era") or pattern.generation
    return "ampere" if instruction is not None and instruction[1] in ("16816", "16832", "16864") else None


def instructions_of(arch: str) -> str | None:
    """The generation whose Tensor Core instructions a compute capability ('80', '120') has."""
    return next((_BY_ARCH[arch[:size]] for size in (2, 1) if arch[:size] in _BY_ARCH), None)

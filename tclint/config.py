"""Settings: what the command line and `[tool.tclint]` in pyproject.toml can say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Precision = Literal["fp32", "tf32", "fp16", "bf16"]
Mode = Literal["train", "infer"]
FailOn = Literal["error", "warning", "info", "never"]

PRECISIONS: tuple[Precision, ...] = ("fp32", "tf32", "fp16", "bf16")
MODES: tuple[Mode, ...] = ("train", "infer")

DEFAULT_GPUS = ("a100", "v100")


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that changes what a run reports; frozen, so that it can be part of cache keys."""

    gpus: tuple[str, ...] = DEFAULT_GPUS
    """GPU ids or aliases (`tclint gpus`)."""
    precision: Precision = "fp16"
    """fp16 and bf16 mean autocast over fp32 weights, as torch.autocast does it."""
    mode: Mode = "train"
    compiled: bool = False
    """Price as torch.compile would run it."""
    batch: int | None = None
    """Resize the leading dim of every model input."""
    inputs: tuple[str, ...] = ()
    """`--input` specs; empty: what the target provides, or inference."""
    select: tuple[str, ...] = ()
    """Codes, code prefixes or names; empty: the rules that are on by default."""
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    min_gain_percent: float = 1.0
    """Graph findings whose predicted gain is below this share of the step are counted, not listed."""
    fail_on: FailOn = "warning"
    timeout_s: float = 300.0
    """Wall-clock limit to import, build and trace one target."""
    memory_limit_mib: int = 8192
    """Memory limit of the worker process that builds and traces one target."""
    jobs: int = 0
    """Targets traced at once; 0: one per CPU core."""
    exclude: tuple[str, ...] = ()
    """Path patterns (gitignore syntax) that the source pass leaves out."""
    rules: tuple[str, ...] = ()
    """Folders or files with local rules."""

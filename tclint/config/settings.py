"""Settings: what the command line and `[tool.tclint]` in pyproject.toml can say.

`tclint.config.keys` documents every key once, for both; `tclint.config.pyproject` reads the file.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

Precision = Literal[
    "fp64",
    "fp32",
    "tf32-cudnn",
    "tf32-matmul",
    "tf32",
    "fp16",
    "bf16",
    "pure-fp16",
    "pure-bf16",
    "fp8",
    "int8",
]
Mode = Literal["train", "infer"]
OptimizerName = Literal[
    "adamw",
    "adamw-fused",
    "adamw-8bit",
    "adam",
    "adam-fused",
    "sgd",
    "sgd-fused",
    "sgd-momentum",
    "sgd-momentum-fused",
    "rmsprop",
    "adagrad",
]
ComparisonKind = Literal["gpu", "precision", "batch", "layout", "compiled"]
QuantizedName = Literal["none", "int8", "fp8"]
LayoutName = Literal["as_traced", "channels_last", "contiguous"]
FailOn = Literal["error", "warning", "info", "never"]

PRECISIONS: tuple[Precision, ...] = get_args(Precision)
"""Described in tclint/config/precisions.py."""
REPORTED_PRECISIONS: tuple[Precision, ...] = ("fp32", "tf32", "fp16", "bf16")
"""Those that every report has the step time of."""
MODES: tuple[Mode, ...] = ("train", "infer")
OPTIMIZERS: tuple[OptimizerName, ...] = get_args(OptimizerName)
"""Described in tclint/cost/optimizers.toml."""
COMPARISONS: tuple[ComparisonKind, ...] = get_args(ComparisonKind)
LAYOUTS: tuple[LayoutName, ...] = get_args(LayoutName)
QUANTIZED: tuple[QuantizedName, ...] = get_args(QuantizedName)
FAIL_ON: tuple[FailOn, ...] = ("error", "warning", "info", "never")

DEFAULT_GPUS = ("a100", "v100")


@dataclass(frozen=True, slots=True)
class Override:
    """Other rules for some paths: one `[[tool.tclint.overrides]]` table."""

    paths: tuple[str, ...]
    """gitignore patterns, relative to `root`."""
    select: tuple[str, ...] = ()
    """Replaces the selection on these paths, where given."""
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    root: str = ""
    """Folder of the configuration file; empty: the working directory."""


@dataclass(frozen=True, slots=True)
class DeclaredModel:
    """One entry of `models`: what `--models` lints (tclint.engine.declared_models)."""

    target: str
    """As it is written; a file is relative to `root`."""
    values: tuple[tuple[str, object], ...] = ()
    """Fields of Settings that hold for this model only."""
    root: str = ""
    """Folder of the configuration file."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that changes what a run reports; frozen, so that it can be part of cache keys."""

    gpus: tuple[str, ...] = DEFAULT_GPUS
    """GPU ids or aliases (`tclint gpus`)."""
    precision: Precision = "fp16"
    """What the step runs in (tclint.config.precisions); fp16 and bf16: torch.autocast over fp32 weights."""
    mode: Mode = "train"
    layout: LayoutName = "as_traced"
    """Memory format of images and convolutions."""
    compiled: bool = False
    """Price as torch.compile would run it."""
    quantized: QuantizedName = "none"
    """Format that the linear layers are meant to run in: its dims are checked, and padding is priced in it;
    the rest of the report is priced in `precision`."""
    tensor_parallel: int = 1
    """GPUs that the layers are split over."""
    cuda: str = ""
    """Version of CUDA that the model runs with, '10.2'; empty: 11 or later."""
    cudnn: str = ""
    """Version of cuDNN, '7.6.2'; empty: 7.6.3 or later."""
    optimizer: OptimizerName = "adamw"
    """Whose step is priced, and whose states are counted, in mode 'train'."""
    find_unused_parameters: bool = False
    """DistributedDataParallel(find_unused_parameters=True), as a training script beside the model says; no
    flag or key."""
    accumulation: int = 1
    """Batches whose gradients are summed before one step of the optimizer."""
    compare: tuple[ComparisonKind, ...] = ()
    """Circumstances to vary in tables of the report (tclint.analysis.what_if.circumstances)."""
    batch: int | None = None
    """Resize the leading dim of every model input."""
    inputs: tuple[str, ...] = ()
    """`--input` specs; empty: what the target provides, or inference."""
    input_sets: tuple[str, ...] = ()
    """Several sets of inputs, each a list of specs separated by semicolons: one entry for each."""
    arguments: tuple[str, ...] = ()
    """'name=value' for the callable of every model target."""
    network: bool = False
    """Let the code of model targets use the network."""
    cache: bool = True
    """Keep parsed files and traced models between runs, and use what is kept."""
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
    """Path patterns (gitignore syntax, relative to `exclude_root`) that the source pass leaves out."""
    exclude_root: str = ""
    """Folder of the configuration file that says `exclude`; empty: the working directory."""
    frameworks: tuple[str, ...] = ()
    """TOML files that add names to those of tclint/source/names/frameworks.toml."""
    rules: tuple[str, ...] = ()
    """Folders or files with local rules."""
    overrides: tuple[Override, ...] = ()
    """Other rules for some paths, in order: the last word counts."""
    models: tuple[DeclaredModel, ...] = ()
    """Models that belong to the project: what `--models` lints."""
    baseline: str = ""
    """File with findings that are accepted for now (tclint.engine.baseline); empty: none."""
    explicit: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    """Fields that a flag or a configuration file sets, even to their default: no script overrides them."""

    def selecting(
        self,
        select: tuple[str, ...] = (),
        extend_select: tuple[str, ...] = (),
        ignore: tuple[str, ...] = (),
    ) -> Settings:
        """These settings under a later word on rules: a flag or an override.

        A selection starts afresh; an extension or an exception adds to what there is, and wins over the
        same rule on the other side.
        """
        base = replace(self, select=select, extend_select=(), ignore=()) if select else self
        return replace(
            base,
            extend_select=_merged(base.extend_select, extend_select, without=ignore),
            ignore=_merged(base.ignore, ignore, without=extend_select),
        )

    def for_path(self, path: str) -> Settings:
        """These settings as the overrides that match an absolute path leave them."""
        settings = self
        for override in self.overrides:
            if matches(override.paths, path, override.root):
                settings = settings.selecting(override.select, override.extend_select, override.ignore)
        return settings

    def excludes(self, path: str) -> bool:
        """True if `exclude` leaves out this path; a folder's ends in a slash."""
        return matches(self.exclude, path, self.exclude_root)


def _merged(old: tuple[str, ...], new: tuple[str, ...], *, without: tuple[str, ...]) -> tuple[str, ...]:
    against = {selector.lower() for selector in without}
    kept = tuple(selector for selector in old if selector.lower() not in against)
    return tuple(dict.fromkeys(kept + new))


def matches(patterns: tuple[str, ...], path: str, root: str = "") -> bool:
    """True if a path below `root` (empty: the working directory) matches gitignore patterns.

    The last pattern that matches decides; a path outside `root` matches none.
    """
    if not patterns:
        return False
    base = root or os.getcwd()
    # The second try is for a path and a root of which one goes through a link to the other's folder.
    for inner, outer in ((path, base), (os.path.realpath(path), os.path.realpath(base))):
        try:
            relative = os.path.relpath(inner, outer).replace(os.sep, "/")
        except ValueError:  # another drive
            continue
        if relative != ".." and not relative.startswith("../"):
            return _compiled(patterns).match_file(relative + "/" * path.endswith("/"))
    return False


@lru_cache(maxsize=64)
def _compiled(patterns: tuple[str, ...]) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec

    return GitIgnoreSpec.from_lines(patterns)

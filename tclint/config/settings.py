"""The one table of settings: what the command line and `[tool.tclint]` in pyproject.toml can say."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, get_args

from tclint.config import kinds
from tclint.config.budget import DEFAULT_BUDGET, Budget
from tclint.config.kinds import Setting, SettingPlace, declared_by, one_of, setting, some_of
from tclint.core.errors import UsageError

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
PhaseName = Literal["none", "prefill", "decode"]
OptimizerName = Literal[
    "adamw",
    "adamw-fused",
    "adamw-8bit",
    "adamw-32bit",
    "adamw-master",
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
ParallelName = Literal["none", "ddp", "fsdp", "zero1", "zero2", "zero3"]
LossName = Literal["traced", "cross_entropy"]
FailOn = Literal["error", "warning", "info", "never"]

PRECISIONS: tuple[Precision, ...] = get_args(Precision)
"""Described in tclint/config/precisions.py."""
REPORTED_PRECISIONS: tuple[Precision, ...] = ("fp32", "tf32", "fp16", "bf16")
"""Those for which every report has the step time."""
MODES: tuple[Mode, ...] = ("train", "infer")
PHASES: tuple[PhaseName, ...] = get_args(PhaseName)
OPTIMIZERS: tuple[OptimizerName, ...] = get_args(OptimizerName)
"""The optimizers that are priced; described in tclint/cost/optimizers.toml."""
COMPARISONS: tuple[ComparisonKind, ...] = get_args(ComparisonKind)
PARALLEL: tuple[ParallelName, ...] = get_args(ParallelName)
LOSSES: tuple[LossName, ...] = get_args(LossName)
LAYOUTS: tuple[LayoutName, ...] = get_args(LayoutName)
QUANTIZED: tuple[QuantizedName, ...] = get_args(QuantizedName)
FAIL_ON: tuple[FailOn, ...] = ("error", "warning", "info", "never")

DEFAULT_PHASE_TOKENS = 2048
DEFAULT_GPUS = ("a100", "v100")

PRICING: tuple[SettingPlace, ...] = ("models", "report", "baseline")
"""Where else a setting is stated that prices of a model hang on."""


@dataclass(frozen=True, slots=True)
class Override:
    """Different rules for some paths: one `[[tool.tclint.overrides]]` table."""

    paths: tuple[str, ...]
    """gitignore patterns, relative to `root`."""
    select: tuple[str, ...] = ()
    """Replaces the selection on these paths, where given."""
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    root: str = ""
    """Folder of the configuration file; empty: the working directory."""
    places: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """As `Settings.places`."""


@dataclass(frozen=True, slots=True)
class DeclaredModel:
    """One entry of `models`: what `--models` lints (tclint.config.declared_models reads it)."""

    target: str
    """As it is written; a file is relative to `root`."""
    values: tuple[tuple[str, object], ...] = ()
    """Fields of Settings that hold for this model only."""
    root: str = ""
    """Folder of the configuration file."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that changes what a run reports; frozen, so that it can be part of cache keys.

    A field made by `setting` is all there is to declare: its flag, its key in `[tool.tclint]` and what is
    wrong with a value there, completion, the JSON report and its schema, the scenario of a baseline and
    docs/reference/configuration.md follow from it, in this order.
    """

    select: tuple[str, ...] = setting(
        (), kinds.SELECTORS, "Only these rules: codes, code prefixes, names, or ALL.", places=("overrides",)
    )
    """Empty: the rules that are on by default."""
    extend_select: tuple[str, ...] = setting((), kinds.SELECTORS, "These rules too.", places=("overrides",))
    ignore: tuple[str, ...] = setting((), kinds.SELECTORS, "Not these rules.", places=("overrides",))
    gpus: tuple[str, ...] = setting(
        DEFAULT_GPUS, kinds.GPUS, "GPUs to predict for (`tclint gpus` lists them).", key="gpu", places=PRICING
    )
    precision: Precision = setting(
        "fp16",
        one_of(PRECISIONS),
        "fp16, bf16: autocast over fp32 weights; pure-fp16, pure-bf16, fp64: the model converted; fp32, "
        "tf32: no autocast, TF32 off or on (tf32-cudnn, torch's default, and tf32-matmul: in one library "
        "only); fp8, int8: linear layers by torchao, the rest bf16.",
        places=PRICING,
    )
    mode: Mode = setting(
        "train",
        one_of(MODES),
        "train: forward, backward and optimizer of the model as built; infer: its forward after eval().",
        places=(*PRICING, "trace"),
    )
    phase: PhaseName = setting(
        "none",
        one_of(PHASES),
        "Phase of a generating causal language model (--mode infer): prefill, the forward of a prompt of "
        "--prompt tokens, or decode, the forward of one new token against a key-value cache of --kv-length "
        "tokens.",
        places=(*PRICING, "trace"),
    )
    prompt: int | None = setting(
        None, kinds.COUNT, "Tokens of the prompt, 2048 if not given.", places=(*PRICING, "trace")
    )
    kv_length: int | None = setting(
        None,
        kinds.COUNT,
        "Tokens in the key-value cache, 2048 if not given.",
        key="kv-length",
        places=(*PRICING, "trace"),
    )
    layout: LayoutName = setting(
        "as_traced",
        one_of(LAYOUTS),
        "Memory format to predict for: as_traced (as the model and its inputs have it), channels_last or "
        "contiguous.",
        places=PRICING,
    )
    compiled: bool = setting(
        False, kinds.SWITCH, "Predict for torch.compile instead of eager execution.", places=PRICING
    )
    quantized: QuantizedName = setting(
        "none",
        one_of(QUANTIZED),
        "Check the dims of linear layers for later use in int8 or fp8, and price their padding; the step "
        "is still priced in --precision.",
        places=PRICING,
    )
    tensor_parallel: int = setting(
        1,
        kinds.COUNT,
        "Number of GPUs that each layer is split over (heads, widths, vocabulary). Prices and memory are of "
        "one of them. With --parallel, a divisor of --gpus.",
        places=PRICING,
    )
    optimizer: OptimizerName = setting(
        "adamw",
        one_of(OPTIMIZERS),
        f"Optimizer whose step and states count in training: {', '.join(OPTIMIZERS)}.",
        places=PRICING,
    )
    accumulation: int = setting(
        1,
        kinds.COUNT,
        "Batches whose gradients are summed before one step of the optimizer; times are per batch.",
        places=PRICING,
    )
    loss: LossName = setting(
        "traced",
        one_of(LOSSES),
        "Loss that counts in training: traced (what the model's forward computes) or cross_entropy over its "
        "output.",
        places=PRICING,
    )
    parallel: ParallelName = setting(
        "none",
        one_of(PARALLEL),
        "How training is distributed over --gpus: none, ddp (gradients summed), fsdp or zero3 (parameters "
        "gathered), zero1 (optimizer states split) or zero2 (gradients as well). Memory is that of one GPU.",
        places=PRICING,
    )
    calibration: str = setting(
        "",
        kinds.FILE,
        "Multiply predicted times by factors that `tclint profile TRACE --calibrate FILE` fitted to a trace "
        "of your GPU.",
        places=("report", "baseline"),
    )
    gpu_count: int = setting(
        8,
        kinds.GPU_COUNT,
        "Number of GPUs in one machine over which --parallel distributes training.",
        key="gpus",
        places=PRICING,
    )
    compare: tuple[ComparisonKind, ...] = setting(
        (),
        some_of(COMPARISONS, "KIND"),
        f"Also price the step with changes of: {', '.join(COMPARISONS)}.",
    )
    batch: int | None = setting(
        None, kinds.COUNT, "Resize the leading dimension of every model input.", places=(*PRICING, "trace")
    )
    inputs: tuple[str, ...] = setting(
        (),
        kinds.INPUTS,
        "A model input: '8,3,224,224', 'int64[8,128]' or 'mask=bool[8,128]'; again for the next.",
        key="input",
        places=("models", "baseline", "trace"),
    )
    """Empty: what the target provides, or inference."""
    input_sets: tuple[str, ...] = setting(
        (),
        kinds.INPUT_SETS,
        "All inputs of one run: 'int64[8,128];mask=bool[8,128]'; again for the next run of the model.",
        key="input-set",
        places=("models", "trace"),
    )
    arguments: tuple[str, ...] = setting(
        (),
        kinds.ARGUMENTS,
        "An argument of the model's callable: width=64, config=GPTConfig(n_layer=6), config.n_layer=6 or "
        "config=@conf.yaml, or the keys of a file's section: @conf.yaml:model; may be repeated.",
        key="arg",
        places=("models", "baseline", "trace"),
    )
    network: bool = setting(
        False, kinds.SWITCH, "Allow model code to use the network.", places=("models", "trace")
    )
    operators: bool = setting(
        False,
        kinds.SWITCH,
        "In JSON reports, include every kernel of every model with its operator and price.",
    )
    layers: bool = setting(
        False,
        kinds.SWITCH,
        "In text, add a table of every model's layers: shapes, parameters, FLOPs, time, and whether Tensor "
        "Cores run them; -v lists repeated blocks one by one.",
    )
    steps: int | None = setting(
        None,
        kinds.COUNT,
        "Steps in one training run, to show its GPU-hours and those that fixes save.",
        places=("models", "report"),
    )
    gpu_hour_price: float = setting(
        0.0,
        kinds.PRICE,
        "Price of a GPU-hour, in any currency, to show the same in money; needs --steps.",
        places=("models", "report"),
    )
    measured_us: float | None = setting(
        None,
        kinds.TIME,
        "Step time measured on the one GPU of the run ('120ms'): GPU-hours and money are based on it, and "
        "predicted gains keep their share of the step.",
        key="measured",
        places=("models", "report"),
    )
    cache: bool = setting(
        True,
        kinds.SWITCH,
        "Use cached results of earlier runs: parsed files, findings in programs, fixes, traced models.",
    )
    price_recipes: bool = setting(
        True,
        kinds.SWITCH,
        "Build the model that a named configuration file trains, and price its step.",
        key="price-recipes",
    )
    run_programs: bool = setting(
        True,
        kinds.SWITCH,
        "Run the project's training script up to where it makes the model, if reading does not tell how.",
        key="run-programs",
    )
    program_events: int = setting(
        60_000,
        kinds.COUNT,
        "Calls, operations and settings that are followed in one training program; what is left out then is "
        "said.",
        key="program-events",
        places=("report",),
    )
    min_gain_percent: float = setting(
        1.0,
        kinds.PERCENT,
        "List a finding if its fix is predicted to gain at least this percentage of the step.",
        key="min-gain",
        places=("report", "baseline"),
    )
    fail_on: FailOn = setting(
        "warning",
        one_of(FAIL_ON),
        "Exit with 1 if there is a finding of this level or above.",
        places=("report",),
    )
    timeout_s: float = setting(
        300.0, kinds.SECONDS, "Seconds to import, build and trace one model.", key="timeout"
    )
    memory_limit_mib: int = setting(
        8192, kinds.SIZE_MIB, "Memory limit for building one model, in MiB or as '8GiB'.", key="memory-limit"
    )
    jobs: int = setting(0, kinds.COUNT_OR_ZERO, "Models traced at once; 0: one per CPU core.")
    exclude: tuple[str, ...] = setting(
        (),
        kinds.PATTERNS,
        "Paths that the source rules skip, as in .gitignore, relative to the configuration file.",
        has_flag=False,
    )
    force_exclude: bool = setting(
        False,
        kinds.SWITCH,
        "Skip what 'exclude' excludes also where it is named on the command line, as pre-commit does.",
        key="force-exclude",
    )
    changed_since: str = setting(
        "",
        kinds.REVISION,
        "In folders, read only files that differ from this git revision.",
    )
    baseline: str = setting("", kinds.FILE, "Do not list findings accepted in this file.")
    rules: tuple[str, ...] = setting(
        (),
        kinds.FILES,
        "Files or folders with your own rules, relative to the configuration file.",
        has_flag=False,
    )

    libraries: tuple[str, ...] = setting(
        (),
        kinds.FILES,
        "Files with tables of your own libraries: what calls of them do, and the loops that they run.",
        has_flag=False,
    )

    # Those below have neither flag nor key of one value.
    exclude_root: str = ""
    """Folder of the configuration file that says `exclude`; empty: the working directory."""
    overrides: tuple[Override, ...] = ()
    """Other rules for some paths, in order: the last word counts."""
    models: tuple[DeclaredModel, ...] = ()
    """Models that belong to the project: what `--models` lints."""
    nested: tuple[tuple[str, Settings], ...] = ()
    """Folders with configuration files of their own, and the settings that hold for what is in them; the
    innermost first."""
    left_out: tuple[str, ...] = ()
    """Folders that other settings hold for."""
    budget: Budget = DEFAULT_BUDGET
    """What a change may cost before `tclint diff` fails."""
    refused: tuple[tuple[str, str], ...] = field(default=(), compare=False, repr=False)
    """Keys that a configuration file which was only met may not have, each with a sentence that says so."""
    explicit: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    """Fields that a flag or a configuration file sets, even to their default: no script overrides them."""
    places: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """By field: 'pyproject.toml:3', where a configuration file sets it."""

    @property
    def phase_tokens(self) -> int:
        """Tokens of the prompt, or in the cache, depending on the phase."""
        return (self.prompt if self.phase == "prefill" else self.kv_length) or DEFAULT_PHASE_TOKENS

    def in_phase(self) -> Settings:
        """These settings as they hold for their phase, which is one of inference.

        Raises:
            UsageError: settings contradict each other.
        """
        for name, given, phase in (
            ("prompt", self.prompt, "prefill"),
            ("kv-length", self.kv_length, "decode"),
        ):
            if given is not None and self.phase != phase:
                raise UsageError(f"--{name} goes with --phase {phase}.")
        if self.phase == "none" or self.mode == "infer":
            return self
        if "mode" in self.explicit:
            raise UsageError(
                f"--phase {self.phase} is one of inference; give --mode infer, or leave one out."
            )
        return replace(self, mode="infer")

    @contextmanager
    def saying_where(self, name: str) -> Iterator[None]:
        """Errors about the value of a field begin with the line of the configuration file that sets it."""
        try:
            yield
        except UsageError as error:
            place = self.places.get(name)
            raise UsageError(f"{place}: {error}") if place else error from None

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


SETTINGS: tuple[Setting, ...] = declared_by(Settings)
"""All that users can set, but for `models`, `overrides`, `budget` and `extend` of a configuration file."""
SETTINGS_BY_KEY: Mapping[str, Setting] = {item.key: item for item in SETTINGS}


def settings_in(place: SettingPlace) -> tuple[Setting, ...]:
    """Those that are stated there too."""
    return tuple(item for item in SETTINGS if place in item.places)


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

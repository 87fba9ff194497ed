"""Every key of `[tool.tclint]` and every setting that has a flag: one list, with help and parsers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from tclint.config.settings import COMPARISONS, FAIL_ON, LAYOUTS, MODES, OPTIMIZERS, PRECISIONS, QUANTIZED
from tclint.core.errors import UsageError, closest
from tclint.core.terminal import printable


@dataclass(frozen=True, slots=True)
class Key:
    """One thing that can be set, in the file under `name` and on the command line as `--name`."""

    name: str
    field: str
    """The field of Settings."""
    help: str
    parse: Callable[[object], object]
    """Turns a TOML value, or a flag's text, into the field's value; ValueError says what was expected."""


def parse_patterns(value: object) -> tuple[str, ...]:
    """gitignore patterns; './a' means '/a', as people write paths."""
    patterns = parse_names(value)
    if any(pattern.removeprefix("!").startswith("../") for pattern in patterns):
        raise ValueError("expects paths below the folder of this file")
    return tuple(re.sub(r"^(!?)\./+", r"\1/", pattern) for pattern in patterns)


def parse_names(value: object) -> tuple[str, ...]:
    """A string, or an array of strings."""
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(isinstance(item, str) and item for item in listed):
        raise ValueError("expects a string or an array of strings")
    return tuple(listed)


def parse_file(value: object) -> str:
    """A path; '' for none."""
    if not isinstance(value, str):
        raise ValueError("expects the path of a file")
    return value


def parse_selectors(value: object) -> tuple[str, ...]:
    """Rule codes, code prefixes or names; commas separate as well: 'DIM,AMP001'."""
    parts = [part.strip() for text in parse_names(value) for part in text.split(",")]
    if not all(parts):
        raise ValueError("expects rule codes or names such as 'DIM003', 'AMP' or 'vocab-misaligned'")
    return tuple(parts)


def parse_min_gain(value: object) -> float:
    """Percent of the step: 1, 0.5, '2%'."""
    text = value.strip().removesuffix("%") if isinstance(value, str) else value
    number = _number(text, "expects percent of the step such as 1 or '0.5%'")
    if number < 0:
        raise ValueError("expects 0 or more percent of the step")
    return number


def parse_timeout(value: object) -> float:
    """Seconds above zero."""
    number = _number(value, "expects seconds such as 300")
    if number <= 0:
        raise ValueError("expects seconds above 0")
    return number


_MEMORY = re.compile(r"(?P<number>\d+(\.\d+)?)\s*(?P<unit>MiB|MB|M|GiB|GB|G)?", re.IGNORECASE)


def parse_memory_mib(value: object) -> int:
    """MiB as a number, or a text with a unit: '512MiB', '8GiB'."""
    match = _MEMORY.fullmatch(str(value).strip()) if isinstance(value, str | int | float) else None
    if match is None or isinstance(value, bool):
        raise ValueError("expects MiB as a number or a size such as '8GiB'")
    unit = (match["unit"] or "M")[0].upper()
    mib = float(match["number"]) * (1024 if unit == "G" else 1)
    if not 1 <= mib <= 2**40:
        raise ValueError("expects at least 1 MiB" if mib < 1 else "expects a size that a machine can have")
    return int(mib)


def parse_version(value: object) -> str:
    """'11.8', '7.6.3', or a number such as 12."""
    text = str(value).strip() if isinstance(value, str | int | float) else ""
    if isinstance(value, bool) or not re.fullmatch(r"\d{1,4}(\.\d{1,4}){0,3}", text):
        raise ValueError("expects a version such as '11.8' or '7.6.3'")
    return text


def parse_batch(value: object) -> int:
    """A whole number above zero."""
    number = _whole(value)
    if number < 1:
        raise ValueError("expects a whole number above 0")
    return number


def parse_jobs(value: object) -> int:
    """A whole number; 0 means one per CPU core."""
    number = _whole(value)
    if number < 0:
        raise ValueError("expects a whole number (0: one per CPU core)")
    return number


def _whole(value: object) -> int:
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value.strip()):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("expects a whole number")
    return value


def _number(value: object, expected: str) -> float:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise ValueError(expected) from None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(expected)
    return float(value)


def _parse_bool(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("expects true or false")
    return value


def _one_of(known: tuple[str, ...]) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if not isinstance(value, str) or value not in known:
            guess = closest(value, known) if isinstance(value, str) else ""
            raise ValueError(f"expects one of {', '.join(known)}{'.' + guess if guess else ''}")
        return value

    return parse


def _some_of(known: tuple[str, ...]) -> Callable[[object], tuple[str, ...]]:
    def parse(value: object) -> tuple[str, ...]:
        parts = [part.strip() for text in parse_names(value) for part in text.split(",")]
        return tuple(dict.fromkeys(one(part) for part in parts))

    one = _one_of(known)
    return parse


KEYS: tuple[Key, ...] = (
    Key("select", "select", "Only these rules: codes, code prefixes, names, or ALL.", parse_selectors),
    Key("extend-select", "extend_select", "These rules too.", parse_selectors),
    Key("ignore", "ignore", "Not these rules.", parse_selectors),
    Key("gpu", "gpus", "GPUs to predict for (`tclint gpus` lists them).", parse_names),
    Key(
        "precision",
        "precision",
        "fp16, bf16: autocast over fp32 weights; pure-fp16, pure-bf16, fp64: the model converted; fp32, "
        "tf32: no autocast, TF32 off or on (tf32-cudnn, torch's default, and tf32-matmul: in one library "
        "only); fp8, int8: linear layers by torchao, the rest bf16.",
        _one_of(PRECISIONS),
    ),
    Key(
        "mode",
        "mode",
        "train: forward, backward and optimizer of the model as built; infer: its forward after eval().",
        _one_of(MODES),
    ),
    Key(
        "layout",
        "layout",
        "Memory format to predict for: as_traced (as the model and its inputs have it), channels_last or "
        "contiguous.",
        _one_of(LAYOUTS),
    ),
    Key("compiled", "compiled", "Predict for torch.compile instead of eager execution.", _parse_bool),
    Key(
        "quantized",
        "quantized",
        "Check dims for linear layers that are to run in int8 or fp8, and price their padding; the step "
        "stays that of --precision.",
        _one_of(QUANTIZED),
    ),
    Key(
        "tensor-parallel",
        "tensor_parallel",
        "GPUs that layers are split over: heads, widths and vocabulary have to divide by it.",
        parse_batch,
    ),
    Key(
        "cuda",
        "cuda",
        "CUDA version: before 11.0 matrix products need aligned dims to use Tensor Cores at all.",
        parse_version,
    ),
    Key(
        "cudnn",
        "cudnn",
        "cuDNN version: before 7.6.3 convolutions need aligned channels to use Tensor Cores at all.",
        parse_version,
    ),
    Key(
        "optimizer",
        "optimizer",
        f"Whose step and states to count when training: {', '.join(OPTIMIZERS)}.",
        _one_of(OPTIMIZERS),
    ),
    Key(
        "accumulation",
        "accumulation",
        "Batches whose gradients are summed before one step of the optimizer; times are per batch.",
        parse_batch,
    ),
    Key(
        "compare",
        "compare",
        f"Price the step under other circumstances too: {', '.join(COMPARISONS)}.",
        _some_of(COMPARISONS),
    ),
    Key("batch", "batch", "Resize the leading dimension of every model input.", parse_batch),
    Key(
        "input",
        "inputs",
        "A model input: '8,3,224,224', 'int64[8,128]' or 'mask=bool[8,128]'; again for the next.",
        parse_names,
    ),
    Key(
        "input-set",
        "input_sets",
        "All inputs of one run: 'int64[8,128];mask=bool[8,128]'; again for the next run of the model.",
        parse_names,
    ),
    Key("arg", "arguments", "An argument of the model's callable: width=64; may be repeated.", parse_names),
    Key("network", "network", "Let the code of models use the network.", _parse_bool),
    Key(
        "cache",
        "cache",
        "Use what earlier runs kept: files that were parsed, models that were traced for --models.",
        _parse_bool,
    ),
    Key(
        "min-gain",
        "min_gain_percent",
        "List a finding if its fix is predicted to gain at least this percentage of the step.",
        parse_min_gain,
    ),
    Key("fail-on", "fail_on", "Exit with 1 if there is a finding of this level or above.", _one_of(FAIL_ON)),
    Key("timeout", "timeout_s", "Seconds to import, build and trace one model.", parse_timeout),
    Key(
        "memory-limit", "memory_limit_mib", "Memory to build one model in: MiB, or '8GiB'.", parse_memory_mib
    ),
    Key("jobs", "jobs", "Models traced at once; 0: one per CPU core.", parse_jobs),
    Key(
        "exclude",
        "exclude",
        "Paths that the source rules leave out, as in .gitignore, relative to the configuration file.",
        parse_patterns,
    ),
    Key("baseline", "baseline", "Leave out the findings that this file accepts.", parse_file),
    Key(
        "frameworks",
        "frameworks",
        "TOML files with frameworks that scale losses themselves, in the form of frameworks.toml.",
        parse_names,
    ),
    Key(
        "rules",
        "rules",
        "Files or folders with your own rules, relative to the configuration file.",
        parse_names,
    ),
)
"""Every key of `[tool.tclint]` but `extend` (another file whose settings come first), `models` (an array
of what `--models` lints, see
tclint.engine.declared_models) and `overrides` (an array of tables with `paths`, `select`, `extend-select`,
`ignore`: other rules for some paths)."""

KEYS_BY_NAME: dict[str, Key] = {key.name: key for key in KEYS}


def parse_flag(name: str, text: str | list[str]) -> object:
    """The value of a flag, parsed as the key of the same name is.

    Raises:
        UsageError: it is not what the key expects.
    """
    try:
        return KEYS_BY_NAME[name].parse(text)
    except ValueError as error:
        raise UsageError(sentence(f"--{name} {error}", text)) from None


def sentence(problem: str, value: object) -> str:
    """'... expects X, not VALUE.', with the hint that may follow X at the end; None: no value to show."""
    if value is None:
        return f"{problem}."
    statement, dot, hint = problem.partition(". ")
    given = printable(repr(value))
    given = given if len(given) <= 60 else given[:57] + "..."
    return f"{statement}, not {given}{dot or '.'}{hint}"

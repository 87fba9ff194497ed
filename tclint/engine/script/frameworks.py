"""Settings that scripts pass to frameworks with a training loop: Accelerate, Fabric, Lightning, transformers.

Only written arguments that are known without running count, since a framework's defaults differ between
versions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tclint.config.settings import OPTIMIZERS, Precision
from tclint.source.syntax.tables import Call, Expression

MARKERS = (b"TrainingArguments(", b"training_step", b"Trainer(")
"""Bytes in scripts that train without calling backward() themselves."""

_ACCELERATE: Mapping[object, Precision] = {"fp16": "fp16", "bf16": "bf16", "no": "tf32-cudnn"}
"""Without mixed precision torch's default holds: TF32 in cuDNN, unless the script switches it."""
# From lightning/fabric/connector.py, _PRECISION_INPUT_STR; other values are precisions without a price.
_LIGHTNING: Mapping[object, Precision] = {
    "16-mixed": "fp16",
    "bf16-mixed": "bf16",
    "16-true": "pure-fp16",
    "bf16-true": "pure-bf16",
    "32-true": "tf32-cudnn",
    "64-true": "fp64",
    16: "fp16",
    "16": "fp16",
    "bf16": "bf16",
    32: "tf32-cudnn",
    "32": "tf32-cudnn",
    64: "fp64",
    "64": "fp64",
}
# transformers/training_args.py, OptimizerNames.
_TRANSFORMERS_OPTIMIZERS: Mapping[object, str] = {
    "adamw_torch": "adamw",
    "adamw_torch_fused": "adamw-fused",
    "adamw_bnb_8bit": "adamw-8bit",
    "adamw_8bit": "adamw-8bit",
    "sgd": "sgd",
    "adagrad": "adagrad",
    "rmsprop": "rmsprop",
}

Known = Callable[[Expression | None], object]
"""Returns the value of an argument if it is known without running, else None."""


@dataclass(frozen=True, slots=True)
class FrameworkSetting:
    """One setting that a call states."""

    setting: str
    value: object
    words: str


def framework_settings(qualified: str, call: Call, known: Known) -> Iterator[FrameworkSetting]:
    """The settings that a call of a framework's class states.

    Args:
        qualified: 'accelerate.Accelerator', ...
        call: the call.
        known: evaluates an argument.
    """
    given = {argument.keyword: known(argument.value) for argument in call.arguments if argument.keyword}
    package, _, name = qualified.rpartition(".")
    root = package.partition(".")[0]
    if root == "accelerate":
        yield from _of_accelerate(name, given)
    elif root in ("lightning", "pytorch_lightning", "lightning_fabric") and name in ("Trainer", "Fabric"):
        yield from of_lightning(name, given)
    elif root == "transformers" and name.endswith("TrainingArguments"):
        yield from of_transformers(given)


def _of_accelerate(name: str, given: Mapping[str, object]) -> Iterator[FrameworkSetting]:
    if name == "Accelerator":
        mixed = given.get("mixed_precision")
        if mixed in _ACCELERATE:
            yield FrameworkSetting(
                "precision", _ACCELERATE[mixed], f"Accelerator with mixed_precision={mixed!r}"
            )
        yield from _accumulation(name, "gradient_accumulation_steps", given)


def of_lightning(name: str, given: Mapping[str, object]) -> Iterator[FrameworkSetting]:
    """The settings in the arguments of Trainer or Fabric."""
    precision = given.get("precision")
    if precision in _LIGHTNING and not isinstance(precision, bool):
        yield FrameworkSetting("precision", _LIGHTNING[precision], f"{name} with precision={precision!r}")
    yield from _accumulation(name, "accumulate_grad_batches", given)


def of_transformers(given: Mapping[str, object]) -> Iterator[FrameworkSetting]:
    """The settings in the arguments of TrainingArguments."""
    for flag, precision in (("bf16", "bf16"), ("fp16", "fp16")):
        if given.get(flag) is True:
            yield FrameworkSetting("precision", precision, f"TrainingArguments with {flag}=True")
    batch = given.get("per_device_train_batch_size")
    if isinstance(batch, int) and batch > 0:
        yield FrameworkSetting("batch", batch, f"TrainingArguments with per_device_train_batch_size={batch}")
    yield from _accumulation("TrainingArguments", "gradient_accumulation_steps", given)
    if given.get("torch_compile") is True:
        yield FrameworkSetting("compiled", True, "TrainingArguments with torch_compile=True")
    optimizer = _TRANSFORMERS_OPTIMIZERS.get(given.get("optim"))
    if optimizer in OPTIMIZERS:
        yield FrameworkSetting("optimizer", optimizer, f"TrainingArguments with optim={given['optim']!r}")


def _accumulation(name: str, keyword: str, given: Mapping[str, object]) -> Iterator[FrameworkSetting]:
    batches = given.get(keyword)
    if isinstance(batches, int) and batches > 1:
        yield FrameworkSetting("accumulation", batches, f"{name} with {keyword}={batches}")

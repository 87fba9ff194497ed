"""A callback of Lightning that prints what the training step costs before the first one runs."""

from __future__ import annotations

from typing import Any

from tclint.core.errors import UsageError
from tclint.engine.report import Report
from tclint.integrations.first_step import FirstStep
from tclint.integrations.session import warn

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError:
    from pytorch_lightning import Callback, LightningModule, Trainer

_LOGGING = ("log", "log_dict")


class TclintCallback(Callback):
    """`Trainer(callbacks=[TclintCallback(gpu=["h100"])])`.

    The training step is traced on the first batch, in the Trainer's precision; the model, its gradients and
    all random states are afterwards as they were. `report` holds what was printed.

    Args:
        options: keys of `[tool.tclint]`; what they leave open is as in the nearest pyproject.toml, and as the
            Trainer runs.
    """

    def __init__(self, **options: Any) -> None:
        self._first = FirstStep("Lightning configuration", options)
        self._is_done = False

    @property
    def report(self) -> Report | None:
        return self._first.report

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, *_: Any) -> None:
        if self._is_done or not trainer.is_global_zero:
            return
        self._is_done = True
        if not pl_module.automatic_optimization:
            # Its training step would step the optimizers.
            warn(UsageError("it optimizes by itself"), f"the first step of {type(pl_module).__name__}")
            return
        given = {"precision": trainer.precision, "accumulate_grad_batches": trainer.accumulate_grad_batches}
        self._first.lint(pl_module, (batch,), given, _silence)


def _silence(module: Any) -> None:
    """The step that is traced logs nothing: the Trainer would take it for one that was made."""
    module.__dict__.update(dict.fromkeys(_LOGGING, lambda *_, **__: None))

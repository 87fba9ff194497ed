"""A callback of transformers' Trainer that prints what the step costs before the first one runs."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from tclint.engine.report import Report
from tclint.integrations.first_step import FirstStep

_READ = ("bf16", "fp16", "gradient_accumulation_steps", "torch_compile")


class TclintCallback(TrainerCallback):
    """`Trainer(..., callbacks=[TclintCallback(gpu=["h100"])])`.

    The model is traced on the inputs of its first forward, in the precision and with the optimizer of the
    TrainingArguments; model, gradients and random states are afterwards as they were, and no batch is drawn
    for it. `report` holds what was printed.

    Args:
        options: keys of `[tool.tclint]`; what they leave open is as in the nearest pyproject.toml, and as the
            TrainingArguments say.
    """

    def __init__(self, **options: Any) -> None:
        self._first = FirstStep("transformers and TRL configuration", options)

    @property
    def report(self) -> Report | None:
        return self._first.report

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        _control: TrainerControl,
        model: Any = None,
        **_: Any,
    ) -> None:
        if not state.is_world_process_zero or model is None:
            return
        given = {name: getattr(args, name, None) for name in _READ}
        given["optim"] = getattr(args.optim, "value", args.optim)

        def before_forward(module: Any, positional: tuple[Any, ...], keywords: dict[str, Any]) -> None:
            handle.remove()  # the trace calls the model, too
            inputs = positional if positional else keywords
            self._first.lint(module, inputs, given)

        handle = model.register_forward_pre_hook(before_forward, with_kwargs=True)

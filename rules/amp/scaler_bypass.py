"""Optimizers that step past the scaler of their gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tclint.core.finding import Finding, Fix
from tclint.core.rule import Example, Rule
from tclint.source.source_rule import SourceRule
from tclint.source.syntax.tables import method_of
from tclint.source.training.scaler_ops import (
    belongs_to,
    scaled_by,
    scaler_evidence,
    scales_itself,
    stepped_before,
    unscales_by_hand,
)

if TYPE_CHECKING:
    from tclint.source.context import SourceContext
    from tclint.source.facts.scaling_view import Op, View

_EXAMPLES_DOCUMENT = "PyTorch docs, Automatic Mixed Precision examples"


class StepBypassesScaler(SourceRule):
    """`optimizer.step()` on gradients that a scaler has scaled.

    What it does
    Finds an optimizer that is stepped directly after `scaler.scale(loss).backward()`, also the
    `second_step` of sharpness-aware minimization.

    Why it costs
    The gradients are still multiplied by the loss scale, so that the optimizer takes steps that are tens
    of thousands of times too long (or, with Adam, ignores its epsilon), and a step with inf or NaN
    gradients, which a scaler skips, ruins the weights.

    Example
        scaler.scale(loss).backward()
        optimizer.step()

    Use instead
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    When it does not apply
    The branch without a scaler, an optimizer that was unscaled explicitly or that owns the scaler,
    optimizers whose own loss went backward unscaled, optimizers of frameworks (Accelerate's steps through
    the scaler), disabled scalers.

    References
    PyTorch, Automatic Mixed Precision examples, "Typical Mixed Precision Training".
    """

    code = "AMP005"
    name = "optimizer-step-bypasses-scaler"
    since = "0.1.0"
    level = "error"
    confidence = "high"
    sources = (f"{_EXAMPLES_DOCUMENT}: Typical Mixed Precision Training",)
    triggers = ("scaler", "Scaler")
    requires = (".step(", ".scale(")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        if context.amp.framework or unscales_by_hand(context):
            return
        seen: set[int] = set()
        for view in context.scaling.views:
            for step in view.of("step"):
                backward = scaled_by(context, view, step)
                if backward is None or step.site in seen:
                    continue
                seen.add(step.site)
                if scales_itself(context, view.function, step.optimizer):
                    continue
                if belongs_to(context, view.function, backward.scaler, step.optimizer):
                    continue
                yield self._report(context, view, step, backward)

    def _report(self, context: SourceContext, view: View, step: Op, backward: Op) -> Finding:
        method = method_of(step.call)[1]
        advice = f"Replace it by `{backward.scaler}.step({step.optimizer})` and `{backward.scaler}.update()`."
        if method != "step":
            advice = (
                f"Call `{backward.scaler}.unscale_({step.optimizer})` after each backward pass, leave the "
                f"step out where gradients are not finite, and end with `{backward.scaler}.update()`."
            )
        message = (
            f"`{step.optimizer}.{method}()` applies gradients that `{backward.scaler}` multiplied by the "
            f"loss scale on line {context.location(backward.site).line}, without unscaling them and without "
            "skipping steps that overflowed."
        )
        repeated = stepped_before(view, step)
        if repeated is not None:
            message = (
                f"`{step.optimizer}.{method}()` repeats `{repeated.scaler}.step({step.optimizer})` of line "
                f"{context.location(repeated.site).line}: the gradients are applied twice, and also where "
                "they overflowed and the scaler skipped the step."
            )
            advice = f"Remove `{step.optimizer}.{method}()`: the scaler's step calls it."
        return self.finding(
            context.location(step.site),
            message,
            related=(context.related(backward.site, "the loss is scaled here"),),
            evidence=scaler_evidence(context, view, step=step, backward=backward),
            fix=Fix(advice),
            identity=f"{view.function.qualified_name}:{step.optimizer}",
        )

    valid = (
        Example(
            source="""\
import torch

class TargetAverage:
    def step(self):
        average(self.target, self.model)

class Learner:
    def __init__(self, model):
        self.optimizer = torch.optim.Adam(model.parameters())
        self.optimizer_target = TargetAverage(model)
        self.scaler = torch.amp.GradScaler("cuda")

    def learn(self, batch):
        with torch.autocast("cuda"):
            loss = self.model(batch)
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer_target.step()
""",
            note="what is stepped is no optimizer of gradients",
        ),
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    scaler.scale(model(batch)).backward()
    scaler.step(optimizer)
    scaler.update()
    scheduler.step()
""",
            note="stepped through the scaler; schedulers are no optimizers",
        ),
        Example(
            source="""\
def train(model, loader, optimizer, scaler=None):
    for batch in loader:
        loss = model(batch)
        if scaler is None:
            loss.backward()
            optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
""",
            note="the branch without a scaler",
        ),
        Example(
            source="""\
import torch

scaler = torch.cuda.amp.GradScaler()
for batch in loader:
    loss = model(batch)
    if use_amp:
        scaler.scale(loss).backward()
    else:
        loss.backward()
    if args.half_precision:
        scaler.step(optimizer)
        scaler.update()
    else:
        optimizer.step()
""",
            note="another branch of the same decision steps through the scaler",
        ),
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    scaler.scale(model(batch)).backward()
    scaler.unscale_(optimizer)
    if all_finite(model):
        optimizer.step()
    scaler.update()
""",
            note="unscaled explicitly",
        ),
        Example(
            source="""\
from accelerate import Accelerator
import torch

scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    scaler.scale(model(batch)).backward()
    optimizer.step()
""",
            note="the framework's optimizer steps through its scaler",
        ),
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    scaler.scale(rate_loss(batch)).backward()
    scaler.step(optimizer)
    scaler.update()
    quantile_loss(model).backward()
    aux_optimizer.step()
""",
            note="the second optimizer's own loss is not scaled",
        ),
        Example(
            source="""\
def finish(loss, optimizer, scaler=None):
    if scaler is None:
        loss.backward()
    else:
        scaler.scale(loss).backward()
    optimizer.step() if scaler is None else scaler.step(optimizer)
    scaler is not None and scaler.update()
""",
            note="decided in one statement",
        ),
        Example(
            source="""\
from signs import SignOptimizer

optimizer = SignOptimizer(model.parameters(), fp16=True)
scaler = optimizer.scaler
for batch in loader:
    scaler.scale(model(batch)).backward()
    optimizer.step()
    scaler.update()
""",
            note="the optimizer's own scaler, which its step knows",
        ),
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    scaler.scale(criterion(model(batch))).backward()
    scaler.unscale_(optimizer)
    optimizer.first_step(zero_grad=True)
    scaler.update()
    scaler.scale(criterion(model(batch))).backward()
    scaler.unscale_(optimizer)
    optimizer.second_step(zero_grad=True)
    scaler.update()
""",
            note="sharpness-aware minimization on unscaled gradients",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
for step, batch in enumerate(loader):
    with torch.autocast("cuda"):
        loss = model(batch) / 4
    scaler.scale(loss).backward()
    if step % 4 == 3:
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        optimizer.step()
        optimizer.zero_grad()
""",
            note="a second step, which no overflow holds back",
        ),
        Example(
            source="""\
import torch

dense = torch.optim.AdamW(model.dense_parameters())
sparse = torch.optim.Adagrad(model.tables.parameters())
scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    with torch.autocast("cuda"):
        loss = model(batch)
    scaler.scale(loss).backward()
    scaler.unscale_(dense)
    torch.nn.utils.clip_grad_norm_(model.dense_parameters(), 1.0)
    scaler.step(dense)
    sparse.step()
    scaler.update()
""",
            note="only the other optimizer's gradients were unscaled",
        ),
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    with torch.autocast("cuda"):
        loss = model(batch)
    scaler.scale(loss).backward()
    optimizer.step()
    scaler.update()
""",
            note="scaled gradients applied as they are",
        ),
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    loss = model(batch)
    if use_amp:
        scaler.scale(loss).backward()
    else:
        loss.backward()
    optimizer.step()
""",
            note="right without mixed precision only",
        ),
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    scaler.scale(model(batch)).backward()
    scaler.step(encoder_optimizer)
    decoder_optimizer.step()
    scaler.update()
""",
            note="one of two optimizers forgotten",
        ),
        Example(
            source="""\
import torch

class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters())
        self.scaler = torch.amp.GradScaler("cuda")

    def backward(self, loss):
        self.scaler.scale(loss).backward()

    def train_step(self, batch):
        self.backward(self.model(batch))
        self.optimizer.step()
        self.optimizer.zero_grad()
""",
            note="scaled in one method, stepped in another",
        ),
        Example(
            source="""\
import torch

def train(model, loader, optimizer, scaler, sharpness_aware):
    for batch in loader:
        with torch.autocast("cuda"):
            loss = model(batch)
        scaler.scale(loss).backward()
        if not sharpness_aware:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.first_step(zero_grad=True)
            with torch.autocast("cuda"):
                loss = model(batch)
            scaler.scale(loss).backward()
            optimizer.second_step(zero_grad=True)
            optimizer.zero_grad()

train(model, loader, optimizer, torch.amp.GradScaler("cuda"), True)
""",
            note="the second step of sharpness-aware minimization applies scaled gradients",
        ),
    )


RULES: tuple[type[Rule], ...] = (StepBypassesScaler,)

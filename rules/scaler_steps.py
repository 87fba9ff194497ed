"""Rules on the order of a scaled step: scale, backward, unscale, clip, step, update."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tclint.finding import Finding, Fix
from tclint.rule import Example, Rule, SourceRule
from tclint.source.tables import render

if TYPE_CHECKING:
    from tclint.source.context import SourceContext
    from tclint.source.scaling import Op, View

_EXAMPLES_DOCUMENT = "PyTorch docs, Automatic Mixed Precision examples"


class ClipBeforeUnscale(SourceRule):
    """Gradients clipped while they are still multiplied by the loss scale.

    What it does
    Finds `torch.nn.utils.clip_grad_norm_`, `clip_grad_value_`, timm's `dispatch_clip_grad` and clamping of
    `.grad` between a scaled backward pass and `scaler.step(optimizer)` without `scaler.unscale_(optimizer)`
    before the clipping.

    Why it costs
    After `scaler.scale(loss).backward()` gradients are 65536 times their size at first, later any power
    of two. A limit of 1.0 on the scaled norm is a limit of 1.5e-5 on the true one: every step is clipped,
    `scaler.step` then divides by the scale, and the network hardly learns. How hard it is clipped changes
    whenever the scaler changes its scale.

    Example
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

    Use instead
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

    When it does not apply
    A scaler that is disabled, clipping in the branch without a scaler, clipping functions of frameworks
    (`accelerator.clip_grad_norm_`, FSDP's `model.clip_grad_norm_`), `amp.master_params` of apex, an
    optimizer that was unscaled earlier in the same step. The rule is silent when the scaler is handed to
    code that it does not see before the clipping.

    References
    PyTorch, Automatic Mixed Precision examples, "Gradient clipping".
    PyTorch, Automatic Mixed Precision recipe, "Inspecting/modifying gradients".
    """

    code = "AMP003"
    name = "clip-before-unscale"
    since = "0.1.0"
    level = "error"
    confidence = "high"
    sources = (
        f"{_EXAMPLES_DOCUMENT}: Gradient clipping",
        "PyTorch recipes, Automatic Mixed Precision: Inspecting/modifying gradients",
    )
    triggers = ("clip_grad", "clamp", "adaptive_clip")
    requires = (".step(", "scaler")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        if _unscales_by_hand(context):
            return
        seen: set[int] = set()
        for view in context.scaling.views:
            for clip in view.of("clip", "cut"):
                step = self._step_of(context, view, clip)
                if step is None or clip.site in seen:
                    continue
                seen.add(clip.site)
                backward = next(iter(view.before(clip, "scaled_backward")), None)
                yield self._report(context, view, clip, step, backward)

    def _step_of(self, context: SourceContext, view: View, clip: Op) -> Op | None:
        """The scaler's step that comes after a clipping of scaled gradients."""
        step = next(iter(view.after(clip, "scaler_step")), None)
        if step is None:
            step = self._bypassing_step(context, view, clip)
        if step is None or context.scaling.is_off(view, step) or view.decided_by_precision(clip, step):
            return None
        if view.between(clip, step, "scaled_backward", "backward", "other_backward"):
            return None
        if view.before(clip, "escape") or any(
            _still_counts(view, unscale, clip) for unscale in view.before(clip, "unscale")
        ):
            return None
        backward = next(iter(view.before(clip, "scaled_backward", "backward", "other_backward")), None)
        if backward is not None:
            return step if view.before(clip, "scaled_backward") else None
        # Backward happens elsewhere, and so may unscale_.
        made, _ = context.scaling.origins(view.function, step.scaler)
        elsewhere = any(other.of("unscale", "escape") for other in context.scaling.views)
        return step if made and not elsewhere else None

    def _bypassing_step(self, context: SourceContext, view: View, clip: Op) -> Op | None:
        """An optimizer's own step on scaled gradients, which is a mistake of its own."""
        if context.amp.framework:
            return None
        for step in view.after(clip, "step"):
            scaled = _scaled_by(context, view, step)
            if scaled is not None:
                return step._replace(scaler=scaled.scaler)
        return None

    def _report(self, context: SourceContext, view: View, clip: Op, step: Op, backward: Op | None) -> Finding:
        since = ""
        related = [context.related(step.site, f"`{step.scaler}` unscales only here")]
        if backward is not None:
            since = f" since line {context.location(backward.site).line}"
            related.insert(0, context.related(backward.site, "gradients are scaled from here on"))
        return self.finding(
            context.location(clip.site),
            f"Gradients are clipped here while multiplied by the loss scale{since}: no "
            f"`{step.scaler}.unscale_({step.optimizer})` comes before; the limit then holds for the scaled "
            "gradients, which are up to 65536 times larger or more.",
            related=tuple(related),
            evidence=_evidence(context, view, clip=clip, step=step, backward=backward),
            fix=Fix(f"Call `{step.scaler}.unscale_({step.optimizer})` before clipping."),
            identity=f"{view.function.qualified_name}:{context.excerpt(clip.site)}",
        )

    valid = (
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    with torch.autocast("cuda"):
        loss = model(batch)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
""",
            note="unscaled before clipping",
        ),
        Example(
            source="""\
import torch

def train(model, loader, optimizer, scaler=None):
    for batch in loader:
        loss = model(batch)
        if scaler is not None:
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
        else:
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if scaler is not None:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
""",
            note="unscaled wherever there is a scaler",
        ),
        Example(
            source="""\
import torch

scaler = torch.cuda.amp.GradScaler()
for batch in loader:
    with torch.autocast("cuda", enabled=args.fp16):
        loss = model(batch)
    if args.fp16:
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    else:
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
""",
            note="only the branch without a scaler clips",
        ),
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda", enabled=False)
for batch in loader:
    scaler.scale(model(batch)).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
""",
            note="a disabled scaler scales nothing",
        ),
        Example(
            source="""\
from accelerate import Accelerator

accelerator = Accelerator()
scaler = accelerator.scaler
for batch in loader:
    accelerator.backward(model(batch))
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
""",
            note="the framework's clipping unscales itself",
        ),
        Example(
            source="""\
import torch
from apex import amp

for batch in loader:
    with amp.scale_loss(model(batch), optimizer, loss_id=0) as scaled_loss:
        scaled_loss.backward()
    torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)
    scaler.step(optimizer)
""",
            note="apex unscales into its master parameters",
        ),
        Example(
            source="""\
import torch
from engine import prepare_gradients

scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    scaler.scale(model(batch)).backward()
    prepare_gradients(scaler, optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
""",
            note="code of another file gets the scaler and may unscale",
        ),
        Example(
            source="""\
import torch

class Trainer:
    def __init__(self):
        self.scaler = torch.amp.GradScaler("cuda")

    def prepare(self):
        self.scaler.unscale_(self.optimizer)

    def step(self, loss):
        self.scaler.scale(loss).backward()
        self.prepare()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
""",
            note="unscaled in a helper",
        ),
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    scaler.scale(model(batch)).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0 * scaler.get_scale())
    scaler.step(optimizer)
    scaler.update()
""",
            note="the limit is scaled as well",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    with torch.autocast("cuda"):
        loss = model(batch)
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
""",
            note="no unscale_ at all",
        ),
        Example(
            source="""\
from torch.nn.utils import clip_grad_value_

def train(model, loader, optimizer, scaler, accumulate):
    for step, batch in enumerate(loader):
        scaler.scale(model(batch) / accumulate).backward()
        if (step + 1) % accumulate == 0:
            clip_grad_value_(model.parameters(), 0.1)
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
""",
            note="unscaled too late",
        ),
        Example(
            source="""\
import torch

def train(model, loader, optimizer, scaler=None):
    for batch in loader:
        loss = model(batch)
        if scaler is not None:
            scaler.scale(loss).backward()
        else:
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if scaler is not None:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
""",
            note="wherever there is a scaler",
        ),
        Example(
            source="""\
import torch

class Trainer:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer
        self.scaler = torch.amp.GradScaler("cuda")

    def clip(self):
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)

    def train_step(self, batch):
        self.scaler.scale(self.model(batch)).backward()
        self.clip()
        self.scaler.step(self.optimizer)
        self.scaler.update()
""",
            note="clipped in a helper",
        ),
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    scaler.scale(model(batch)).backward()
    for parameter in model.parameters():
        parameter.grad.data.clamp_(-1, 1)
    scaler.step(optimizer)
    scaler.update()
""",
            note="clamping gradients is clipping as well",
        ),
    )


class StepWithoutUpdate(SourceRule):
    """`scaler.step(optimizer)` without `scaler.update()` in the same round.

    What it does
    Finds a scaler's step that no call of its `update` follows: not in the function, not in what it calls,
    not elsewhere in the file. A step whose only updates are in other branches, or that runs in every
    round of a loop while the update runs in some, is reported as well.

    Why it costs
    `update` closes the round: it adapts the scale and forgets which optimizers have stepped. Without it
    the next step raises "RuntimeError: step() has already been called since the last update()".

    Example
        for batch in loader:
            scaler.scale(model(batch)).backward()
            scaler.step(optimizer)

    Use instead
        for batch in loader:
            scaler.scale(model(batch)).backward()
            scaler.step(optimizer)
            scaler.update()

    When it does not apply
    Several optimizers that step before one update, an update in a helper or in another method, a scaler
    that is disabled, a function that only steps and leaves the update to its callers.

    References
    PyTorch, Automatic Mixed Precision package, torch.amp.GradScaler, `update` and `step`.
    PyTorch, Automatic Mixed Precision examples, "Working with Multiple Models, Losses, and Optimizers".
    """

    code = "AMP004"
    name = "step-without-update"
    since = "0.1.0"
    level = "error"
    confidence = "high"
    sources = (
        "PyTorch docs, Automatic Mixed Precision package (torch.amp): GradScaler",
        f"{_EXAMPLES_DOCUMENT}: Working with Multiple Models, Losses, and Optimizers",
    )
    triggers = ("scaler", "Scaler")
    requires = (".step(",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        updates = {_tail(op.scaler) for view in context.scaling.views for op in view.of("update")}
        excused = {
            op.site
            for view in context.scaling.views
            for op in view.of("scaler_step")
            if not self._lacks_update(context, view, op, updates)
        }
        seen: set[int] = set()
        for view in context.scaling.views:
            for step in view.of("scaler_step"):
                if step.site in excused or step.site in seen:
                    continue
                seen.add(step.site)
                yield self._report(context, view, step)

    def _lacks_update(self, context: SourceContext, view: View, step: Op, updates: set[str]) -> bool:
        mine = [op for op in view.of("update") if _tail(op.scaler) == _tail(step.scaler)]
        if context.scaling.is_off(view, step) or view.of("escape"):
            return False
        loops = [loop for loop in view.loops(step) if not view.bound_by(loop, step.optimizer)]
        reachable = [op for op in mine if not view.apart(step, op) and not view.apart(op, step)]
        if reachable:
            return bool(loops) and all(self._rarer(view, op, step, loops[0]) for op in reachable)
        if mine:
            return bool(loops)
        if loops and self._is_own(context, view, step.scaler):
            # Nobody else can update it between two rounds.
            return True
        if _tail(step.scaler) in updates or not view.before(step, "scaled_backward"):
            return False
        made, _ = context.scaling.origins(view.function, step.scaler)
        return bool(loops) or bool(made)

    def _is_own(self, context: SourceContext, view: View, scaler: str) -> bool:
        """A parameter or a local variable that no function defined in the function updates."""
        function = view.function
        owner = context.resolver.owner(function, scaler) if "." not in scaler else None
        if owner is not function or function.kind != "function":
            return False
        return not any(
            other.of("update") and any(scope is function for scope in context.resolver.scopes(other.function))
            for other in context.scaling.views
            if other is not view
        )

    def _rarer(self, view: View, update: Op, step: Op, loop: tuple[tuple[int, ...], int, int]) -> bool:
        """The update runs in some rounds of the loop in which the step runs always."""
        if loop not in view.around(update) or not view.encloses(step, update):
            return False
        extra = view.extra(update, step)
        return bool(extra) and not view.decided_by_precision(update, step)

    def _report(self, context: SourceContext, view: View, step: Op) -> Finding:
        backward = next(iter(view.before(step, "scaled_backward")), None)
        related = [
            context.related(op.site, f"`{op.scaler}.update()` does not run in every round of the step")
            for op in view.of("update")
        ]
        if backward is not None:
            related.insert(0, context.related(backward.site, "the loss is scaled here"))
        return self.finding(
            context.location(step.site),
            f"`{step.scaler}.step({step.optimizer})` is not followed by `{step.scaler}.update()`: the next "
            "step raises RuntimeError (step() has already been called since the last update()).",
            related=tuple(related) or (context.related(view.function.site, "in this function"),),
            evidence=_evidence(context, view, step=step, backward=backward),
            fix=Fix(f"Call `{step.scaler}.update()` once per round, after the last optimizer's step."),
            identity=f"{view.function.qualified_name}:{step.scaler}:{step.optimizer}",
        )

    valid = (
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    scaler.scale(model(batch)).backward()
    scaler.step(optimizer)
    scaler.update()
""",
            note="updated after the step",
        ),
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
for real in loader:
    scaler.scale(loss_d(real)).backward()
    scaler.step(optim_d)
    scaler.scale(loss_g(real)).backward()
    scaler.step(optim_g)
    scaler.update()
""",
            note="one update for both optimizers",
        ),
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")

def finish():
    scaler.update()
    optimizer.zero_grad()

for batch in loader:
    scaler.scale(model(batch)).backward()
    scaler.step(optimizer)
    finish()
""",
            note="updated in a helper",
        ),
        Example(
            source="""\
import torch

class Trainer:
    def __init__(self):
        self.scaler = torch.amp.GradScaler("cuda")

    def step(self, loss):
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)

    def after_step(self):
        self.scaler.update()
""",
            note="updated in another method",
        ),
        Example(
            source="""\
def optimizer_step(scaler, loss, optimizer):
    scaler.scale(loss).backward()
    scaler.step(optimizer)
""",
            note="the caller may update",
        ),
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    scaler.scale(model(batch)).backward()
    for optimizer in optimizers:
        scaler.step(optimizer)
    scaler.update()
""",
            note="a loop over optimizers",
        ),
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda", enabled=False)
for batch in loader:
    scaler.scale(model(batch)).backward()
    scaler.step(optimizer)
""",
            note="a disabled scaler only calls optimizer.step()",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    with torch.autocast("cuda"):
        loss = model(batch)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    optimizer.zero_grad()
""",
            note="no update",
        ),
        Example(
            source="""\
def train(model, loader, optimizer, scaler):
    for batch in loader:
        scaler.scale(model(batch)).backward()
        scaler.step(optimizer)
""",
            note="whatever the caller does, the second round raises",
        ),
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    scaler.scale(model(batch)).backward()
    if clip:
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
    else:
        scaler.step(optimizer)
        scaler.update()
""",
            note="only one of two branches updates",
        ),
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
for step, batch in enumerate(loader):
    scaler.scale(model(batch)).backward()
    scaler.step(optimizer)
    if step % 10 == 0:
        scaler.update()
""",
            note="steps in every round, updates in some",
        ),
    )


class StepBypassesScaler(SourceRule):
    """`optimizer.step()` on gradients that a scaler has scaled.

    What it does
    Finds an optimizer that is stepped directly after `scaler.scale(loss).backward()`.

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
    The branch without a scaler, an optimizer that was unscaled explicitly, optimizers whose own loss went
    backward unscaled, optimizers of frameworks (Accelerate's steps through the scaler), disabled scalers.

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
        if context.amp.framework or _unscales_by_hand(context):
            return
        seen: set[int] = set()
        for view in context.scaling.views:
            for step in view.of("step"):
                backward = _scaled_by(context, view, step)
                if backward is None or step.site in seen:
                    continue
                seen.add(step.site)
                yield self._report(context, view, step, backward)

    def _report(self, context: SourceContext, view: View, step: Op, backward: Op) -> Finding:
        return self.finding(
            context.location(step.site),
            f"`{step.optimizer}.step()` applies gradients that `{backward.scaler}` multiplied by the loss "
            f"scale on line {context.location(backward.site).line}, without unscaling them and without "
            "skipping steps that overflowed.",
            related=(context.related(backward.site, "the loss is scaled here"),),
            evidence=_evidence(context, view, step=step, backward=backward),
            fix=Fix(
                f"Replace it by `{backward.scaler}.step({step.optimizer})` and `{backward.scaler}.update()`."
            ),
            identity=f"{view.function.qualified_name}:{step.optimizer}",
        )

    valid = (
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
    )
    invalid = (
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
    )


class UnscaleMisuse(SourceRule):
    """`scaler.unscale_` called twice, too early or too late.

    What it does
    Finds `unscale_` that runs twice for one optimizer before `update`; in every round of a gradient
    accumulation loop whose update runs in some rounds only; after the optimizer's step; or before the
    last backward pass of the step.

    Why it costs
    `unscale_` divides the gradients in place and may do so once per optimizer between two updates:
    a second call raises "RuntimeError: unscale_() has already been called on this optimizer since the
    last update()", one after the step raises "unscale_() is being called after step()". A backward
    pass after it adds scaled gradients to unscaled ones, and nothing divides them.

    Example
        for step, batch in enumerate(loader):
            scaler.scale(model(batch) / 4).backward()
            scaler.unscale_(optimizer)
            if step % 4 == 3:
                scaler.step(optimizer)
                scaler.update()

    Use instead
        for step, batch in enumerate(loader):
            scaler.scale(model(batch) / 4).backward()
            if step % 4 == 3:
                scaler.unscale_(optimizer)
                scaler.step(optimizer)
                scaler.update()

    When it does not apply
    Different optimizers, loops over optimizers, an update in every round, a disabled scaler, an unscale_
    under the same test as the update.

    References
    PyTorch, Automatic Mixed Precision examples, "Working with Unscaled Gradients", "Gradient accumulation".
    """

    code = "AMP010"
    name = "unscale-misuse"
    since = "0.1.0"
    level = "error"
    confidence = "high"
    sources = (
        f"{_EXAMPLES_DOCUMENT}: Working with Unscaled Gradients",
        f"{_EXAMPLES_DOCUMENT}: Gradient accumulation",
    )
    triggers = ("unscale_(",)
    requires = ()

    def check(self, context: SourceContext) -> Iterator[Finding]:
        seen: set[int] = set()
        for view in context.scaling.views:
            for unscale in view.of("unscale"):
                if unscale.site in seen or context.scaling.is_off(view, unscale) or view.of("escape"):
                    continue
                found = self._problem(view, unscale)
                if found is None:
                    continue
                other, message, advice = found
                seen.add(unscale.site)
                yield self.finding(
                    context.location(unscale.site),
                    f"`{unscale.scaler}.unscale_({unscale.optimizer})` {message}",
                    related=(context.related(other.site, f"`{context.excerpt(other.site)}`"),),
                    evidence=_evidence(context, view, unscale=unscale, other=other),
                    fix=Fix(advice),
                    identity=f"{view.function.qualified_name}:{unscale.optimizer}:{message[:20]}",
                )

    def _problem(self, view: View, unscale: Op) -> tuple[Op, str, str] | None:
        for other in view.before(unscale, "unscale"):
            if _again(view, other, unscale):
                return (
                    other,
                    "runs a second time for this optimizer without an update in between: RuntimeError.",
                    "Unscale once per optimizer and step, before anything that looks at gradients.",
                )
        for step in view.before(unscale, "scaler_step"):
            if _again(view, step, unscale):
                return (
                    step,
                    "runs after the optimizer's step: RuntimeError (unscale_() is being called after "
                    "step()).",
                    "Unscale after the last backward pass and before the step.",
                )
        return self._accumulates(view, unscale) or self._too_early(view, unscale)

    def _accumulates(self, view: View, unscale: Op) -> tuple[Op, str, str] | None:
        loops = [loop for loop in view.loops(unscale) if not view.bound_by(loop, unscale.optimizer)]
        if not loops:
            return None
        loop = loops[0]
        updates = [op for op in view.of("update") if _tail(op.scaler) == _tail(unscale.scaler)]
        near = [op for op in updates if loop in view.around(op)]
        if not updates:
            return None
        advice = "Unscale only in rounds that step: move it next to the step, under the same test."
        if not near:
            scaled = [op for op in view.of("scaled_backward") if loop in view.around(op)]
            after = [op for op in updates if op in view.after(unscale, "update")]
            if scaled and after:
                message = (
                    "runs in every round of a loop that has no update: the second round raises RuntimeError."
                )
                return after[0], message, advice
            return None
        reachable = [op for op in near if not _either_apart(view, op, unscale)]
        if reachable and all(
            view.encloses(unscale, op)
            and view.extra(op, unscale)
            and not view.decided_by_precision(op, unscale)
            for op in reachable
        ):
            # Both branches of one test may update.
            texts = {
                (condition.text, condition.holds) for op in near for condition in view.extra(op, unscale)
            }
            if any((text, not holds) in texts for text, holds in texts):
                return None
            condition = view.extra(reachable[0], unscale)[-1]
            test = condition.text if condition.holds else f"not {condition.text}"
            message = (
                f"runs in every round, but the update only if `{test}`: the next round raises RuntimeError "
                "(unscale_() has already been called on this optimizer since the last update())."
            )
            return reachable[0], message, advice
        return None

    def _too_early(self, view: View, unscale: Op) -> tuple[Op, str, str] | None:
        step = next((op for op in view.after(unscale, "scaler_step") if _same(op, unscale)), None)
        if step is None or len({op.optimizer for op in view.of("scaler_step", "step")}) > 1:
            return None
        for backward in view.between(unscale, step, "scaled_backward"):
            if _related_blocks(view, unscale, backward) and not view.between(unscale, backward, "update"):
                message = (
                    "runs before the last backward pass of the step: that pass adds scaled gradients to "
                    "unscaled ones."
                )
                return backward, message, "Unscale after the last backward pass of the step."
        return None

    valid = (
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
for step, batch in enumerate(loader):
    scaler.scale(model(batch) / 4).backward()
    if (step + 1) % 4 == 0:
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
""",
            note="under the test of the step",
        ),
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    scaler.scale(model(batch)).backward()
    scaler.unscale_(optim_g)
    scaler.unscale_(optim_d)
    scaler.step(optim_g)
    scaler.step(optim_d)
    scaler.update()
""",
            note="different optimizers",
        ),
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    scaler.scale(model(batch)).backward()
    for optimizer in optimizers:
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
    scaler.update()
""",
            note="a loop over optimizers",
        ),
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    scaler.scale(model(batch)).backward()
    scaler.unscale_(optimizer)
    if torch.isfinite(gradient_norm(model)):
        scaler.step(optimizer)
    scaler.update()
""",
            note="every round updates",
        ),
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    scaler.scale(model(batch)).backward()
    if args.clip_norm:
        scaler.unscale_(optimizer)
        clip_norm(model)
    elif args.clip_value:
        scaler.unscale_(optimizer)
        clip_value(model)
    scaler.step(optimizer)
    scaler.update()
""",
            note="one branch or the other",
        ),
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda", enabled=False)
for step, batch in enumerate(loader):
    scaler.scale(model(batch)).backward()
    scaler.unscale_(optimizer)
    if step % 4 == 3:
        scaler.step(optimizer)
        scaler.update()
""",
            note="a disabled scaler does nothing",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
for step, batch in enumerate(loader):
    scaler.scale(model(batch) / 4).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if (step + 1) % 4 == 0:
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
""",
            note="raises in the second round",
        ),
        Example(
            source="""\
import torch

def step(loss, optimizer, scaler, model):
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.unscale_(optimizer)
    log_gradients(model)
    scaler.step(optimizer)
    scaler.update()
""",
            note="twice",
        ),
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    scaler.scale(model(batch)).backward()
    scaler.step(optimizer)
    scaler.unscale_(optimizer)
    log_gradients(model)
    scaler.update()
""",
            note="after the step",
        ),
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    scaler.scale(first_loss(batch)).backward()
    scaler.unscale_(optimizer)
    scaler.scale(second_loss(batch)).backward()
    scaler.step(optimizer)
    scaler.update()
""",
            note="the second loss's gradients stay scaled",
        ),
        Example(
            source="""\
def accumulate(model, micro_batches, optimizer, scaler):
    for micro_batch in micro_batches:
        scaler.scale(model(micro_batch)).backward()
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
""",
            note="in a loop that does not update",
        ),
    )


class UnscaledBackward(SourceRule):
    """`loss.backward()` without scaling, then `scaler.step(optimizer)`.

    What it does
    Finds a scaler's step where every backward pass before it in the same run goes through an unscaled
    loss.

    Why it costs
    `scaler.step` divides all gradients by the loss scale (65536 at first): gradients that were never
    multiplied become that much smaller. When the scaler has never scaled anything, the step raises
    "AssertionError: Attempted step but _scale is None".

    Example
        loss.backward()
        scaler.step(optimizer)
        scaler.update()

    Use instead
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    When it does not apply
    A loss that was scaled on an earlier line or by a helper, branches with and without a scaler, backward
    methods of engines and frameworks, a scaler that is disabled.

    References
    PyTorch, Automatic Mixed Precision examples, "Typical Mixed Precision Training".
    """

    code = "AMP013"
    name = "unscaled-backward"
    since = "0.1.0"
    level = "error"
    confidence = "high"
    sources = (f"{_EXAMPLES_DOCUMENT}: Typical Mixed Precision Training",)
    triggers = ("scaler", "Scaler")
    requires = (".step(", ".backward(")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        if context.amp.framework:
            return
        seen: set[int] = set()
        for view in context.scaling.views:
            for step in view.of("scaler_step"):
                backwards = view.before(step, "scaled_backward", "backward", "other_backward")
                if (
                    not backwards
                    or backwards[0].site in seen
                    or any(backward.kind != "backward" for backward in backwards)
                    or context.scaling.is_off(view, step)
                    or view.before(step, "escape")
                ):
                    continue
                backward = backwards[0]
                if view.decided_by_precision(backward, step) or view.decided_by_precision(step, backward):
                    continue
                seen.add(backward.site)
                yield self._report(context, view, step, backward)

    def _report(self, context: SourceContext, view: View, step: Op, backward: Op) -> Finding:
        loss = render(backward.loss) if backward.loss is not None else "loss"
        return self.finding(
            context.location(backward.site),
            f"`{loss}` goes backward unscaled, but `{step.scaler}.step({step.optimizer})` on line "
            f"{context.location(step.site).line} divides its gradients by the loss scale (or raises "
            "AssertionError when nothing was ever scaled).",
            related=(context.related(step.site, "the step that divides by the scale"),),
            evidence=_evidence(context, view, step=step, backward=backward),
            fix=Fix(f"Write `{step.scaler}.scale({loss}).backward()`."),
            identity=f"{view.function.qualified_name}:{loss}",
        )

    valid = (
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    scaler.scale(model(batch)).backward()
    scaler.step(optimizer)
    scaler.update()
""",
            note="scaled",
        ),
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    loss = scaler.scale(model(batch))
    loss.backward()
    scaler.step(optimizer)
    scaler.update()
""",
            note="scaled on the line before",
        ),
        Example(
            source="""\
def step(loss, optimizer, scaler):
    if scaler is not None:
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    else:
        loss.backward()
        optimizer.step()
""",
            note="different branches",
        ),
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda", enabled=False)
for batch in loader:
    model(batch).backward()
    scaler.step(optimizer)
    scaler.update()
""",
            note="a disabled scaler divides by nothing",
        ),
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")

def compute_loss(batch):
    with torch.autocast("cuda"):
        loss = model(batch)
    return scaler.scale(loss)

for batch in loader:
    loss = compute_loss(batch)
    loss.backward()
    scaler.step(optimizer)
    scaler.update()
""",
            note="scaled by a helper",
        ),
        Example(
            source="""\
import torch
from losses import scaled_loss_of

scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    loss = scaled_loss_of(model, batch, scaler)
    loss.backward()
    scaler.step(optimizer)
    scaler.update()
""",
            note="code of another file gets the scaler",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    with torch.autocast("cuda"):
        loss = model(batch)
    loss.backward()
    scaler.step(optimizer)
    scaler.update()
""",
            note="never scaled",
        ),
        Example(
            source="""\
def train(model, loader, optimizer, scaler):
    for batch in loader:
        loss = model(batch)
        scaler.scale(loss)
        loss.backward()
        scaler.step(optimizer)
        scaler.update()
""",
            note="scale returns the scaled loss; it does not change its argument",
        ),
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
for real in loader:
    d_loss = discriminator_loss(real)
    d_loss.backward()
    scaler.step(optim_d)
    g_loss = generator_loss(real)
    scaler.scale(g_loss).backward()
    scaler.step(optim_g)
    scaler.update()
""",
            note="one of two losses forgotten",
        ),
        Example(
            source="""\
import torch

class Trainer:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer
        self.scaler = torch.amp.GradScaler("cuda")

    def optimize(self):
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def train_step(self, batch):
        loss = self.model(batch)
        loss.backward()
        self.optimize()
""",
            note="the step is in a helper",
        ),
    )


RULES: tuple[type[Rule], ...] = (
    ClipBeforeUnscale,
    StepWithoutUpdate,
    StepBypassesScaler,
    UnscaleMisuse,
    UnscaledBackward,
)


def _unscales_by_hand(context: SourceContext) -> bool:
    """It computes with the scale, or divides gradients itself: `clip(..., limit * scaler.get_scale())`."""
    return (
        bool({"_scale", "inv_scale"} & context.tables.identifiers)
        or context.amp.computes_with_scale
        or context.amp.rescales_gradients
    )


def _tail(scaler: str) -> str:
    """`scaler` of `self.scaler`: two names in one file that end alike may be one object."""
    return scaler.rpartition(".")[2]


def _same(one: Op, other: Op) -> bool:
    return one.optimizer == other.optimizer and _tail(one.scaler) == _tail(other.scaler)


def _again(view: View, one: Op, other: Op) -> bool:
    """Both happen to one optimizer in one run, without an update in between."""
    if not _same(one, other) or not _related_blocks(view, one, other):
        return False
    return not view.between(one, other, "update")


def _either_apart(view: View, one: Op, other: Op) -> bool:
    return view.apart(one, other) or view.apart(other, one)


def _related_blocks(view: View, one: Op, other: Op) -> bool:
    """Where one of them runs, the other runs as well."""
    return view.encloses(one, other) or view.encloses(other, one)


def _still_counts(view: View, unscale: Op, clip: Op) -> bool:
    """Gradients are still unscaled: neither an update nor the optimizer's own step came in between."""
    if view.between(unscale, clip, "update"):
        return False
    return not any(step.optimizer == unscale.optimizer for step in view.between(unscale, clip, "scaler_step"))


def _evidence(context: SourceContext, view: View, **ops: Op | None) -> dict[str, object]:
    evidence: dict[str, object] = {"function": view.function.qualified_name}
    scaler = ""
    for role, op in ops.items():
        if op is not None:
            evidence[role] = context.excerpt(op.site)
            evidence[f"{role}_line"] = context.location(op.site).line
            scaler = scaler or op.scaler
    made, _ = context.scaling.origins(view.function, scaler)
    if made:
        evidence["scaler"] = context.excerpt(made[0].site)
        evidence["enabled"] = {True: "always", None: "decided at run time"}.get(made[0].enabled, "never")
    else:
        evidence["scaler"] = "comes from elsewhere"
    return evidence


def _scaled_by(context: SourceContext, view: View, step: Op) -> Op | None:
    """The backward pass whose scaled gradients a plain step applies as they are."""
    scaled = next(iter(view.before(step, "scaled_backward")), None)
    if scaled is None or context.scaling.is_off(view, scaled) or view.before(step, "escape"):
        return None
    for other in view.of("backward", "other_backward"):
        # The optimizer may own what this one computed.
        if not _either_apart(view, other, scaled) and not view.apart(other, step):
            return None
    if view.before(step, "unscale") or view.decided_by_precision(step, scaled):
        return None
    for other in view.of("scaler_step"):
        if other.optimizer != step.optimizer:
            continue
        # `optimizer.step() if scaler is None else scaler.step(optimizer)` is one statement.
        one_statement = context.location(other.site).line == context.location(step.site).line
        if one_statement or _either_apart(view, other, step):
            return None
    return scaled

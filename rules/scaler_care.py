"""Rules on the life of a loss scaler: how it is made, saved, and what happens around its step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tclint.finding import Finding, Fix
from tclint.rule import Example, Rule, SourceRule
from tclint.source.tables import Call, CallEvent, Collection, Expression, Literal, dotted, method_of, render

if TYPE_CHECKING:
    from tclint.source.context import SourceContext
    from tclint.source.scaling import Made, Op, View

_EXAMPLES = "PyTorch docs, Automatic Mixed Precision examples"
_RECIPE = "PyTorch recipes, Automatic Mixed Precision"
_PACKAGE = "PyTorch docs, Automatic Mixed Precision package (torch.amp)"


class ScalerLifetime(SourceRule):
    """A scaler made anew in the training loop, or updated between a backward pass and its step.

    What it does
    Finds a GradScaler that is made inside the loop whose backward passes it scales, and `scaler.update()`
    between the scaled backward pass and the step of an optimizer.

    Why it costs
    A scaler learns its scale: it starts at 65536, halves it after an overflow and doubles it after 2000
    clean steps. A new one starts over every time, so that the first steps overflow and are skipped again
    and again. An update between a backward pass and its step changes the scale that the step divides by:
    the gradients of the second optimizer are then off by a factor of two whenever the scale changes.

    Example
        for batch in loader:
            scaler = torch.amp.GradScaler("cuda")
            scaler.scale(model(batch)).backward()
            scaler.step(optimizer)
            scaler.update()

    Use instead
        scaler = torch.amp.GradScaler("cuda")
        for batch in loader:
            scaler.scale(model(batch)).backward()
            scaler.step(optimizer)
            scaler.update()

    When it does not apply
    One scaler per model, loops over folds or experiments that also make a new optimizer, one update after
    each complete cycle of its own.

    References
    PyTorch, Automatic Mixed Precision examples, "Typical Mixed Precision Training" and "Working with
    Multiple Models, Losses, and Optimizers".
    """

    code = "AMP011"
    name = "scaler-lifetime"
    since = "0.1.0"
    level = "warning"
    confidence = "high"
    sources = (
        f"{_EXAMPLES}: Typical Mixed Precision Training",
        f"{_EXAMPLES}: Working with Multiple Models, Losses, and Optimizers",
    )
    triggers = ("GradScaler", ".update(")
    requires = (".scale(",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        seen: set[int] = set()
        for view in context.scaling.views:
            for made, backward in self._made_in_loop(context, view):
                if made.site not in seen:
                    seen.add(made.site)
                    yield self.finding(
                        context.location(made.site),
                        "This GradScaler is made in every round of the loop that it scales: the scale starts "
                        "over each time and is never adapted.",
                        related=(context.related(backward.site, "it scales this backward pass"),),
                        evidence={
                            "scaler": context.excerpt(made.site),
                            "backward": context.excerpt(backward.site),
                        },
                        fix=Fix("Make one scaler before the loop and keep it for the whole run."),
                        identity=f"{view.function.qualified_name}:made",
                    )
            for update, step, backward in self._updated_early(view):
                if update.site not in seen:
                    seen.add(update.site)
                    yield self.finding(
                        context.location(update.site),
                        f"`{update.scaler}.update()` runs between the scaled backward pass and "
                        f"`{step.scaler}.step({step.optimizer})`: the step divides by another scale than the "
                        "one its gradients were multiplied by.",
                        related=(
                            context.related(backward.site, "the last scaled backward pass"),
                            context.related(step.site, "the step after the update"),
                        ),
                        evidence={
                            "step": context.excerpt(step.site),
                            "backward": context.excerpt(backward.site),
                        },
                        fix=Fix("Update once per round, after the steps of all optimizers."),
                        identity=f"{view.function.qualified_name}:update:{step.optimizer}",
                    )

    def _made_in_loop(self, context: SourceContext, view: View) -> Iterator[tuple[Made, Op]]:
        function = view.function
        for made in context.scaling.made:
            if made.function != function.index or made.enabled is False:
                continue
            for loop in (b for b in function.enclosing(made.block) if function.blocks[b].kind == "loop"):
                makes_optimizer = any(
                    isinstance(event, CallEvent)
                    and loop in function.enclosing(event.block)
                    and "optim" in dotted(event.call.function).lower()
                    and method_of(event.call)[1] not in ("step", "zero_grad", "state_dict", "load_state_dict")
                    for event in function.events
                )
                if makes_optimizer:
                    break
                for backward in view.of("scaled_backward"):
                    place = backward.places[0]
                    origins, _ = context.scaling.origins(function, backward.scaler)
                    if loop in function.enclosing(place.block) and any(o.site == made.site for o in origins):
                        yield made, backward
                        break

    def _updated_early(self, view: View) -> Iterator[tuple[Op, Op, Op]]:
        if view.of("escape"):
            return
        for update in view.of("update"):
            step = next(iter(view.after(update, "scaler_step")), None)
            backward = next(iter(view.before(update, "scaled_backward")), None)
            if step is None or backward is None or step.scaler != update.scaler:
                continue
            earlier = [op for op in view.before(update, "scaler_step") if op.optimizer != step.optimizer]
            if not earlier or view.between(update, step, "scaled_backward", "backward", "other_backward"):
                continue
            if view.encloses(update, step) and view.loops(update) == view.loops(step):
                yield update, step, backward

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
            note="one scaler for the run",
        ),
        Example(
            source="""\
import torch

for fold in folds:
    model = build()
    optimizer = torch.optim.Adam(model.parameters())
    scaler = torch.amp.GradScaler("cuda")
    for batch in fold:
        scaler.scale(model(batch)).backward()
        scaler.step(optimizer)
        scaler.update()
""",
            note="each fold is a run of its own",
        ),
        Example(
            source="""\
import torch

scaler_d, scaler_g = torch.amp.GradScaler("cuda"), torch.amp.GradScaler("cuda")
for real in loader:
    scaler_d.scale(loss_d(real)).backward()
    scaler_d.step(optim_d)
    scaler_d.update()
    scaler_g.scale(loss_g(real)).backward()
    scaler_g.step(optim_g)
    scaler_g.update()
""",
            note="one scaler per model",
        ),
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
for real in loader:
    scaler.scale(loss_d(real)).backward()
    scaler.step(optim_d)
    scaler.update()
    scaler.scale(loss_g(real)).backward()
    scaler.step(optim_g)
    scaler.update()
""",
            note="two complete cycles",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch

for batch in loader:
    scaler = torch.amp.GradScaler("cuda")
    scaler.scale(model(batch)).backward()
    scaler.step(optimizer)
    scaler.update()
""",
            note="a new scaler in every round",
        ),
        Example(
            source="""\
import torch

def fit(model, optimizer, loader):
    for epoch in range(10):
        scaler = torch.cuda.amp.GradScaler()
        for batch in loader:
            scaler.scale(model(batch)).backward()
            scaler.step(optimizer)
            scaler.update()
""",
            note="in every epoch",
        ),
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    scaler.scale(model(batch)).backward()
    scaler.step(optim_a)
    scaler.update()
    scaler.step(optim_b)
""",
            note="updated between two steps",
        ),
    )


class ScalerStateNotSaved(SourceRule):
    """A checkpoint with the optimizer's state but without the scaler's.

    What it does
    Finds `torch.save` of a dict with an optimizer's `state_dict()` in a file that makes a GradScaler,
    scales with it and never asks for its `state_dict()`, in a script that also loads checkpoints.

    Why it costs
    A resumed run starts with the scale of 65536 instead of the one that it had learned: its first steps
    overflow and are skipped, and it is not bitwise the run that was interrupted.

    Example
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)

    Use instead
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                    "scaler": scaler.state_dict()}, path)

    When it does not apply
    Files that save weights only or never resume, scalers that are disabled, checkpoints made elsewhere,
    frameworks.

    References
    PyTorch, Automatic Mixed Precision recipe, "Saving/Resuming".
    """

    code = "AMP018"
    name = "scaler-state-not-saved"
    since = "0.1.0"
    level = "info"
    confidence = "high"
    sources = (f"{_RECIPE}: Saving/Resuming",)
    triggers = ("GradScaler",)
    requires = (".save(", "state_dict", "load_state_dict")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        made = [item for item in context.scaling.made if item.enabled is not False]
        if not made or context.amp.framework:
            return
        if not any(view.of("scaled_backward") for view in context.scaling.views):
            return
        saves: list[tuple[Call, Call]] = []
        resumes = False
        for function in context.tables.functions:
            for event in function.events:
                if not isinstance(event, CallEvent):
                    continue
                receiver, method = method_of(event.call)
                if receiver is None:
                    continue
                text = render(receiver).lower()
                if method in ("state_dict", "load_state_dict") and ("scal" in text or "amp" in text):
                    return
                resumes = resumes or (method == "load_state_dict" and "opt" in text)
                if "torch.save" in context.resolver.called(function, event.call) and event.call.arguments:
                    for _, value in (
                        *context.origins_of(function, dotted(event.call.arguments[0].value)),
                        (function, event.call.arguments[0].value),
                    ):
                        state = _optimizer_state(value)
                        if state is not None:
                            saves.append((event.call, state))
                            break
        if not saves or not resumes:
            return
        save, state = saves[0]
        yield self.finding(
            context.location(save.site),
            f"The checkpoint holds `{render(state)}` but not the GradScaler's state: a resumed run starts "
            "with its initial scale of 65536.",
            related=(
                context.related(made[0].site, "the scaler"),
                context.related(state.site, "the optimizer's state is saved here"),
            ),
            evidence={"save": context.excerpt(save.site), "scaler": context.excerpt(made[0].site)},
            fix=Fix("Save `scaler.state_dict()` as well and load it when resuming."),
            identity=context.excerpt(save.site),
        )

    valid = (
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
optimizer.load_state_dict(torch.load("c.pt")["optimizer"])
scaler.scale(model(batch)).backward()
torch.save({"optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()}, "c.pt")
""",
            note="saved",
        ),
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
scaler.scale(model(batch)).backward()
model.load_state_dict(torch.load("m.pt"))
torch.save(model.state_dict(), "m.pt")
""",
            note="weights only",
        ),
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda", enabled=False)
optimizer.load_state_dict(torch.load("c.pt")["optimizer"])
scaler.scale(model(batch)).backward()
torch.save({"optimizer": optimizer.state_dict()}, "c.pt")
""",
            note="the scaler is off",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
optimizer.load_state_dict(torch.load("c.pt")["optimizer"])
scaler.scale(model(batch)).backward()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "c.pt")
""",
            note="the scaler's state is missing",
        ),
        Example(
            source="""\
import torch

class Trainer:
    def __init__(self):
        self.scaler = torch.cuda.amp.GradScaler()

    def step(self, batch):
        self.scaler.scale(self.model(batch)).backward()

    def save(self, path):
        state = {"epoch": self.epoch, "optim": self.optimizer.state_dict()}
        torch.save(state, path)

    def resume(self, path):
        self.optimizer.load_state_dict(torch.load(path)["optim"])
""",
            note="the dict has a name",
        ),
        Example(
            source="""\
import torch
from torch.amp import GradScaler

def main(args):
    scaler = GradScaler("cuda", enabled=args.amp)
    if args.resume:
        optimizer.load_state_dict(torch.load(args.resume)["opt"])
    for batch in loader:
        scaler.scale(model(batch)).backward()
        scaler.step(optimizer)
        scaler.update()
    torch.save(dict(model=model.state_dict(), opt=optimizer.state_dict()), "last.pt")
""",
            note="a call of dict",
        ),
    )


class LossScaleConfig(SourceRule):
    """A GradScaler with factors that raise or cannot work.

    What it does
    Finds `growth_factor` of at most 1, `backoff_factor` of at least 1, an `init_scale` below 8 or not
    above 0, and a `growth_interval` below 10.

    Why it costs
    GradScaler raises AssertionError for a growth factor of at most 1 or a backoff factor of at least 1. A
    scale below 8 hardly moves gradients out of the range that float16 flushes to zero (NVIDIA suggests 8
    to 32768), and growing every few steps makes every few steps overflow and be skipped.

    Example
        scaler = torch.amp.GradScaler("cuda", growth_factor=1.0)

    Use instead
        scaler = torch.amp.GradScaler("cuda")

    (init_scale 65536, growth_factor 2, backoff_factor 0.5, growth_interval 2000)

    When it does not apply
    Values known only at run time, large growth intervals (a static scale on purpose), disabled scalers.

    References
    PyTorch 2.13, torch/amp/grad_scaler.py, GradScaler.__init__.
    NVIDIA, Train With Mixed Precision, "Choosing A Scaling Factor".
    """

    code = "AMP019"
    name = "loss-scale-config"
    since = "0.1.0"
    level = "info"
    confidence = "high"
    sources = (
        "PyTorch 2.13, torch.amp.GradScaler: defaults and assertions",
        "NVIDIA, Train With Mixed Precision: Choosing A Scaling Factor",
    )
    triggers = ("GradScaler",)
    requires = ()

    def check(self, context: SourceContext) -> Iterator[Finding]:
        limits: tuple[tuple[str, Callable[[float], bool], str, bool], ...] = (
            ("growth_factor", lambda value: value <= 1, "raises AssertionError: it must be above 1", True),
            ("backoff_factor", lambda value: value >= 1, "raises AssertionError: it must be below 1", True),
            (
                "init_scale",
                lambda value: value < 8,
                "hardly scales: useful factors are 8 to 32768 and up",
                False,
            ),
            ("growth_interval", lambda value: value < 10, "makes every few steps overflow", False),
        )
        for made in context.scaling.made:
            if made.enabled is False:
                continue
            function = context.tables.functions[made.function]
            for parameter, wrong, why, raises in limits:
                if parameter not in made.arguments:
                    continue
                possible = context.resolver.evaluate(function, made.arguments[parameter])
                value = possible.values[0] if possible.certain else None
                if isinstance(value, bool) or not isinstance(value, int | float) or not wrong(value):
                    continue
                yield self.finding(
                    context.location(made.site),
                    f"{parameter}={value:g} {why}.",
                    related=(context.related(made.site, f"{parameter} is {value:g}"),),
                    evidence={"parameter": parameter, "value": value, "scaler": context.excerpt(made.site)},
                    fix=Fix(f"Leave {parameter} at its default."),
                    level="error" if raises else None,
                    identity=f"{function.qualified_name}:{parameter}",
                )

    valid = (
        Example(source='import torch\n\nscaler = torch.amp.GradScaler("cuda")\n', note="defaults"),
        Example(
            source='from torch.amp import GradScaler\n\nscaler = GradScaler("cuda", 2.0**12, 2.0)\n',
            note="a smaller start",
        ),
        Example(
            source='from torch.amp import GradScaler\n\ns = GradScaler("cuda", growth_interval=10**9)\n',
            note="a static scale on purpose",
        ),
        Example(
            source='import torch\n\nscaler = torch.amp.GradScaler("cuda", init_scale=1.0, enabled=False)\n',
            note="off",
        ),
        Example(
            source='import torch\n\nscaler = torch.amp.GradScaler("cuda", init_scale=args.scale)\n',
            note="known at run time",
        ),
    )
    invalid = (
        Example(
            source='import torch\n\nscaler = torch.amp.GradScaler("cuda", growth_factor=1.0)\n',
            note="raises",
        ),
        Example(
            source="import torch\n\nscaler = torch.cuda.amp.GradScaler(1024.0, 2.0, 1.0)\n",
            note="by position: the third is the backoff factor",
        ),
        Example(
            source="from torch.cuda.amp import GradScaler\n\nONE = 1\nscaler = GradScaler(init_scale=ONE)\n",
            note="scales by nothing",
        ),
        Example(
            source='import torch\n\nscaler = torch.amp.GradScaler("cuda", growth_interval=1)\n',
            note="grows after every step",
        ),
    )


class ScaledGradientInspection(SourceRule):
    """Gradients measured while they are still multiplied by the loss scale.

    What it does
    Finds norms and statistics of `.grad` between a scaled backward pass and `scaler.step(optimizer)`
    without `scaler.unscale_(optimizer)` before them.

    Why it costs
    The numbers are up to 65536 times and more too large and jump by a factor of two whenever the scale
    changes: logs mislead, and thresholds on them do the wrong thing.

    Example
        scaler.scale(loss).backward()
        norm = sum(p.grad.norm() for p in model.parameters())
        scaler.step(optimizer)

    Use instead
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = sum(p.grad.norm() for p in model.parameters())
        scaler.step(optimizer)

    When it does not apply
    After the step, which unscales in place; a scaler that is disabled; code that divides by
    `scaler.get_scale()`.

    References
    PyTorch, Automatic Mixed Precision examples, "Working with Unscaled Gradients".
    """

    code = "AMP020"
    name = "scaled-grad-inspection"
    since = "0.1.0"
    level = "warning"
    confidence = "high"
    sources = (f"{_EXAMPLES}: Working with Unscaled Gradients",)
    triggers = (".grad",)
    requires = (".scale(", ".step(")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        if "get_scale" in context.tables.identifiers:
            return
        seen: set[int] = set()
        for view in context.scaling.views:
            for read in view.of("read"):
                step = next(iter(view.after(read, "scaler_step")), None)
                backward = next(iter(view.before(read, "scaled_backward")), None)
                if step is None or backward is None or read.site in seen:
                    continue
                if context.scaling.is_off(view, step) or view.decided_by_precision(read, step):
                    continue
                if view.between(read, step, "scaled_backward", "backward", "other_backward", "update"):
                    continue
                if view.before(read, "escape") or view.between(
                    backward, read, "unscale", "scaler_step", "update"
                ):
                    continue
                seen.add(read.site)
                yield self.finding(
                    context.location(read.site),
                    f"`{context.excerpt(read.site, 50)}` looks at gradients that are still multiplied by the "
                    f"loss scale: `{step.scaler}.unscale_({step.optimizer})` has not run.",
                    related=(
                        context.related(backward.site, "scaled from here on"),
                        context.related(step.site, "unscaled only here"),
                    ),
                    evidence={
                        "read": context.excerpt(read.site),
                        "backward": context.excerpt(backward.site),
                        "step": context.excerpt(step.site),
                    },
                    fix=Fix(f"Call `{step.scaler}.unscale_({step.optimizer})` before."),
                    identity=f"{view.function.qualified_name}:{context.excerpt(read.site)}",
                )
                break

    valid = (
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    scaler.scale(model(batch)).backward()
    scaler.unscale_(optimizer)
    norm = sum(p.grad.norm() for p in model.parameters())
    scaler.step(optimizer)
    scaler.update()
""",
            note="unscaled before",
        ),
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    scaler.scale(model(batch)).backward()
    scaler.step(optimizer)
    norm = sum(p.grad.norm() for p in model.parameters())
    scaler.update()
""",
            note="the step has unscaled them",
        ),
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    scaler.scale(model(batch)).backward()
    norm = sum(p.grad.norm() for p in model.parameters()) / scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
""",
            note="divided by the scale",
        ),
        Example(
            source="""\
for batch in loader:
    model(batch).backward()
    norm = sum(p.grad.norm() for p in model.parameters())
    optimizer.step()
image.scale(2)
""",
            note="nothing is scaled",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    scaler.scale(model(batch)).backward()
    norm = sum(p.grad.norm() for p in model.parameters())
    scaler.step(optimizer)
    scaler.update()
""",
            note="scaled norms",
        ),
        Example(
            source="""\
import torch

def train(model, loader, optimizer, scaler):
    for batch in loader:
        scaler.scale(model(batch)).backward()
        log(model.head.weight.grad.abs().mean())
        scaler.step(optimizer)
        scaler.update()
""",
            note="statistics of one layer",
        ),
        Example(
            source="""\
import torch

class Trainer:
    def __init__(self):
        self.scaler = torch.amp.GradScaler("cuda")

    def norm(self):
        return torch.norm(torch.stack([p.grad.detach() for p in self.model.parameters()]))

    def step(self, batch):
        self.scaler.scale(self.model(batch)).backward()
        print(self.norm())
        self.scaler.step(self.optimizer)
        self.scaler.update()
""",
            note="in a helper",
        ),
    )


class ScalerClosure(SourceRule):
    """`scaler.step` with a closure, or with an optimizer that needs one.

    What it does
    Finds `scaler.step(optimizer, closure)` and scaler steps of `torch.optim.LBFGS`.

    Why it costs
    An enabled scaler raises "RuntimeError: Closure use is not currently supported if GradScaler is
    enabled" for `closure=`; a closure by position is run, and its gradients are never unscaled nor
    checked. LBFGS cannot step without a closure: TypeError.

    Example
        optimizer = torch.optim.LBFGS(model.parameters())
        scaler.step(optimizer, closure)

    Use instead
        optimizer.step(closure)

    in float32 or under bfloat16 autocast, without a scaler.

    When it does not apply
    A scaler that is disabled.

    References
    PyTorch 2.13, torch/amp/grad_scaler.py, GradScaler.step.
    """

    code = "AMP021"
    name = "scaler-closure"
    since = "0.1.0"
    level = "error"
    confidence = "high"
    sources = ("PyTorch 2.13, torch.amp.GradScaler.step",)
    triggers = ("closure", "LBFGS")
    requires = (".step(", "scaler")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        seen: set[int] = set()
        for view in context.scaling.views:
            for step in view.of("scaler_step"):
                if step.site in seen or context.scaling.is_off(view, step):
                    continue
                closures = [
                    argument
                    for argument in step.call.arguments[1:]
                    if (argument.keyword == "closure" or (not argument.keyword and not argument.star))
                    and not self._may_be_none(view, argument.value)
                ]
                lbfgs = any(
                    isinstance(value, Call)
                    and any(name.endswith(".LBFGS") for name in context.resolver.called(scope, value))
                    for scope, value in context.origins_of(view.function, step.optimizer)
                )
                if not closures and not lbfgs:
                    continue
                seen.add(step.site)
                what = "takes no closure" if closures else "cannot step LBFGS, which needs a closure"
                yield self.finding(
                    context.location(step.site),
                    f"`{step.scaler}.step` {what}: an enabled GradScaler does not support closures.",
                    related=(context.related(step.site, "the step"),),
                    evidence={"step": context.excerpt(step.site), "closure": bool(closures), "lbfgs": lbfgs},
                    fix=Fix(
                        "Train such an optimizer without a scaler: in float32 or under bfloat16 autocast."
                    ),
                    identity=f"{view.function.qualified_name}:{step.optimizer}",
                )

    def _may_be_none(self, view: View, value: Expression) -> bool:
        """A wrapper that passes on what it gets: `def step(self, closure=None)`."""
        return any(
            parameter.name == dotted(value) and parameter.default is not None
            for parameter in view.function.parameters
        )

    valid = (
        Example(
            source="""\
import torch

class Wrapper:
    def step(self, closure=None):
        self.scaler.scale(self.loss).backward()
        self.scaler.step(self.optimizer, closure)
        self.scaler.update()
""",
            note="a wrapper that passes on what it gets, usually None",
        ),
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
optimizer = torch.optim.SGD(model.parameters(), closure_lr)
scaler.step(optimizer)
scaler.update()
""",
            note="no closure",
        ),
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda", enabled=False)
scaler.step(optimizer, closure)
""",
            note="the scaler is off",
        ),
        Example(
            source="""\
import torch

optimizer = torch.optim.LBFGS(model.parameters())
optimizer.step(closure)
scaler = None
""",
            note="without a scaler",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
scaler.scale(model(batch)).backward()
scaler.step(optimizer, closure=closure)
scaler.update()
""",
            note="raises RuntimeError",
        ),
        Example(
            source="""\
import torch

def train(optimizer, scaler, closure):
    scaler.scale(closure()).backward()
    scaler.step(optimizer, closure)
    scaler.update()
""",
            note="by position",
        ),
        Example(
            source="""\
import torch

optimizer = torch.optim.LBFGS(model.parameters())
scaler = torch.amp.GradScaler("cuda")
scaler.scale(model(batch)).backward()
scaler.step(optimizer)
scaler.update()
""",
            note="LBFGS without a closure: TypeError",
        ),
    )


class ScalerWithoutAutocast(SourceRule):
    """A loss scaler where nothing computes in float16.

    What it does
    Finds a GradScaler that scales losses in a file that, with everything that it imports from its
    project, never mentions autocast, float16 or half.

    Why it costs
    Gradients of float32 computation do not underflow; the scaler only costs time, and nothing uses the
    Tensor Cores' 16-bit rate: autocast was probably forgotten.

    Example
        scaler = torch.amp.GradScaler("cuda")
        loss = model(batch)
        scaler.scale(loss).backward()

    Use instead
        with torch.autocast("cuda"):
            loss = model(batch)
        scaler.scale(loss).backward()

    When it does not apply
    Autocast inside the model or in other files of the project, casts of one's own, scalers that are
    disabled, models of libraries that are not known to leave the dtype alone.

    References
    PyTorch, Automatic Mixed Precision package (torch.amp): autocast and GradScaler are modular.
    """

    code = "AMP012"
    name = "scaler-without-autocast"
    since = "0.1.0"
    level = "info"
    confidence = "medium"
    sources = (f"{_PACKAGE}: introduction",)
    triggers = ("GradScaler",)
    requires = (".scale(",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        computes_in_16_bits = ("autocast", "float16", "half", "bfloat16", "fp16", "amp_autocast")
        if any(word in context.tables.identifiers for word in computes_in_16_bits) or context.amp.framework:
            return
        if any("autocast" in name or "fp16" in name for name in context.tables.identifiers):
            return
        made = [item for item in context.scaling.made if item.enabled is not False]
        if not made or not self._imports_known(context):
            return
        if context.neighbours.mention(("autocast", "float16", ".half(", "fp16")) is not None:
            return
        for view in context.scaling.views:
            for backward in view.of("scaled_backward"):
                origins, _ = context.scaling.origins(view.function, backward.scaler)
                if not any(item in made or item.site == made[0].site for item in origins):
                    continue
                yield self.finding(
                    context.location(backward.site),
                    "The loss is scaled, but nothing here computes in float16: no autocast, no cast.",
                    related=(context.related(origins[0].site, "the scaler"),),
                    evidence={"scaler": context.excerpt(origins[0].site), "autocast": None},
                    fix=Fix('Compute the loss under `torch.autocast("cuda")`, or drop the scaler.'),
                    identity=view.function.qualified_name,
                )
                return

    def _imports_known(self, context: SourceContext) -> bool:
        """Everything imported is torch, the standard library, numpy or a file of the project."""
        import sys

        known = {
            "torch",
            "torchvision",
            "numpy",
            "tqdm",
            "PIL",
            "matplotlib",
            "sklearn",
            "pandas",
            "wandb",
            "cv2",
        }
        project = {
            part
            for path in context.neighbours.imported()
            for part in path.replace("\\", "/").removesuffix(".py").split("/")
        }
        for function in context.tables.functions:
            for item in function.imports:
                root = item.qualified.lstrip(".").partition(".")[0]
                if root not in known | project and root not in sys.stdlib_module_names:
                    return False
        return True

    valid = (
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
with torch.autocast("cuda"):
    loss = model(batch)
scaler.scale(loss).backward()
""",
            note="with autocast",
        ),
        Example(
            source="""\
import torch
from unknown_models import build

scaler = torch.amp.GradScaler("cuda")
loss = build()(batch)
scaler.scale(loss).backward()
""",
            note="the model may use autocast itself",
        ),
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
loss = model(batch.half()).float()
scaler.scale(loss).backward()
""",
            note="casts of one's own",
        ),
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda", enabled=False)
scaler.scale(model(batch)).backward()
""",
            note="the scaler is off",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    scaler.scale(model(batch)).backward()
    scaler.step(optimizer)
    scaler.update()
""",
            note="autocast was forgotten",
        ),
        Example(
            source="""\
import torch
import torchvision

model = torchvision.models.resnet50().cuda()
scaler = torch.amp.GradScaler("cuda")

def step(images, labels):
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
            note="torchvision's models leave the dtype alone",
        ),
        Example(
            source="""\
from torch import nn
from torch.amp import GradScaler

class Trainer:
    def __init__(self):
        self.scaler = GradScaler("cuda")

    def step(self, batch):
        self.scaler.scale(self.model(batch)).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
""",
            note="in a class",
        ),
    )


RULES: tuple[type[Rule], ...] = (
    ScalerLifetime,
    ScalerWithoutAutocast,
    ScalerStateNotSaved,
    LossScaleConfig,
    ScaledGradientInspection,
    ScalerClosure,
)


def _optimizer_state(value: object) -> Call | None:
    """The call of an optimizer's state_dict in a dict display or a call of dict; None without one, or with
    anything that may hold the scaler's."""
    if isinstance(value, Collection) and value.kind == "dict":
        if any(key is None for key in value.keys) or any(
            isinstance(key, Literal) and ("scal" in str(key.value).lower() or "amp" in str(key.value).lower())
            for key in value.keys
        ):
            return None
        items = value.items
    elif isinstance(value, Call) and dotted(value.function) == "dict":
        if any(a.star or "scal" in a.keyword or "amp" in a.keyword for a in value.arguments):
            return None
        items = tuple(argument.value for argument in value.arguments)
    else:
        return None
    for item in items:
        if isinstance(item, Call):
            receiver, method = method_of(item)
            if method == "state_dict" and receiver is not None and "opt" in render(receiver).lower():
                return item
    return None

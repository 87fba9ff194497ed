"""A rule on backward passes inside of autocast."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tclint.core.finding import Finding, Fix
from tclint.core.rule import Example, Rule
from tclint.source.names.conditions import conditions_of, exclusive
from tclint.source.source_rule import SourceRule
from tclint.source.syntax.tables import CallEvent, render

if TYPE_CHECKING:
    from tclint.source.context import SourceContext
    from tclint.source.facts.autocasts import Region
    from tclint.source.names.conditions import Condition
    from tclint.source.syntax.tables import Function

_CALLS_FOLLOWED = 3


class BackwardUnderAutocast(SourceRule):
    """Backward called inside an autocast region.

    What it does
    Finds calls of `Tensor.backward` that run inside a `with autocast(...)` block, in a function decorated
    with autocast, or in one that its file calls only from there (a call that its own tests exclude, such as
    `if self.amp:`, does not count).

    Why it costs
    Backward ops run in the dtype that autocast chose for the forward op, whether or not the region is
    still open. What the region adds is autocasting of everything else that runs during backward: hooks,
    custom autograd functions without custom_bwd, recomputed activations. These can then run in a lower
    precision than their forward did. PyTorch's documentation says that backward passes under autocast are
    not recommended.

    Example
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = criterion(model(images), labels)
            loss.backward()

    Use instead
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = criterion(model(images), labels)
        loss.backward()

    When it does not apply
    A region that is known to be disabled, also by an inner `autocast(enabled=False)`; a branch that runs
    only when it is disabled; functions and lambdas that are merely defined inside the region; `backward`
    methods of engines, trainers and models.

    References
    PyTorch, Automatic Mixed Precision recipe, "Adding torch.autocast".
    PyTorch, Automatic Mixed Precision examples, "Typical Mixed Precision Training".
    """

    code = "AMP006"
    name = "backward-under-autocast"
    since = "0.1.0"
    level = "warning"
    confidence = "high"
    sources = (
        "PyTorch recipes, Automatic Mixed Precision: Adding torch.autocast",
        "PyTorch docs, Automatic Mixed Precision examples: Typical Mixed Precision Training",
    )
    triggers = ("autocast",)
    requires = (".backward(",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        amp = context.amp
        for function in context.tables.functions:
            for event in function.events:
                if not isinstance(event, CallEvent) or not _is_backward(context, function.index, event):
                    continue
                region = amp.autocasts.effective(function, event.block)
                if region is None and not amp.autocasts.active(function, event.block):
                    tests = _about_the_object(function, event.block)
                    region = _called_under(context, function, tests, _CALLS_FOLLOWED)
                if region is None:
                    continue
                start = context.location(region.site)
                what = render(event.call.function)
                how = "decorator" if region.block == 0 else "region"
                when = "" if region.autocast.enabled else ", where it is enabled"
                yield self.finding(
                    context.location(event.call.site),
                    f"`{what}()` runs inside the autocast {how} of line {start.line}{when}; leave the region "
                    "before going backward.",
                    related=(context.related(region.site, f"the autocast {how} begins here"),),
                    evidence={
                        "call": context.excerpt(event.call.site),
                        "function": function.qualified_name,
                        "autocast": context.excerpt(region.autocast.site),
                        "autocast_line": start.line,
                        "enabled": {True: "always", None: "decided at run time"}[
                            region.autocast.enabled or None
                        ],
                    },
                    fix=Fix(
                        "Compute only the forward pass and the loss in a `with autocast(...)` block and call "
                        "backward after it."
                        if how == "decorator"
                        else f"Move `{what}()` and what follows it out of the `with` block, to the block's "
                        "own indentation."
                    ),
                    identity=f"{function.qualified_name}:{what}",
                )

    valid = (
        Example(
            source="""\
import torch

for images, labels in loader:
    with torch.autocast("cuda"):
        loss = criterion(model(images), labels)
    scaler.scale(loss).backward()
""",
            note="backward comes after the region",
        ),
        Example(
            source="""\
import torch

with torch.autocast("cuda"):
    loss = criterion(model(images), labels)
    with torch.autocast("cuda", enabled=False):
        loss.float().backward()
""",
            note="the inner region switches autocast off",
        ),
        Example(
            source="""\
import torch

with torch.autocast("cuda", enabled=False):
    loss = criterion(model(images), labels)
    loss.backward()
""",
            note="autocast is off",
        ),
        Example(
            source="""\
import torch

with torch.autocast("cuda"):
    loss = criterion(model(images), labels)

    def finish():
        loss.backward()

finish()
""",
            note="the function is defined inside and called outside",
        ),
        Example(
            source="""\
import torch

with torch.profiler.record_function("step"):
    loss = criterion(model(images), labels)
    loss.backward()

@torch.compile
def step(images, labels):
    loss = criterion(model(images), labels)
    loss.backward()
    torch.autocast("cuda")
""",
            note="other contexts and decorators; an autocast that is never entered",
        ),
        Example(
            source="""\
import torch

with torch.autocast("cuda", enabled=use_amp):
    loss = criterion(model(images), labels)
    if not use_amp:
        loss.backward()
""",
            note="this branch runs only when autocast is off",
        ),
        Example(
            source="""\
import torch

with torch.autocast("cuda"):
    loss = engine(images, labels)
    engine.backward(loss)
    self.backward()
""",
            note="methods of an engine and of a trainer, not Tensor.backward",
        ),
        Example(
            source="""\
from mylib.precision import autocast

with autocast("cuda"):
    loss = criterion(model(images), labels)
    loss.backward()
""",
            note="another library's autocast may do anything",
        ),
        Example(
            source="""\
import torch

class Trainer:
    def back(self):
        if self.amp:
            self.scaler.scale(self.loss).backward()
        else:
            self.loss.backward()

    def step(self):
        with torch.autocast("cuda", enabled=self.amp):
            self.loss = self.model(self.batch)
        self.back()
        if self.debug:
            with torch.autocast("cuda"):
                self.back()
""",
            note="one of its calls is after the region",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch

class Critic:
    def train(self, batches):
        for batch in batches:
            with torch.amp.autocast("cuda"):
                self.update(batch)

    def update(self, batch):
        loss = self.network(batch).mean()
        loss.backward()
        self.optimizer.step()
""",
            note="a method that runs only under autocast",
        ),
        Example(
            source="""\
import torch

for images, labels in loader:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = criterion(model(images), labels)
        loss.backward()
    optimizer.step()
""",
            note="any dtype and device",
        ),
        Example(
            source="""\
from torch.cuda.amp import autocast, GradScaler

scaler = GradScaler()
for images, labels in loader:
    with autocast():
        loss = criterion(model(images), labels)
        if loss.isfinite():
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
""",
            note="scaled, but inside the region all the same",
        ),
        Example(
            source="""\
import torch

@torch.autocast(device_type="cuda")
def train_step(model, batch):
    loss = model(**batch).loss
    loss.backward()
    return loss.item()
""",
            note="the decorator makes the whole function a region",
        ),
        Example(
            source="""\
from contextlib import nullcontext
import torch

class Trainer:
    def __init__(self, amp):
        self.context = torch.autocast("cuda") if amp else nullcontext()

    def step(self, batch):
        with torch.profiler.record_function("step"), self.context:
            self.loss = self.model(batch)
            self.loss.sum().backward()
""",
            note="the region is an attribute; where amp is on",
        ),
        Example(
            source="""\
import torch

with torch.autocast("cuda", enabled=False):
    prepare()
    with torch.autocast("cuda"):
        torch.autograd.backward([model(images).sum()])
""",
            note="the inner region switches autocast on again",
        ),
        Example(
            source="""\
import torch

class Trainer:
    def back(self):
        self.loss = self.model(self.batch)
        if self.amp:
            self.scaler.scale(self.loss).backward()
        else:
            self.loss.backward()

    def step(self):
        if self.amp:
            with torch.autocast("cuda"):
                self.back()
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.back()
            self.optimizer.step()
""",
            note="the call outside of the region never gets to the scaled pass",
        ),
    )


RULES: tuple[type[Rule], ...] = (BackwardUnderAutocast,)


def _called_under(
    context: SourceContext, function: Function, tests: tuple[Condition, ...], depth: int
) -> Region | None:
    """The autocast region that every call of a function in its file is under that can lead to code which
    runs under these tests; None where one call is not."""
    calls = context.program.callers.get(function.index, [])
    found: Region | None = None
    for caller, event in calls if depth > 0 else ():
        here = _about_the_object(caller, event.block)
        if exclusive(tests, here):
            continue
        region = context.amp.autocasts.effective(caller, event.block)
        if region is None and not context.amp.autocasts.active(caller, event.block):
            region = _called_under(context, caller, (*tests, *here), depth - 1)
        if region is None:
            return None
        found = found or region
    return found


def _about_the_object(function: Function, block: int) -> tuple[Condition, ...]:
    """Tests around a block that mean the same in every method: `if self.amp:`."""
    return tuple(
        condition for condition in conditions_of(function, block) if condition.text.startswith("self.")
    )


def _is_backward(context: SourceContext, function: int, event: CallEvent) -> bool:
    owner = context.tables.functions[function]
    if "torch.autograd.backward" in context.resolver.called(owner, event.call):
        return True
    return context.amp.is_tensor_backward(owner, event.call)

"""Where a loss scaler is made and when it is updated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tclint.finding import Finding, Fix
from tclint.rule import Example, Rule, SourceRule
from tclint.source.tables import CallEvent, dotted, method_of

if TYPE_CHECKING:
    from tclint.source.context import SourceContext
    from tclint.source.scaling import Made
    from tclint.source.scaling_view import Op, View

_EXAMPLES = "PyTorch docs, Automatic Mixed Precision examples"


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


RULES: tuple[type[Rule], ...] = (ScalerLifetime,)

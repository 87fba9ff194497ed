"""A rule on networks for which gradients are computed although nothing trains them."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule, Thing, distinct
from tclint.plugin.source import Unused


class GradientsNobodyUses(SourceRule):
    """Gradients for a network that no step of an optimizer uses.

    What it does
    Finds networks in training steps that the gradients of a loss flow back through although nothing freezes
    them, and either no optimizer of the program updates them, as with target networks and perceptual losses,
    or `zero_grad` clears these gradients before their optimizer steps, as with the discriminator in the step
    of a generator and the critic in that of an actor.

    Why it costs
    The backward pass computes a gradient for every weight of the network, a third of its work, and keeps them
    all; where the inputs need no gradients either, the whole backward pass of the network is for nothing, and
    all its activations are kept for it.

    Example
        wanted = reward + 0.99 * target(state).max(1).values
        loss = mse_loss(online(state)[action], wanted)

    Use instead
        with torch.no_grad():
            wanted = reward + 0.99 * target(state).max(1).values

        vgg.requires_grad_(False)   # where gradients have to reach the network's inputs

        discriminator.requires_grad_(False)
        loss = -discriminator(generator(noise)).mean()
        discriminator.requires_grad_(True)

    When it does not apply
    Optimizers that other code makes or extends; networks whose gradients are read by hand.
    """

    code = "RUN024"
    name = "gradients-nobody-uses"
    level = "info"
    confidence = "medium"
    sources = (
        "PyTorch Autograd mechanics, Locally disabling gradient computation: requires_grad of frozen "
        "parameters and no_grad",
    )
    triggers = (".step(", "training_step")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        found: dict[Thing, Unused] = {}
        for item in context.recording.unused():
            known = found.get(item.network)
            # Once frozen, a network records nothing if its inputs need no gradients.
            if context.concerns(item.call) and (
                known is None or known.needs_gradients > item.needs_gradients
            ):
                found[item.network] = item
        for call, item in distinct((item.call, item) for item in found.values()):
            cause = item.network.made if item.cleared is None else item.cleared
            shown = "the network is made here" if item.cleared is None else "its gradients are cleared here"
            whose = "no optimizer updates" if item.cleared is None else "this step does not update"
            how, fix = _effect(item)
            yield self.finding(
                context.at(call),
                f"`{context.code(call)}` records gradients of a network that {whose}: {how}.",
                related=(context.also(cause, shown),) if cause is not None else (),
                evidence={"function": call.place.function.qualified_name, "inputs": item.needs_gradients},
                fix=Fix(fix),
                identity=f"{call.place.function.qualified_name}:{context.code(call)}",
            )


def _effect(item: Unused) -> tuple[str, str]:
    """What is computed for nothing, and what avoids it."""
    if not item.needs_gradients:
        how = "its activations are kept, and a backward pass runs through it, for nothing"
        return how, "Compute it under `torch.no_grad()`."
    if item.cleared is None:
        how = "its weights get gradients that nothing reads"
        return how, "Freeze it: `.requires_grad_(False)` once, where it is made."
    how = "its weights get gradients that are cleared before a step uses them"
    return how, "Call `.requires_grad_(False)` on it before this forward, and undo that before its own."

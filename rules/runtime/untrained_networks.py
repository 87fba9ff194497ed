"""A rule on networks for which gradients are computed although nothing trains them."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.run.facts import distinct
from tclint.source.run.values import Event, Thing


class GradientsNobodyUses(SourceRule):
    """Gradients for a network that no optimizer updates.

    What it does
    Finds networks in training steps, such as target networks and perceptual losses, that the gradients of a
    loss flow back through although no optimizer of the program updates their parameters and nothing freezes
    them.

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
    triggers = (".step(",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        found: dict[Thing, tuple[Event, Thing, bool]] = {}
        for call, network, needs_gradients in context.recording.untrained():
            # Once frozen, a network records nothing if its inputs need no gradients.
            if context.concerns(call) and (needs_gradients or network not in found):
                found.setdefault(network, (call, network, needs_gradients))
                if not found[network][2]:
                    found[network] = (call, network, needs_gradients)
        for call, network, needs_gradients in distinct(found.values()):
            how = (
                "its weights get gradients that nothing reads"
                if needs_gradients
                else "its activations are kept, and a backward pass runs through it, for nothing"
            )
            made = network.made
            yield self.finding(
                context.at(call),
                f"`{context.code(call)}` records gradients of a network that no optimizer updates: {how}.",
                related=(context.also(made, "the network is made here"),) if made is not None else (),
                evidence={"function": call.place.function.qualified_name, "inputs": needs_gradients},
                fix=Fix(
                    "Freeze it: `.requires_grad_(False)` once, where it is made."
                    if needs_gradients
                    else "Compute it under `torch.no_grad()`."
                ),
                identity=f"{call.place.function.qualified_name}:{context.code(call)}",
            )

"""A rule on last batches of a smaller size, for which a program has to compile or tune again."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.run.values import TRUE


class DropLast(SourceRule):
    """A smaller last batch in a program that prepares every shape once.

    What it does
    Finds shuffled training loaders without `drop_last` in programs that capture CUDA graphs or compile the
    model for static shapes (`torch.compile(mode="reduce-overhead")` or "max-autotune").

    Why it costs
    The last batch of an epoch is usually smaller. It does not fit a captured graph, makes torch.compile
    recompile, and its size is rarely a multiple of 8.

    Example
        loader = DataLoader(dataset, batch_size=64, shuffle=True)

    Use instead
        loader = DataLoader(dataset, batch_size=64, shuffle=True, drop_last=True)

    When it does not apply
    Evaluation, where every sample counts; batch samplers; options through `**kwargs`.
    """

    code = "RUN010"
    name = "drop-last"
    level = "info"
    confidence = "medium"
    sources = (
        "NVIDIA Matrix Multiplication Background User's Guide, Table 1: sizes that Tensor Cores need",
        "PyTorch Performance Tuning Guide, Use CUDA Graphs: static shapes",
    )
    triggers = ("reduce-overhead", "max-autotune", "CUDAGraph", "make_graphed_callables")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        static = context.record.of("capture") + [
            event
            for event in context.record.of("wrap")
            if context.facts.texts(event.arguments.get("mode")) & {"reduce-overhead", "max-autotune"}
        ]
        for loader in context.batches.trained_on if static else ():
            made, given = loader.made, loader.fields
            if (
                made is None
                or not context.concerns(made)
                or not context.batches.is_missing(loader, "drop_last")
            ):
                continue
            if not context.batches.is_missing(loader, "drop_last") or given.get("shuffle") != TRUE:
                continue
            if given.keys() & {"batch_sampler", "sampler"}:
                continue
            yield self.finding(
                context.at(made),
                "This loader keeps the smaller last batch, which does not fit the shapes prepared on "
                f"{context.where(static[0], made)}.",
                related=(context.also(static[0], "shapes are fixed here"),),
                evidence={"drop_last": False},
                fix=Fix("Pass drop_last=True."),
                identity=f"{made.place.function.qualified_name}:drop_last",
            )

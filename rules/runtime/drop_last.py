"""A rule on last batches whose size makes a compiled program start anew."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, Literal, SourceContext, SourceRule
from tclint.source.names.queries import has_star, is_test_path, keyword
from tclint.source.training.loaders import feeds_evaluation, loaders_of


class DropLast(SourceRule):
    """A smaller last batch in a program that prepares every shape once.

    What it does
    Finds shuffled training loaders without `drop_last` in files that capture CUDA graphs or compile the
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
    requires = ("DataLoader", ".backward(")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        if is_test_path(context.path) or not program.trainings:
            return
        static = [
            called.call
            for called in program.calls(
                "torch.compile", "torch.cuda.CUDAGraph", "torch.cuda.make_graphed_callables"
            )
            if called.qualified != "torch.compile"
            or keyword(called.call, "mode") in (Literal("reduce-overhead"), Literal("max-autotune"))
        ]
        if not static:
            return
        for loader in loaders_of(context):
            if has_star(loader.call) or feeds_evaluation(context, loader):
                continue
            given = {argument.keyword for argument in loader.call.arguments}
            if given & {"drop_last", "batch_sampler", "sampler"} or keyword(
                loader.call, "shuffle", 2
            ) != Literal(True):
                continue
            yield self.finding(
                context.location(loader.call.node_id),
                "This loader keeps the smaller last batch, which does not fit the shapes prepared on line "
                f"{context.location(static[0].node_id).line}.",
                related=(context.related(static[0].node_id, "shapes are fixed here"),),
                evidence={"drop_last": False},
                fix=Fix("Pass drop_last=True."),
                identity=f"{loader.function.qualified_name}:drop_last",
            )

"""A rule on tensors that are made on the CPU and then copied to the GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.names.queries import has_star, is_test_path, keyword, names_in
from tclint.source.names.resolve import Symbol
from tclint.source.syntax.tables import Call, Function, Name, dotted, method_of, render
from tclint.source.training.steps import is_repeated

_CREATORS = tuple(
    f"torch.{name}"
    for name in (
        "rand", "randn", "randint", "randperm", "zeros", "ones", "full", "empty", "arange", "linspace", "eye",
    )
)  # fmt: skip


class CpuCreateThenCuda(SourceRule):
    """A tensor made on the CPU and copied to the GPU at once.

    What it does
    Finds `torch.zeros(...).cuda()` and its like (rand, randn, ones, full, arange, ...) with `.cuda()` or
    `.to(device)`, and `torch.cuda.FloatTensor(np.random...)`, inside loops, forward methods and functions
    that a training loop calls.

    Why it costs
    The CPU fills memory, which then crosses PCIe, and without pinned memory the program waits for it.
    Made on the GPU, the tensor is one small kernel.

    Example
        noise = torch.randn(64, 100).cuda()

    Use instead
        noise = torch.randn(64, 100, device="cuda")

    When it does not apply
    Random numbers that must come from the CPU's generator (a `generator` argument, or a fixed seed whose
    numbers matter: on the GPU they differ); pinned tensors; tensors that are made once.
    """

    code = "RUN015"
    name = "cpu-create-then-cuda"
    level = "info"
    confidence = "high"
    sources = (
        "PyTorch Performance Tuning Guide, Create tensors directly on the target device: instead of a copy",
    )
    triggers = (".cuda(", ".to(", "torch.cuda.")
    pattern = re.compile(
        rb"\b(?:rand|randn|randint|randperm|zeros|ones|full|empty|arange|linspace|eye)"
        rb"\s*\([^#=]{0,160}?\)\s*\.\s*(?:cuda|to)\s*\("
        rb"|\bTensor\(\s*np\.random"
    )

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        if is_test_path(context.path) or not context.on_gpu:
            return
        yield from self._drawn_by_numpy(context)
        for function, event, _ in program.methods("cuda", "to"):
            made, method = method_of(event.call)
            if not isinstance(made, Call) or not _often(context, function, event.block):
                continue
            names = context.resolver.called(function, made)
            if not any(name in _CREATORS for name in names):
                continue
            given = {argument.keyword for argument in made.arguments}
            if given & {"device", "generator", "pin_memory", "out"} or has_star(made):
                continue
            if method == "to" and not _device(context, function, event.call):
                continue
            shown = names[0].removeprefix("torch.")
            yield self.finding(
                context.location(event.call.node_id),
                f"`{context.excerpt(event.call.node_id)}` fills CPU memory and copies it to the GPU.",
                evidence={"creates": shown, "function": function.qualified_name},
                fix=Fix(
                    f"Pass device= to torch.{shown}"
                    + ("; the random numbers will differ." if "rand" in shown else ".")
                ),
                identity=f"{function.qualified_name}:{render(event.call)}",
            )

    def _drawn_by_numpy(self, context: SourceContext) -> Iterator[Finding]:
        """`Tensor(np.random.normal(0, 1, size))` for `Tensor = torch.cuda.FloatTensor if cuda else ...`."""
        for function, event in context.tables.calls:
            given = event.call.arguments[0].value if len(event.call.arguments) == 1 else None
            if not isinstance(given, Call) or not dotted(event.call.function):
                continue
            drawn = context.resolver.called(function, given)
            if not any(name.startswith("numpy.random.") for name in drawn):
                continue
            made = context.resolver.evaluate(function, event.call.function).values
            types = [value.qualified for value in made if isinstance(value, Symbol)]
            if any(name.startswith("torch.cuda.") for name in types) and _often(
                context, function, event.block
            ):
                yield self.finding(
                    context.location(event.call.node_id),
                    f"`{context.excerpt(event.call.node_id)}` draws numbers on the CPU and copies them.",
                    evidence={"creates": drawn[0], "function": function.qualified_name},
                    fix=Fix(
                        "Draw them on the GPU: torch.randn(..., device=device); the numbers will differ."
                    ),
                    identity=f"{function.qualified_name}:{render(event.call)}",
                )


def _often(context: SourceContext, function: Function, block: int) -> bool:
    """Inside a loop, in the forward method of a module, or in a function that is a training loop's step or
    that one calls."""
    if not _whenever_called(context, function, block):
        return False
    program = context.program
    if program.loop_around(function, block):
        return True
    if function.name == "forward" and context.tables.class_of(function) is not None:
        return True
    own = [item for item in program.trainings if item.function is function]
    if any(not item.block and is_repeated(context, item) for item in own):
        return True
    training = {(item.function.index, item.block) for item in program.trainings if item.block}
    return any(
        (caller.index, program.loop_around(caller, event.block)) in training
        for caller, event in context.resolver.callers.get(function.index, ())
    )


def _whenever_called(context: SourceContext, function: Function, block: int) -> bool:
    """Nothing stands around it but loops, and tests of options, which come out alike in every round."""
    assigned = {target.partition(".")[0] for event in function.assignments for target in event.targets}
    for index in function.enclosing(block):
        around = function.blocks[index]
        if around.kind in ("if", "else") and around.condition is not None:
            options = {name for name in names_in(around.condition) if "." in name}
            roots = {name.partition(".")[0] for name in names_in(around.condition)}
            if "%" in render(around.condition) or (roots & assigned) or options != names_in(around.condition):
                return context.program.unconditional(function, block)
    return True


def _device(context: SourceContext, function: Function, call: Call) -> bool:
    given = keyword(call, "device", 0)
    if given is None or len(call.arguments) != 1:
        return False
    possible = context.resolver.evaluate(function, given)
    known = [value for value in possible.values if isinstance(value, str)]
    if known:
        return any(value.startswith("cuda") for value in known)
    return isinstance(given, Name) and given.dotted.rpartition(".")[2].lower() in ("device", "dev", "gpu")

"""A rule on torch.cuda.amp, which torch.amp has replaced."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.names.queries import conditions_of, guards_before
from tclint.source.syntax.tables import (
    Assignment,
    Call,
    CallEvent,
    Choice,
    Expression,
    Function,
    Name,
    Return,
    dotted,
    parts_of,
    render,
)

_VERSION_TEST = re.compile(
    r"version|is_torch|torch_?\d|torch_(?:ge|gt|greater|has|v)|_ge_|at_least|amp_available|(?:npu|xpu|mlu)_available"
    r"|hasattr\((?:torch|amp|autocast|gradscaler)"
)
_NEW = {
    "torch.autocast": "autocast",
    "torch.amp.autocast": "autocast",
    "torch.GradScaler": "GradScaler",
    "torch.amp.GradScaler": "GradScaler",
}
"""Today's names, and how the old ones end that they replace."""
_SETTING = re.compile(r"cuda|gpu|device|fp16|bf16|half|dtype|precision|(?<![a-z])amp(?![a-z])|use_amp")


class DeprecatedCudaAmp(SourceRule):
    """torch.cuda.amp, which torch.amp has replaced.

    What it does
    Finds, once per file, uses of `torch.cuda.amp.autocast`, `GradScaler`, `custom_fwd` and `custom_bwd`,
    and of their counterparts in torch.cpu.amp.

    Why it costs
    Since torch 2.4 every use emits a FutureWarning, in a training loop once per step and process; the
    names are kept only for compatibility. torch.amp has the same classes for every device.

    `tclint fix` rewrites all uses in a file and their imports in one go. That is safe unless a
    requirements file allows a torch that lacks the new names: torch.amp has had autocast since 1.10,
    GradScaler since 2.3, custom_fwd and custom_bwd since 2.4.

    Example
        with torch.cuda.amp.autocast(enabled=amp):
            loss = model(batch)

    Use instead
        with torch.amp.autocast("cuda", enabled=amp):
            loss = model(batch)

    When it does not apply
    Projects whose requirement files pin torch below 2.4, imports in try/except, branches on the version
    of torch or on what it has, branches whose other side has the new name, classes of other modules
    (torch_npu, torch_xla).
    """

    code = "AMP014"
    name = "deprecated-cuda-amp"
    level = "info"
    confidence = "high"
    sources = (
        "PyTorch Automatic Mixed Precision package: deprecation notes of the torch.cuda.amp names",
        "PyTorch 2.13 torch/cuda/amp/autocast_mode.py: every use raises a FutureWarning",
    )
    triggers = ("cuda.amp", "cpu.amp", "cuda import amp", "cpu import amp", "import cuda")
    requires = ()

    def check(self, context: SourceContext) -> Iterator[Finding]:
        if not context.torch_may_be((2, 4)):
            return
        seen: set[int] = set()
        for function in context.tables.functions:
            uses = list(_uses(context, function))
            chosen = set(_chosen_by_version(function)) if uses else set()
            new = [
                (_NEW[qualified], block)
                for name, _, block in uses
                for qualified in context.resolver.qualified(function, name)
                if qualified in _NEW
            ]
            for name, node_id, block in uses:
                if node_id in chosen or node_id in seen:
                    continue
                old = self._deprecated(context, function, name, block, node_id)
                if old is not None and not _else_new(function, old, block, new):
                    seen.add(node_id)
                    yield self._finding(context, function, name, old, node_id)

    def _finding(
        self, context: SourceContext, function: Function, name: str, old: str, node_id: int
    ) -> Finding:
        new = context.names.deprecated_amp[old]
        meaning = "" if name == old else f" ({old})"
        imported = self._import_site(context, function, name)
        return self.finding(
            context.location(node_id),
            f"`{name}`{meaning} is deprecated since torch 2.4 (FutureWarning); write `{new}`.",
            related=(
                context.related(
                    node_id if imported is None else imported,
                    f"{old} of torch" if imported is None else f"the import of `{name}`",
                ),
            ),
            evidence={"name": old, "replacement": new},
            fix=Fix("Write the names of torch.amp, and import them from there."),
            identity="torch.cuda.amp",
            group="torch.cuda.amp",
        )

    def _deprecated(
        self, context: SourceContext, function: Function, name: str, block: int, node_id: int
    ) -> str | None:
        known = context.names.deprecated_amp
        qualified = context.resolver.qualified(function, name)
        if not qualified or not all(candidate in known for candidate in qualified):
            return None
        if self._guarded(function, block) or self._after_return(function, block, node_id):
            return None
        for scope in context.resolver.scopes(function):
            for item in scope.imports:
                if item.name == name.partition(".")[0] and self._guarded(scope, item.block, True):
                    return None
        return qualified[0]

    def _guarded(self, function: Function, block: int, is_import: bool = False) -> bool:
        """In a branch that depends on the version of torch, or in a fallback."""
        kinds = {function.blocks[index].kind for index in function.enclosing(block)}
        if "except" in kinds or (is_import and "try" in kinds):
            return True
        return any(
            _VERSION_TEST.search(condition.text.lower()) for condition in conditions_of(function, block)
        )

    def _after_return(self, function: Function, block: int, node_id: int) -> bool:
        """`if hasattr(torch.amp, "GradScaler"): return ...` stands before: what is left is the old torch."""
        return any(
            _VERSION_TEST.search(condition.text.lower())
            for condition in guards_before(function, block, node_id)
        )

    def _import_site(self, context: SourceContext, function: Function, name: str) -> int | None:
        root = name.partition(".")[0]
        for scope in context.resolver.scopes(function):
            for item in scope.imports:
                if item.name == root and item.node_id >= 0:
                    return item.node_id
        return None


def _uses(context: SourceContext, function: Function) -> Iterator[tuple[str, int, int]]:
    """(name, node id, block) of names that are called, handed to a call, assigned or used as a decorator."""
    for event in function.events:
        if isinstance(event, CallEvent):
            yield from _named(event.call.function, event.call.node_id, event.block)
            for argument in event.call.arguments:
                yield from _named(argument.value, event.call.node_id, event.block)
        elif isinstance(event, Assignment):
            kinds = {function.blocks[index].kind for index in function.enclosing(event.block)}
            if "try" not in kinds:  # `try: autocast = torch.cuda.amp.autocast` has another in its except
                for value in _chosen_values(context, function, event.value):
                    yield from _named(value, event.node_id, event.block)
    if function.kind in ("module", "class", "function"):
        for child in context.tables.functions:
            if child.parent == function.index:
                for decorator in child.decorators:
                    if isinstance(decorator, Name):
                        yield decorator.dotted, child.node_id, 0


def _chosen_values(context: SourceContext, function: Function, value: Expression) -> tuple[Expression, ...]:
    """What `autocast = torch.cuda.amp.autocast if amp else suppress` can be; nothing where the choice is
    about the version of torch, or between the old name and the new."""
    if not isinstance(value, Choice):
        return (value,)
    condition = render(value.condition).lower()
    sides = (value.first, value.second)
    new = any(
        name in _NEW
        for side in sides
        if dotted(side)
        for name in context.resolver.qualified(function, dotted(side))
    )
    if _about_version(value.condition) or (new and not _SETTING.search(condition)):
        return ()
    return sides


def _else_new(function: Function, old: str, block: int, new: list[tuple[str, int]]) -> bool:
    """The other branch of the same test uses what torch.amp has instead: the test asks what torch has.

    Not where it asks for a device or a dtype, as in `cuda.amp.autocast() if on_gpu else autocast("cpu")`.

    Args:
        new: today's names that the function uses, by how the old ones end, with their blocks.
    """
    blocks = function.blocks
    around = {
        blocks[index].statement: blocks[index]
        for index in function.enclosing(block)
        if blocks[index].kind in ("if", "else")
    }
    for name, other in new if around else ():
        if name != old.rpartition(".")[2]:
            continue
        for index in function.enclosing(other):
            twin = around.get(blocks[index].statement)
            if twin is None or twin.kind == blocks[index].kind or twin.condition is None:
                continue
            if not _SETTING.search(render(twin.condition).lower()):
                return True
    return False


def _named(expression: Expression, node_id: int, block: int) -> Iterator[tuple[str, int, int]]:
    name = dotted(expression)
    if name:
        yield name, node_id, block


def _about_version(condition: Expression) -> bool:
    return _VERSION_TEST.search(render(condition).lower()) is not None


def _chosen_by_version(function: Function) -> Iterator[int]:
    """Sites of calls in `new() if torch_is_new else old()`."""
    waiting: list[tuple[Expression, bool]] = []
    for event in function.events:
        if isinstance(event, CallEvent):
            waiting.append((event.call, False))
        elif isinstance(event, Assignment | Return):
            waiting.append((event.value, False))
    waiting.extend((item.value, False) for block in function.blocks for item in block.items)
    while waiting:
        expression, chosen = waiting.pop()
        if isinstance(expression, Call) and chosen:
            yield expression.node_id
        if isinstance(expression, Choice) and _about_version(expression.condition):
            chosen = True
        waiting.extend((part, chosen) for part in parts_of(expression))

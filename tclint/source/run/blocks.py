"""Turns the events of a function into a tree of statements for the interpreter."""

from __future__ import annotations

from typing import TypeAlias

from tclint.source.syntax.tables import Assignment, Block, Event, Function


class Branch:
    """A block with the statements and events in it."""

    __slots__ = ("block", "body", "index")

    def __init__(self, index: int, block: Block) -> None:
        self.index = index
        self.block = block
        self.body: list[Step] = []


class Statement:
    """The blocks of one if, loop, try, with or match statement."""

    __slots__ = ("branches", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.branches: list[Branch] = []

    @property
    def kind(self) -> str:
        return self.branches[0].block.kind


Step: TypeAlias = "Event | Statement"


def steps_of(function: Function) -> list[Step]:
    """The statements and events of a function in order, without empty blocks."""
    root = Branch(0, function.blocks[0])
    open_branches = [root]
    for event in function.events:
        chain = function.enclosing(event.block)[::-1]
        depth = 1
        while (
            depth < len(chain) and depth < len(open_branches) and open_branches[depth].index == chain[depth]
        ):
            depth += 1
        del open_branches[depth:]
        for index in chain[depth:]:
            branch = Branch(index, function.blocks[index])
            body = open_branches[-1].body
            last = body[-1] if body else None
            if not isinstance(last, Statement) or last.number != branch.block.statement:
                last = Statement(branch.block.statement)
                body.append(last)
            last.branches.append(branch)
            open_branches.append(branch)
        open_branches[-1].body.append(event)
    return root.body


def counters_of(function: Function) -> frozenset[str]:
    """The dotted names that a function adds to; in a loop they do not keep their initial values."""
    return frozenset(
        target
        for event in function.events
        if isinstance(event, Assignment) and event.operator in ("+", "-", "*", "/", "//")
        for target in event.targets
    )

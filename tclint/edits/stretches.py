"""Applies a codemod to only the lines that it changes; the rest is neither visited nor written again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeAlias

import libcst as cst

from tclint.core.finding import Edit
from tclint.edits.codemod import Codemod
from tclint.edits.program import Line, Program
from tclint.edits.texts import edits_between, lines_of

Block: TypeAlias = cst.IndentedBlock | cst.Module


def edits_in_place(codemod: Codemod) -> tuple[Edit, ...] | None:
    """The edits for the recorded changes of a codemod; None if the whole file has to be written.

    Changing statements are written as a block of their own together with the next statement, which takes over
    the comments of removed ones. Those at the end of a block come with the previous statement, so that the
    block is not empty.
    """
    program = codemod.program
    lines = {program.line(node) for node in codemod.changed}
    waiting = list(lines)
    while waiting:
        # A neighbour with changes of its own counts as a changing statement.
        line = waiting.pop()
        for beside in program.lines_beside(line) if line is not None else ():
            if beside not in lines and codemod.touches(beside):
                lines.add(beside)
                waiting.append(beside)
    found: list[Edit] = []
    for block, statements in _runs(program, lines):
        if block is None:
            return None
        is_last = statements[-1] is block.body[-1]
        alone = block.with_changes(body=statements, footer=block.footer if is_last else ())
        before, after = _code(program, block, alone), _code(program, block, codemod.made_of(alone))
        first = program.first_line(statements[0])
        size = len(lines_of(before)) - 1
        if first + size == len(program.lines):  # the file's last line has no end
            before, after = (code[: code.rindex(program.module.default_newline)] for code in (before, after))
        if program.lines[first : first + size] != lines_of(before)[:size]:
            return None
        found += (_moved(edit, first) for edit in edits_between(program.path, before, after))
    return tuple(sorted(found, key=lambda edit: edit.start))


def _runs(program: Program, lines: set[Line | None]) -> Iterator[tuple[Block | None, list[Line]]]:
    """(block, statements) for each run of adjacent outermost statements, with the next statement, or at the
    block's end with the previous one. The block is None for a statement that is in none."""
    by_block: dict[Block, list[int]] = {}
    for line in lines:
        block = program.parent(line) if line is not None else None
        if line is None or not isinstance(block, Block):
            yield None, []
        elif lines.isdisjoint(program.ancestors(line)):
            by_block.setdefault(block, []).append(program.index(line))
    for block, indices in by_block.items():
        changed = set(indices)
        for start in sorted(index for index in indices if index - 1 not in changed):
            end = next(end for end in range(start, len(block.body) + 1) if end not in changed)
            first = max(start - 1, 0) if end == len(block.body) else start
            yield block, [*block.body[first : end + 1]]  # type: ignore[list-item]  # as blocks hold them


def _code(program: Program, block: Block, alone: Block) -> str:
    """The text of a block's statements with their indentation in the file."""
    outer = [each for each in program.ancestors(block) if isinstance(each, cst.IndentedBlock)]
    if isinstance(alone, cst.IndentedBlock):
        for around in outer:
            alone = around.with_changes(body=[cst.If(cst.Name("_"), alone)], footer=())
        alone = program.module.with_changes(body=[cst.If(cst.Name("_"), alone)], footer=())
        headers = 1 + len(outer)
    else:
        headers = 0
    code = alone.with_changes(header=(), has_trailing_newline=True).code
    return "".join(lines_of(code)[headers:])


def _moved(edit: Edit, lines: int) -> Edit:
    (first, column), (last, end) = edit.start, edit.end
    return replace(edit, start=(first + lines, column), end=(last + lines, end))

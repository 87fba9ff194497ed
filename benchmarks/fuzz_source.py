"""Mutated training programs through the source rules and their fixes: no crash, no broken file.

    python benchmarks/fuzz_source.py --cases 5000 fixtures path/to/repository

Every case takes a program of the folders given (those that the rules' filter lets through), mutates it and
checks that

- no rule, no fix and no part of the source pass raises;
- the result of all safe fixes, and of all fixes, parses with Python and with libcst, and a second run finds
  nothing to fix;
- nothing outside the edits changes, by applying them once more in another way;
- line ends, byte order mark and encoding stay.

With --notebooks the program is cut into the cells of a notebook, between magics and shell lines, and all
fixes must leave everything but the sources of cells as it is.

Mutants that are no Python any more are counted: they must be refused, not crash.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import libcst

from tclint.config.settings import Settings
from tclint.core.errors import TargetError
from tclint.core.finding import Edit, Finding
from tclint.core.rule import CRASH_CODE
from tclint.edits.codemods import CODEMODS
from tclint.edits.program import Program
from tclint.edits.registry import edits_of, with_fixes
from tclint.edits.texts import apply_edits
from tclint.engine.check import check
from tclint.engine.fixes.sources import fix
from tclint.engine.report import Report
from tclint.engine.rules.registry import all_rules
from tclint.engine.sources.program import lint_text
from tclint.source.source_rule import SourceRule
from tclint.source.syntax.discovery import discover
from tclint.source.syntax.parse import NotPython, decode
from tclint.source.syntax.prefilter import MAX_SOURCE_BYTES, applicable

STATEMENTS = (
    "scaler = torch.cuda.amp.GradScaler()",
    "scaler.scale(loss).backward()",
    "scaler.step(optimizer)",
    "scaler.step(opt_d); scaler.step(opt_g)",
    "scaler.update()",
    "scaler.unscale_(optimizer)",
    "optimizer.step()",
    "loss.backward()",
    "(loss + other).backward()",
    "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # clip",
    "with torch.autocast('cuda'): loss = model(x); loss.backward()",
    "with torch.cuda.amp.autocast(True): loss = model(x)",
    "from torch.cuda.amp import autocast, GradScaler",
    "import torch",
    "model = model.cuda().half()",
    "images.to(memory_format=torch.channels_last)",
    "x = torch.randn(8, 3).cuda()",
    "optimizer.zero_grad(set_to_none=False)",
    "optimizer = torch.optim.AdamW(model.cuda().parameters(), lr=1e-3,)",
    "torch.set_float32_matmul_precision('High')",
    "torch.backends.cudnn.benchmark = False",
    "for images, labels in torch.utils.data.DataLoader(data, 8): model(images.cuda()).mean().backward()",
    "with torch.autocast('cuda'): loss = torch.nn.functional.binary_cross_entropy(model(x).sigmoid(), y)",
    "p = torch.sigmoid(x); loss = F.binary_cross_entropy(p, y)  # probabilities",
    "loss = F.nll_loss(torch.log(torch.softmax(x + 1, dim=1)), y)",
    "torch.save({'model': model.state_dict(), 'opt': optimizer.state_dict(),}, path)",
    "optimizer.load_state_dict(checkpoint['opt'])",
    "torch.backends.cuda.matmul.allow_tf32 = True",
    "torch.backends.cuda.matmul.fp32_precision = 'ieee'",
    "hidden = int(8 * dim / 3); layer = torch.nn.Linear(dim, hidden)",
    "model = model.to(memory_format=torch.channels_last)",
    "pass  # tclint: ignore[AMP003, AMP006] why",
    "# tclint: file-ignore[AMP014]",
)
"""Put into programs at random places."""

HEADERS = (
    "if flag:",
    "for i in range(3):",
    "with torch.autocast('cuda'):",
    "try:",
    "async def f(self):",
    "else:",
)


@dataclass
class Result:
    """What a run of the fuzzer saw."""

    cases: int = 0
    refused: int = 0
    """Mutants that are no Python."""
    with_findings: int = 0
    fixed: Counter[str] = field(default_factory=Counter)
    """Findings fixed, by rule."""
    failures: list[str] = field(default_factory=list)


_TRIES = 6
_BROKEN = 0.1
"""Share of the mutants that need not parse."""


def mutate(text: str, chance: random.Random, others: Sequence[str] = ()) -> str:
    """A program with a few changes of the kinds that people and editors make."""
    may_break = chance.random() < _BROKEN
    for _ in range(chance.randint(1, 4)):
        for _ in range(_TRIES):
            lines = text.split("\n")
            changed = chance.choice(_KINDS)(lines, chance.randrange(len(lines)), chance, others)
            if may_break or _is_python(changed):
                text = changed
                break
    layout = chance.random()
    if layout < 0.1:
        text = text.replace("\n", "\r\n")
    elif layout < 0.13:
        text = text.replace("\n", "\r")
    elif layout < 0.2:
        text = text.replace("    ", "\t")
    elif layout < 0.25:
        text = text.rstrip("\n")
    return text


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _insert(lines: list[str], at: int, chance: random.Random, _: Sequence[str]) -> str:
    block = [_indentation(lines[at]) + chance.choice(STATEMENTS) for _ in range(chance.randint(1, 4))]
    return "\n".join([*lines[:at], *block, *lines[at:]])


def _append(lines: list[str], at: int, chance: random.Random, _: Sequence[str]) -> str:
    joined = f"{lines[at]}; {chance.choice(STATEMENTS)}"
    return "\n".join([*lines[:at], joined, *lines[at + 1 :]])


def _delete(lines: list[str], at: int, chance: random.Random, _: Sequence[str]) -> str:
    return "\n".join(lines[:at] + lines[at + chance.randint(1, 3) :])


def _double(lines: list[str], at: int, chance: random.Random, _: Sequence[str]) -> str:
    end = at + chance.randint(1, 8)
    return "\n".join([*lines[:end], *lines[at:end], *lines[end:]])


def _swap(lines: list[str], at: int, chance: random.Random, _: Sequence[str]) -> str:
    other = chance.randrange(len(lines))
    lines[at], lines[other] = lines[other], lines[at]
    return "\n".join(lines)


def _nest(lines: list[str], at: int, chance: random.Random, _: Sequence[str]) -> str:
    """Put a run of lines under a header, indented."""
    end = min(len(lines), at + chance.randint(1, 6))
    outer = _indentation(lines[at])
    inner = [("    " + line if line.strip() else line) for line in lines[at:end]]
    return "\n".join([*lines[:at], outer + chance.choice(HEADERS), *inner, *lines[end:]])


def _dedent(lines: list[str], at: int, _: random.Random, __: Sequence[str]) -> str:
    lines[at] = lines[at].removeprefix("    ")
    return "\n".join(lines)


def _one_line(lines: list[str], at: int, _: random.Random, __: Sequence[str]) -> str:
    """Join a header and its body."""
    if lines[at].rstrip().endswith(":") and at + 1 < len(lines):
        return "\n".join([*lines[:at], f"{lines[at].rstrip()} {lines[at + 1].strip()}", *lines[at + 2 :]])
    return "\n".join(lines)


def _comment(lines: list[str], at: int, chance: random.Random, _: Sequence[str]) -> str:
    lines[at] += chance.choice(
        ("  # why", "  # größe 界", "  # tclint: ignore", "\f", " \\", "  # type: ignore")
    )
    return "\n".join(lines)


def _wide(lines: list[str], _: int, chance: random.Random, __: Sequence[str]) -> str:
    names = re.findall(r"\b[a-z_]{3,}\b", "\n".join(lines))
    name = chance.choice(names) if names else "x"
    return re.sub(rf"\b{name}\b", "größe", "\n".join(lines))


def _break_brackets(lines: list[str], at: int, chance: random.Random, _: Sequence[str]) -> str:
    """Spread a call over lines."""
    comment = chance.choice(("", "  # first"))
    indentation = _indentation(lines[at]) + "    "
    lines[at] = lines[at].replace("(", f"({comment}\n{indentation}", 1).replace(", ", f",\n{indentation}")
    return "\n".join(lines)


def _splice(lines: list[str], at: int, chance: random.Random, others: Sequence[str]) -> str:
    if not others:
        return "\n".join(lines)
    other = chance.choice(others).split("\n")
    start = chance.randrange(len(other))
    return "\n".join([*lines[:at], *other[start : start + chance.randint(1, 30)], *lines[at:]])


def _characters(lines: list[str], at: int, chance: random.Random, _: Sequence[str]) -> str:
    line = lines[at]
    position = chance.randint(0, len(line))
    lines[at] = (
        line[:position]
        + chance.choice(("(", ")", ":", ",", "'", '"""', " ", ".", "=", "\x00", "\\"))
        + line[position:]
    )
    return "\n".join(lines)


_KINDS: tuple[Callable[[list[str], int, random.Random, Sequence[str]], str], ...] = (
    _insert,
    _insert,
    _insert,
    _append,
    _delete,
    _double,
    _swap,
    _nest,
    _nest,
    _dedent,
    _one_line,
    _comment,
    _wide,
    _break_brackets,
    _splice,
    _characters,
)


class Fuzzer:
    """Checks one program after the other."""

    def __init__(self, folder: Path) -> None:
        self.rules = [rule() for rule in all_rules() if issubclass(rule, SourceRule)]
        self.settings = Settings()
        self.result = Result()
        (folder / ".git").mkdir(exist_ok=True)
        self._file = folder / "program.py"

    def check(self, text: str) -> str | None:
        """What is wrong with how a program is treated; None when nothing is."""
        self.result.cases += 1
        data = text.encode("utf-8", "surrogatepass")
        if self.result.cases % 10 == 0:
            data = b"\xef\xbb\xbf" + data
        self._file.write_bytes(data)
        try:
            text = decode(data)
            first = self._lint(text)
        except NotPython:
            self.result.refused += 1
            return None
        if not first:
            return None
        self.result.with_findings += 1
        crashed = [finding for finding in first if finding.code == CRASH_CODE]
        if crashed:
            return crashed[0].evidence["traceback"] or crashed[0].message
        problem = self._edits(text, first)
        if problem is not None:
            return problem
        for unsafe in (False, True):
            problem = self._fix(data, first, unsafe)
            if problem is not None:
                return problem
        return None

    def check_notebook(self, text: str, chance: random.Random) -> str | None:
        """What is wrong with how a notebook of the program is treated; None when nothing is."""
        self.result.cases += 1
        path = self._file.with_suffix(".ipynb")
        content = _notebook(text, chance)
        path.write_text(json.dumps(content, indent=chance.choice((None, 1, 2))) + "\n", encoding="utf-8")
        report = check([str(path)], self.settings)
        crashed = [finding for finding in report.findings if finding.code == CRASH_CODE]
        if crashed:
            return crashed[0].evidence["traceback"] or crashed[0].message
        self.result.refused += bool(report.skipped)
        self.result.with_findings += bool(report.findings)
        outcome = fix(
            report, lambda contents: check([str(path)], self.settings, contents=contents), unsafe=True
        )
        for file in outcome.files:
            after = json.loads(file.after)
            if _without_sources(after) != _without_sources(content):
                return "more than the sources of cells changed"
        self.result.fixed.update({"notebooks": len(outcome.files)})
        return None

    def _lint(self, text: str) -> list[Finding]:
        path = str(self._file)
        return with_fixes(path, text, lint_text(text, self.rules, self.settings, path))

    def _edits(self, text: str, findings: Sequence[Finding]) -> str | None:
        """No codemod raises, and each fix alone changes what it names and nothing else."""
        program = Program(str(self._file), text)
        for finding in findings:
            if finding.code in CODEMODS:
                edits_of(CODEMODS[finding.code](program, finding))
            if finding.fix is None or not finding.fix.edits:
                continue
            new, made = apply_edits(text, [finding.fix.edits])
            if not made:
                return f"the fix of {finding.code} on line {finding.location.line} does not parse"
            if new == text:
                return f"the fix of {finding.code} on line {finding.location.line} changes nothing"
            if new != edited_by_line(text, finding.fix.edits):
                return f"the fix of {finding.code} on line {finding.location.line} changes more than it says"
        return None

    def _fix(self, data: bytes, first: Sequence[Finding], unsafe: bool) -> str | None:
        def relint(contents: Mapping[str, bytes]) -> Report:
            return Report(self.settings, findings=tuple(self._lint(decode(contents[str(self._file)]))))

        outcome = fix(Report(self.settings, findings=tuple(first)), relint, unsafe=unsafe)
        if not outcome.files:
            return None
        after = outcome.files[0].after
        if after.startswith(b"\xef\xbb\xbf") != data.startswith(b"\xef\xbb\xbf"):
            return "the byte order mark came or went"
        if b"\r\n" in data and b"\n" not in data.replace(b"\r\n", b"") and re.search(rb"(?<!\r)\n", after):
            return "a line end changed"
        try:
            ast.parse(decode(after))
            libcst.parse_module(decode(after))
        except (SyntaxError, ValueError, libcst.ParserSyntaxError) as error:
            return f"the fixed program does not parse: {error}"
        before = Counter(finding.code for finding in first)
        left = Counter(finding.code for finding in outcome.report.findings)
        self.result.fixed.update(before - left)
        self._file.write_bytes(after)
        again = fix(Report(self.settings, findings=tuple(self._lint(decode(after)))), relint, unsafe=unsafe)
        self._file.write_bytes(data)
        if again.files:
            return f"a second run fixes {again.fixed} more"
        return None


def _notebook(text: str, chance: random.Random) -> dict[str, Any]:
    """The program in cells that start at statements of the module, with magics between them."""
    cells: list[list[str]] = [[]]
    for line in text.splitlines(keepends=True):
        if cells[-1] and line[:1].strip() and chance.random() < 0.3:
            cells.append(
                [chance.choice(("%%time\n", "!ls\n", "%matplotlib inline\n"))][: chance.randint(0, 1)]
            )
        cells[-1].append(line)
    return {
        "cells": [
            {"cell_type": "code", "metadata": {}, "outputs": [{"text": ["é\n"]}], "source": cell}
            for cell in cells
        ],
        "metadata": {"kernelspec": {"name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _without_sources(content: dict[str, Any]) -> dict[str, Any]:
    cells = [{key: value for key, value in cell.items() if key != "source"} for cell in content["cells"]]
    return {**content, "cells": cells}


def edited_by_line(text: str, edits: Sequence[Edit]) -> str:
    """The edits applied from the last to the first on a list of lines: another way than the tool's."""
    lines = re.split(r"(\r\n|\r|\n)", text)
    bodies, ends = lines[::2], [*lines[1::2], ""]
    for edit in reversed(edits):
        (line, column), (end_line, end_column) = edit.start, edit.end
        tail = "" if end_line > len(bodies) else bodies[end_line - 1][end_column - 1 :]
        last_end = ends[end_line - 1] if end_line <= len(ends) else ""
        bodies[line - 1 : end_line] = [bodies[line - 1][: column - 1] + edit.replacement + tail]
        ends[line - 1 : end_line] = [last_end]
    return "".join(body + end for body, end in zip(bodies, ends, strict=True))


def programs(folders: Sequence[str]) -> list[str]:
    """Texts of the files that the rules' filter lets through."""
    rules = [rule() for rule in all_rules() if issubclass(rule, SourceRule)]
    found = []
    for path in discover(folders, Settings())[0]:
        data = Path(path).read_bytes()
        if len(data) < MAX_SOURCE_BYTES // 10 and applicable(rules, data):
            try:
                found.append(decode(data))
            except NotPython:
                continue
    return found


def examples() -> list[str]:
    """The examples of the rules and the cases of their fixes: programs with much to find."""
    root = Path(__file__).parents[1]
    found = sorted((root / "fixtures" / "rules").rglob("invalid_*.py"))
    found += sorted((root / "tests" / "edits" / "cases").glob("*.before"))
    return [path.read_bytes().decode() for path in found]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="*", help="folders with Python files; nothing in them is executed")
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", metavar="FOLDER", help="write programs that fail to this folder")
    parser.add_argument("--notebooks", action="store_true", help="lint notebooks made of the programs")
    options = parser.parse_args(arguments)
    try:
        real = programs(options.folders)
    except TargetError as error:
        parser.error(str(error))
    small = examples()
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        fuzzer = Fuzzer(Path(folder))
        for case in range(options.cases):
            chance = random.Random(f"{options.seed}:{case}")
            # Small programs have more findings per second, real ones more of what nobody thinks of.
            pool = real if real and case % 2 else small
            text = mutate(chance.choice(pool), chance, pool)
            try:
                problem = fuzzer.check_notebook(text, chance) if options.notebooks else fuzzer.check(text)
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"
            if problem is not None:
                fuzzer.result.failures.append(f"case {options.seed}:{case}: {problem}")
                print(fuzzer.result.failures[-1], file=sys.stderr)
                if options.keep:
                    (Path(options.keep) / f"{options.seed}-{case}.py").write_bytes(
                        text.encode("utf-8", "surrogatepass")
                    )
    result = fuzzer.result
    print(
        f"{result.cases} cases from {len(small)} examples and {len(real)} files in "
        f"{time.process_time() - start:.0f} s CPU: {result.refused} no Python, {result.with_findings} with "
        f"findings, {len(result.failures)} failures"
    )
    fixed = ", ".join(f"{code} {number}" for code, number in sorted(result.fixed.items()))
    print(f"fixed: {fixed}")
    return int(bool(result.failures))


if __name__ == "__main__":
    sys.exit(main())

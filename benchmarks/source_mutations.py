"""How much of a training program the source rules follow, measured without labels.

    python benchmarks/source_mutations.py --repositories FOLDER [--half "held back"] [--jobs 2]

Known mistakes are written, one at a time, into the training step of public scripts
(benchmarks/draws/mutations.csv); a mistake counts as found when its rule reports one of the lines that were
written. The step is found by syntax alone: the first statement that goes backward, the `return` of a
`training_step` or of a `compute_loss`. Each mistake is one whatever else the program does, so what is
missed shows a loss, a network, an optimizer, a scaler or a device that was not followed. A script whose text
gives no room for a mistake (no optimizer's step after the backward pass, a scaler of its own) is left out of
its figure.

`--calls` writes nothing and counts, in the training steps of the unchanged scripts, the places that call
what is known and those that call what is not: something unknown, or a method that nothing is known of.

`FOLDER` holds the repositories as `owner+name` at the commits of mutations.csv; their `.git` says where a
project ends. Another list, with the same columns, is given by `--list`.
"""

from __future__ import annotations

import argparse
import ast
import csv
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

from tclint.config.settings import Settings
from tclint.core.finding import Finding
from tclint.core.rule import CRASH_CODE
from tclint.engine.rules.registry import all_rules
from tclint.engine.sources import program
from tclint.engine.sources.lint import lint
from tclint.source.context import SourceContext
from tclint.source.run.values import Place, Thing, Value, options_of
from tclint.source.source_rule import SourceRule

LIST = Path(__file__).parent / "draws" / "mutations.csv"
STEPS = {"training_step", "compute_loss"}
"""Methods whose loss a framework takes backward."""
SCALER = "_scaler = torch.cuda.amp.GradScaler()"


Result: TypeAlias = tuple[dict[str, str], str, str, int, int]
"""(script, what is counted, codes or half, how many are found, of how many)"""


class Edit(NamedTuple):
    """Lines `first` to `last` (from 1) become `text`; with `last` before `first` it is put in there."""

    first: int
    last: int
    text: str
    is_mistake: bool = True


class Mutation(NamedTuple):
    name: str
    codes: frozenset[str]
    edits: tuple[Edit, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """The training step of a file, as its syntax shows it."""

    block: Sequence[ast.stmt]
    at: int
    """The place in the block of the statement that goes backward, or that returns the loss."""
    loss: str
    around: ast.stmt | None = None
    """The outermost test around it whose two branches both go backward."""
    scaler: str = ""
    is_plain: bool = False
    """Whether it is `loss.backward()`, with or without a scaler."""
    optimizer: str = ""
    stepped: ast.stmt | None = None
    """The optimizer's step."""

    @property
    def statement(self) -> ast.stmt:
        return self.block[self.at]


def blocks(tree: ast.AST) -> Iterator[tuple[ast.AST, list[ast.stmt]]]:
    """The lists of statements of a file in their order, each with the node that holds it."""
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            found = getattr(node, name, None)
            if isinstance(found, list) and found and isinstance(found[0], ast.stmt):
                yield node, found


def called(statement: ast.stmt) -> tuple[str, ast.expr, list[ast.expr]]:
    """The method that a statement calls, its owner and its arguments."""
    match statement:
        case ast.Expr(ast.Call(ast.Attribute(owner, name), arguments, keywords)):
            return name, owner, [*arguments, *(item.value for item in keywords)]
    return "", ast.Constant(None), []


def step_of(tree: ast.Module, text: str) -> Step | None:
    """The first training step of a file."""
    found: list[Step] = []
    for holder, block in blocks(tree):
        for at, statement in enumerate(block):
            name, owner, arguments = called(statement)
            if name in ("backward", "manual_backward"):
                scaler = ""
                if arguments:
                    loss, is_plain = arguments[0], False
                else:
                    loss, is_plain = owner, True
                match loss:
                    case ast.Call(ast.Attribute(by, "scale"), [inner]):
                        loss, scaler = inner, ast.unparse(by)
                optimizer, stepped = _stepped(block[at + 1 :], scaler, text)
                around = _choice_around(tree, statement)
                found.append(Step(block, at, ast.unparse(loss), around, scaler, is_plain, optimizer, stepped))
            elif (
                isinstance(holder, ast.FunctionDef)
                and holder.name in STEPS
                and isinstance(statement, ast.Return)
                and statement.value is not None
            ):
                value = statement.value
                while isinstance(value, ast.IfExp):
                    value = value.orelse
                if isinstance(value, ast.Name | ast.Attribute):
                    found.append(Step(block, at, ast.unparse(value)))
    return min(found, key=lambda step: step.statement.lineno, default=None)


def _choice_around(tree: ast.Module, statement: ast.stmt) -> ast.stmt | None:
    """The outermost `if` that holds a statement and goes backward in both of its branches."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.If)
            and node.orelse
            and node.lineno <= statement.lineno <= (node.end_lineno or 0)
        ):
            branches = [ast.unparse(ast.Module(part, [])) for part in (node.body, node.orelse)]
            if all("backward(" in branch for branch in branches):
                return node
    return None


def _stepped(after: Sequence[ast.stmt], scaler: str, text: str) -> tuple[str, ast.stmt | None]:
    """The optimizer that steps next in the same block: one whose gradients the file clears."""
    for statement in after:
        name, owner, arguments = called(statement)
        if name in ("backward", "manual_backward"):
            break
        if name == "step":
            optimizer = ast.unparse(arguments[0] if scaler and arguments else owner)
            if f"{optimizer}.zero_grad(" in text and ast.unparse(owner) in (scaler, optimizer):
                return optimizer, statement
    return "", None


def mutations(text: str) -> Iterator[Mutation]:
    """The mistakes that a file has room for."""
    tree = ast.parse(text)
    step = step_of(tree, text)
    if step is None:
        return
    lines = text.splitlines()
    statement = step.statement
    end = statement.end_lineno or statement.lineno
    # What every step does: after it went backward, or before the framework gets the loss.
    whole = step.around or statement
    then = statement.lineno if isinstance(statement, ast.Return) else (whole.end_lineno or 0) + 1

    def indented(code: str, column: int = statement.col_offset) -> str:
        return textwrap.indent(code, " " * column)

    top = next(
        item for item in tree.body if isinstance(item, ast.Import | ast.ImportFrom) and not _is_future(item)
    )
    imports = Edit(top.lineno, top.lineno - 1, "import torch", is_mistake=False)

    def one(name: str, codes: str, *edits: Edit) -> Mutation:
        return Mutation(name, frozenset(codes.split()), (imports, *edits))

    def put(code: str) -> Edit:
        return Edit(then, then - 1, indented(code, whole.col_offset))

    yield one(
        "anomalies", "RUN005", Edit(top.lineno, top.lineno - 1, "torch.autograd.set_detect_anomaly(True)")
    )
    yield one("loss read", "RUN014", put(f"print(({step.loss}).item())"))
    yield one("loss copied", "RUN014", put(f"_shown = ({step.loss}).detach().cpu()"))
    if not re.search(r"\btime\b|perf_counter", text):  # whoever measures has to wait
        yield one("waiting", "RUN014", put("torch.cuda.synchronize()"))
    yield one("cache emptied", "RUN031", put("torch.cuda.empty_cache()"))
    yield one("tensor from the CPU", "RUN015 RUN029", put('_ones = torch.ones(64, 64).to("cuda")'))
    yield from _around_the_step(tree, lines, one)
    if not step.optimizer or step.stepped is None:
        return
    optimizer, stepped = step.optimizer, step.stepped
    stepped_end = stepped.end_lineno or stepped.lineno
    yield one(
        "weights one by one",
        "RUN028",
        put(
            f"for _group in {optimizer}.param_groups:\n"
            '    for _weight in _group["params"]:\n'
            "        _weight.data.mul_(0.999)"
        ),
    )
    if not step.is_plain:
        return
    clip = f'torch.nn.utils.clip_grad_norm_([p for g in {optimizer}.param_groups for p in g["params"]], 1.0)'
    if step.scaler:
        scaler = step.scaler
        yield one(
            "scaler bypassed", "AMP005", Edit(stepped.lineno, stepped_end, indented(f"{optimizer}.step()"))
        )
        yield one("not scaled", "AMP013", Edit(statement.lineno, end, indented(f"{step.loss}.backward()")))
        updates = [number for number, line in enumerate(lines, 1) if line.strip() == f"{scaler}.update()"]
        if len(updates) == 1:
            mistake = Edit(updates[0], updates[0], indented("pass"), is_mistake=False)
            yield one(
                "no update", "AMP004", mistake, Edit(stepped.lineno, stepped_end, lines[stepped.lineno - 1])
            )
        if f"{scaler}.unscale_({optimizer})" not in text:
            yield one("clipped while scaled", "AMP003", put(clip))
        return
    if re.search(r"scaler|autocast|\bamp\b|bfloat16|float16|\.half\(", text, re.IGNORECASE):
        return
    made = Edit(
        top.end_lineno + 1 if top.end_lineno else top.lineno, top.end_lineno or 0, SCALER, is_mistake=False
    )
    scaled = Edit(statement.lineno, end, indented(f"_scaler.scale({step.loss}).backward()"))
    by_scaler = Edit(stepped.lineno, stepped_end, indented(f"_scaler.step({optimizer})"))
    updated = by_scaler._replace(text=by_scaler.text + indented("\n_scaler.update()"))
    plain = Edit(stepped.lineno, stepped_end, "\n".join(lines[stepped.lineno - 1 : stepped_end]))
    yield one("scaler bypassed", "AMP005", made, scaled, plain)
    yield one("no update", "AMP004", made, scaled, by_scaler)
    yield one(
        "clipped while scaled",
        "AMP003",
        made,
        scaled._replace(text=f"{scaled.text}\n{indented(clip)}"),
        updated,
    )
    yield one(
        "not scaled",
        "AMP013",
        made,
        plain._replace(first=end + 1, last=end, text="", is_mistake=False),
        updated,
    )
    under = f'with torch.autocast("cuda", dtype=torch.bfloat16):\n    {step.loss}.backward()'
    yield one("backward under autocast", "AMP006", Edit(statement.lineno, end, indented(under)))
    start = _forward_from(step)
    if start < step.at:
        first = step.block[start].lineno
        forward = textwrap.indent("\n".join(lines[first - 1 : statement.lineno - 1]), "    ")
        under = indented('with torch.autocast("cuda", dtype=torch.float16):')
        yield one(
            "float16 without scaler", "AMP001", Edit(first, statement.lineno - 1, f"{under}\n{forward}")
        )


def _around_the_step(
    tree: ast.Module, lines: Sequence[str], one: Callable[..., Mutation]
) -> Iterator[Mutation]:
    """Mistakes outside of the step, which show whether the network and its evaluation are followed."""
    # The network is what the file puts into training mode.
    trained = (
        (statement, ast.unparse(owner))
        for _, block in blocks(tree)
        for statement in block
        for name, owner, arguments in [called(statement)]
        if name == "train" and not arguments and isinstance(owner, ast.Name | ast.Attribute)
    )
    statement, owner = next(trained, (None, "self"))
    if statement is not None and owner != "self":
        after = (statement.end_lineno or statement.lineno) + 1
        cast = f"{' ' * statement.col_offset}{owner}.half()"
        yield one("weights in float16", "AMP002 AMP009", Edit(after, after - 1, cast))
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef) or "backward(" in ast.unparse(node) or not _evaluates(node):
            continue
        for part in (*node.decorator_list, *ast.walk(node)):
            if isinstance(part, ast.With):
                context, is_alone = ast.unparse(part.items[0]), len(part.items) == 1
                first, last, head = part.lineno, part.body[0].lineno - 1, f"{' ' * part.col_offset}if True:"
            elif part in node.decorator_list:
                context, is_alone = ast.unparse(part), True
                first, last, head = part.lineno, part.end_lineno or 0, ""
            else:
                continue
            if context.startswith("torch.no_grad") and is_alone:
                body = node if part in node.decorator_list else part
                end = body.end_lineno or 0
                rest = Edit(last + 1, end, "\n".join(lines[last:end]))
                yield one("evaluation recorded", "RUN016", Edit(first, last, head, is_mistake=False), rest)
                return


def _evaluates(function: ast.FunctionDef) -> bool:
    """Whether a function puts something into evaluation mode."""
    return any(called(item)[0] == "eval" for item in ast.walk(function) if isinstance(item, ast.stmt))


def _is_future(item: ast.stmt) -> bool:
    return isinstance(item, ast.ImportFrom) and item.module == "__future__"


def _forward_from(step: Step) -> int:
    """Where the part of the block begins that computes the loss: after what an earlier pass does."""
    start = 0
    for at, statement in enumerate(step.block[: step.at]):
        if any(
            called(inner)[0] in ("backward", "step")
            for inner in ast.walk(statement)
            if isinstance(inner, ast.stmt)
        ):
            start = at + 1
    if start == 0 and isinstance(step.block[0], ast.Expr) and isinstance(step.block[0].value, ast.Constant):
        start = 1
    return start


def apply(text: str, edits: Sequence[Edit]) -> tuple[str, set[int]]:
    """The changed text, and the lines of the mistake in it."""
    lines = text.splitlines()
    mistake: set[int] = set()
    for edit in sorted(edits, key=lambda edit: (edit.first, edit.last)):
        # Earlier edits have moved the lines.
        moved = len(lines) - len(text.splitlines())
        new = edit.text.split("\n")
        lines[edit.first - 1 + moved : edit.last + moved] = new
        if edit.is_mistake:
            mistake.update(range(edit.first + moved, edit.first + moved + len(new)))
    return "\n".join(lines) + "\n", mistake


def check(folder: Path, row: dict[str, str], *, only: str | None) -> list[Result]:
    """What is found in one script."""
    # Whether the pinned torch of a project has what a rule advises is no question of what is followed.
    program.of_project = lambda finding: finding
    SourceContext.torch_may_be = lambda *_: True  # type: ignore[method-assign]
    path = (folder / row["repository"].replace("/", "+") / row["path"]).resolve()
    text = path.read_text(encoding="utf-8")
    rules = [rule() for rule in all_rules() if issubclass(rule, SourceRule) and rule.enabled_by_default]
    results = []
    for mutation in mutations(text):
        if only is not None and mutation.name != only:
            continue
        changed, wanted = apply(text, mutation.edits)
        ast.parse(changed)
        result = lint([str(path)], rules, Settings(cache=False), contents={str(path): changed.encode()})
        if any(item.code == CRASH_CODE for item in result.findings):
            raise RuntimeError(f"a rule crashed on {path} with {mutation.name}")
        places = [
            place
            for item in result.findings
            if item.code in mutation.codes
            for place in (item.location, *(related.location for related in item.related))
        ]
        found = any(place.path == str(path) and place.line in wanted for place in places)
        results.append((row, mutation.name, " ".join(sorted(mutation.codes)), int(found), 1))
    return results


class Calls(SourceRule):
    """Counts the places in training steps that call something, instead of reporting them."""

    code, name, level, confidence = "XXX001", "calls", "info", "high"
    triggers = ("torch",)
    sources = ()

    def __init__(self) -> None:
        self.known: set[Place] = set()
        self.unknown: set[Place] = set()

    def check(self, context: SourceContext) -> Iterator[Finding]:
        for step in context.steps.all:
            for event in step.events:
                on, result = event.subject, event.result
                is_lost = (
                    event.kind == "call"
                    and isinstance(on, Thing)
                    and (on.is_unknown or on.cls is not None)
                    and (result is None or any(_is_unknown(option) for option, _ in options_of(result)))
                )
                if event.call is not None:
                    (self.unknown if is_lost else self.known).add(event.place)
        return iter(())


def _is_unknown(value: Value) -> bool:
    return isinstance(value, Thing) and value.is_unknown


def count_calls(folder: Path, row: dict[str, str]) -> list[Result]:
    """How many places in the training steps of one script call something known."""
    path = (folder / row["repository"].replace("/", "+") / row["path"]).resolve()
    rule = Calls()
    rules = [item() for item in all_rules() if issubclass(item, SourceRule) and item.enabled_by_default]
    lint([str(path)], [*rules, rule], Settings(cache=False))
    known = rule.known - rule.unknown
    return [(row, "calls", row["half"], len(known), len(rule.known | rule.unknown))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--repositories", type=Path, required=True)
    parser.add_argument("--list", type=Path, default=LIST)
    parser.add_argument("--half", help="'learned' or 'held back'; both if left out")
    parser.add_argument("--only", help="one mistake, by its name")
    parser.add_argument("--calls", action="store_true", help="count the calls that are followed")
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    with arguments.list.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if arguments.half in (None, row["half"])]
    counts: Counter[tuple[str, ...]] = Counter()
    found_of: Counter[tuple[str, ...]] = Counter()
    ask = count_calls if arguments.calls else partial(check, only=arguments.only)
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for results in pool.map(partial(ask, arguments.repositories), rows):
            for row, name, codes, found, total in results:
                for key in (("all",), (name, codes), ("script", row["repository"])):
                    counts[key] += total
                    found_of[key] += found
                if not found:
                    print(f"missed  {row['repository']}/{row['path']}: {name} ({codes})")
    for key, total in counts.items():
        print(f"{found_of[key]:5} of {total:5}  {' '.join(key)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Inputs that a model's own file makes for its example, where reading does not tell them.

What leads to the call of the model in `if __name__ == "__main__":` is run, and nothing else of that block.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator

from torch import nn

from tclint.graph.ops import Assumption, Site
from tclint.tracing.inputs.forward import parsed_file
from tclint.tracing.inputs.given import ADVICE, CallInputs, described
from tclint.tracing.inputs.guesses.example_calls import ModelFiles, Scope, in_order
from tclint.tracing.session.build import on_meta
from tclint.tracing.values.sites import SiteFinder


def example_run(model: nn.Module, origin: ModelFiles, sites: SiteFinder) -> CallInputs | None:
    """The inputs of the first call of the model in its class's file that can be made."""
    path, module = origin.paths[-1], sys.modules.get(type(model).__module__)
    for call, before in _calls(path, origin.names) if module is not None else ():
        wanted = ast.Assign([ast.Name("_made", ast.Store())], _arguments_of(call))
        code = ast.Module([*_leading_to(call, before), wanted], [])
        names = {**vars(module), "__name__": "__main__"}
        run = compile(ast.fix_missing_locations(code), path, "exec")
        try:
            on_meta(lambda run=run, names=names: exec(run, names), sites)  # type: ignore[misc]
        except Exception:  # what an example does may need more than there is here
            continue
        args, kwargs = names["_made"]
        listed = ", ".join(described(value) for value in (*args, *kwargs.values()))
        told = Assumption(
            f"inputs {listed}, as the example of its file makes them{ADVICE}", Site(path, call.lineno)
        )
        return CallInputs(tuple(args), kwargs, (told,), "inferred")
    return None


def _calls(path: str, names: Iterable[str]) -> Iterator[tuple[ast.Call, list[ast.stmt]]]:
    """Calls of the model with the statements in front of them."""
    for block in parsed_file(path).body:
        if not isinstance(block, ast.If) or "__name__" not in ast.dump(block.test):
            continue
        scope, before = Scope(set(names)), list[ast.stmt]()
        for statement in in_order(block.body):
            for node in ast.walk(statement):
                if isinstance(node, ast.Call) and scope.runs(node) and (node.args or node.keywords):
                    yield node, before
            scope.read(statement)
            before = [*before, statement]


def _arguments_of(call: ast.Call) -> ast.expr:
    names = [None if word.arg is None else ast.Constant(word.arg) for word in call.keywords]
    named = ast.Dict([*names], [word.value for word in call.keywords])
    return ast.Tuple([ast.List(call.args, ast.Load()), named], ast.Load())


def _leading_to(call: ast.Call, before: list[ast.stmt]) -> list[ast.stmt]:
    """The statements that bind a name on which the arguments of a call depend."""
    needed = {name for argument in (*call.args, *call.keywords) for name in _names(argument, ast.Load)}
    chosen: list[ast.stmt] = []
    for statement in reversed(before):
        if needed & _names(statement, ast.Store):
            needed |= _names(statement, ast.Load)
            chosen.insert(0, statement)
    return chosen


def _names(node: ast.AST, use: type[ast.expr_context]) -> set[str]:
    found = {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, use)}
    if use is ast.Store and isinstance(node, ast.Import | ast.ImportFrom):
        found |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    return found

"""In IPython and Jupyter: `%load_ext tclint` brings tables for results, and the magic `%%tclint`."""

from __future__ import annotations

import ast
import contextlib
import os
import shlex
import sys
from collections import Counter
from typing import Any

from tclint.config.keywords import options_in, session_settings
from tclint.core.errors import TclintError, UsageError
from tclint.core.markup import code, table, text
from tclint.core.terminal import report_width
from tclint.core.units import percent_text, time_text, uncertainty_text
from tclint.cost.estimate import Estimate
from tclint.engine.check import check
from tclint.engine.report import Report
from tclint.graph.ops import Graph
from tclint.report.formats import markdown
from tclint.report.render import Style, render
from tclint.tracing.values.sites import SiteFinder

LISTED_OPS = 12


def load_ipython_extension(shell: Any) -> None:
    """What `%load_ext tclint` calls."""
    formatter = shell.display_formatter.formatters["text/markdown"]
    formatter.for_type_by_name("tclint.engine.report", "Report", markdown.render)
    formatter.for_type_by_name("tclint.cost.rows", "Estimate", estimate_markdown)
    formatter.for_type_by_name("tclint.graph.ops.graph", "Graph", graph_markdown)

    def magic(line: str, cell: str | None = None) -> None:
        """Lint a model that the session has: `%tclint model --gpu h100 --input 8,3,224,224`.

        `%%tclint` above a cell lints the cell's source and runs it; `%%tclint model` then lints that model.
        Options are those of `tclint check` that are settings, each with a value.
        """
        try:
            _run_magic(shell, line, cell)
        except TclintError as error:
            print(f"tclint: {error}")

    shell.register_magic_function(magic, "line_cell", "tclint")


def _run_magic(shell: Any, line: str, cell: str | None) -> None:
    """`%tclint NAME [--KEY VALUE]...` lints a model that there is; `%%tclint [NAME]` first lints the cell as
    source, and runs it."""
    try:
        names, options = options_in(shlex.split(line))
    except ValueError as error:
        raise UsageError(f"The line of the magic cannot be read: {error}; %tclint? explains it.") from None
    if cell is None and not names:
        raise UsageError("%tclint takes the name of a model; %%tclint above a cell lints the cell.")
    settings = session_settings(options)
    if cell is not None:
        # Magics inside the cell become calls, line for line; what earlier cells import stands in the place of
        # the line with the magic, so that lines are those of the whole cell.
        source = f"{_imports(shell)}\n{shell.transform_cell(cell)}"
        called = SiteFinder().find(sys._getframe()).site  # IPython counts on before or after it runs a cell
        name = f"{called.path if called and called.path.startswith('In[') else 'cell'}.py"
        found = check(name, settings, contents={os.path.abspath(name): source.encode()})
        if found.findings or found.errors:
            _show(shell, found)
        else:
            print("tclint: no findings in this cell")
        if not shell.run_cell(cell, store_history=False).success:
            return
    for name in names:
        try:
            model = shell.ev(name)
        except Exception as error:
            hint = f" A file is linted by !tclint {name}." if os.path.exists(name) else ""
            raise UsageError(f"{name!r} cannot be linted: {type(error).__name__}: {error}.{hint}") from None
        _show(shell, check(model, settings))


def _imports(shell: Any) -> str:
    """The imports of the session's cells so far, in one line."""
    found: dict[str, None] = {}
    for source in shell.history_manager.input_hist_parsed:
        with contextlib.suppress(SyntaxError, ValueError):
            nodes = ast.parse(source).body
            imports = (node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom))
            found.update(dict.fromkeys(ast.unparse(node) for node in imports))
    return "; ".join(text for text in found if not text.startswith("from __future__"))


def _show(shell: Any, report: Report) -> None:
    """As a table where there are some, as text in a terminal."""
    if "text/markdown" in shell.display_formatter.active_types:
        from IPython.display import display

        display(report)
    else:
        print(render(report, "text", Style(width=report_width(sys.stdout))), end="")


def estimate_markdown(estimate: Estimate) -> str:
    """The step, and the ops that take most of it."""
    scenario = estimate.scenario
    head = (
        f"**{time_text(estimate.step_time_us)}** {uncertainty_text(estimate.uncertainty_percent)} per step "
        f"on {code(estimate.gpu.id)} ({scenario.precision}, {scenario.mode}); "
        f"{percent_text(estimate.readiness_percent)} ready, "
        f"{percent_text(estimate.tensor_core_time_percent)} on Tensor Cores"
    )
    times: dict[int, float] = {}
    for kernel, price in zip(estimate.kernels, estimate.prices, strict=True):
        times[kernel.op_index] = times.get(kernel.op_index, 0.0) + price.time_us
    rows = []
    for index, time_us in sorted(times.items(), key=lambda item: -item[1])[:LISTED_OPS]:
        op = estimate.ops[index] if index >= 0 else None
        name, path = (op.name, op.module_path) if op is not None else ("optimizer", "")
        share = percent_text(estimate.percent_of_step(time_us))
        rows.append([code(name), code(path) if path else "", time_text(time_us), share])
    header = ["operator", "module", "time, forward and backward", "of the step"]
    left = len(times) - len(rows)
    end = [f"{left} more operators"] if left else []
    return "\n".join([head, "", *table(header, rows, frozenset({2, 3})), "", *end])


def graph_markdown(graph: Graph) -> str:
    """The model in a line, and its operators by kind."""
    kinds = Counter(op.kind for op in graph.ops)
    rows = [[text(kind), str(number)] for kind, number in kinds.most_common()]
    return "\n".join([text(repr(graph).strip("<>")), "", *table(["kind", "operators"], rows, frozenset({1}))])

"""What `fix` does with models: plans their fixes, shows them, makes those that are proved."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tclint.cli.command_group import say
from tclint.cli.models import user_cache
from tclint.config.settings import Settings
from tclint.core.errors import UsageError
from tclint.core.files import check_writable, write_atomically
from tclint.core.terminal import ProgressLine, write_stdout

if TYPE_CHECKING:
    from tclint.engine.fixes.files import FixedFile


def fix_models(
    models: Sequence[str],
    scripts: Sequence[str],
    settings: Settings,
    *,
    make: bool,
    diff: bool,
    plan_file: str | None,
    keep_architecture: bool,
    quiet: bool,
) -> tuple[int, list[FixedFile]]:
    """Plan the fixes of models, one after the other, and make the proved ones if asked to.

    Args:
        models: targets.
        scripts: training code beside them, which says how they run.
        settings: of the run.
        make: write the edits.
        diff: write nothing; the caller shows what would be.
        plan_file: gets the plan as JSON; None: none is asked for.
        keep_architecture: pad what another fix would make smaller.

    Returns:
        The exit code, 2 where a model could not be linted, 1 where a diff shows something, else 0; and the
        files as the fixes make them.

    Raises:
        UsageError: a file cannot be written; every file is as it was.
    """
    from tclint.engine.declared_models import check_targets
    from tclint.engine.fixes.files import edited_files, write_files
    from tclint.engine.fixes.planner import plan_fixes
    from tclint.report.plan_text import plan_text
    from tclint.tracing import shared_worker

    if plan_file is not None:
        if len(models) != 1:
            raise UsageError(f"--plan writes the plan of one model; you named {len(models)}.")
        check_writable(plan_file)
    code = 0
    found: list[FixedFile] = []
    for model in models:
        targets = [model, *scripts]
        with shared_worker(), contextlib.nullcontext() if quiet else ProgressLine() as progress:
            cache = user_cache(targets, settings, verbose=False)
            report = check_targets(targets, settings, on_progress=progress, cache=cache)
            errors = [error for error in report.errors if error.target == model]
            for error in errors:
                say(f"error: {error.message}")
            if errors:
                code = 2
                continue
            plan = plan_fixes(report, model, progress, scripts, keep_architecture=keep_architecture)
        files = edited_files(plan)
        found += files
        if plan_file is not None:
            write_atomically(plan_file, json.dumps(plan.to_json(), indent=1) + "\n")
        if diff:
            code = max(code, int(bool(files)))
        elif not quiet:
            write_stdout(plan_text(plan))
        if make and not diff:
            write_files(files)
        if not quiet:
            say(_summary(model, files, make=make, diff=diff))
    return code, found


def _summary(model: str, files: Sequence[FixedFile], *, make: bool, diff: bool) -> str:
    from tclint.engine.fixes.files import files_text

    if not files:
        return f"{model}: nothing to write"
    if diff:
        return f"would write {files_text(files)}" + ("" if make else " with --unsafe-fixes")
    if make:
        return f"wrote {files_text(files)}"
    return f"not written: {files_text(files)}; --unsafe-fixes makes the plan's edits"

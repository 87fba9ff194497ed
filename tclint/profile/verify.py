"""A model's step run on a GPU under the profiler, beside its prediction; and with a finding's fix made."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace

from tclint.config.settings import Settings
from tclint.core.errors import TargetError, UsageError
from tclint.core.target import is_model_target
from tclint.core.text import listed
from tclint.profile.beside import Beside, MeasuredFix, beside
from tclint.profile.profile import RankProfile, read_profile
from tclint.profile.recording import NOT_RUN, STEPS, WARM_UP_STEPS, Recording, record
from tclint.tracing import TraceResult
from tclint.tracing.worker.torch_probe import Torch

Progress = Callable[[str], None]
_MADE_HERE = ("layout", "precision", "compiled")
"""Settings that a fix can change, and a built model can be run with."""


def verify(
    target: str,
    settings: Settings,
    gpus: Sequence[str] = (),
    finding: str = "",
    on_progress: Progress = lambda _: None,
    run: Callable[[Recording], None] = record,
    torch: Torch | None = None,
) -> Beside:
    """Run a step of a model as the settings have it, and put it beside its report; with a finding, without
    and with its fix.

    Args:
        gpus: what the GPU is to be taken for; empty: what it is.
        finding: the code of one whose fix is measured too.
        run: makes a trace of a step.
        torch: what is installed here; None: ask.

    Raises:
        UsageError: there is no GPU, no such finding, or its fix cannot be made on a built model.
        TargetError: the model could not be built, traced or run.
    """
    from tclint.cost.gpu import load_gpu
    from tclint.engine.script.as_built import trace_as_built

    if not is_model_target(target):
        raise UsageError(
            f"{target!r} is not a model target; write 'path/file.py:callable' or 'package.module:callable'."
        )
    if settings.precision in NOT_RUN or settings.phase != "none" or settings.input_sets:
        raise UsageError(
            "A step is run in precisions of torch's own, on one set of inputs, in no --phase; profile others "
            "yourself and give the trace to 'tclint profile TRACE TARGET'."
        )
    found = _gpus(torch)
    gpu = load_gpu(gpus[0] if gpus else found[0]).id
    # It runs the whole model on one GPU, whatever the project's settings say of others.
    settings = replace(settings, gpus=(gpu,), tensor_parallel=1, parallel="none")
    (trace,) = trace_as_built([target], settings, on_progress=on_progress)
    if trace.graph is None:
        raise trace.error or TargetError(f"{target} was not traced.")
    change = _change_of(trace, settings, finding) if finding else {}
    inputs = tuple((spec.input_name or "", spec.dtype, spec.shape) for spec in trace.graph.inputs)

    def measured(own: Settings) -> Beside:
        on_progress(f"running {target}")
        with tempfile.TemporaryDirectory(prefix="tclint-") as folder:
            path = os.path.join(folder, "trace.json")
            run(Recording(target, trace.made_so(own), inputs, path))
            (profile,) = read_profile(path)
        profile.summary.path = f"{target}, run here"
        return _beside(profile, target, own, trace)

    before = measured(settings)
    if not finding:
        return before
    after = measured(replace(settings, **change))  # type: ignore[arg-type]
    fix = MeasuredFix(
        finding.upper(),
        ", ".join(f"{name} {value}" for name, value in change.items()),
        _step_us(before),
        _step_us(after),
        before.estimate.step_time_us,
        after.estimate.step_time_us,
    )
    return replace(before, fix=fix)


def _gpus(torch: Torch | None) -> tuple[str, ...]:
    """Raises UsageError where there is none."""
    from tclint.tracing.worker.torch_probe import probe

    torch = torch or probe()
    if torch is None or not torch.gpus:
        has = "torch is not installed" if torch is None else f"torch {torch.version} sees none"
        raise UsageError(
            f"'tclint verify' runs the model on a CUDA device, and {has}; record a trace where there is one, "
            "and give it to 'tclint profile TRACE TARGET'."
        )
    return torch.gpus


def _beside(profile: RankProfile, target: str, settings: Settings, trace: TraceResult) -> Beside:
    from tclint.engine.caches import Traced

    (found,) = beside([profile], target, settings, ("gpus", "mode", "precision"), traces=Traced([trace]))
    how = (
        f"{STEPS} steps recorded after {WARM_UP_STEPS + 1} to warm up, random weights unless the builder "
        "loads some, random inputs unless the target has some, clocks as they are"
    )
    return replace(found, said=(how,))


def _step_us(found: Beside) -> float:
    summary = found.profile.summary
    return summary.kernel_time_us / max(summary.steps, 1)


def _change_of(trace: TraceResult, settings: Settings, code: str) -> dict[str, object]:
    """The settings that the first finding of this code changes.

    Raises:
        UsageError: there is none, or its fix is an edit.
    """
    from tclint.analysis.change import Change
    from tclint.analysis.graph_rule import GraphRule
    from tclint.engine.model_pass import check_graph
    from tclint.engine.rules.registry import Selection

    rules = [rule for rule in Selection(settings).rules if isinstance(rule, GraphRule)]
    _, findings, _ = check_graph(trace, rules, settings)
    own = [one for one in findings if one.code == code.upper()]
    if not own:
        codes = sorted({one.code for one in findings})
        raise UsageError(
            f"{trace.target} has no finding {code}; it has {listed(codes, 12) if codes else 'none'}."
        )
    for one in own:
        change = one.change
        if isinstance(change, Change) and not change.sizes and not change.edit:
            changed = {name: value for name, value in change.settings.items() if name in _MADE_HERE}
            if changed and changed.get("precision") not in NOT_RUN:
                return changed
    raise UsageError(
        f"The fix of {code} is an edit of the model, which a built one cannot be given: make it in a copy "
        f"('tclint fix' where it has an edit), verify the copy as a target of its own, and compare the two."
    )

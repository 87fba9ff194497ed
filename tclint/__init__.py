"""tclint: finds where PyTorch models and training code waste Tensor Cores, and what each waste costs.

The functions below are the stable Python API. They import what they need when called, so that
`import tclint` stays cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tclint.core.version import __version__

if TYPE_CHECKING:
    import torch

    from tclint.config.settings import Mode, Precision, Settings
    from tclint.cost.estimate import Estimate
    from tclint.engine.check import Targets
    from tclint.engine.fixes.plan import FixPlan
    from tclint.engine.report import Entry, Report
    from tclint.graph.ops import Graph
    from tclint.graph.weights.plan import WeightPlan

__all__ = [
    "Settings", "__version__", "apply", "check", "estimate", "pad_state_dict", "plan", "render", "to_frame",
    "to_fx", "trace", "verify_padding",
]  # fmt: skip


def trace(
    model: Callable[..., Any], inputs: Any = None, kwargs: Mapping[str, Any] | None = None, **options: Any
) -> Graph:
    """Run a model once on meta tensors, without memory or GPU, and return what it did.

    A forked child of this process does it, so that nothing else of what building and running change is seen
    here: what they print and warn of, and the type of the error where they fail, is handed back. Where there
    are no forks (Windows), or the model's code needs the GPU that this process uses, this process does it:
    for its thread alone, one trace at a time, and everything is put back, random states included.

    Args:
        model: an nn.Module, in whichever mode it is. Or a callable without arguments that returns an
            nn.Module (or `(module, inputs)`); it is called with weight initialisation and allocation
            suppressed.
        inputs: positional inputs of the model's forward: a tensor, or a tuple or nested structure with
            tensors, real or meta; None: what the callable returned, else inferred from the first layers.
        kwargs: keyword inputs of the forward.
        **options: as those of `check`; mode="infer" traces the model after `eval()`, and input=, batch=, arg=
            and phase= give its inputs and arguments, unless `inputs` does.

    Raises:
        TargetError: the model could not be built or traced, in five minutes; the message says why, and what
            the model's code raised is its `__cause__`.
        UsageError: an option is wrong.
    """
    from tclint.config.keywords import session_settings
    from tclint.engine.script.as_built import trace_callable_as_built

    return trace_callable_as_built(model, inputs, kwargs, session_settings(options))


def estimate(
    graph: Graph | Callable[..., Any],
    gpu: str | Sequence[str] | None = None,
    precision: Precision | None = None,
    mode: Mode | None = None,
    *,
    inputs: Any = None,
    **options: Any,
) -> Estimate:
    """Predict the time of every op of a traced model on one GPU, per op and in total.

    Args:
        graph: what `trace` returned, or a model that it would take.
        gpu: an id or alias that `tclint gpus` lists; None: the first of the settings, a100 by default.
        precision: 'fp16' or 'bf16' as torch.autocast does it, 'pure-fp16', 'tf32', 'fp8' and others
            (docs/explanation/cost-model.md).
        mode: 'train' (forward, backward, optimizer) or 'infer' (forward).
        inputs: of a model, as of `trace`.
        **options: as those of `check`: layout, compiled, optimizer, accumulation, calibration and others.

    Raises:
        UsageError: an option is wrong, or several GPUs are named.
        TargetError: the model could not be built or traced.
    """
    from tclint.config.keywords import session_settings
    from tclint.core.errors import UsageError
    from tclint.cost.estimate import estimate as estimate_graph
    from tclint.cost.scenario import Scenario
    from tclint.graph.ops import Graph as GraphClass

    named = {"gpu": gpu, "precision": precision, "mode": mode}
    options |= {key: value for key, value in named.items() if value is not None}
    settings = session_settings(options).in_phase()
    if gpu is not None and len(settings.gpus) > 1:
        raise UsageError("An estimate is of one GPU: call it for each, or tclint.check for a report on all.")
    if not isinstance(graph, GraphClass):
        from tclint.engine.script.as_built import trace_callable_as_built

        graph = trace_callable_as_built(graph, inputs, None, settings)
    elif inputs is not None:
        raise UsageError("A graph has its inputs already: give inputs= to tclint.trace.")
    return estimate_graph(graph, Scenario.of(settings, settings.gpus[0]))


def to_fx(graph: Graph) -> torch.fx.Graph:
    """The torch.fx.Graph that `trace` recorded or was given, for tools that work on those.

    Placeholders are the inputs, get_attr nodes parameters and buffers by their qualified names, call_function
    nodes the operators (OpOverload targets); of an operator written as its parts, the parts. Nodes have
    torch.fx's own metadata: `val` (meta tensors), `nn_module_stack` and `stack_trace`;
    `node.meta["tclint"]` is the rest, such as the line that constructed the layer. Constants that the model
    made while it ran are get_attr nodes `_constant_1` ..., whose values are not known. Without such constants
    `torch.fx.GraphModule(model, to_fx(graph))` computes what the model does, as a tuple.

    Raises:
        LookupError: the graph was read from JSON.
    """
    from tclint.graph.ops.graph import fx_of

    return fx_of(graph)


def check(
    targets: Targets, settings: Settings | None = None, *, inputs: Any = None, **options: Any
) -> Report:
    """Lint models ('model.py:build_model') and training scripts ('train.py', 'src/') as the command does.

    Args:
        targets: one of them or several, as text or path; or an nn.Module, or a callable that builds one.
            Those are traced as by `trace`; with `mode="infer"` after `eval()`. Or a graph that `trace`
            returned.
        settings: all settings, in place of options and of pyproject.toml.
        inputs: of the one model that is given as an object: a tensor, or a tuple or dict of them.
        **options: keys of `[tool.tclint]`, as gpu="h100" or gpu=["a100", "h100"], precision="bf16",
            min_gain=2; what they leave open is as in the nearest pyproject.toml.

    Raises:
        UsageError: an option is wrong, or a target is none of these.
    """
    from tclint.config.keywords import session_settings
    from tclint.core.errors import UsageError
    from tclint.engine.check import check as run

    if settings is not None and options:
        raise UsageError(f"Give settings or options, not both: Settings(...) holds {', '.join(options)} too.")
    if inputs is not None:
        from tclint.integrations.session import with_inputs

        targets = with_inputs(targets, inputs)
    return run(targets, settings or session_settings(options))


def plan(report: Report, target: str, *, keep_architecture: bool = False) -> FixPlan:
    """The fixes of a model in their order, with their edits where a trace of an edited copy proves them.

    Args:
        report: what `check` returned for the target.
        target: 'model.py:build_model', as it was given to `check`.
        keep_architecture: make no size smaller, so that `pad_state_dict` can carry saved weights over.

    Raises:
        UsageError: the report has no such model.
    """
    from tclint.engine.fixes.planner import plan_fixes

    return plan_fixes(report, target, keep_architecture=keep_architecture)


def apply(plan: FixPlan) -> list[str]:
    """Make the proved edits of a plan: in all files, or in none.

    Returns:
        The paths of the files that were written, absolute.

    Raises:
        UsageError: a file has changed since the plan was made, or cannot be written; nothing was.
    """
    from tclint.engine.fixes.files import edited_files, write_files

    files = edited_files(plan)
    write_files(files)
    return [file.path for file in files]


def render(report: Report, format: str = "json") -> str:
    """A report as text: 'json', 'text', 'sarif', 'html' and what else `tclint --format` takes.

    Raises:
        UsageError: no such format.
    """
    from tclint.report.render import render as render_report

    return render_report(report, format)


def pad_state_dict(state: Mapping[str, Any], plan: Any) -> dict[str, Any]:
    """A state dict with the weights of a plan padded, as `tclint pad` pads those in a file.

    Args:
        state: tensors by name, as `model.state_dict()` gives them; it stays as it is.
        plan: a plan file, the JSON in it, or what has the plan's `weights`.

    Raises:
        UsageError: a weight is missing, or has another shape than the plan was made for.
    """
    from tclint.checkpoints.padding import weights_of
    from tclint.checkpoints.torch_file import pad_state_dict as pad

    return pad(state, weights_of(plan))


def verify_padding(
    original: Any, padded: Any, inputs: Any, kwargs: Mapping[str, Any] | None = None, *, plan: Any = None
) -> WeightPlan:
    """Run a model and its padded copy in float64, and say whether they compute the same.

    Both run on the CPU and in evaluation mode, on the same inputs and with several sets of random weights.
    Copies of the modules do; `tclint pad --check` runs both in processes of their own.

    Args:
        original: an nn.Module.
        padded: the same with some sizes larger.
        inputs: a tensor or a tuple of arguments, with values.
        kwargs: further arguments.
        plan: where the weights' entries go, as `pad_state_dict` takes it; None: it is made from both models.

    Returns:
        The plan, whose `proof` has a `verdict` ('exact', 'exact_with', 'inexact' or 'unproved'), the `edits`
        that 'exact_with' rests on, and a `reason`. `pad_state_dict` takes it.

    Raises:
        TargetError: a model could not be traced.
    """
    from tclint.checkpoints.padding import weights_of
    from tclint.tracing.worker.padding_runs import verify_objects

    return verify_objects(original, padded, inputs, kwargs, None if plan is None else weights_of(plan))


def to_frame(what: Report | Sequence[Entry] | Estimate | Graph) -> Any:
    """A pandas.DataFrame: of a report a row per finding and GPU, of `report.entries` per model and GPU, of an
    estimate per kernel, of a graph per op.

    Raises:
        UsageError: pandas is not installed, or it is none of these.
    """
    from tclint.integrations.frames import to_frame as make

    return make(what)


def load_ipython_extension(shell: Any) -> None:
    """What `%load_ext tclint` calls: tables for results, and the magic `%%tclint`."""
    from tclint.integrations.notebook import load_ipython_extension as load

    load(shell)


def __getattr__(name: str) -> Any:
    if name == "Settings":
        from tclint.config.settings import Settings

        return Settings
    raise AttributeError(f"module 'tclint' has no attribute {name!r}")

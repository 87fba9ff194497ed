"""Runs one step of a real model under torch.profiler, in a process of its own."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tclint.config.settings import Settings
from tclint.core.errors import TargetError, TclintError
from tclint.core.text import printable

if TYPE_CHECKING:
    import torch
    from torch import nn

    from tclint.tracing.worker.targets import LoadedTarget

WARM_UP_STEPS = 6
"""Before the recorded ones: libraries choose kernels, memory is allocated, torch.compile compiles."""
STEPS = 3
_RUN = "from tclint.profile.recording import main; main()"
NOT_RUN = ("fp8", "int8")
"""Precisions that are conversions of torchao, which is not run here."""
_OPTIMIZERS = {
    "adamw": ("AdamW", {}),
    "adam": ("Adam", {}),
    "sgd": ("SGD", {}),
    "sgd-momentum": ("SGD", {"momentum": 0.9}),
    "rmsprop": ("RMSprop", {}),
    "adagrad": ("Adagrad", {}),
}


@dataclass(frozen=True, slots=True)
class Recording:
    """What to run, and where its trace goes."""

    target: str
    settings: Settings
    inputs: tuple[tuple[str, str, tuple[int, ...]], ...]
    """Name, dtype and sizes of each, as the traced model had them; used where nothing gives them."""
    path: str
    device: str = "cuda"


def record(recording: Recording) -> None:
    """Run it in a process of its own, whose torch nothing has patched.

    Raises:
        TargetError: it failed; the message is one sentence.
    """
    limit_s = recording.settings.timeout_s
    try:
        done = subprocess.run(
            # Not `-m`: that would put the working directory, and any `random.py` in it, before the library.
            [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; {_RUN}"],
            input=pickle.dumps(recording),
            capture_output=True,
            check=False,
            timeout=limit_s,
        )
    except subprocess.TimeoutExpired:
        raise TargetError(
            f"{recording.target} took longer than {limit_s:g} s to build and run; --timeout allows more."
        ) from None
    if done.returncode or not os.path.exists(recording.path):
        said = done.stderr.decode("utf-8", "replace").strip()
        message = printable(said.rpartition("\n")[2]) or f"the process ended with {done.returncode}"
        raise TargetError(f"{recording.target} could not be run: {message}", details=said)


def main() -> None:
    """Run the pickled Recording on stdin; where it fails, the last line of stderr says why."""
    from tclint.tracing.worker.isolation import refuse_downloads, refuse_network

    recording = pickle.load(sys.stdin.buffer)
    if not recording.settings.network:
        refuse_network()
        refuse_downloads()
    try:
        record_here(recording)
    except TclintError as error:
        sys.exit(str(error))


def record_here(recording: Recording) -> None:
    """Run it in this process, whose TF32 switches it sets.

    Raises:
        TargetError: the model could not be built, or cannot be run so.
    """
    import torch

    step = _step(recording)
    wait = torch.cuda.synchronize if recording.device == "cuda" else lambda: None
    for _ in range(WARM_UP_STEPS):
        step()
    wait()
    activities = [torch.profiler.ProfilerActivity.CPU]
    if recording.device == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=STEPS, repeat=1)
    with torch.profiler.profile(activities=activities, record_shapes=True, schedule=schedule) as recorded:
        for _ in range(1 + STEPS):
            step()
            wait()
            recorded.step()
    recorded.export_chrome_trace(recording.path)


def _step(recording: Recording) -> Callable[[], None]:
    """One step of the model on random inputs, as the settings have it."""
    import torch

    from tclint.config.precisions import PRECISION_FACTS
    from tclint.cost.math_units import tf32_switches
    from tclint.tracing.inputs.given import with_batch
    from tclint.tracing.inputs.real import filled, real_inputs
    from tclint.tracing.inputs.specs import parse_inputs
    from tclint.tracing.inputs.training_steps import trains_in_steps
    from tclint.tracing.worker.entry import split_built

    settings, device = recording.settings, recording.device
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = tf32_switches(settings.precision)
    loaded, built = _built(recording)
    model, returned, _ = split_built(built, loaded.target.attribute)
    if trains_in_steps(model) and settings.mode == "train":
        raise TargetError(
            "a LightningModule trains in its Trainer; profile that with Trainer(profiler='pytorch'), and "
            "give the trace to 'tclint profile TRACE TARGET'"
        )
    specs = parse_inputs(settings.inputs)
    inputs = real_inputs(loaded.module, model, returned, specs, recording.inputs)
    if settings.batch is not None:
        inputs = with_batch(inputs, settings.batch)
    if settings.mode == "infer":
        model.eval()
    facts = PRECISION_FACTS[settings.precision]
    dtype = getattr(torch, facts.dtype)
    model.to(device)
    if facts.converted:
        model.to(dtype)
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    has_layout = settings.layout == "channels_last"
    if has_layout:
        for parameter in model.parameters():
            if parameter.dim() in formats:
                parameter.data = parameter.data.contiguous(memory_format=formats[parameter.dim()])

    def placed(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        real = filled(value, model).to(device)
        if facts.converted and real.is_floating_point():
            real = real.to(dtype)
        if has_layout and real.dim() in formats:
            real = real.contiguous(memory_format=formats[real.dim()])
        return real

    tree_map = torch.utils._pytree.tree_map
    arguments, keywords = tree_map(placed, inputs.args), tree_map(placed, inputs.kwargs)
    called: Callable[..., Any] = torch.compile(model) if settings.compiled else model
    uses_autocast = not facts.converted and facts.dtype in ("float16", "bfloat16")

    def autocast() -> AbstractContextManager[Any]:
        return torch.autocast(device, dtype) if uses_autocast else nullcontext()

    if settings.mode == "infer":

        def infer() -> None:
            with torch.no_grad(), autocast():
                called(*arguments, **keywords)

        return infer
    optimizer = _optimizer(model, settings)
    scaler = torch.amp.GradScaler(device, enabled=uses_autocast and facts.dtype == "float16")

    def train() -> None:
        with autocast():
            loss = _loss(called(*arguments, **keywords), settings)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    return train


def _built(recording: Recording) -> tuple[LoadedTarget, Any]:
    from tclint.tracing.patches.stored_weights import random_weights
    from tclint.tracing.values.sites import SiteFinder
    from tclint.tracing.worker.project_files import import_roots
    from tclint.tracing.worker.target_arguments import parse_arguments
    from tclint.tracing.worker.targets import load_target, parse_target, user_errors

    target = parse_target(recording.target)
    sites = SiteFinder(roots=(os.getcwd(), *(import_roots(target.path) if target.path else ())))
    with random_weights(sites):
        loaded = load_target(target, parse_arguments(recording.settings.arguments))
        with user_errors(f"{target.attribute} in {target.container}", sites.is_user_file):
            return loaded, loaded.function()


def _loss(output: Any, settings: Settings) -> torch.Tensor:
    """The model's own, the one that the settings name, or the mean of squares of what it returns."""
    import torch

    loss = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
    if isinstance(loss, torch.Tensor):
        return loss
    leaves = torch.utils._pytree.tree_leaves(output)
    values = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    if not values:
        raise TargetError("its output needs no gradient; --mode infer runs its forward alone")
    if settings.loss == "cross_entropy":
        logits = values[0].flatten(0, -2)
        return torch.nn.functional.cross_entropy(logits, logits.detach().argmax(-1))
    return torch.stack([value.float().square().mean() for value in values]).sum()


def _optimizer(model: nn.Module, settings: Settings) -> torch.optim.Optimizer:
    import torch

    name = settings.optimizer.removesuffix("-fused")
    if name not in _OPTIMIZERS:
        raise TargetError(f"--optimizer {settings.optimizer} is not one of torch.optim; choose another one")
    kind, options = _OPTIMIZERS[name]
    fused = {"fused": True} if settings.optimizer.endswith("-fused") else {}
    found: torch.optim.Optimizer = getattr(torch.optim, kind)(model.parameters(), lr=1e-6, **options, **fused)
    return found

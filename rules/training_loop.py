"""Rules on what a training or evaluation loop does besides computing: waiting, checking, copying."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tclint.finding import Finding, Fix
from tclint.rule import Example, Rule, SourceRule
from tclint.source.program import any_word, has_star, is_test_path, keyword, names_in
from tclint.source.tables import (
    Assignment,
    Call,
    CallEvent,
    Expression,
    Function,
    Literal,
    Name,
    dotted,
    method_of,
    render,
)

if TYPE_CHECKING:
    from tclint.source.context import SourceContext
    from tclint.source.program import Training

_DEBUG_FILES = ("debug", "profil", "bench", "nan", "anomaly", "example", "tutorial", "demo")
_ANOMALY = (
    "torch.autograd.set_detect_anomaly",
    "torch.autograd.anomaly_mode.set_detect_anomaly",
    "torch.autograd.detect_anomaly",
    "torch.autograd.anomaly_mode.detect_anomaly",
)
_NVTX = ("torch.autograd.profiler.emit_nvtx", "torch.autograd.profiler.emit_itt")
_FUSED = {"torch.optim.Adam": "Adam", "torch.optim.AdamW": "AdamW", "torch.optim.SGD": "SGD"}
_CREATORS = tuple(
    f"torch.{name}"
    for name in (
        "rand", "randn", "randint", "randperm", "zeros", "ones", "full", "empty", "arange", "linspace", "eye",
    )
)  # fmt: skip
_GRADIENT_CALLS = ("backward", "grad", "requires_grad_", "step", "train_step", "register_hook", "train")
_DDP = ("torch.nn.parallel.DistributedDataParallel", "torch.nn.parallel.distributed.DistributedDataParallel")


class DebugApisOn(SourceRule):
    """Autograd's debugging switched on in training.

    What it does
    Finds `torch.autograd.set_detect_anomaly(True)` and `with torch.autograd.detect_anomaly():` or
    `emit_nvtx()` that always run, in files that train.

    Why it costs
    Anomaly detection records a stack trace for every forward op and looks for NaN after every backward op,
    each with a wait for the GPU; steps take several times as long. emit_nvtx costs an annotation per op.

    Example
        torch.autograd.set_detect_anomaly(True)

    Use instead
        torch.autograd.set_detect_anomaly(args.debug)

    When it does not apply
    Switches behind a flag, tests, scripts for profiling or debugging.

    References
    PyTorch, Performance Tuning Guide, "Disable debugging APIs".
    """

    code = "RUN005"
    name = "debug-apis-on"
    since = "0.1.0"
    level = "warning"
    confidence = "high"
    sources = ("PyTorch recipes, Performance Tuning Guide: Disable debugging APIs",)
    triggers = ("detect_anomaly", "emit_nvtx")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        if is_test_path(context.path) or any_word(context.path.rpartition("/")[2], _DEBUG_FILES[:5]):
            return
        for called in program.calls(*_ANOMALY, *_NVTX):
            if not program.unconditional(called.function, called.block) or any(
                any_word(function.name, _DEBUG_FILES[:5])
                for function in program.outer_functions(called.function)
            ):
                continue
            last = called.qualified.rpartition(".")[2]
            if last == "set_detect_anomaly":
                given = keyword(called.call, "mode", 0)
                on = given is not None and context.resolver.evaluate(called.function, given)
                if not on or not on.certain or on.values[0] is not True or has_star(called.call):
                    continue
            elif not _entered(called.function, called.call):
                continue
            if (
                not any(
                    training.function.index == called.function.index or not called.function.index
                    for training in program.trainings
                )
                and "backward" not in context.tables.identifiers
                and last != "set_detect_anomaly"
            ):
                continue
            cost = (
                "annotates every op"
                if "emit" in last
                else "checks every backward op for NaN and waits for it"
            )
            yield self.finding(
                context.location(called.call.site),
                f"`{context.excerpt(called.call.site)}` always runs: it {cost}.",
                evidence={"call": called.qualified, "function": called.function.qualified_name},
                fix=Fix("Remove it, or switch it on by a debugging flag only."),
                identity=f"{called.function.qualified_name}:{last}",
            )

    valid = (
        Example(
            source="""\
import torch

torch.autograd.set_detect_anomaly(args.debug)
""",
            note="a flag decides",
        ),
        Example(
            source="""\
import torch

if DEBUG:
    torch.autograd.set_detect_anomaly(True)
""",
            note="behind a condition",
        ),
        Example(
            source="""\
import torch

torch.autograd.set_detect_anomaly(False)
# torch.autograd.set_detect_anomaly(True)
""",
            note="off",
        ),
        Example(
            source="""\
import torch

def find_nan(model, batch):
    with torch.autograd.detect_anomaly():
        model(batch).sum().backward()
""",
            note="a debugging helper",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch

torch.autograd.set_detect_anomaly(True)
train()
""",
            note="always on",
        ),
        Example(
            source="""\
import torch

def train(model, loader, optimizer):
    for batch in loader:
        with torch.autograd.detect_anomaly():
            loss = model(batch).mean()
            loss.backward()
        optimizer.step()
""",
            note="around every step",
        ),
        Example(
            source="""\
import torch
from torch import autograd

if __name__ == "__main__":
    autograd.set_detect_anomaly(True)
    main()
""",
            note="in the main part of a script",
        ),
    )


class ZeroGradMemset(SourceRule):
    """Gradients set to zero instead of None.

    What it does
    Finds `zero_grad(set_to_none=False)` in files that do not touch `.grad` themselves.

    Why it costs
    Filling every gradient with zeros reads nothing and computes nothing useful, and backward then adds to it
    instead of writing: one more read of all gradients in every step. None is the default since PyTorch 2.0.

    Example
        optimizer.zero_grad(set_to_none=False)

    Use instead
        optimizer.zero_grad()

    When it does not apply
    Code that reads or adds to `p.grad` and relies on it being a tensor.

    References
    PyTorch, Performance Tuning Guide, "Use parameter.grad = None instead of model.zero_grad()".
    """

    code = "RUN011"
    name = "zero-grad-memset"
    since = "0.1.0"
    level = "info"
    confidence = "high"
    sources = ("PyTorch recipes, Performance Tuning Guide: Use parameter.grad = None",)
    triggers = ("set_to_none",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        if is_test_path(context.path) or "grad" in context.tables.identifiers or context.amp.framework:
            return
        for function, event, _ in context.program.methods("zero_grad"):
            given = keyword(event.call, "set_to_none", 0)
            if given != Literal(False) or not context.program.unconditional(function, event.block):
                continue
            yield self.finding(
                context.location(event.call.site),
                f"`{context.excerpt(event.call.site)}` fills gradients with zeros, to which backward adds.",
                evidence={"set_to_none": False, "function": function.qualified_name},
                fix=Fix("Remove set_to_none=False."),
                identity=f"{function.qualified_name}:{render(event.call.function)}",
            )

    valid = (
        Example(
            source="""\
optimizer.zero_grad(set_to_none=True)
optimizer.zero_grad()
""",
            note="None",
        ),
        Example(
            source="""\
for batch in loader:
    optimizer.zero_grad(set_to_none=False)
    model(batch).mean().backward()
    for p in model.parameters():
        p.grad += noise(p)
    optimizer.step()
""",
            note="the gradients are used as tensors",
        ),
        Example(
            source="""\
optimizer.zero_grad(set_to_none=args.set_to_none)
""",
            note="decided at run time",
        ),
    )
    invalid = (
        Example(
            source="""\
for batch in loader:
    optimizer.zero_grad(set_to_none=False)
    model(batch).mean().backward()
    optimizer.step()
""",
            note="the slower way, asked for",
        ),
        Example(
            source="""\
def step(model, batch):
    model.zero_grad(set_to_none=False)
    model(batch).mean().backward()
""",
            note="of a module",
        ),
        Example(
            source="""\
class Trainer:
    def step(self, loss):
        self.optimizer.zero_grad(set_to_none=False)
        loss.backward()
        self.optimizer.step()
""",
            note="in a class",
        ),
    )


class OptimizerNotFused(SourceRule):
    """Adam, AdamW or SGD without its fused kernel.

    What it does
    Finds `torch.optim.Adam`, `AdamW` and `SGD` without `fused` or `foreach` in files that train on CUDA.

    Why it costs
    The default takes several kernels per group of parameters, each reading and writing all of them; the
    fused version is one. The optimizer step is bound by memory, so this is most of its time.

    Example
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    Use instead
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    When it does not apply
    PyTorch before 2.0 (Adam, AdamW) or 2.3 (SGD), parameters that are not floating-point, training on the
    CPU: the rule is off unless selected. Other optimizers have no fused version: the argument raises
    TypeError.

    References
    PyTorch, torch.optim, "Algorithms": implementations for-loop, foreach and fused. Signatures checked on
    PyTorch 2.13.
    """

    code = "RUN012"
    name = "optimizer-not-fused"
    since = "0.1.0"
    level = "info"
    confidence = "medium"
    enabled_by_default = False
    sources = ("PyTorch docs, torch.optim: Algorithms",)
    triggers = ("Adam(", "AdamW(", "SGD(")
    requires = ("cuda", ".backward(")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        if is_test_path(context.path) or not program.on_cuda or not program.trainings:
            return
        for called in program.calls(*_FUSED):
            given = {argument.keyword for argument in called.call.arguments}
            if given & {"fused", "foreach", "differentiable"} or has_star(called.call):
                continue
            name = _FUSED[called.qualified]
            yield self.finding(
                context.location(called.call.site),
                f"This {name} runs several kernels over all parameters per step; fused=True makes it one.",
                evidence={"optimizer": name, "fused": False},
                fix=Fix("Pass fused=True."),
                identity=f"{called.function.qualified_name}:{name}",
            )

    valid = (
        Example(
            source="""\
import torch

optimizer = torch.optim.AdamW(model.cuda().parameters(), fused=True)
loss.backward()
optimizer.step()
""",
            note="fused",
        ),
        Example(
            source="""\
import torch

optimizer = torch.optim.RMSprop(model.cuda().parameters())  # not Adam()
loss.backward()
optimizer.step()
""",
            note="has no fused version",
        ),
        Example(
            source="""\
import torch

optimizer = torch.optim.SGD(model.cuda().parameters(), **options)
loss.backward()
optimizer.step()
""",
            note="options may bring it",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch

optimizer = torch.optim.AdamW(model.cuda().parameters(), lr=1e-3)
loss.backward()
optimizer.step()
""",
            note="default implementation",
        ),
        Example(
            source="""\
from torch import optim

optimizer = optim.SGD(model.to("cuda").parameters(), lr=0.1, momentum=0.9)
for batch in loader:
    model(batch).mean().backward()
    optimizer.step()
""",
            note="SGD",
        ),
        Example(
            source="""\
from torch.optim import Adam

def train(model):
    model.cuda()
    opt = Adam(model.parameters())
    for batch in loader:
        loss = model(batch)
        loss.backward()
        opt.step()
""",
            note="imported by name",
        ),
    )


class DataParallel(SourceRule):
    """Training with nn.DataParallel.

    What it does
    Finds `nn.DataParallel(model)` in files that train and have no DistributedDataParallel.

    Why it costs
    One process drives all GPUs: in every step it copies the model to each, splits the batch and gathers the
    outputs on the first GPU, under one Python interpreter lock. DistributedDataParallel has a process per
    GPU and overlaps the reduction of gradients with backward, on one machine as well.

    Example
        model = nn.DataParallel(model)

    Use instead
        model = nn.parallel.DistributedDataParallel(model, device_ids=[local_rank])   # under torchrun

    When it does not apply
    `isinstance` checks, unwrapping or loading checkpoints, inference.

    References
    PyTorch, Performance Tuning Guide, "Use DistributedDataParallel instead of DataParallel".
    PyTorch, CUDA semantics, "Use nn.parallel.DistributedDataParallel instead of ... nn.DataParallel".
    """

    code = "RUN013"
    name = "data-parallel"
    since = "0.1.0"
    level = "warning"
    confidence = "high"
    sources = (
        "PyTorch docs, CUDA semantics: Use nn.parallel.DistributedDataParallel",
        "PyTorch docs, torch.nn.DataParallel: warning",
    )
    triggers = ("DataParallel",)
    requires = ("backward(",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        if is_test_path(context.path) or "DistributedDataParallel" in context.tables.identifiers:
            return
        if not program.trainings or context.amp.framework or "DDP" in context.tables.identifiers:
            return
        for called in program.calls("torch.nn.DataParallel", "torch.nn.parallel.DataParallel"):
            if not called.call.arguments or _evaluating(called.function):
                continue
            yield self.finding(
                context.location(called.call.site),
                f"`{context.excerpt(called.call.site)}` drives all GPUs from one process and copies the "
                "model in every step.",
                related=(context.related(program.trainings[0].backward.call.site, "this file trains"),),
                evidence={"function": called.function.qualified_name},
                fix=Fix("Use DistributedDataParallel with one process per GPU, started by torchrun."),
                identity=f"{called.function.qualified_name}:{render(called.call)}",
            )

    valid = (
        Example(
            source="""\
import torch
from torch import nn

model = nn.parallel.DistributedDataParallel(model, device_ids=[rank])
loss.backward()
optimizer.step()
""",
            note="one process per GPU",
        ),
        Example(
            source="""\
import torch
from torch import nn

if isinstance(model, nn.DataParallel):
    model = model.module
loss.backward()
optimizer.step()
""",
            note="a check",
        ),
        Example(
            source="""\
import torch
from torch import nn

model = nn.DataParallel(build())
model.load_state_dict(torch.load("checkpoint.pt"))
predict(model.module)  # no backward()
""",
            note="to load a checkpoint",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch
from torch import nn

model = nn.DataParallel(build()).cuda()
for images, labels in loader:
    loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
""",
            note="training",
        ),
        Example(
            source="""\
import torch

if torch.cuda.device_count() > 1:
    model = torch.nn.DataParallel(model, device_ids=[0, 1])
for images, labels in loader:
    loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
""",
            note="whenever there are several GPUs",
        ),
        Example(
            source="""\
from torch.nn import DataParallel

class Trainer:
    def __init__(self, model):
        self.model = DataParallel(model)

    def train(self):
        for images, labels in self.loader:
            loss = self.criterion(self.model(images), labels)
            loss.backward()
            self.optimizer.step()
""",
            note="in a class",
        ),
    )


class SyncInLoop(SourceRule):
    """A wait for the GPU in every training step.

    What it does
    Finds `loss.item()`, `print(loss)` and `torch.cuda.synchronize()` that run in every step of a training
    loop on CUDA, for the loss that the same loop takes backward.

    Why it costs
    The CPU normally runs ahead and queues kernels. Reading a value waits until everything before it is done;
    then the GPU is idle until the next kernels arrive. For small models that is a large part of a step.

    Example
        for images, labels in loader:
            ...
            loss.backward()
            total += loss.item()

    Use instead
            total += loss.detach()      # a tensor: read it once per epoch, or every 100 steps

    When it does not apply
    Reads behind a logging interval, checks for NaN, timing with synchronize, programs on the CPU.

    References
    PyTorch, Performance Tuning Guide, "Avoid unnecessary CPU-GPU synchronization".
    """

    code = "RUN014"
    name = "sync-in-loop"
    since = "0.1.0"
    level = "info"
    confidence = "high"
    sources = ("PyTorch recipes, Performance Tuning Guide: Avoid unnecessary CPU-GPU synchronization",)
    triggers = (".item()", "synchronize()", "print(")
    requires = ("cuda", ".backward(")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        if is_test_path(context.path) or not program.on_cuda:
            return
        if program.words & {"isfinite", "isnan", "isinf", "nan"}:
            return
        for training in program.trainings:
            waits = _waits(context, training)
            if not waits:
                continue
            yield self.finding(
                context.location(waits[0].site),
                f"`{context.excerpt(waits[0].site)}` waits for the GPU in every step.",
                related=(
                    context.related(training.backward.call.site, "in the loop of this backward"),
                    *(context.related(wait.site, "this waits as well") for wait in waits[1:]),
                ),
                evidence={"waits": len(waits), "function": training.function.qualified_name},
                fix=Fix("Keep detached tensors and read them at an interval, outside the step."),
                identity=f"{training.function.qualified_name}:{render(waits[0])}",
            )

    valid = (
        Example(
            source="""\
import torch

for step, (images, labels) in enumerate(loader):
    loss = criterion(model(images.cuda()), labels.cuda())
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(step, loss.item())
""",
            note="at an interval",
        ),
        Example(
            source="""\
import math
import torch

for images, labels in loader:
    loss = criterion(model(images.cuda()), labels.cuda())
    if not math.isfinite(loss.item()):
        raise SystemExit(1)
    loss.backward()
    optimizer.step()
""",
            note="a check that training still works",
        ),
        Example(
            source="""\
import torch

for epoch in range(10):
    for images, labels in loader:
        loss = criterion(model(images.cuda()), labels.cuda())
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
""",
            note="once per epoch",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch

total = 0.0
for images, labels in loader:
    loss = criterion(model(images.cuda()), labels.cuda())
    loss.backward()
    optimizer.step()
    total += loss.item()
""",
            note="a running mean",
        ),
        Example(
            source="""\
import torch

def train(model, loader, optimizer, device="cuda"):
    for images, labels in loader:
        loss = model(images.to(device), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss)
""",
            note="printing a tensor reads it",
        ),
        Example(
            source="""\
import torch

for images, labels in loader:
    loss = criterion(model(images.cuda()), labels.cuda())
    loss.backward()
    optimizer.step()
    torch.cuda.synchronize()
""",
            note="an explicit wait",
        ),
    )


class CpuCreateThenCuda(SourceRule):
    """A tensor made on the CPU and copied to the GPU at once.

    What it does
    Finds `torch.zeros(...).cuda()` and its like (rand, randn, ones, full, arange, ...) with `.cuda()` or
    `.to(device)`, inside loops and forward methods.

    Why it costs
    The CPU fills memory, which then crosses PCIe, and without pinned memory the program waits for it. Made
    on the GPU, it is one small kernel.

    Example
        noise = torch.randn(64, 100).cuda()

    Use instead
        noise = torch.randn(64, 100, device="cuda")

    When it does not apply
    Random numbers that must come from the CPU's generator (a `generator` argument, or a fixed seed whose
    numbers matter: on the GPU they differ); pinned tensors; tensors that are made once.

    References
    PyTorch, Performance Tuning Guide, "Create tensors directly on the target device".
    """

    code = "RUN015"
    name = "cpu-create-then-cuda"
    since = "0.1.0"
    level = "info"
    confidence = "high"
    sources = ("PyTorch recipes, Performance Tuning Guide: Create tensors directly on the target device",)
    triggers = (".cuda(", ".to(")
    requires = ("cuda",)
    pattern = re.compile(
        rb"\b(?:rand|randn|randint|randperm|zeros|ones|full|empty|arange|linspace|eye)"
        rb"\s*\([^#=]{0,160}?\)\s*\.\s*(?:cuda|to)\s*\("
    )

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        if is_test_path(context.path) or not program.on_cuda:
            return
        for function, event, _ in program.methods("cuda", "to"):
            made, method = method_of(event.call)
            if not isinstance(made, Call) or not _often(context, function, event.block):
                continue
            names = context.resolver.called(function, made)
            if not any(name in _CREATORS for name in names):
                continue
            given = {argument.keyword for argument in made.arguments}
            if given & {"device", "generator", "pin_memory", "out"} or has_star(made):
                continue
            if method == "to" and not _device(context, function, event.call):
                continue
            shown = names[0].removeprefix("torch.")
            yield self.finding(
                context.location(event.call.site),
                f"`{context.excerpt(event.call.site)}` fills memory of the CPU and copies it to the GPU.",
                evidence={"creates": shown, "function": function.qualified_name},
                fix=Fix(
                    f"Pass device= to torch.{shown}"
                    + ("; the random numbers will differ." if "rand" in shown else ".")
                ),
                identity=f"{function.qualified_name}:{render(event.call)}",
            )

    valid = (
        Example(
            source="""\
import torch

for step in range(100):
    noise = torch.randn(64, 100, device="cuda")
""",
            note="made on the GPU",
        ),
        Example(
            source="""\
import torch

generator = torch.Generator().manual_seed(0)
for step in range(100):
    noise = torch.randn(64, 100, generator=generator).cuda()
""",
            note="numbers of a CPU generator",
        ),
        Example(
            source="""\
import torch

mask = torch.ones(64, 64).cuda()
for step in range(100):
    batch = torch.empty(64, 100).pin_memory().cuda()
    half = torch.zeros(64).to(torch.float16)
""",
            note="made once; pinned; a cast",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch

for step in range(100):
    noise = torch.randn(64, 100).cuda()
    images = generator(noise)
""",
            note="in every step",
        ),
        Example(
            source="""\
import torch
from torch import nn

class Net(nn.Module):
    def forward(self, x):
        positions = torch.arange(x.size(1)).to(x.device)
        return self.embed(positions) + x.cuda()
""",
            note="in forward",
        ),
        Example(
            source="""\
import torch

def train(loader, device=torch.device("cuda")):
    for images in loader:
        labels = torch.full((images.size(0),), 1.0).to(device)
        loss = criterion(net(images.to(device)), labels)
""",
            note="labels of a GAN",
        ),
    )


class EvalWithoutNoGrad(SourceRule):
    """Evaluation that records gradients.

    What it does
    Finds functions that call `model.eval()` and then run the model over a loader, without `torch.no_grad()`
    or `inference_mode()` anywhere around and without a backward call.

    Why it costs
    Autograd keeps every activation that a backward pass could need, until the outputs are gone: evaluation
    takes the memory of training and records a graph that nobody uses. `eval()` only changes dropout and
    batch norm.

    Example
        model.eval()
        for images, labels in loader:
            correct += (model(images).argmax(1) == labels).sum()

    Use instead
        model.eval()
        with torch.no_grad():
            for images, labels in loader:
                correct += (model(images).argmax(1) == labels).sum()

    When it does not apply
    Adversarial attacks, saliency, test-time training, which take gradients; functions that a caller runs
    under no_grad, or that are called from other files.

    References
    PyTorch, Performance Tuning Guide, "Disable gradient calculation for validation or inference".
    """

    code = "RUN016"
    name = "eval-without-no-grad"
    since = "0.1.0"
    level = "info"
    confidence = "medium"
    sources = (
        "PyTorch recipes, Performance Tuning Guide: Disable gradient calculation for validation or inference",
    )
    triggers = (".eval()",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        identifiers = context.tables.identifiers
        if is_test_path(context.path) or context.amp.framework or "set_grad_enabled" in identifiers:
            return
        if program.words & {"attack", "adversarial", "saliency", "gradcam", "tta", "volatile", "captum"}:
            return
        for function, event, position in program.methods("eval"):
            receiver, _ = method_of(event.call)
            name = dotted(receiver) if receiver is not None else ""
            if not name or event.call.arguments or not program.unconditional(function, event.block):
                continue
            if not _always_called_here(context, function):
                continue
            call = _runs_model(context, function, name, position)
            if call is None:
                continue
            yield self.finding(
                context.location(call.site),
                f"`{context.excerpt(call.site)}` evaluates (`{name}.eval()` on line "
                f"{context.location(event.call.site).line}) while autograd records: activations are kept for "
                "a backward that never comes.",
                related=(context.related(event.call.site, "evaluation starts here"),),
                evidence={"model": name, "function": function.qualified_name},
                fix=Fix("Decorate the function with `@torch.no_grad()`, or wrap the loop in it."),
                identity=f"{function.qualified_name}:{name}",
            )

    valid = (
        Example(
            source="""\
import torch

@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    for images, labels in loader:
        correct = (model(images).argmax(1) == labels).sum()

evaluate(model, loader)
""",
            note="decorated",
        ),
        Example(
            source="""\
import torch

def evaluate(model, loader):
    model.eval()
    for images, labels in loader:
        loss = criterion(model(images), labels)
        grads = torch.autograd.grad(loss, images)

evaluate(model, loader)
""",
            note="takes gradients",
        ),
        Example(
            source="""\
import torch

def evaluate(model, loader):
    model.eval()
    for images, labels in loader:
        correct = (model(images).argmax(1) == labels).sum()

with torch.no_grad():
    evaluate(model, loader)
""",
            note="the caller switches gradients off",
        ),
        Example(
            source="""\
def evaluate(model, loader):
    model.eval()
    for images, labels in loader:
        correct = (model(images).argmax(1) == labels).sum()
""",
            note="called from elsewhere",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch

def evaluate(model, loader):
    model.eval()
    for images, labels in loader:
        correct = (model(images).argmax(1) == labels).sum()

for epoch in range(10):
    train(model)
    evaluate(model, loader)
""",
            note="eval alone records",
        ),
        Example(
            source="""\
import torch

net.eval()
for images, labels in test_loader:
    outputs = net(images.cuda())
    total += (outputs.argmax(1) == labels).sum().item()
""",
            note="in a script",
        ),
        Example(
            source="""\
import torch

class Runner:
    def validate(self):
        self.model.eval()
        for batch in self.loader:
            output = self.model(batch)
            self.meter.update(output)

    def run(self):
        self.validate()
""",
            note="in a class",
        ),
    )


class DdpAccumulationWithoutNoSync(SourceRule):
    """Gradient accumulation under DistributedDataParallel that reduces in every micro-step.

    What it does
    Finds loops that step the optimizer every n-th time only (`if step % n == 0: optimizer.step()`) and call
    backward each time, in files that wrap the model in DistributedDataParallel and never use `no_sync`.

    Why it costs
    DistributedDataParallel reduces all gradients between the GPUs in every backward. With accumulation only
    the last of n is needed: the others are n-1 reductions of the whole model for nothing.

    Example
        for step, batch in enumerate(loader):
            loss = model(batch) / n
            loss.backward()
            if (step + 1) % n == 0:
                optimizer.step()

    Use instead
            last = (step + 1) % n == 0
            with nullcontext() if last else model.no_sync():
                loss = model(batch) / n
                loss.backward()

    When it does not apply
    `require_backward_grad_sync` set by hand, FSDP, frameworks that do it themselves.

    References
    PyTorch, Performance Tuning Guide, "Skip unnecessary all-reduce if training with DistributedDataParallel
    and gradient accumulation".
    """

    code = "RUN018"
    name = "ddp-accum-no-sync"
    since = "0.1.0"
    level = "info"
    confidence = "high"
    sources = ("PyTorch recipes, Performance Tuning Guide: Skip unnecessary all-reduce",)
    triggers = ("DistributedDataParallel", "DDP")
    requires = (".backward(", "%")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        identifiers = context.tables.identifiers
        if is_test_path(context.path) or context.amp.framework or program.speaks_of("fsdp", "fully_shard"):
            return
        if identifiers & {
            "no_sync",
            "require_backward_grad_sync",
            "register_comm_hook",
            "set_requires_gradient_sync",
        }:
            return
        wrapped = program.calls(*_DDP)
        if not wrapped:
            return
        for training in program.trainings:
            function = training.function
            guard = _interval_guard(function, training)
            if guard is None or not training.block:
                continue
            if context.neighbours.mention(("no_sync", "require_backward_grad_sync")):
                return
            yield self.finding(
                context.location(training.backward.call.site),
                f"Gradients are reduced in every backward, although the optimizer steps only where "
                f"`{render(guard)}`.",
                related=(
                    context.related(wrapped[0].call.site, "the model is wrapped here"),
                    context.related(training.step.call.site, "the optimizer steps here"),
                ),
                evidence={"condition": render(guard), "function": function.qualified_name},
                fix=Fix("Run forward and backward of the other steps under `model.no_sync()`."),
                identity=f"{function.qualified_name}:no_sync",
            )

    valid = (
        Example(
            source="""\
from torch.nn.parallel import DistributedDataParallel as DDP

model = DDP(model)
for step, batch in enumerate(loader):
    with model.no_sync():
        model(batch).mean().backward()
    if step % 4 == 3:
        optimizer.step()
""",
            note="not reduced",
        ),
        Example(
            source="""\
from torch.nn.parallel import DistributedDataParallel as DDP

model = DDP(model)
for step, batch in enumerate(loader):
    model.require_backward_grad_sync = step % 4 == 3
    model(batch).mean().backward()
    if step % 4 == 3:
        optimizer.step()
""",
            note="the same by hand",
        ),
        Example(
            source="""\
from torch.nn.parallel import DistributedDataParallel as DDP

model = DDP(model)
for step, batch in enumerate(loader):
    model(batch).mean().backward()
    optimizer.step()
    if step % 100 == 0:
        log(step)
""",
            note="no accumulation",
        ),
    )
    invalid = (
        Example(
            source="""\
from torch.nn.parallel import DistributedDataParallel as DDP

model = DDP(model)
for step, batch in enumerate(loader):
    loss = model(batch).mean() / 4
    loss.backward()
    if (step + 1) % 4 == 0:
        optimizer.step()
        optimizer.zero_grad()
""",
            note="three of four reductions are for nothing",
        ),
        Example(
            source="""\
import torch

model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])
for step, batch in enumerate(loader):
    loss = model(batch).mean() / accumulation
    loss.backward()
    if step % accumulation == accumulation - 1 or step == len(loader) - 1:
        optimizer.step()
        optimizer.zero_grad()
""",
            note="with the last step of an epoch",
        ),
        Example(
            source="""\
from torch.nn.parallel import DistributedDataParallel

def train(model, args):
    model = DistributedDataParallel(model)
    for step, batch in enumerate(loader):
        loss = model(batch).mean()
        scaler.scale(loss).backward()
        if (step + 1) % args.accumulate == 0:
            scaler.step(optimizer)
            scaler.update()
""",
            note="under a loss scaler",
        ),
    )


RULES: tuple[type[Rule], ...] = (
    DebugApisOn,
    ZeroGradMemset,
    OptimizerNotFused,
    DataParallel,
    SyncInLoop,
    CpuCreateThenCuda,
    EvalWithoutNoGrad,
    DdpAccumulationWithoutNoSync,
)


def _entered(function: Function, call: Call) -> bool:
    """The call is the context of a with block."""
    return any(
        isinstance(item.value, Call) and item.value.site == call.site
        for block in function.blocks
        for item in block.items
    )


def _evaluating(function: Function) -> bool:
    return any_word(function.name, ("eval", "test", "infer", "predict", "load", "valid"))


def _waits(context: SourceContext, training: Training) -> list[Call]:
    """Calls that wait for the GPU in each round of the loop."""
    program = context.program
    function = training.function
    if not training.block:
        return []
    receiver, _ = method_of(training.backward.call)
    loss = ""
    if isinstance(receiver, Call):  # scaler.scale(loss).backward()
        loss = dotted(receiver.arguments[0].value) if receiver.arguments else ""
    elif receiver is not None:
        loss = dotted(receiver)
    timed = bool(program.words & {"elapsed", "perf", "time", "timer", "profiler"})
    found = []
    for event in function.events:
        if not isinstance(event, CallEvent) or not _each_round(function, event.block, training.block):
            continue
        on, method = method_of(event.call)
        read = method == "item" and on is not None and _is_loss(on, loss)
        shown = (
            method == "print"
            and on is None
            and any(_is_loss(argument.value, loss) for argument in event.call.arguments)
        )
        waited = method == "synchronize" and not timed and _is_cuda_wait(context, function, event.call)
        if read or shown or waited:
            found.append(event.call)
    return found


def _is_cuda_wait(context: SourceContext, function: Function, call: Call) -> bool:
    return "torch.cuda.synchronize" in context.resolver.called(function, call)


def _is_loss(expression: Expression, loss: str) -> bool:
    """`loss`, `loss.data`, `loss.detach()`."""
    if isinstance(expression, Call):
        on, method = method_of(expression)
        return on is not None and method in ("detach", "cpu", "mean", "sum") and _is_loss(on, loss)
    return bool(loss) and dotted(expression) in (loss, f"{loss}.data")


def _each_round(function: Function, block: int, loop: int) -> bool:
    """The block runs in every round of the loop: nothing but with blocks in between."""
    for index in function.enclosing(block):
        if index == loop:
            return True
        if function.blocks[index].kind != "with":
            return False
    return False


def _often(context: SourceContext, function: Function, block: int) -> bool:
    """Inside a loop, or in the forward method of a module."""
    if context.program.loop_around(function, block):
        return context.program.unconditional(function, block)
    return function.name == "forward" and context.tables.class_of(function) is not None


def _device(context: SourceContext, function: Function, call: Call) -> bool:
    given = keyword(call, "device", 0)
    if given is None or len(call.arguments) != 1:
        return False
    possible = context.resolver.evaluate(function, given)
    known = [value for value in possible.values if isinstance(value, str)]
    if known:
        return any(value.startswith("cuda") for value in known)
    return isinstance(given, Name) and given.dotted.rpartition(".")[2].lower() in ("device", "dev", "gpu")


def _takes_gradients(function: Function, loop: int) -> bool:
    """The loop goes backward, asks for gradients or trains."""
    for event in function.events:
        if not isinstance(event, CallEvent | Assignment) or loop not in function.enclosing(event.block):
            continue
        if isinstance(event, CallEvent):
            if method_of(event.call)[1] in _GRADIENT_CALLS:
                return True
        elif any(
            name.endswith((".requires_grad", ".grad")) for name in (*names_in(event.value), *event.targets)
        ):
            return True
    return False


def _always_called_here(context: SourceContext, function: Function) -> bool:
    """The module's own code, or a function that this file calls, never under no_grad."""
    if not function.index:
        return True
    if function.kind != "function" or not context.amp.gradients_on(function, 0):
        return False
    callers = context.program.callers.get(function.index, [])
    if not callers:
        return False
    for caller, event in callers:
        if not context.amp.gradients_on(caller, event.block):
            return False
        outer = context.program.callers.get(caller.index, [])
        if any(not context.amp.gradients_on(second, call.block) for second, call in outer):
            return False
    return True


def _runs_model(context: SourceContext, function: Function, name: str, position: int) -> Call | None:
    """The first call of the model in a loop over data after it was set to evaluation."""
    program = context.program
    loops = {
        loop
        for loop, _, header in program.loops_of(function)
        if any_word(render(header.value), ("loader", "dataset", "batches", "data"))
    }
    for event in function.events[position + 1 :]:
        if not isinstance(event, CallEvent):
            continue
        if render(event.call.function) == f"{name}.train":
            return None
        if dotted(event.call.function) != name or not event.call.arguments:
            continue
        around = [loop for loop in function.enclosing(event.block) if loop in loops]
        if not around or _takes_gradients(function, around[-1]):
            continue
        return event.call if context.amp.gradients_on(function, event.block) else None
    return None


def _interval_guard(function: Function, training: Training) -> Expression | None:
    """The test with `%` under which the optimizer steps, where backward runs without it."""
    around_backward = set(function.enclosing(training.backward.block))
    for index in function.enclosing(training.step.block):
        block = function.blocks[index]
        if index in around_backward:
            return None
        if block.kind == "if" and block.condition is not None and "%" in render(block.condition):
            return block.condition
    return None

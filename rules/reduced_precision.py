"""Rules on 16-bit dtypes: models cast as a whole, autocast's dtype and device, losses it refuses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from tclint.finding import Finding, Fix
from tclint.rule import Example, Rule, SourceRule
from tclint.source.tables import Call, CallEvent, Expression, Function, Name, dotted, method_of, render

if TYPE_CHECKING:
    from tclint.config import Settings
    from tclint.source.amp import Region
    from tclint.source.casts import ModelCast
    from tclint.source.context import SourceContext
    from tclint.source.flow import Backward

_AMP_PACKAGE = "PyTorch docs, Automatic Mixed Precision package (torch.amp)"
_NVIDIA = "NVIDIA, Train With Mixed Precision"
_MASTERS = re.compile(r"fp16_?optim|master|megatron|bitsandbytes|halfoptim")
_DTYPE_WORDS = re.compile(r"bf16|bfloat|float16|fp16|half|dtype|precision|prec\b")
_BCE_TOKENS = (b"binary_cross_entropy", b"BCELoss")
_CAPABILITY = frozenset(("is_bf16_supported", "get_device_capability", "is_torch_bf16_gpu_available"))


class HalfTrainNoScaler(SourceRule):
    """A float16 model trained without loss scaling.

    What it does
    Finds a model that `.half()` or `.to(torch.float16)` turns into float16, whose parameters go to an
    optimizer and whose loss goes backward, where nothing in the file scales losses.

    Why it costs
    Gradients below 2^-24 become zero in float16, and so do updates that are smaller than 2^-11 of the
    weight they are added to: without loss scaling and float32 master weights such training stalls.

    Example
        model = Net().cuda().half()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        ...
        model(images.half()).sum().backward()
        optimizer.step()

    Use instead
        model = Net().cuda()
        scaler = torch.amp.GradScaler("cuda")
        with torch.autocast("cuda"):
            loss = model(images).sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    When it does not apply
    Inference, copies for checkpoints, models that go back to float32, losses scaled by hand, optimizers
    that keep master weights (FP16_Optimizer, Megatron, DeepSpeed, apex), bfloat16.

    References
    NVIDIA, Train With Mixed Precision, "Mixed Precision Training" and "Loss Scaling".
    PyTorch, Automatic Mixed Precision package (torch.amp), "Gradient Scaling".
    """

    code = "AMP002"
    name = "half-train-no-scaler"
    since = "0.1.0"
    level = "warning"
    confidence = "high"
    sources = (
        f"{_NVIDIA}: Loss Scaling To Preserve Small Gradient Magnitudes",
        f"{_AMP_PACKAGE}: Gradient Scaling",
    )
    triggers = (".half(", "float16", "torch.half")
    requires = (".backward(", ".step(", "optim")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        amp = context.amp
        if amp.scaler_name or amp.framework or amp.rescales_gradients or not amp.steps_optimizer:
            return
        if any(_MASTERS.search(name.lower()) for name in context.tables.identifiers):
            return
        backwards = [
            (view, op)
            for view in context.scaling.views
            for op in view.of("backward", "other_backward", "scaled_backward")
        ]
        if not backwards or any(op.kind != "backward" for _, op in backwards):
            return
        for cast, optimizer in _trained_casts(context):
            if cast.dtype != "float16":
                continue
            same = [op for _, op in backwards if op.places[0].function == cast.function]
            if same and all(op.site < cast.site for op in same):
                continue
            backward = same[-1] if same else backwards[0][1]
            yield self.finding(
                context.location(cast.site),
                f"`{cast.name}` is trained in float16 (its parameters go to the optimizer on line "
                f"{context.location(optimizer).line}) and no loss is scaled: gradients below 2^-24 become "
                "zero, small updates are lost.",
                related=(
                    context.related(optimizer, "the optimizer of the float16 parameters"),
                    context.related(backward.site, "the loss goes backward unscaled"),
                ),
                evidence={
                    "model": cast.name,
                    "cast": context.excerpt(cast.site),
                    "optimizer": context.excerpt(optimizer),
                    "scaler": None,
                },
                fix=Fix(
                    "Keep the model in float32, compute under torch.autocast and scale the loss with "
                    "torch.amp.GradScaler; or train in bfloat16 on compute capability 8.0 and newer."
                ),
                identity=cast.name,
            )

    valid = (
        Example(
            source="""\
import torch

model = Net().cuda().half()
model.eval()
with torch.no_grad():
    outputs = model(images.half())
torch.optim.SGD([torch.zeros(1)], lr=0.1).step()
torch.zeros(1, requires_grad=True).sum().backward()
""",
            note="inference: no optimizer gets its parameters",
        ),
        Example(
            source="""\
import torch

model = Net().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in loader:
    model(batch).backward()
    optimizer.step()
torch.save(model.half().state_dict(), "model.pt")
""",
            note="cast after the training, for the checkpoint",
        ),
        Example(
            source="""\
import torch

model = Net().half().float()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in loader:
    model(batch).backward()
    optimizer.step()
""",
            note="back in float32",
        ),
        Example(
            source="""\
import torch

model = Net().half()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss_scale = 1024.0
for batch in loader:
    (model(batch) * loss_scale).backward()
    for parameter in model.parameters():
        parameter.grad.div_(loss_scale)
    optimizer.step()
""",
            note="scaled by hand",
        ),
        Example(
            source="""\
import torch
from fp16 import FP16_Optimizer

model = Net().half()
optimizer = FP16_Optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
for batch in loader:
    loss = model(batch)
    optimizer.backward(loss)
    optimizer.step()
""",
            note="the optimizer keeps master weights and scales",
        ),
        Example(
            source="""\
import deepspeed
import torch

model = Net().half()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in loader:
    model(batch).backward()
    optimizer.step()
""",
            note="a framework is at work",
        ),
        Example(
            source="""\
import torch

teacher = Net().half()
student = Net()
teacher.eval()
optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
for batch in loader:
    (student(batch) - teacher(batch.half()).float()).square().mean().backward()
    optimizer.step()
""",
            note="only the teacher is in float16",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch

model = Net().cuda().half()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for images, labels in loader:
    loss = criterion(model(images.half()), labels)
    loss.backward()
    optimizer.step()
""",
            note="float16 weights and gradients",
        ),
        Example(
            source="""\
import torch

def main(args):
    model = Net().to(args.device)
    if args.fp16:
        model.half()
    optimizer = torch.optim.Adam(model.parameters(), eps=1e-4)
    for batch in loader(args):
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
""",
            note="wherever fp16 is on",
        ),
        Example(
            source="""\
from torch import float16, optim

class Trainer:
    def __init__(self, model):
        self.model = model.to("cuda")
        self.model.to(dtype=float16)
        self.optimizer = optim.AdamW(self.model.parameters())

    def step(self, batch):
        loss = self.model(batch)
        loss.backward()
        self.optimizer.step()
""",
            note="cast in the constructor, trained in a method",
        ),
        Example(
            source="""\
import torch

net = build().to("cuda", torch.float16)
parameters = [p for p in net.parameters() if p.requires_grad]
optimizer = torch.optim.SGD(parameters, lr=0.1)

def train(net, loader):
    for batch in loader:
        net(batch).sum().backward()
        optimizer.step()
""",
            note="the parameters go to the optimizer through a list",
        ),
    )


class BceUnderAutocast(SourceRule):
    """binary_cross_entropy or BCELoss under CUDA autocast, which raises.

    What it does
    Finds calls of `torch.nn.functional.binary_cross_entropy` and of `torch.nn.BCELoss` objects inside an
    autocast region on CUDA, also in functions and loss modules of the project that are called from one.

    Why it costs
    Autocast on CUDA raises "RuntimeError: torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss
    are unsafe to autocast", whatever the dtype of the inputs: the gradient of the logarithm of a sigmoid
    in float16 overflows. `binary_cross_entropy_with_logits` computes both in one stable step.

    Example
        with torch.autocast("cuda"):
            loss = torch.nn.functional.binary_cross_entropy(torch.sigmoid(model(x)), y)

    Use instead
        with torch.autocast("cuda"):
            loss = torch.nn.functional.binary_cross_entropy_with_logits(model(x), y)

    When it does not apply
    CPU autocast, which runs it in float32; a region with `autocast(enabled=False)` around it; values that
    were moved to the CPU; functions and methods of your own that are merely called BCELoss.

    References
    PyTorch, Automatic Mixed Precision package (torch.amp), "Prefer binary_cross_entropy_with_logits over
    binary_cross_entropy".
    """

    code = "AMP007"
    name = "bce-under-autocast"
    since = "0.1.0"
    level = "error"
    confidence = "high"
    sources = (f"{_AMP_PACKAGE}: Prefer binary_cross_entropy_with_logits over binary_cross_entropy",)
    triggers = ("autocast",)
    requires = ()

    def check(self, context: SourceContext) -> Iterator[Finding]:
        seen: set[int] = set()
        for function in context.tables.functions:
            for event in function.events:
                if not isinstance(event, CallEvent):
                    continue
                region = context.amp.effective(function, event.block)
                if region is None or not _on_cuda(region):
                    continue
                for where, function_of_call, call in self._raising(context, function, event.call, 3):
                    place = call.site if where is context else -event.call.site
                    if place not in seen:
                        seen.add(place)
                        yield self._report(context, where, function_of_call, call, region, event.call)

    def _raising(
        self, context: SourceContext, function: Function, call: Call, depth: int
    ) -> Iterator[tuple[SourceContext, Function, Call]]:
        """Calls of the loss that a call leads to, itself included, with the file and function they are in."""
        if self._is_bce(context, function, call):
            if not any(".cpu()" in render(argument.value) for argument in call.arguments):
                yield context, function, call
            return
        if depth <= 0:
            return
        for where, helper in _run_by(context, function, call):
            for event in helper.events:
                if isinstance(event, CallEvent) and not where.amp.active(helper, event.block):
                    yield from self._raising(where, helper, event.call, depth - 1)

    def _is_bce(self, context: SourceContext, function: Function, call: Call) -> bool:
        if "torch.nn.functional.binary_cross_entropy" in context.resolver.called(function, call):
            return True
        made = call.function
        if isinstance(made, Call):
            return _makes_bce(context, function, made)
        name = dotted(made)
        if not name:
            return False
        origins = list(context.origins_of(function, name))
        return bool(origins) and all(
            isinstance(value, Call) and _makes_bce(context, scope, value) for scope, value in origins
        )

    def _report(
        self,
        context: SourceContext,
        where: SourceContext,
        function: Function,
        call: Call,
        region: Region,
        inside: Call,
    ) -> Finding:
        line = context.location(region.site).line
        through = "" if inside.site == call.site else f" through `{render(inside.function)}(...)`"
        when = "" if region.autocast.enabled else ", where it is enabled"
        related = [context.related(region.site, "autocast is on from here")]
        if where is not context:
            related.append(
                where.related(call.site, f"`{where.excerpt(call.site)}` in {function.qualified_name}")
            )
        return self.finding(
            # What another file does is reported where this one calls it.
            context.location(call.site if where is context else inside.site),
            f"`{render(call.function)}` runs under the autocast of line {line}{through}{when}: on CUDA it "
            "raises RuntimeError (unsafe to autocast).",
            related=tuple(related),
            evidence={
                "call": where.excerpt(call.site),
                "function": function.qualified_name,
                "autocast": context.excerpt(region.autocast.site),
                "autocast_line": line,
                "enabled": "always" if region.autocast.enabled else "decided at run time",
            },
            fix=Fix(
                "Use binary_cross_entropy_with_logits (or BCEWithLogitsLoss) on the logits and drop the "
                'sigmoid; or compute the loss in float32 under `torch.autocast("cuda", enabled=False)`.'
            ),
            identity=f"{function.qualified_name}:{where.excerpt(call.site)}",
        )

    valid = (
        Example(
            source="""\
import torch
import torch.nn.functional as F

with torch.autocast("cuda"):
    loss = F.binary_cross_entropy_with_logits(model(x), y)
""",
            note="the safe one",
        ),
        Example(
            source="""\
import torch
import torch.nn.functional as F

with torch.autocast("cuda"):
    probabilities = model(x).sigmoid()
    with torch.autocast("cuda", enabled=False):
        loss = F.binary_cross_entropy(probabilities.float(), y)
""",
            note="autocast is off around it",
        ),
        Example(
            source="""\
import torch
import torch.nn.functional as F

with torch.autocast("cuda"):
    probabilities = model(x).sigmoid()
loss = F.binary_cross_entropy(probabilities.float(), y)
""",
            note="after the region",
        ),
        Example(
            source="""\
import torch
import torch.nn.functional as F

with torch.autocast("cpu"):
    loss = F.binary_cross_entropy(model(x).sigmoid(), y)
""",
            note="CPU autocast runs it in float32",
        ),
        Example(
            source="""\
import torch
from losses import BCELoss

criterion = BCELoss(weight=0.5)
with torch.autocast("cuda"):
    loss = criterion(model(x), y)
""",
            note="another class of that name",
        ),
        Example(
            source="""\
import torch
import torch.nn.functional as F

def evaluate(model, loader):
    for x, y in loader:
        with torch.autocast("cuda"):
            scores = model(x).sigmoid()
            print(F.binary_cross_entropy(scores.float().cpu(), y.cpu()))
""",
            note="on the CPU",
        ),
        Example(
            source="""\
import torch

class Loss(torch.nn.Module):
    def forward(self, scores, y):
        with torch.autocast("cuda", enabled=False):
            return torch.nn.functional.binary_cross_entropy(scores.float(), y)

criterion = Loss()
with torch.autocast("cuda"):
    loss = criterion(model(x), y)
""",
            note="the loss module switches autocast off",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch
import torch.nn.functional as F

for x, y in loader:
    with torch.autocast("cuda"):
        loss = F.binary_cross_entropy(model(x).sigmoid(), y)
""",
            note="raises in the first round",
        ),
        Example(
            source="""\
import torch
from torch import nn
from torch.cuda.amp import autocast

criterion = nn.BCELoss()

def train(model, loader, use_amp):
    for x, y in loader:
        with autocast(enabled=use_amp):
            loss = criterion(model(x), y)
""",
            note="the object, where use_amp is on",
        ),
        Example(
            source="""\
import torch
from torch.nn import BCELoss

class Trainer:
    def __init__(self):
        self.bce = BCELoss(reduction="none")

    def losses(self, scores, y):
        return self.bce(scores, y).mean()

    def step(self, x, y):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = self.losses(self.model(x), y)
        return loss
""",
            note="in a method called from the region, in bfloat16 as well",
        ),
        Example(
            source="""\
import torch
import torch.nn.functional as F

class DiceBCE(torch.nn.Module):
    def forward(self, scores, y):
        return dice(scores, y) + F.binary_cross_entropy(scores, y)

def train(model, loader, device="cuda"):
    criterion = DiceBCE()
    for x, y in loader:
        with torch.autocast(device_type=device):
            loss = criterion(model(x), y)
""",
            note="in the forward of a loss module of this file",
        ),
    )


class ScalerWithBf16(SourceRule):
    """Loss scaling for bfloat16 autocast.

    What it does
    Finds `scaler.scale(loss)` on a loss that comes from bfloat16 autocast only, with a scaler that is
    always on, or on by a test that has nothing to do with the dtype.

    Why it costs
    bfloat16 has the exponent range of float32, so no gradient underflows for want of scaling. A scaler
    then only adds work in every step: scaling, a pass over all gradients to unscale them, and a
    synchronisation to look for inf.

    Example
        scaler = torch.amp.GradScaler("cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(batch)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    Use instead
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(batch)
        loss.backward()
        optimizer.step()

    or switch the scaler off: `torch.amp.GradScaler("cuda", enabled=dtype == torch.float16)`.

    When it does not apply
    A dtype chosen at run time, a scaler that is disabled or whose `enabled` depends on the dtype or the
    precision, a scaler that comes from elsewhere.

    References
    PyTorch, Automatic Mixed Precision package (torch.amp): float16 uses autocast and GradScaler together.
    """

    code = "AMP008"
    name = "scaler-with-bf16"
    since = "0.1.0"
    level = "info"
    confidence = "high"
    sources = (f"{_AMP_PACKAGE}: Autocasting, Gradient Scaling",)
    triggers = ("bfloat16",)
    requires = ("autocast", ".scale(")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        for flow in context.flows:
            for scaled in flow.scaled:
                receiver, _ = method_of(scaled.call)
                if receiver is None or not context.scaling.is_scaler(flow.function, receiver):
                    continue
                region = _only_bf16(scaled)
                name = dotted(receiver)
                made, others = context.scaling.origins(flow.function, name)
                if region is None or not made or others:
                    continue
                if any(
                    item.enabled is False
                    or (item.enabled is None and _DTYPE_WORDS.search(_enabled_text(item.arguments)))
                    for item in made
                ):
                    continue
                conditions = context.amp.conditions(flow.function, scaled.block)
                if any(_DTYPE_WORDS.search(condition.text.lower()) for condition in conditions):
                    continue
                line = context.location(region.site).line
                yield self.finding(
                    context.location(scaled.call.site),
                    f"`{render(scaled.loss)}` comes from the bfloat16 autocast of line {line}; bfloat16 has "
                    f"float32's range and needs no loss scaling, `{name}` only costs time.",
                    related=(
                        context.related(region.site, "bfloat16 autocast"),
                        context.related(made[0].site, "the scaler is made here"),
                    ),
                    evidence={
                        "loss": render(scaled.loss),
                        "autocast": context.excerpt(region.autocast.site),
                        "scaler": context.excerpt(made[0].site),
                        "enabled": "always" if made[0].enabled else "decided at run time",
                    },
                    fix=Fix(
                        "Drop the scaler (`loss.backward()`, `optimizer.step()`), or make it with "
                        "`enabled=dtype == torch.float16`."
                    ),
                    identity=f"{flow.function.qualified_name}:{render(scaled.loss)}",
                )

    valid = (
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
with torch.autocast("cuda", dtype=torch.float16):
    loss = model(batch)
scaler.scale(loss).backward()
""",
            note="float16 needs it",
        ),
        Example(
            source="""\
import torch

dtype = "bfloat16"
scaler = torch.amp.GradScaler("cuda", enabled=(dtype == "float16"))
with torch.autocast("cuda", dtype=torch.bfloat16):
    loss = model(batch)
scaler.scale(loss).backward()
""",
            note="off for bfloat16",
        ),
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda", enabled=args.dtype == "fp16")
with torch.autocast("cuda", dtype=torch.bfloat16):
    loss = model(batch)
scaler.scale(loss).backward()
""",
            note="depends on the dtype at run time",
        ),
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[args.dtype]
with torch.autocast("cuda", dtype=dtype):
    loss = model(batch)
scaler.scale(loss).backward()
""",
            note="the dtype is chosen at run time",
        ),
        Example(
            source="""\
import torch

def step(model, batch, scaler):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(batch)
    scaler.scale(loss).backward()
""",
            note="the scaler comes from elsewhere and may be off",
        ),
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
with torch.autocast("cuda", dtype=torch.bfloat16):
    loss = model(batch)
if args.precision == "fp16":
    scaler.scale(loss).backward()
else:
    loss.backward()
""",
            note="scaled for float16 only",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch

scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(batch)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
            note="always on",
        ),
        Example(
            source="""\
import torch

AMP_DTYPE = torch.bfloat16
scaler = torch.cuda.amp.GradScaler(enabled=args.amp)
for batch in loader:
    with torch.autocast("cuda", dtype=AMP_DTYPE, enabled=args.amp):
        outputs = model(batch)
        loss = criterion(outputs)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
            note="on wherever mixed precision is",
        ),
        Example(
            source="""\
import torch

class Trainer:
    def __init__(self):
        self.scaler = torch.amp.GradScaler("cuda")

    def loss(self, batch):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return self.model(batch)

    def step(self, batch):
        loss = self.loss(batch)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
""",
            note="the loss comes from a method",
        ),
        Example(
            source="""\
import torch

def train(model, loader, optimizer, scaler):
    for batch in loader:
        with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
            loss = model(batch)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

def main():
    train(model, loader, optimizer, scaler=torch.amp.GradScaler("cuda"))

scaler = torch.amp.GradScaler("cuda")
train(model, loader, optimizer, scaler)
""",
            note="the scaler is an argument made in this file",
        ),
    )


class HalfModelWithAutocast(SourceRule):
    """A model cast to 16 bits as a whole, together with autocast or a loss scaler.

    What it does
    Finds `.half()`, `.to(torch.float16)` or `.bfloat16()` on a model whose parameters an optimizer gets,
    where the file uses a GradScaler (float16 only) or runs that model under autocast; and `.half()` on
    the inputs of a model under autocast in a training step.

    Why it costs
    With float16 parameters, `scaler.step` and `scaler.unscale_` raise "ValueError: Attempting to unscale
    FP16 gradients". Without a scaler, parameters and their updates lose the precision that autocast
    keeps by leaving the weights in float32.

    Example
        model = Net().cuda().half()
        optimizer = torch.optim.Adam(model.parameters())
        with torch.autocast("cuda"):
            loss = model(images.half())
        scaler.scale(loss).backward()
        scaler.step(optimizer)

    Use instead
        model = Net().cuda()
        optimizer = torch.optim.Adam(model.parameters())
        with torch.autocast("cuda"):
            loss = model(images)
        scaler.scale(loss).backward()
        scaler.step(optimizer)

    When it does not apply
    Models that are not trained (teachers, copies for evaluation, frozen encoders), optimizers that keep
    float32 masters of float16 parameters (FP16_Optimizer, Megatron, DeepSpeed), casts after the training,
    models that go back to float32, inference.

    References
    PyTorch, torch.autocast: "You should not call half() or bfloat16() on your model(s) or inputs when
    using autocasting" (docstring).
    PyTorch 2.13, torch/amp/grad_scaler.py, `_unscale_grads_`.
    """

    code = "AMP009"
    name = "half-model-with-autocast-or-scaler"
    since = "0.1.0"
    level = "error"
    confidence = "high"
    sources = ("PyTorch 2.13, torch.autocast (docstring)", "PyTorch 2.13, torch.amp.GradScaler.unscale_")
    triggers = (".half(", "float16", "bfloat16", "torch.half")
    requires = (".backward(", "optim")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        if context.amp.framework or any(_MASTERS.search(name.lower()) for name in context.tables.identifiers):
            return
        reported = set()
        for cast, optimizer in _trained_casts(context):
            found = self._scaled(context, cast, optimizer) or self._autocast(context, cast, optimizer)
            if found is not None and cast.name not in reported:
                reported.add(cast.name)
                yield found
        if not reported:
            yield from self._inputs(context)

    def _scaled(self, context: SourceContext, cast: ModelCast, optimizer: int) -> Finding | None:
        if cast.dtype != "float16":
            return None
        used = [
            (view, op)
            for view in context.scaling.views
            for op in view.of("scaler_step", "unscale")
            if not context.scaling.is_off(view, op)
        ]
        # Where the casting function itself trains, only what it does after the cast counts.
        same = [item for item in used if item[1].places[0].function == cast.function]
        for _, op in same or used:
            if not same or op.site > cast.site:
                what = "step" if op.kind == "scaler_step" else "unscale_"
                return self.finding(
                    context.location(cast.site),
                    f"`{cast.name}` is float16 from here on; `{op.scaler}.{what}({op.optimizer})` raises "
                    "ValueError (Attempting to unscale FP16 gradients) on float16 parameters.",
                    related=(
                        context.related(op.site, "the scaler unscales here"),
                        context.related(optimizer, "the optimizer of the float16 parameters"),
                    ),
                    evidence={
                        "model": cast.name,
                        "cast": context.excerpt(cast.site),
                        "scaler": op.scaler,
                        "optimizer": context.excerpt(optimizer),
                    },
                    fix=Fix("Leave the model in float32; autocast runs its matrix products in float16."),
                    identity=cast.name,
                )
        return None

    def _autocast(self, context: SourceContext, cast: ModelCast, optimizer: int) -> Finding | None:
        last = cast.name.rpartition(".")[2]
        own = context.tables.functions[cast.function]
        trains_itself = any(
            view.function is own and view.of("step", "scaler_step") for view in context.scaling.views
        )
        for function in (own,) if trains_itself else context.tables.functions:
            for event in function.events:
                if not isinstance(event, CallEvent) or not isinstance(event.call.function, Name):
                    continue
                called = event.call.function.dotted
                region = context.amp.effective(function, event.block)
                if called.rpartition(".")[2] != last or region is None:
                    continue
                if not context.amp.gradients_on(function, event.block) or region.autocast.dtype == "float32":
                    continue
                if function.index == cast.function and event.call.site < cast.site:
                    continue
                line = context.location(region.site).line
                return self.finding(
                    context.location(cast.site),
                    f"`{cast.name}` is cast to {cast.dtype} as a whole and runs under the autocast of line "
                    f"{line}, which wants float32 weights: the optimizer then updates {cast.dtype} weights.",
                    related=(
                        context.related(region.site, "autocast is on from here"),
                        context.related(optimizer, f"the optimizer of the {cast.dtype} parameters"),
                    ),
                    evidence={
                        "model": cast.name,
                        "cast": context.excerpt(cast.site),
                        "autocast": context.excerpt(region.autocast.site),
                        "optimizer": context.excerpt(optimizer),
                    },
                    fix=Fix("Leave the model in float32; autocast casts what gains from it."),
                    level="warning",
                    identity=cast.name,
                )
        return None

    def _inputs(self, context: SourceContext) -> Iterator[Finding]:
        trained = {name.rpartition(".")[2] for name in context.casts.trained}
        cast = {item.name.rpartition(".")[2] for item in context.casts.model_casts}
        for view in context.scaling.views:
            function = view.function
            if not view.of("backward", "scaled_backward"):
                continue
            for event in function.events:
                if not isinstance(event, CallEvent) or not isinstance(event.call.function, Name):
                    continue
                region = context.amp.effective(function, event.block)
                name = event.call.function.dotted.rpartition(".")[2]
                if region is None or not region.autocast.enabled or name in cast:
                    continue
                if name not in trained and not (
                    event.call.function.dotted in context.casts.models
                    and any(parameter.name == name for parameter in function.parameters)
                ):
                    continue
                if not context.amp.gradients_on(function, event.block):
                    continue
                for argument in event.call.arguments:
                    given = argument.value
                    if not isinstance(given, Call) or method_of(given)[1] not in ("half", "bfloat16"):
                        continue
                    if given.arguments:
                        continue
                    line = context.location(region.site).line
                    yield self.finding(
                        context.location(given.site),
                        f"`{render(given)}` casts the input of `{name}` under the autocast of line {line}, "
                        "which casts by itself what gains from it; ops that want float32 get rounded values.",
                        related=(context.related(region.site, "autocast is on from here"),),
                        evidence={
                            "input": render(given),
                            "autocast": context.excerpt(region.autocast.site),
                            "function": function.qualified_name,
                        },
                        fix=Fix("Pass the input in float32."),
                        level="warning",
                        identity=f"{function.qualified_name}:{render(given)}",
                    )

    valid = (
        Example(
            source="""\
import torch

model = Net().cuda()
optimizer = torch.optim.Adam(model.parameters())
scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    with torch.autocast("cuda"):
        loss = model(batch)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
torch.save(model.half().state_dict(), "half.pt")
""",
            note="cast after the training",
        ),
        Example(
            source="""\
import copy
import torch

model = Net().cuda()
optimizer = torch.optim.Adam(model.parameters())
scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    with torch.autocast("cuda"):
        loss = model(batch)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    ema = copy.deepcopy(model).half()
    ema.eval()
""",
            note="a copy for evaluation",
        ),
        Example(
            source="""\
import torch

teacher = Teacher().cuda().half()
teacher.eval()
student = Student().cuda()
optimizer = torch.optim.Adam(student.parameters())
scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    with torch.autocast("cuda"):
        loss = distance(student(batch), teacher(batch))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
            note="the half model is not trained",
        ),
        Example(
            source="""\
import torch
from fused import FP16_Optimizer

model = Net().half()
optimizer = FP16_Optimizer(torch.optim.Adam(model.parameters()))
scaler = torch.amp.GradScaler("cuda")
scaler.scale(model(batch)).backward()
scaler.step(optimizer)
scaler.update()
""",
            note="the optimizer owns float16 parameters",
        ),
        Example(
            source="""\
import torch

model = Net().cuda().half()
model.eval()
with torch.no_grad(), torch.autocast("cuda"):
    outputs = model(images.half())
""",
            note="inference",
        ),
        Example(
            source="""\
import torch

model = Net().half()
model.float()
optimizer = torch.optim.Adam(model.parameters())
scaler = torch.amp.GradScaler("cuda")
scaler.scale(model(batch)).backward()
scaler.step(optimizer)
scaler.update()
""",
            note="back in float32 before the optimizer",
        ),
        Example(
            source="""\
import torch

model = Net().half() if args.pure_half else Net()
optimizer = torch.optim.Adam(model.parameters())
scaler = torch.amp.GradScaler("cuda", enabled=False)
scaler.scale(model(batch)).backward()
scaler.step(optimizer)
scaler.update()
""",
            note="the scaler is off",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch

model = Net().cuda().half()
optimizer = torch.optim.Adam(model.parameters())
scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    loss = model(batch)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
            note="raises in the first step",
        ),
        Example(
            source="""\
import torch

class Trainer:
    def __init__(self, model):
        self.model = model.cuda()
        self.model.to(torch.float16)
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.scaler = torch.amp.GradScaler("cuda")

    def step(self, batch):
        self.scaler.scale(self.model(batch)).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
""",
            note="cast in the constructor",
        ),
        Example(
            source="""\
import torch

model = Net().cuda().to(torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters())
for batch in loader:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(batch)
    loss.backward()
    optimizer.step()
""",
            note="autocast wants float32 weights",
        ),
        Example(
            source="""\
import torch

model = Net().cuda()
optimizer = torch.optim.AdamW(model.parameters())
scaler = torch.amp.GradScaler("cuda")
for images, labels in loader:
    with torch.autocast("cuda"):
        loss = criterion(model(images.half()), labels)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
            note="inputs are cast as well",
        ),
    )


class Bf16OnPreAmpere(SourceRule):
    """bfloat16 on a GPU whose Tensor Cores do not compute in it.

    What it does
    Finds autocast regions in bfloat16, and models cast to bfloat16, when you lint for a GPU of compute
    capability 7.0 or 7.5 (`--gpu v100`, `--gpu t4`). With the default pair of GPUs it reports nothing.

    Why it costs
    Volta and Turing Tensor Cores compute in float16, not in bfloat16, which PyTorch emulates there: every
    matrix product runs on the CUDA cores, slower than in float32.

    Example
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(batch)

    Use instead
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(batch)
        scaler.scale(loss).backward()

    When it does not apply
    A dtype that is chosen by what the GPU supports (`torch.cuda.is_bf16_supported`, the device's
    capability), GPUs from compute capability 8.0 on, CPU autocast.

    References
    NVIDIA, Matrix Multiplication Background, Table 1.
    PyTorch 2.13, torch.cuda.is_bf16_supported (`including_emulation`).
    """

    code = "AMP017"
    name = "bf16-on-pre-ampere"
    since = "0.1.0"
    level = "warning"
    confidence = "high"
    sources = (
        "NVIDIA, Matrix Multiplication Background: Table 1",
        "PyTorch 2.13, torch.cuda.is_bf16_supported",
    )
    triggers = ("bfloat16",)
    requires = ()

    def applies(self, settings: Settings) -> bool:
        return bool(_gpus_without_bf16(settings))

    def check(self, context: SourceContext) -> Iterator[Finding]:
        gpus = _gpus_without_bf16(context.settings)
        if not gpus or _CAPABILITY & context.tables.identifiers:
            return
        listed = ", ".join(gpus)
        uses: dict[int, str] = {}
        for function in context.tables.functions:
            for region in context.amp.regions(function):
                autocast = region.autocast
                if autocast.dtype == "bfloat16" and autocast.enabled is not False and _on_cuda(region):
                    uses.setdefault(autocast.site, "autocast")
        for cast in context.casts.model_casts:
            if cast.dtype == "bfloat16":
                uses.setdefault(cast.site, "cast")
        for site, kind in sorted(uses.items()):
            what = "bfloat16 autocast" if kind == "autocast" else "a bfloat16 model"
            yield self.finding(
                context.location(site),
                f"{what[0].upper()}{what[1:]} does not use the Tensor Cores of {listed}: they compute in "
                "float16 only (bfloat16 needs compute capability 8.0).",
                related=(context.related(site, what),),
                evidence={"use": context.excerpt(site), "gpus": list(gpus), "dtype": "bfloat16"},
                fix=Fix(
                    "Use float16 with torch.amp.GradScaler on these GPUs; choose the dtype by "
                    "`torch.cuda.is_bf16_supported(including_emulation=False)`."
                ),
                identity=context.excerpt(site),
            )

    valid = (
        Example(
            source="""\
import torch

with torch.autocast("cuda", dtype=torch.bfloat16):
    loss = model(batch)
""",
            note="an A100 computes in bfloat16",
            settings={"gpus": ("a100",)},
        ),
        Example(
            source="""\
import torch

with torch.autocast("cuda", dtype=torch.bfloat16):
    loss = model(batch)
""",
            note="nobody asked about a V100: it is in the default pair",
        ),
        Example(
            source="""\
import torch

with torch.autocast("cuda", dtype=torch.float16):
    loss = model(batch)
""",
            note="float16",
            settings={"gpus": ("v100",)},
        ),
        Example(
            source="""\
import torch

dtype = torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
with torch.autocast("cuda", dtype=dtype):
    loss = model(batch)
""",
            note="chosen by what the GPU supports",
            settings={"gpus": ("v100",)},
        ),
        Example(
            source="""\
import torch

with torch.autocast("cpu", dtype=torch.bfloat16):
    loss = model(batch)
""",
            note="on the CPU",
            settings={"gpus": ("v100",)},
        ),
        Example(
            source="""\
import torch

with torch.autocast("cuda", dtype=torch.bfloat16, enabled=False):
    loss = model(batch)
""",
            note="autocast is off",
            settings={"gpus": ("v100",)},
        ),
    )
    invalid = (
        Example(
            source="""\
import torch

with torch.autocast("cuda", dtype=torch.bfloat16):
    loss = model(batch)
""",
            note="a V100 has no bfloat16",
            settings={"gpus": ("v100",)},
        ),
        Example(
            source="""\
import torch

model = Net().to("cuda", dtype=torch.bfloat16)
model.eval()
""",
            note="the weights themselves",
            settings={"gpus": ("t4",)},
        ),
        Example(
            source="""\
import torch

DTYPE = torch.bfloat16

@torch.autocast(device_type="cuda", dtype=DTYPE)
def loss_of(model, batch):
    return model(batch)
""",
            note="a decorator, a constant",
            settings={"gpus": ("v100",)},
        ),
        Example(
            source="""\
from contextlib import nullcontext
import torch

context = torch.amp.autocast("cuda", torch.bfloat16) if amp else nullcontext()
with context:
    loss = model(batch)
""",
            note="wherever amp is on; one of two GPUs",
            settings={"gpus": ("h100", "v100")},
        ),
    )


RULES: tuple[type[Rule], ...] = (
    HalfTrainNoScaler,
    BceUnderAutocast,
    ScalerWithBf16,
    HalfModelWithAutocast,
    Bf16OnPreAmpere,
)


def _trained_casts(context: SourceContext) -> Iterator[tuple[ModelCast, int]]:
    """16-bit casts of models that an optimizer gets and that stay so -> (cast, the optimizer's site)."""
    casts = context.casts.model_casts
    for cast in casts:
        if cast.dtype not in ("float16", "bfloat16") or cast.name not in context.casts.trained:
            continue
        scope, optimizer = context.casts.trained[cast.name]
        is_attribute = cast.name.startswith("self.")
        if scope != cast.function and not is_attribute:
            continue
        function = context.tables.functions[cast.function]
        if not context.amp.gradients_on(function, cast.block):
            continue
        undone = any(
            later.name == cast.name
            and later.site > cast.site
            and later.dtype in ("float32", "float64")
            and later.function == cast.function
            for later in casts
        )
        in_loop = any(function.blocks[block].kind == "loop" for block in function.enclosing(cast.block))
        after = cast.function == scope and cast.site > optimizer and in_loop
        if not undone and not after:
            yield cast, optimizer


def _only_bf16(scaled: Backward) -> Region | None:
    """A bfloat16 region that a loss comes from; None when it may come from any other."""
    regions = sorted(scaled.origin.regions, key=lambda region: (region.function, region.block))
    if regions and all(
        region.autocast.dtype == "bfloat16" and region.autocast.enabled is not False for region in regions
    ):
        return regions[0]
    return None


def _enabled_text(arguments: Mapping[str, Expression]) -> str:
    expression = arguments.get("enabled")
    return render(expression).lower() if expression is not None else ""


def _on_cuda(region: Region) -> bool:
    return region.autocast.devices is None or "cuda" in region.autocast.devices


def _makes_bce(context: SourceContext, function: Function, call: Call) -> bool:
    called = context.resolver.called(function, call)
    if any(name in ("torch.nn.BCELoss", "torch.nn.modules.loss.BCELoss") for name in called):
        return True
    receiver, method = method_of(call)
    return method in ("to", "cuda") and isinstance(receiver, Call) and _makes_bce(context, function, receiver)


def _run_by(
    context: SourceContext, function: Function, call: Call
) -> Iterator[tuple[SourceContext, Function]]:
    """Functions that a call runs, with their files: the function itself, or the forward of its object."""
    for where, made in _defined(context, function, call.function):
        if made.kind == "function":
            yield where, made
    name = dotted(call.function)
    for scope, value in context.origins_of(function, name) if name else ():
        if not isinstance(value, Call):
            continue
        receiver, method = method_of(value)
        maker = receiver if method in ("to", "cuda") and isinstance(receiver, Call) else value
        for where, made in _defined(context, scope, maker.function):
            if made.kind != "class":
                continue
            for method in ("forward", "__call__"):
                for index in where.tables.children.get(made.index, {}).get(method, ()):
                    yield where, where.tables.functions[index]


def _defined(
    context: SourceContext, function: Function, called: Expression
) -> Iterator[tuple[SourceContext, Function]]:
    """Functions and classes that a name can mean: of this file, or imported from one of the project."""
    local = context.resolver.local_functions(function, called)
    for item in local:
        yield context, item
    name = dotted(called)
    if local or not name:
        return
    for qualified in context.resolver.qualified(function, name):
        if not qualified.startswith("torch."):
            found = context.project.definition(qualified, _BCE_TOKENS)
            if found is not None:
                yield found


def _gpus_without_bf16(settings: Settings) -> tuple[str, ...]:
    """Names of the chosen GPUs that cannot compute in bfloat16; none when nobody chose the default pair."""
    from tclint.config import DEFAULT_GPUS
    from tclint.gpu import load_gpu

    chosen = [load_gpu(gpu) for gpu in settings.gpus]
    lacking = tuple(gpu.name for gpu in chosen if not gpu.supports("bf16"))
    default = [load_gpu(gpu).id for gpu in DEFAULT_GPUS]
    if "gpus" in settings.explicit:
        return lacking
    if len(lacking) < len(chosen) and [gpu.id for gpu in chosen] == default:
        return ()
    return lacking

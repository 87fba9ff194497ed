"""Models cast to float16 as a whole and trained without loss scaling."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tclint.core.finding import Finding, Fix
from tclint.core.rule import Example, Rule
from tclint.source.source_rule import SourceRule
from tclint.source.training.scaler_ops import scales_itself
from tclint.source.training.training_casts import MASTER_WEIGHTS, trained_casts

if TYPE_CHECKING:
    from tclint.source.context import SourceContext

_AMP_PACKAGE = "PyTorch docs, Automatic Mixed Precision package (torch.amp)"
_NVIDIA = "NVIDIA, Train With Mixed Precision"


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
        if any(MASTER_WEIGHTS.search(name.lower()) for name in context.tables.identifiers):
            return
        backwards = [
            (view, op)
            for view in context.scaling.views
            for op in view.of("backward", "other_backward", "scaled_backward")
        ]
        if not backwards or any(op.kind != "backward" for _, op in backwards):
            return
        if any(
            scales_itself(context, view.function, step.optimizer)
            for view in context.scaling.views
            for step in view.of("step")
        ):
            return
        for cast, optimizer in trained_casts(context):
            if cast.dtype != "float16":
                continue
            same = [op for _, op in backwards if op.places[0].function == cast.function]
            # Where its own call stands counts: the call may be followed into a helper further up.
            if same and all(op.places[0].site < cast.site for op in same):
                continue
            backward = same[-1] if same else backwards[0][1]
            yield self.finding(
                context.location(cast.written),
                f"`{cast.name}` is trained in float16 (its parameters go to the optimizer on line "
                f"{context.location(optimizer).line}) and no loss is scaled: gradients below 2^-24 become "
                "zero, small updates are lost.",
                related=(
                    context.related(optimizer, "the optimizer of the float16 parameters"),
                    context.related(backward.site, "the loss goes backward unscaled"),
                ),
                evidence={
                    "model": cast.name,
                    "cast": context.excerpt(cast.written),
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
        Example(
            source="""\
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("gpt2")
model.to(torch.float16)
model = get_peft_model(model, LoraConfig(r=8))
optimizer = torch.optim.AdamW(model.parameters())
for batch in loader:
    model(**batch).loss.backward()
    optimizer.step()
""",
            note="the adapters, which are float32, are what is trained",
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
        Example(
            source="""\
import torch
from transformers import AdamW, AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("gpt2").half().cuda()
optimizer = AdamW(model.parameters(), lr=1e-5)
for batch in loader:
    model(**batch).loss.backward()
    optimizer.step()
""",
            note="another library's optimizer",
        ),
    )


RULES: tuple[type[Rule], ...] = (HalfTrainNoScaler,)

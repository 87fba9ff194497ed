"""A rule on nn.DataParallel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tclint.core.finding import Finding, Fix
from tclint.core.rule import Example, Rule
from tclint.source.names.queries import any_word, is_test_path
from tclint.source.source_rule import SourceRule
from tclint.source.syntax.tables import Function, render

if TYPE_CHECKING:
    from tclint.source.context import SourceContext


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


RULES: tuple[type[Rule], ...] = (DataParallel,)


def _evaluating(function: Function) -> bool:
    return any_word(function.name, ("eval", "test", "infer", "predict", "load", "valid"))

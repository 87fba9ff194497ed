"""What a trace tells of constants and buffers: which are one number throughout, which no checkpoint holds."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import tclint


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.scale = nn.Linear(4, 4), torch.tensor(0.25)
        self.register_buffer("kept", torch.zeros(4))
        self.register_buffer("computed", torch.ones(4), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x) * self.scale
        changed = torch.zeros(4)
        x = x + changed
        changed[0] = 1
        return x + changed + torch.full((4,), -torch.inf) + self.kept + self.computed


def test_constants_of_one_number() -> None:
    graph = tclint.trace(Scaled().eval(), torch.zeros(2, 4))
    operands = [op.inputs[1] for op in graph.ops if op.name in ("mul", "add")]
    # A buffer's numbers are those of the checkpoint, and what was written to has two of them.
    assert [spec.value for spec in operands] == [0.25, 0.0, None, -torch.inf, None, None]


def test_buffers_that_no_checkpoint_holds() -> None:
    graph = tclint.trace(Scaled().eval(), torch.zeros(2, 4))
    found = {parameter.name: parameter.is_persistent for parameter in graph.parameters}
    assert found == {"linear.weight": True, "linear.bias": True, "kept": True, "computed": False}

"""Things of which nothing is known are what the program does with them."""

from __future__ import annotations

import pytest
from programs import program_of

LOOP = """
def train(a, b, c, d):
    for x, y in d:
        b.zero_grad()
        loss = a(x, y)
        {backward}
        {step}
    a.eval()
"""


def kinds(text: str) -> dict[str, str]:
    program = program_of(text)
    found = {}
    for event in program.record.events:
        for thing in program.facts.things(event.subject):
            if thing.name:
                found[thing.name] = thing.kind
    return found


def test_a_loop_shows_what_its_things_are() -> None:
    text = LOOP.format(backward="c.scale(loss).backward()", step="c.step(b)\n        c.update()")
    found = kinds(text)
    assert (found["a"], found["b"], found["c"]) == ("module", "optimizer", "scaler")
    record = program_of(text).record
    assert [len(record.of(kind)) for kind in ("scale", "backward", "scaler_step", "update", "zero_grad")] == [
        2
    ] * 5


def test_names_are_no_evidence() -> None:
    found = kinds(
        "def f(optimizer, scaler, model):\n    optimizer.open()\n    scaler.fit(1)\n    model.read()\n"
    )
    assert set(found.values()) == {""}


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        ("scaler = torch.amp.GradScaler()\n    scaler.step(x)", "optimizer"),
        ("x.zero_grad()\n    x.step()", "optimizer"),
        ("x.unscale_(y)", "scaler"),
        ("x.transform(y)", ""),
    ],
)
def test_one_use_may_be_enough(call: str, kind: str) -> None:
    text = f"import torch\ndef f(x, y):\n    {call}\n"
    program = program_of(text)
    things = {
        thing.name: thing.kind
        for event in program.record.events
        for value in event.inputs
        for thing in program.facts.things(value)
    }
    assert things["x"] == kind


def test_annotations_say_what_parameters_are() -> None:
    text = (
        "import torch\nfrom torch import nn\n"
        "def f(a: nn.Module, b: torch.optim.Optimizer, c: torch.utils.data.DataLoader):\n"
        "    a.read()\n    b.read()\n    c.read()\n"
    )
    program = program_of(text)
    found = [
        thing.kind for event in program.record.of("call") for thing in program.facts.things(event.subject)
    ]
    assert found == ["module", "optimizer", "loader"]


@pytest.mark.parametrize("body", ["pass", "super().step()", "self.inner.step()", "self.inner.zero_grad()"])
def test_an_optimizer_of_the_project_steps_once_whatever_its_step_calls(body: str) -> None:
    text = (
        "import torch\n\n"
        "class Own(torch.optim.Optimizer):\n"
        "    def __init__(self, params):\n"
        "        super().__init__(params, {})\n"
        "        self.inner = torch.optim.SGD(params, lr=0.1)\n\n"
        f"    def step(self):\n        {body}\n\n"
        "Own(torch.nn.Linear(8, 8).parameters()).step()\n"
    )
    assert len(program_of(text).record.of("step")) == 1

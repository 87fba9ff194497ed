"""What frameworks do with a model, an optimizer and a loader: the same events as written loops."""

from __future__ import annotations

from textwrap import dedent

import pytest
from programs import events, program_of

from tclint.source.questions.precision.autocasts import Autocasts
from tclint.source.run.program import Program
from tclint.source.run.values import Constant

STEP = ("scale", "backward", "unscale", "clip", "scaler_step", "step", "update")

MODULE = """
import torch
import lightning as L
from torch import nn


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 8)

    def training_step(self, batch, index):
        x, y = batch
        return nn.functional.mse_loss(self.body(x), y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


"""
LOOP = """
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x), y)
        {backward}
        {clip}
        optimizer.step()
"""
PROGRAMS = {
    "accelerate": (
        """
import torch
from accelerate import Accelerator


def main(model, loader):
    accelerator = Accelerator(mixed_precision="fp16")
    optimizer = torch.optim.SGD(model.parameters())
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
"""
        + LOOP.format(
            backward="accelerator.backward(loss)", clip="accelerator.clip_grad_norm_(model.parameters(), 1)"
        ),
        ["scale", "backward", "unscale", "clip", "scaler_step"],
    ),
    "fabric": (
        """
import torch
from lightning.fabric import Fabric


def main(model, loader):
    fabric = Fabric(precision="16-mixed")
    optimizer = torch.optim.SGD(model.parameters())
    model, optimizer = fabric.setup(model, optimizer)
    loader = fabric.setup_dataloaders(loader)
"""
        + LOOP.format(
            backward="fabric.backward(loss)", clip="fabric.clip_gradients(model, optimizer, max_norm=1)"
        ),
        ["scale", "backward", "unscale", "clip", "scaler_step"],
    ),
    "lightning": (
        MODULE + 'L.Trainer(precision="16-mixed", gradient_clip_val=1.0).fit(Net(), loader)\n',
        ["scale", "backward", "unscale", "clip", "scaler_step", "update"],
    ),
    "transformers": (
        """
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


def main(data):
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    Trainer(model=model, args=TrainingArguments(fp16=True), train_dataset=data).train()
""",
        ["scale", "backward", "unscale", "clip", "scaler_step", "update"],
    ),
    "trl": (
        """
from trl import SFTConfig, SFTTrainer


def main(model, data):
    SFTTrainer(model=model, args=SFTConfig(fp16=True), train_dataset=data).train()
""",
        ["scale", "backward", "unscale", "clip", "scaler_step", "update"],
    ),
    "apex": (
        """
import torch
from apex import amp


def main(model, loader, optimizer):
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x, y in loader:
        loss = model(x, y)
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1)
        optimizer.step()
        optimizer.zero_grad()
""",
        ["scale", "backward", "unscale", "clip", "scaler_step"],
    ),
    "timm": (
        """
from timm.utils import NativeScaler


def main(model, loader, optimizer):
    scaler = NativeScaler()
    for x, y in loader:
        scaler(model(x, y), optimizer, clip_grad=1.0, parameters=model.parameters())
""",
        ["scale", "backward", "unscale", "clip", "scaler_step", "update"],
    ),
    "deepspeed": (
        """
import deepspeed


def main(model, loader):
    engine, optimizer, _, _ = deepspeed.initialize(model=model, config={"fp16": {"enabled": True}})
    for x, y in loader:
        loss = engine(x, y)
        engine.backward(loss)
        engine.step()
""",
        ["scale", "backward", "unscale", "scaler_step", "update"],
    ),
}


def first_round(program: Program) -> list[str]:
    events = [event for event in program.record.events if event.kind in STEP]
    last = events[0].loops
    return [event.kind for event in events if event.loops == last or event.loops[: len(last)] == last]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_step_of_a_framework_is_a_written_step(name: str) -> None:
    text, expected = PROGRAMS[name]
    program = program_of(text)
    assert first_round(program) == expected
    (scaler,) = {
        thing
        for event in program.record.of("scale")
        for thing in program.facts.kinds(event.subject, "scaler")
    }
    assert program.facts.is_on(scaler) is True


@pytest.mark.parametrize(
    ("text", "dtypes", "on"),
    [
        (PROGRAMS["accelerate"][0], {"torch.float16"}, True),
        (PROGRAMS["accelerate"][0].replace('"fp16"', '"bf16"'), {"torch.bfloat16"}, True),
        (PROGRAMS["accelerate"][0].replace('mixed_precision="fp16"', ""), set(), None),
        (PROGRAMS["fabric"][0].replace("16-mixed", "bf16-mixed"), {"torch.bfloat16"}, True),
        (PROGRAMS["lightning"][0].replace('"16-mixed"', "32"), set(), False),
        (PROGRAMS["transformers"][0], {"torch.float16"}, True),
        (PROGRAMS["transformers"][0].replace("fp16=True", "bf16=True"), {"torch.bfloat16"}, True),
        (PROGRAMS["transformers"][0].replace("fp16=True", ""), set(), False),
        (PROGRAMS["trl"][0].replace("fp16=True", ""), {"torch.bfloat16"}, True),
    ],
)
def test_the_precision_is_that_of_the_arguments(text: str, dtypes: set[str], on: bool | None) -> None:
    program = program_of(text)
    facts = program.facts
    contexts = {
        context
        for event in facts.made_by(facts.loss_of(program.record.of("backward")[0]))
        for region in event.regions
        for context in facts.kinds(region.context, "autocast")
    }
    assert contexts
    assert {facts.is_on(context) for context in contexts} == {on}
    if on:
        assert {Autocasts(facts).dtype_on_gpu(context) for context in contexts} == dtypes


def test_hooks_of_a_module_run_where_the_trainer_calls_them() -> None:
    hooks = """    def on_after_backward(self):
        read("after backward")

    def on_before_optimizer_step(self, optimizer):
        read("before step")
"""
    text = MODULE.replace("    def configure", f"{hooks}\n    def configure")
    record = program_of(text + 'L.Trainer(precision="16-mixed").fit(Net(), loader)\n').record
    found = [
        repr(event.first) if event.name == "read" else event.kind
        for event in record.events
        if event.name == "read" or event.kind in ("backward", "unscale")
    ]
    assert found[:4] == ["backward", "'after backward'", "unscale", "'before step'"]


def test_a_module_that_no_trainer_is_seen_to_get_is_run_as_a_trainer_would() -> None:
    record = program_of(MODULE).record
    assert record.of("backward")
    (scaler,) = {thing for event in record.of("scale") for thing in [event.subject]}
    assert program_of(MODULE).facts.is_on(scaler) is None  # type: ignore[arg-type]


def test_a_trainers_own_step_is_replaced_by_that_of_its_subclass() -> None:
    text = """
from transformers import Trainer


class Mine(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False):
        read("mine")
        return model(**inputs).loss


Mine(model=model).train()
"""
    assert any(event.name == "read" for event in program_of(text).record.events)


def test_arguments_of_a_framework_that_a_class_adds_to_are_read() -> None:
    program = """
        import torch
        from transformers import TrainingArguments

        class Ours(TrainingArguments):
            def device_of(self):
                return torch.device("cuda")

            def train(self, model, batches):
                for batch in batches:
                    model(batch).mean().backward()
    """
    assert program_of(program).record.of("backward")


def test_a_function_that_unknown_code_calls_says_how_a_module_is_trained() -> None:
    """Functions run before the classes that they make: nobody else trains these."""
    text = dedent(
        """\
        import lightning as L
        import optuna
        import torch

        class Network(L.LightningModule):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(8, 8)

            def training_step(self, batch, index):
                return self.layer(batch).mean()

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), 0.1)

        def objective(trial):
            trainer = L.Trainer(precision="bf16-mixed")
            trainer.fit(Network(), torch.utils.data.DataLoader(data))

        optuna.create_study().optimize(objective)
        """
    )
    made = [event for event in events(text, "make") if event.name == "Trainer"]
    assert [event.arguments["precision"] for event in made] == [Constant("bf16-mixed")]

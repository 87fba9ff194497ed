"""A training script given beside a model: what it says sets the scenario, and the report says where."""

from __future__ import annotations

from pathlib import Path

import pytest

from tclint import check
from tclint.config.settings import Settings
from tclint.engine.script.join import join

FIXTURES = Path(__file__).parents[2] / "fixtures"

HEAD = """
import torch
from torch import nn
from torch.utils.data import DataLoader

"""


def joined(tmp_path: Path, body: str, settings: Settings | None = None) -> tuple[Settings, list[str]]:
    """The settings under a script of this body, and the notes with their lines."""
    model = tmp_path / "model.py"
    model.write_text("import torch\n\ndef build_model():\n    return torch.nn.Linear(8, 8)\n")
    script = tmp_path / "train.py"
    script.write_text(HEAD + body)
    target = f"{model}:build_model"
    found, notes, _ = join([str(script)], [target], settings or Settings())[target]
    lines = (HEAD + body).splitlines()
    return found, [f"{note.what} | {lines[note.site.line - 1].strip()}" for note in notes if note.site]


TRAIN = """
def train(model, dataset):
    optimizer = torch.optim.{optimizer}
    loader = DataLoader(dataset, batch_size={batch}, shuffle=True)
    for x, y in loader:
        with {autocast}:
            loss = model(x).sum()
        loss.backward()
        optimizer.step()
"""


def script(
    optimizer: str = "AdamW(model.parameters())",
    batch: str = "64",
    autocast: str = 'torch.autocast("cuda", torch.bfloat16)',
) -> str:
    return TRAIN.format(optimizer=optimizer, batch=batch, autocast=autocast)


def test_precision_batch_and_optimizer_come_from_the_script(tmp_path: Path) -> None:
    settings, notes = joined(tmp_path, script("SGD(model.parameters(), 0.1, momentum=0.9, fused=True)"))
    assert (settings.precision, settings.batch, settings.optimizer) == ("bf16", 64, "sgd-momentum-fused")
    assert len(notes) == 4
    assert any(note == "not found by reading train.py: torch.compile, channels_last | " for note in notes)
    assert any(note.startswith("precision bf16") and "torch.autocast" in note for note in notes)
    assert any(note.startswith("batch 64") and "DataLoader(dataset" in note for note in notes)


SAMPLER = """
class Resumed(torch.utils.data.Sampler):
    def __init__(self, order, batch_size):
        self.order, self.batch_size = order, batch_size

    def __iter__(self):
        yield from self.order
"""


@pytest.mark.parametrize(
    ("made", "batch"), [("Resumed(range(1000), 24)", 24), ("Resumed(range(1000), int(input()))", None)]
)
def test_a_batch_sampler_decides_on_the_batch(tmp_path: Path, made: str, batch: int | None) -> None:
    text = script("SGD(model.parameters(), 0.1)").replace("batch_size=64", f"batch_sampler={made}")
    settings, notes = joined(tmp_path, f"import torch\n{SAMPLER}\n{text}")
    assert settings.batch == batch
    assert not any("batch_size=1 " in note or "batch_size=1)" in note for note in notes)


@pytest.mark.parametrize(
    ("lines", "computed", "loss"),
    [
        ("loss_of = nn.CrossEntropyLoss()", "loss_of(model(x), y)", "cross_entropy"),
        ("unused, loss_of = nn.MSELoss(), nn.CrossEntropyLoss()", "loss_of(model(x), y)", "cross_entropy"),
        (
            "import torch.nn.functional as F\n\ndef loss_of(x, y):\n    return F.cross_entropy(x, y)",
            "loss_of(model(x), y)",
            "cross_entropy",
        ),
        ("loss_of = nn.MSELoss()", "loss_of(model(x), y)", "traced"),
        (
            "loss_of, other = nn.CrossEntropyLoss(), nn.MSELoss()",
            "loss_of(model(x), y) + other(model(x), y)",
            "traced",
        ),
        (
            "class CrossEntropyLoss:\n    def __call__(self, x, y):\n        return x.sum()\n"
            "loss_of = CrossEntropyLoss()",
            "loss_of(model(x), y)",
            "traced",
        ),
    ],
)
def test_the_loss_is_cross_entropy_where_the_script_computes_no_other(
    tmp_path: Path, lines: str, computed: str, loss: str
) -> None:
    body = script().replace("loss = model(x).sum()", "loss = " + computed)
    settings, notes = joined(tmp_path, f"{lines}\n{body}")
    assert settings.loss == loss
    assert any(note.startswith("loss cross_entropy") for note in notes) == (loss == "cross_entropy")


def test_flags_win_and_the_difference_is_said(tmp_path: Path) -> None:
    flags = Settings(precision="fp16", batch=32, explicit=frozenset({"precision", "batch"}))
    settings, notes = joined(tmp_path, script(), flags)
    assert (settings.precision, settings.batch) == ("fp16", 32)
    assert any("fp16 as set; the script says autocast in bfloat16" in note for note in notes)


def test_a_setting_that_differs_from_the_default_wins_without_a_flag(tmp_path: Path) -> None:
    assert joined(tmp_path, script(), Settings(precision="tf32"))[0].precision == "tf32"


@pytest.mark.parametrize(
    ("lines", "precision"),
    [
        ("", "tf32-cudnn"),  # torch's defaults
        ('torch.set_float32_matmul_precision("high")', "tf32"),
        ('torch.set_float32_matmul_precision("highest")', "tf32-cudnn"),
        ("torch.backends.cuda.matmul.allow_tf32 = True", "tf32"),
        ("torch.backends.cudnn.allow_tf32 = False", "fp32"),
        (
            "torch.backends.cuda.matmul.allow_tf32 = True\ntorch.backends.cudnn.allow_tf32 = False",
            "tf32-matmul",
        ),
    ],
)
def test_without_autocast_the_tf32_switch_decides(tmp_path: Path, lines: str, precision: str) -> None:
    plain = script().replace('with torch.autocast("cuda", torch.bfloat16):', "if True:")
    assert joined(tmp_path, f"{lines}\n{plain}")[0].precision == precision


@pytest.mark.parametrize(
    "body",
    [
        # Which one is used is known at run time only.
        script(batch="args.batch_size").replace("torch.bfloat16", "dtype"),
        # A context that another file makes may be autocast.
        script(batch="n").replace('torch.autocast("cuda", torch.bfloat16)', "context_of(model)"),
        # No training loop.
        "loader = DataLoader([], batch_size=7)\nmodel = torch.compile(nn.Linear(8, 8))\n",
    ],
)
def test_what_cannot_be_decided_is_left_alone(tmp_path: Path, body: str) -> None:
    settings, _ = joined(tmp_path, body.replace("torch.optim.AdamW", "make_optimizer"))
    assert (settings.precision, settings.batch, settings.compiled) == ("fp16", None, False)


def test_compile_and_channels_last(tmp_path: Path) -> None:
    body = script().replace(
        "    for x, y in loader:",
        "    model = torch.compile(model.to(memory_format=torch.channels_last))\n    for x, y in loader:",
    )
    settings, notes = joined(tmp_path, body)
    assert (settings.compiled, settings.layout) == (True, "channels_last")
    assert sum("torch.compile(" in note for note in notes) == 2


def test_a_model_may_compile_itself(tmp_path: Path) -> None:
    def compiled(name: str) -> bool:
        body = script().replace("    for x, y", f"    {name}.compile()\n    for x, y")
        return joined(tmp_path, body)[0].compiled

    assert compiled("model")
    assert not compiled("pattern")  # no module


def test_compile_behind_an_option_is_not_assumed(tmp_path: Path) -> None:
    body = script().replace(
        "    for x, y in loader:",
        "    if args.compile:\n        model = torch.compile(model)\n    for x, y in loader:",
    )
    assert not joined(tmp_path, body)[0].compiled


OPTIONS = """
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=96)
parser.add_argument("--amp", action="store_true")
parser.add_argument("--channels-last", action="store_true", default=True)
parser.add_argument("--compile", action="store_true")
args = parser.parse_args()
"""


def test_options_count_with_their_defaults_and_are_called_so(tmp_path: Path) -> None:
    autocast = 'torch.autocast("cuda", torch.bfloat16, enabled=args.amp)'
    body = OPTIONS + script(batch="args.batch_size", autocast=autocast).replace(
        "    for x, y in loader:",
        "    if args.channels_last:\n        model = model.to(memory_format=torch.channels_last)\n"
        "    if args.compile:\n        model = torch.compile(model)\n    for x, y in loader:",
    )
    settings, notes = joined(tmp_path, body)
    assert (settings.batch, settings.layout, settings.compiled) == (96, "channels_last", False)
    assert settings.precision == "tf32-cudnn"
    assert any("autocast is off, the default of --amp" in note for note in notes)
    assert "not found by reading train.py: torch.compile | " in notes
    assert any("96, the default of --batch-size" in note for note in notes)
    assert any("channels_last, by the default of --channels-last" in note for note in notes)


def test_fields_of_a_configuration_class_are_options(tmp_path: Path) -> None:
    config = "from dataclasses import dataclass\n\n@dataclass\nclass Config:\n    batch_size: int = 48\n"
    config += "    amp: bool = True\n\n\nconfig = Config()\n"
    autocast = 'torch.autocast("cuda", torch.bfloat16, enabled=config.amp)'
    settings, notes = joined(tmp_path, config + script(batch="config.batch_size", autocast=autocast))
    assert (settings.batch, settings.precision) == (48, "bf16")
    assert any("batch_size=48 |" in note for note in notes)
    parsed = config.replace(
        "config = Config()", "config = HfArgumentParser(Config).parse_args_into_dataclasses()[0]"
    )
    imported = "from transformers import HfArgumentParser\n"
    settings, notes = joined(
        tmp_path, imported + parsed + script(batch="config.batch_size", autocast=autocast)
    )
    assert (settings.batch, settings.precision) == (48, "bf16")
    assert any("batch_size=48, the default of batch_size" in note for note in notes)


GLOBALS = """
batch_size = 12
dtype = "bfloat16" if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "float16"
compile = True
channels_last = False
exec(open("configurator.py").read())

device_type = "cuda" if "cuda" in device else "cpu"
chosen = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[dtype]
context = nullcontext() if device_type == "cpu" else torch.amp.autocast(device_type=device_type, dtype=chosen)
model = Net()
if compile:
    model = torch.compile(model)
if channels_last:
    model = model.to(memory_format=torch.channels_last)

def get_batch(split):
    rows = torch.randint(len(data) - 64, (batch_size,))
    return torch.stack([data[i : i + 64] for i in rows])

while True:
    with context:
        loss = model(get_batch("train")).sum()
    loss.backward()
"""


def test_constants_that_the_script_overrides_count_and_are_said_to_be_overridden(tmp_path: Path) -> None:
    settings, notes = joined(tmp_path, "from contextlib import nullcontext\n" + GLOBALS)
    assert (settings.batch, settings.precision, settings.compiled) == (12, "bf16", True)
    assert settings.layout == Settings().layout
    for name in ("batch_size", "dtype", "compile"):
        assert any(f"the default of {name}" in note for note in notes)
    assert "not found by reading train.py: optimizer, channels_last | " in notes
    plain, notes = joined(tmp_path, GLOBALS.replace('exec(open("configurator.py").read())', ""))
    assert (plain.batch, plain.compiled) == (12, True)
    assert not any("the default of" in note for note in notes)


PARAMETERS = """
def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", dest="batch_size", type=int, default=6)
    parser.add_argument("--amp", action="store_true", default=False)
    return parser.parse_args()

def train(model, data, batch_size: int = 1, amp: bool = True, momentum: float = 0.999):
    options = dict(batch_size=batch_size, num_workers=8)
    loader = DataLoader(data, shuffle=True, **options)
    optimizer = torch.optim.{optimizer}(model.parameters(), momentum=momentum)
    for x in loader:
        with torch.autocast("cuda", torch.bfloat16, enabled=amp):
            loss = model(x).sum()
        loss.backward()
"""

CALL = """
args = get_args()
train(model, data, batch_size=args.batch_size, amp=args.amp)
"""


def test_parameters_count_with_what_is_passed_else_with_their_defaults(tmp_path: Path) -> None:
    body = "import argparse\n" + PARAMETERS.format(optimizer="SGD")
    settings, notes = joined(tmp_path, body)
    assert (settings.batch, settings.precision, settings.optimizer) == (1, "bf16", "sgd-momentum")
    assert any("batch_size=1, the default of batch_size" in note for note in notes)
    settings, notes = joined(tmp_path, body + CALL)
    assert (settings.batch, settings.precision) == (6, "tf32-cudnn")
    assert any("batch_size=6, the default of --batch-size" in note for note in notes)
    settings, _ = joined(tmp_path, body + CALL + "train(model, data, batch_size=7)\n")
    assert settings.batch is None


def test_a_momentum_that_is_not_counted_is_said(tmp_path: Path) -> None:
    settings, notes = joined(tmp_path, PARAMETERS.format(optimizer="RMSprop"))
    assert settings.optimizer == "rmsprop"
    assert any("momentum=0.999, whose buffer is not counted" in note for note in notes)


def test_arguments_from_elsewhere_decide_nothing(tmp_path: Path) -> None:
    body = PARAMETERS.format(optimizer="SGD").replace("momentum=momentum", "**found_elsewhere")
    settings, notes = joined(tmp_path, body.replace("options = dict(", "options = make("))
    assert (settings.batch, settings.optimizer) == (None, Settings().optimizer)
    assert any(note.startswith("not found by reading train.py: batch, optimizer") for note in notes)


LOOP = "for x, y in loader:\n    accelerator.backward(model(x).sum())\n"
PREPARED = "model, loader = accelerator.prepare(model, loader)\n" + LOOP


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            'from accelerate import Accelerator\naccelerator = Accelerator(mixed_precision="bf16")\n'
            "loader = DataLoader(data, batch_size=24, shuffle=True)\n" + PREPARED,
            {"precision": "bf16", "batch": 24},
        ),
        (
            "from accelerate import Accelerator\naccelerator = Accelerator(mixed_precision=choice)\n"
            + PREPARED,
            {"precision": "fp16", "batch": None},
        ),
        (
            "from lightning.fabric import Fabric\n"
            'fabric = Fabric(precision="16-true", strategy="ddp")\n'
            "model = fabric.setup(model)\n" + LOOP.replace("accelerator", "fabric"),
            {"precision": "pure-fp16"},
        ),
        (
            "import lightning as L\ntrainer = L.Trainer(precision=32)\n"
            'torch.set_float32_matmul_precision("high")\ntrainer.fit(model, loader)\n',
            {"precision": "tf32"},
        ),
        (
            "from transformers import Trainer, TrainingArguments\n"
            "args = TrainingArguments(bf16=True, per_device_train_batch_size=16, torch_compile=True,\n"
            "    gradient_accumulation_steps=4,\n"
            '    optim="adamw_torch_fused")\n'
            "Trainer(model=model, args=args).train()\n",
            {
                "precision": "bf16",
                "batch": 16,
                "accumulation": 4,
                "compiled": True,
                "optimizer": "adamw-fused",
            },
        ),
        (
            "from torch.nn.parallel import DistributedDataParallel as DDP\n"
            "model = DDP(model)\n" + script(autocast='torch.autocast("cuda", torch.float16)'),
            {"precision": "fp16"},
        ),
        (
            'import deepspeed\nconfig = {"fp16": {"enabled": True}}\n'
            "engine, *_ = deepspeed.initialize(model=model, config=config)\n"
            + LOOP.replace("accelerator", "engine").replace("model(x)", "engine(x)"),
            {"precision": "fp16", "batch": None},  # DeepSpeed's fp16 is not autocast: left as it was
        ),
    ],
    ids=["accelerate", "accelerate-option", "fabric", "lightning", "transformers", "ddp", "deepspeed"],
)
def test_what_frameworks_are_told(tmp_path: Path, body: str, expected: dict[str, object]) -> None:
    settings, notes = joined(tmp_path, body)
    assert {name: getattr(settings, name) for name in expected} == expected
    changed = {name for name, value in expected.items() if value != getattr(Settings(), name)}
    assert len(notes) >= len(changed)


def test_validation_loaders_do_not_count(tmp_path: Path) -> None:
    body = script().replace(
        "    for x, y in loader:",
        "    val_loader = DataLoader(dataset, batch_size=256)\n    for x, y in loader:",
    )
    assert joined(tmp_path, body)[0].batch == 64


def test_the_report_shows_the_scripts_scenario() -> None:
    pytest.importorskip("torch")
    script_path = str(FIXTURES / "train_resnet50_amp.py")
    report = check([f"{FIXTURES / 'resnet50.py'}:build_model", script_path], Settings(gpus=("a100",)))
    [entry] = report.entries
    assert report.settings.layout == "channels_last"
    assert entry.precision == "fp16"
    assert entry.inputs[0][2][0] == 64
    said = [a.what for a in entry.assumptions if a.site and a.site.path == script_path]
    assert {what.split(":")[0].split(" ")[0] for what in said} >= {
        "precision",
        "memory",
        "batch",
        "optimizer",
    }
    # In channels_last already.
    assert "FMT001" not in {finding.code for finding in report.findings}
    [metrics] = entry.metrics.values()
    if entry.fixes_made:
        assert metrics.step_time_fixed_us is not None
        assert metrics.step_time_fixed_us < metrics.step_time_us

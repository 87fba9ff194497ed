"""Training that several files share: loader, model, step and loop each in one of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tclint.config.settings import Settings
from tclint.core.finding import Finding
from tclint.engine.sources.lint import lint
from tclint.source.source_rule import SourceRule
from tclint_rules.precision.tf32_matmul_off import Tf32MatmulOff
from tclint_rules.runtime.blocking_copy import BlockingCopy
from tclint_rules.runtime.cudnn_benchmark import BenchmarkWithVaryingSizes
from tclint_rules.runtime.data_parallel import DataParallel
from tclint_rules.runtime.evaluation_gradients import EvalWithoutNoGrad
from tclint_rules.runtime.fused_optimizer import OptimizerNotFused
from tclint_rules.runtime.pinned_memory import PinMemoryMissing
from tclint_rules.runtime.sync_in_loop import SyncInLoop
from tclint_rules.runtime.untrained_networks import GradientsNobodyUses
from tclint_rules.scaling.scaler_state import ScalerStateNotSaved

AGENT = """\
import torch
from model import Network

class Agent:
    def __init__(self, args):
        self.network = Network(8, args.width).cuda()
        self.optimizer = torch.optim.Adam(self.network.parameters())

    def act(self, state):
        action = self.network(state)
        return action.detach().cpu().numpy()

    def learn(self, batch):
        loss = self.network(batch).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()
"""
MODEL = """\
from torch import nn

class Network(nn.Module):
    def __init__(self, inputs, width):
        super().__init__()
        self.first = nn.Linear(inputs, width)
        self.second = nn.Linear(width, 1)
"""
MAIN = """\
import argparse
from agent import Agent

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default={width})
args = parser.parse_args()
agent = Agent(args)
{loop}
"""
LOOP = "for batch in memory:\n    agent.learn(batch)"
DATA = """\
from torch.utils.data import DataLoader

def loaders(dataset):
    return DataLoader(dataset, batch_size=64, num_workers=8{pinned})
"""
TRAIN = """\
from data import loaders

loader = loaders(dataset)

def train():
    for images, labels in loader:
        loss = criterion(model(images.float().cuda()), labels.cuda())
        loss.backward()
        optimizer.step()
"""


def found(folder: Path, name: str, rule: SourceRule, **files: str) -> list[Finding]:
    (folder / ".git").mkdir()
    for stem, text in files.items():
        (folder / f"{stem}.py").write_text(text)
    return lint([str(folder / name)], [rule], Settings()).findings


@pytest.mark.parametrize(("width", "lines"), [(256, [16]), (64, [])])
def test_the_width_of_a_model_comes_from_the_command_line_of_another_file(
    tmp_path: Path, width: int, lines: list[int]
) -> None:
    main = MAIN.format(width=width, loop=LOOP)
    findings = found(tmp_path, "agent.py", Tf32MatmulOff(), agent=AGENT, model=MODEL, main=main)
    assert [finding.location.line for finding in findings] == lines


@pytest.mark.parametrize(
    # A step that nothing in the project calls is one for whoever calls it.
    ("loop", "lines"),
    [(LOOP, [18]), ("agent.learn(batch)", []), (LOOP.replace("learn", "act"), [18])],
)
def test_a_function_is_a_step_where_a_loop_of_another_file_calls_it(
    tmp_path: Path, loop: str, lines: list[int]
) -> None:
    main = MAIN.format(width=64, loop=loop)
    findings = found(tmp_path, "agent.py", SyncInLoop(), agent=AGENT, model=MODEL, main=main)
    assert [finding.location.line for finding in findings] == lines


@pytest.mark.parametrize(
    ("loop", "lines"),
    [("agent.act(state)", [10]), ("import torch\nwith torch.no_grad():\n    agent.act(state)", [])],
)
def test_a_caller_in_another_file_may_switch_gradients_off(
    tmp_path: Path, loop: str, lines: list[int]
) -> None:
    main = MAIN.format(width=64, loop=loop)
    findings = found(tmp_path, "agent.py", EvalWithoutNoGrad(), agent=AGENT, model=MODEL, main=main)
    assert [finding.location.line for finding in findings] == lines


def test_an_agent_that_says_nothing_of_a_device_is_moved_by_another_file(tmp_path: Path) -> None:
    agent = AGENT.replace(".cuda()", "")
    main = MAIN.format(width=64, loop=f"agent.network.cuda()\n{LOOP}")
    model = MODEL.replace("(inputs, width)", "(512, 2048)").replace("(width, 1)", "(2048, 512)")
    [finding] = found(tmp_path, "agent.py", OptimizerNotFused(), agent=agent, model=model, main=main)
    assert finding.location.line == 7


def test_the_batches_of_a_loader_are_followed_to_the_file_that_trains(tmp_path: Path) -> None:
    files = {"data": DATA.format(pinned=""), "train": TRAIN}
    [finding] = found(tmp_path, "data.py", PinMemoryMissing(), **files)
    assert (finding.location.line, finding.related[0].location.line) == (4, 7)
    assert "on train.py:7" in finding.message


def test_copies_that_wait_rest_on_the_loader_of_another_file(tmp_path: Path) -> None:
    files = {"data": DATA.format(pinned=", pin_memory=True"), "train": TRAIN}
    findings = found(tmp_path, "train.py", BlockingCopy(), **files)
    assert {finding.location.line for finding in findings} == {7}
    assert ("data.py", 4) in {
        (Path(place.location.path).name, place.location.line) for place in findings[0].related
    }


def test_copies_that_do_not_wait_are_no_finding(tmp_path: Path) -> None:
    train = TRAIN.replace(".cuda()", ".cuda(non_blocking=True)")
    files = {"data": DATA.format(pinned=", pin_memory=True"), "train": train}
    assert not found(tmp_path, "data.py", BlockingCopy(), **files)


def test_a_subclass_of_data_parallel_counts_wherever_it_is_defined(tmp_path: Path) -> None:
    parallel = "from torch import nn\n\nclass BatchDataParallel(nn.DataParallel):\n    pass\n"
    train = """\
from parallel import BatchDataParallel

model = BatchDataParallel(net.cuda())
for x in loader:
    model(x).mean().backward()
    optimizer.step()
"""
    [finding] = found(tmp_path, "train.py", DataParallel(), parallel=parallel, train=train)
    assert finding.location.line == 3
    own = parallel.replace("nn.DataParallel", "nn.Module")
    (tmp_path / "parallel.py").write_text(own)
    assert not lint([str(tmp_path / "train.py")], [DataParallel()], Settings()).findings


MERGED = """\
import torch
from torch.utils.data import DataLoader

model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in DataLoader(dataset, batch_size=4, num_workers=4):
    batch = batch.cuda()
    padded = torch.zeros(4, 64, 8, device="cuda")
    for index in range(4):
        padded[index, :32] = batch[index]
    loss = model(padded).mean()
    loss.backward()
    optimizer.step()
"""


def test_what_is_written_into_a_tensor_is_in_it(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, "train.py", PinMemoryMissing(), train=MERGED)
    assert finding.location.line == 6


SAVING = """\
import torch

def save(model, optimizer, path):
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)

def load(model, optimizer, path):
    checkpoint = torch.load(path)
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
"""
RESUMED = """\
import torch
import saving

model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
saving.load(model, optimizer, "last.pt")
for batch in loader:
    with torch.autocast("cuda"):
        loss = model(batch).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
saving.save(model, optimizer, "last.pt")
"""


def test_checkpoints_that_another_file_writes(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, "train.py", ScalerStateNotSaved(), saving=SAVING, train=RESUMED)
    assert finding.location.line == 14


def test_what_a_wrapper_holds_is_called_through_it(tmp_path: Path) -> None:
    main = "import torch\n" + MAIN.format(
        width=64,
        loop="agent = torch.nn.DataParallel(agent)\nfor batch in memory:\n    agent.module.learn(batch)",
    )
    findings = found(tmp_path, "agent.py", SyncInLoop(), agent=AGENT, model=MODEL, main=main)
    assert [finding.location.line for finding in findings] == [18]


def test_a_script_that_imports_itself(tmp_path: Path) -> None:
    main = MAIN.format(
        width=64,
        loop="class Work:\n    def run(self):\n        for batch in memory:\n            agent.learn(batch)\n"
        "def start():\n    from main import Work as Again\n    Again().run()\nstart()",
    )
    findings = found(tmp_path, "agent.py", SyncInLoop(), agent=AGENT, model=MODEL, main=main)
    assert [finding.location.line for finding in findings] == [18]


@pytest.mark.parametrize(
    # A step of an agent that no configuration names is one for whoever calls it.
    ("target", "use", "lines"),
    [
        ("agent.Agent", "for batch in memory:\n        agent.learn(batch)", [18]),
        ("agent.Agent", "agent.learn(batch)", []),
        ("other.Agent", "agent.learn(batch)", [18]),
    ],
)
def test_a_configuration_names_the_file_that_trains(
    tmp_path: Path, target: str, use: str, lines: list[int]
) -> None:
    (tmp_path / "config.yaml").write_text(f"agent:\n  _target_: {target}\n  args: {{width: 64}}\n")
    main = (
        "import hydra\n\n@hydra.main(config_path='.', config_name='config')\ndef main(config):\n"
        f"    agent = hydra.utils.instantiate(config.agent)\n    {use}\n\nmain()\n"
    )
    findings = found(tmp_path, "agent.py", SyncInLoop(), agent=AGENT, model=MODEL, main=main)
    assert [finding.location.line for finding in findings] == lines


TWO_NETWORKS = """\
import torch

class Coder:
    def __init__(self):
        self.encoder = torch.nn.Linear(512, 512).cuda()
        self.decoder = torch.nn.Linear(512, 512).cuda()
        weights = list(self.encoder.parameters()) + list(self.decoder.parameters())
        self.optimizer = torch.optim.Adam(weights)

coder = Coder()
for batch in loader:
    loss = coder.decoder(coder.encoder(batch.cuda())).mean()
    coder.optimizer.zero_grad()
    loss.backward()
    coder.optimizer.step()
"""


def test_an_optimizer_gets_the_parameters_of_two_networks_in_one_list(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, "train.py", OptimizerNotFused(), train=TWO_NETWORKS)
    assert finding.location.line == 8


SIZES = """\
import numpy as np
import torch
from torch.utils.data import DataLoader

class Pictures:
    def __getitem__(self, index):
        box = self.boxes[index]
        side = max(box)
        return self.images[index], {made}

torch.backends.cudnn.benchmark = True
network = torch.nn.Conv2d(3, 8, 3).cuda()
optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
for images, more in DataLoader(Pictures(), batch_size=4):
    network(images.cuda()).mean().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("made", "lines"),
    [
        ("torch.tensor([side, 1.0])", []),
        ("torch.tensor(np.zeros((side, 3)))", [11]),
        ("torch.zeros(side, 3)", [11]),
        ("torch.FloatTensor(3, side)", [11]),
        ("torch.tensor(side)", []),
        ("torch.zeros(max(box[0], box[1]), 3)", [11]),
        ("torch.zeros(max(1, box[0]), 3)", []),
        ("torch.zeros(max(self.least, box[0]), 3)", []),
    ],
)
def test_a_size_changes_where_a_tensor_is_as_long_as_the_longest(
    tmp_path: Path, made: str, lines: list[int]
) -> None:
    rule = BenchmarkWithVaryingSizes()
    findings = found(tmp_path, "train.py", rule, train=SIZES.replace("{made}", made))
    assert [finding.location.line for finding in findings] == lines


LOSSES = """\
import segmentation_models_pytorch as smp
import torch
from elsewhere import make

network = torch.nn.Linear(512, 512).cuda()
judge = {judge}
judge.eval()
optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
for batch in loader:
    judge(network(batch.cuda()), 1).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("judge", "lines"),
    [
        ("torch.nn.Linear(512, 1)", [10]),
        ("smp.losses.DiceLoss('binary')", []),
        ("make('dice')", []),
    ],
)
def test_a_loss_that_holds_no_weights_is_no_untrained_network(
    tmp_path: Path, judge: str, lines: list[int]
) -> None:
    findings = found(tmp_path, "train.py", GradientsNobodyUses(), train=LOSSES.format(judge=judge))
    assert [finding.location.line for finding in findings] == lines


@pytest.mark.parametrize(
    "copy",
    [
        "torch.as_tensor(images, device='cuda')",
        "torch.tensor(images, device='cuda')",
        "room.copy_(images)",
        "room.resize_(images.size()).copy_(images)",
    ],
)
def test_batches_are_also_copied_by_conversions_and_into_tensors(tmp_path: Path, copy: str) -> None:
    train = "import torch\n" + TRAIN.replace("images.float().cuda()", copy).replace("labels.cuda()", "labels")
    train = train.replace("    for", "    room = torch.cuda.FloatTensor(8, 3)\n    for")
    (finding,) = found(tmp_path, "data.py", PinMemoryMissing(), data=DATA.format(pinned=""), train=train)
    assert finding.location.line == 4
    (tmp_path / "data.py").write_text(DATA.format(pinned=", pin_memory=True"))
    findings = lint([str(tmp_path / "train.py")], [BlockingCopy()], Settings()).findings
    assert {finding.location.line for finding in findings} == {9}


def test_what_is_written_into_a_tensor_in_place_trains(tmp_path: Path) -> None:
    train = """\
import torch
from data import loaders

room = torch.cuda.FloatTensor(8, 3)
for images in loaders(dataset):
    room.resize_(images.size()).copy_(images)
    loss = model(room).mean()
    loss.backward()
    optimizer.step()
"""
    (finding,) = found(tmp_path, "data.py", PinMemoryMissing(), data=DATA.format(pinned=""), train=train)
    assert finding.location.line == 4


def test_a_second_call_of_a_long_function_is_no_unknown_code(tmp_path: Path) -> None:
    many = "".join("    batch = batch.relu().add(1).mul(2).sub(1)\n" for _ in range(400))
    head, loop = RESUMED.split("for batch in loader:\n")
    body, save = loop.split("saving.save")
    train = (
        f"{head}\ndef train(model, optimizer, scaler, loader):\n    for batch in loader:\n"
        f"{many.replace('    batch =', '        batch =')}"
        f"{''.join(f'    {line}' for line in body.splitlines(keepends=True))}\n"
        "def run(rank):\n    if rank == 0:\n        train(model, optimizer, scaler, loader)\n"
        f"    else:\n        train(model, optimizer, scaler, None)\n\nrun(RANK)\nsaving.save{save}"
    )
    (tmp_path / ".git").mkdir()
    (tmp_path / "saving.py").write_text(SAVING)
    (tmp_path / "train.py").write_text(train)
    # The first call uses up what `run` may take of the program's events.
    settings = Settings(program_events=8000)
    (finding,) = lint([str(tmp_path / "train.py")], [ScalerStateNotSaved()], settings).findings
    assert "GradScaler" in finding.message


@pytest.mark.parametrize(
    ("added", "lines"),
    [
        ("import sys\nsys.path.append('core')\n", [16]),
        ("import os, sys\nsys.path.insert(0, os.path.join(os.path.dirname(__file__), 'core'))\n", [16]),
        ("", []),
    ],
)
def test_modules_are_found_in_folders_that_a_script_adds(
    tmp_path: Path, added: str, lines: list[int]
) -> None:
    core = tmp_path / "core"
    core.mkdir()
    (core / "model.py").write_text(MODEL)
    (core / "agent.py").write_text(AGENT)
    main = added + MAIN.format(width=256, loop=LOOP)
    findings = found(tmp_path, "core/agent.py", Tf32MatmulOff(), main=main)
    assert [finding.location.line for finding in findings] == lines


@pytest.mark.parametrize(
    ("folder", "marker", "lines"),
    [
        ("owner-of-some_agents", "__init__.py", [16]),
        ("some-agents", "__init__.py", [16]),
        ("another", "__init__.py", []),
        ("some-agents", "setup.py", []),
    ],
)
def test_a_repository_can_be_the_package_that_its_files_import(
    tmp_path: Path, folder: str, marker: str, lines: list[int]
) -> None:
    root = tmp_path / folder
    root.mkdir()
    (root / marker).touch()
    (root / "model.py").write_text(MODEL)
    (root / "agent.py").write_text(AGENT.replace("from model", "from some_agents.model"))
    loop = 'if __name__ == "__main__":\n    for batch in memory:\n        agent.learn(batch)'
    main = MAIN.format(width=256, loop=loop).replace("from agent", "from some_agents.agent")
    findings = found(root, "agent.py", Tf32MatmulOff(), main=main)
    assert [finding.location.line for finding in findings] == lines


@pytest.mark.parametrize(("tried", "lines"), [("print(summary([]))", [16]), ("Agent(None).learn(None)", [])])
def test_a_file_that_only_tries_other_functions_is_no_program_of_its_own(
    tmp_path: Path, tried: str, lines: list[int]
) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    summary = "def summary(losses):\n    return sum(losses)\n"
    run = f'if __name__ == "__main__":\n    {tried}\n'
    (tmp_path / "agent.py").write_text(f"{AGENT}\n{summary}\n{run}")
    findings = found(tmp_path, "agent.py", Tf32MatmulOff(), main=MAIN.format(width=256, loop=LOOP))
    assert [finding.location.line for finding in findings] == lines


def test_a_wait_in_another_file_is_shown_beside_the_call_that_leads_to_it(tmp_path: Path) -> None:
    (tmp_path / "trimming.py").write_text("def trim(x, lengths):\n    return x[:, : lengths.max()]\n")
    main = TRAIN.replace("model(images.float().cuda())", "trim(model(images.cuda()), labels.cuda())")
    main = f"from trimming import trim\n{main}\ntrain()\n"
    (finding,) = found(tmp_path, "main.py", SyncInLoop(), main=main, data=DATA.format(pinned=""))
    related = [(Path(item.location.path).name, item.location.line) for item in finding.related]
    assert finding.location.line == 8
    assert ("trimming.py", 2) in related

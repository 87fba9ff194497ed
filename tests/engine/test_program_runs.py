"""A class whose arguments reading does not tell: a program of its project is run up to where it makes one."""

from __future__ import annotations

import subprocess
import textwrap
from pathlib import Path

import in_process
import pytest

from tclint.config.settings import Settings
from tclint.tracing import ProgramStart, run_programs
from tclint.tracing.worker import client
from tclint.tracing.worker.isolation import landlock_version

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    landlock_version() < 1, reason="nothing is run where the kernel has no Landlock"
)

MODEL = """
from torch import nn


class Net(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(width, width) for _ in range(depth)))

    def forward(self, x):
        return self.layers(x)
"""
LOOP = """
for images in DataLoader(data):
    net(images).sum().backward()
"""


def tclint(folder: Path, *arguments: str, **files: str) -> in_process.Done:
    """Lint the model of a project with these files beside it."""
    (folder / "requirements.txt").touch()
    for name, text in {"model": MODEL, **files}.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text))
    return in_process.tclint("model.py:Net", "--isolated", "--exit-zero", *arguments, cwd=folder)


def test_one_worker_serves_all_of_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start, started = client._start_worker, []

    def spied(*arguments: str, stderr: int = subprocess.DEVNULL) -> object:
        started.append(start(*arguments, stderr=stderr))
        return started[-1]

    monkeypatch.setattr(client, "_start_worker", spied)
    train = "from model import Net\n\nnet = Net(*map(len, [range(16), range(2)]))\ndata = []\n" + LOOP
    assert made_with(tclint(tmp_path, train=train)).startswith("made with width = 16 and depth = 2, as train")
    assert len(started) == 1
    assert started[0].poll() is not None  # it ended with the command


def test_a_program_without_data_does_not_run_for_long(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "train.py").write_text(
        "import torch\nfrom model import Net\n\nnet = Net(16, 2)\nfor _ in range(100):\n"
        "    with torch.no_grad():\n        net(torch.rand(2, 16))\nopen('later.txt').read()\n"
    )
    (tmp_path / "later.txt").touch()
    start = ProgramStart(str(tmp_path / "train.py"), (), str(tmp_path), trains=True)
    [run] = run_programs(f"{tmp_path}/model.py:Net", [start], Settings())
    assert [call.arguments for call in run.calls] == [{"width": "16", "depth": "2"}]
    assert str(tmp_path / "later.txt") not in run.files


def made_with(done: in_process.Done) -> str:
    """What the report says of the arguments, on one line."""
    assert done.returncode == 0, done.stdout + done.stderr
    text = " ".join(done.stdout.split())
    return text[text.index("made with") :]


OWN_CONFIGURATION = """
    import importlib
    import sys

    import a_package_that_nobody_has as logs
    from torch.utils.data import DataLoader


    def read(name):
        found = {}
        for line in open("settings/{}.ini".format(name)):
            key, _, value = line.partition(":")
            found[key] = int(value)
        return found


    class Folder:
        def __init__(self, path):
            self.names = sorted(__import__("os").listdir(path))

        def __len__(self):
            return len(self.names)


    def main():
        options = read(sys.argv[1] if len(sys.argv) > 1 else "small")
        logs.start(project="nets")
        data = Folder("/data/that/nobody/has")
        print(f"{len(data)} pictures")
        kind = getattr(importlib.import_module("model"), "Net")
        net = kind(**options).cuda()
        for images in DataLoader(data):
            net(images).sum().backward()


    if __name__ == "__main__":
        main()
"""


def test_a_program_is_run_past_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "settings").mkdir()
    (tmp_path / "settings/small.ini").write_text("width:48\ndepth:3\n")
    (tmp_path / "README.md").write_text("```\npython train.py -c <your file>\n```\n")
    said = made_with(tclint(tmp_path, train=OWN_CONFIGURATION))
    assert said.startswith("made with width = 48 and depth = 3, as train.py:31 passes them, run up to there")
    refused = tclint(tmp_path, "--no-run-programs", train=OWN_CONFIGURATION)
    assert "Net needs arguments (width, depth)" in refused.stdout


HARMFUL = """
    import os
    import pathlib
    import shutil
    import socket
    import subprocess
    import sys

    from torch.utils.data import DataLoader

    from model import Net

    pathlib.Path("made.txt").write_text("made")
    os.makedirs("runs/1")
    with open("kept.txt", "w") as file:
        file.write("spoilt")
    os.truncate("kept.txt", 0)
    os.remove("kept.txt")
    os.rename("kept.txt", "moved.txt")
    shutil.rmtree("kept")
    os.system("touch by_a_shell.txt")
    subprocess.run(["touch", "by_a_program.txt"])
    subprocess.run([sys.executable, "-c", "open('by_python.txt', 'w')"])
    socket.create_connection(("127.0.0.1", 9), timeout=1)
    sys.exit(3)
    os._exit(3)
    net = Net(**{key: len(key) * 16 for key in ("widthwidth"[:5], "depth")})
    data = []
"""


def test_a_program_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/file.txt").write_text("kept")
    (tmp_path / "kept.txt").write_text("kept")
    train = HARMFUL + textwrap.indent(LOOP, "    ")
    assert "width = 80 and depth = 80, as train.py" in made_with(tclint(tmp_path, train=train))
    assert (tmp_path / "kept.txt").read_text() == (tmp_path / "kept/file.txt").read_text() == "kept"
    names = {path.name for path in tmp_path.rglob("*") if "__pycache__" not in path.parts}
    assert names == {"kept", "file.txt", "kept.txt", "model.py", "train.py", "requirements.txt"}


FILL = """
class Words:
    def __init__(self):
        self.known = ["<pad>"]

    def append(self, word):
        self.known.append(word)


def fill(words):
    for word in open("words.txt"):
        words.append(word)


"""


@pytest.mark.parametrize(
    "data",
    [
        'words = {}\nfor word in open("words.txt"):\n    words[word] = len(words)\nwidth = len(words)',
        'words = ["<pad>"]\nwords.extend(open("words.txt"))\nwidth = len(words)',
        'width = 16\nif int(open("words.txt").read()) > 3:\n    width = 32',
        'width = 16\ntry:\n    width = int(open("words.txt").read())\nexcept ValueError:\n    width = 32',
        'with open("words.txt") as file:\n    width = len(file.read())',
        "width = 16\nwhile True:\n    width += 0",
        "words = Words()\nfill(words)\nwidth = len(words.known)",
        "words = [0]\nfill(words)\nwidth = len(words)",
    ],
)
def test_what_lacks_data_is_not_known(tmp_path: Path, data: str) -> None:
    train = f"from model import Net\nfrom torch.utils.data import DataLoader\nmake = [Net][0]\n{FILL}{data}\n"
    train += "net = make(**dict(width=width, depth=2))\ndata = []\n" + LOOP
    done = tclint(tmp_path, "--timeout", "8", train=train)
    assert "width = 16" not in done.stdout
    assert "width = 1 " not in done.stdout
    assert "width = 32" not in done.stdout
    assert "needs arguments (width, depth)" in done.stdout or "a guess" in done.stdout


def test_a_configurations_unknown_size_is_a_guess(tmp_path: Path) -> None:
    model = MODEL.replace("self, width, depth", "self, config").replace("range(depth)", "range(config.depth)")
    model = model.replace("nn.Linear(width, width)", "nn.Linear(config.width, config.width)")
    model = model.replace(
        "self.layers =", "self.table = nn.Embedding(config.words, config.width)\n        self.layers ="
    )
    model = model.replace("self.layers(x)", "self.layers(self.table(x))")
    train = """
        import json
        import types

        import model
        from torch.utils.data import DataLoader

        options = types.SimpleNamespace(**json.loads('{"width": 64, "depth": 2}'))
        options.words = len(json.load(open("words.json")))
        data = []
        net = vars(model)["Net"](options)
    """
    done = tclint(tmp_path, model=model, train=train + textwrap.indent(LOOP, "        "))
    text = " ".join(done.stdout.split())
    assert "config.words = 32768, a guess" in text
    assert "2.11 M parameters" in text  # two layers of 64, and the table


CALLED = """
    import pathlib

    import torch
    from torch.utils.data import DataLoader

    import model


    class Rows:
        def __init__(self):
            self.rows = pathlib.Path("rows.txt").read_text().split(",")

        def __len__(self):
            return len(self.rows)

        def __getitem__(self, at):
            return torch.full((7, 48), float(self.rows[at])), {"length": torch.tensor(at)}


    data = DataLoader(Rows(), batch_size=5)
    sizes = {word[2:]: int(word[:2]) for word in pathlib.Path("sizes.txt").read_text().split()}
    net = model.Net(**sizes)
    for rows, extra in data:
        net(rows.cuda()).sum().backward()
"""


def test_a_program_that_has_its_data_calls_the_model(tmp_path: Path) -> None:
    (tmp_path / "sizes.txt").write_text("48width 02depth")
    (tmp_path / "rows.txt").write_text(",".join(map(str, range(12))))
    said = made_with(tclint(tmp_path, train=CALLED))
    assert "as train.py:23 passes them, run up to there, and called as there" in said
    done = tclint(tmp_path, train=CALLED)
    assert "input x: float32 5x7x48" in " ".join(done.stdout.split())
    given = tclint(tmp_path, "--input", "x=float32[2,48]", train=CALLED)
    assert "input x: float32 2x48" in " ".join(given.stdout.split())
    (tmp_path / "rows.txt").unlink()
    assert "and called as there" not in made_with(tclint(tmp_path, train=CALLED))


def test_a_guess_is_settled_by_the_program(tmp_path: Path) -> None:
    model = MODEL.replace("nn.Linear(width, width)", "nn.Conv2d(width, width, 3, padding=1)")
    train = """
        import torch

        from model import Net

        net = Net(8, 2)
        with torch.no_grad():
            net(torch.zeros(1, 8, 16, 16))  # whether it runs at all
        pictures = torch.load("pictures.pt")
        for batch in pictures.split(4):
            net(batch).sum().backward()
    """
    torch.save(torch.zeros(9, 8, 72, 40), tmp_path / "pictures.pt")
    done = tclint(tmp_path, model=model, train=train)
    assert "input x: float32 4x8x72x40" in " ".join(done.stdout.split())
    assert "a guess" not in done.stdout
    (tmp_path / "pictures.pt").unlink()
    assert "every figure rests on a guess" in tclint(tmp_path, model=model, train=train).stdout


def test_a_tests_small_model_does_not_stand_for_the_trained_one(tmp_path: Path) -> None:
    model = MODEL.replace("return self.layers(x)", "return self.layers(x.view(-1, 16))")
    test = "from model import Net\nimport torch\n\nNet(16, 1)(torch.zeros(8, 16)).sum().backward()\n"
    (tmp_path / "sizes.txt").write_text("49width 02depth")
    done = tclint(tmp_path, model=model, train=CALLED, test_net=test)
    assert done.returncode == 2
    assert "made with width = 49 and depth = 2, as train.py:23 does" in " ".join(done.stdout.split())


def test_the_first_of_several_commands_is_said(tmp_path: Path) -> None:
    (tmp_path / "settings").mkdir()
    (tmp_path / "settings/small.ini").write_text("width:48\ndepth:3\n")
    readme = tmp_path / "README.md"
    readme.write_text("```\npython train.py small\n```\n")
    said = made_with(tclint(tmp_path, train=OWN_CONFIGURATION))
    assert "run up to there as `train.py small`; --arg" in said
    readme.write_text("```\npython train.py small\npython train.py large\n```\n")
    done = tclint(tmp_path, train=OWN_CONFIGURATION)
    first = " ".join(done.stdout.split())
    assert first.startswith("model.py:Net: every figure rests on a guess: made with width = 48 and depth = 3")
    assert "as `train.py small`, by the first of several commands (README.md)" in first


REGISTERED = """
    import argparse
    import json

    from torch.utils.data import DataLoader

    import model

    PARTS = {}


    def register(cls):
        PARTS[cls.__name__.lower()] = cls
        return cls


    register(model.Net)
    parser = argparse.ArgumentParser()
    parser.add_argument("-c", "--config", default="net.json")
    options = json.load(open(parser.parse_args().config))["net"]
    net = PARTS[options.pop("kind")](**options)
    data = []
"""


def test_a_registry_makes_what_a_default_configuration_names(tmp_path: Path) -> None:
    (tmp_path / "net.json").write_text('{"net": {"kind": "net", "width": 56, "depth": 2}}')
    train = REGISTERED + textwrap.indent(LOOP, "    ")
    assert made_with(tclint(tmp_path, train=train)).startswith("made with width = 56 and depth = 2")


MAKES_OPTIONS = MODEL.replace("width, depth", "options").replace("range(depth)", "range(options.depth)")
MAKES_OPTIONS = MAKES_OPTIONS.replace("nn.Linear(width, width)", "getattr(nn, options.kind)(8, 8)")
OPTIONS = """
    import numpy
    from torch.utils.data import DataLoader

    from model import Net


    class Options:
        def __init__(self, folder):
            self.depth = 2
            self.kind = str(numpy.load(folder + "/kinds.npy")[0])


    class Keyed(dict):
        def __init__(self, text):
            super().__init__(__import__("json").load(open(text)))
            self.__dict__ = self


    net = Net({made})
    data = []
"""


@pytest.mark.parametrize(
    ("made", "missing"), [("Options('words')", "words/kinds.npy"), ("Keyed('net.json')", "net.json")]
)
def test_files_that_a_configuration_lacks_are_named(tmp_path: Path, made: str, missing: str) -> None:
    train = OPTIONS.replace("{made}", made) + textwrap.indent(LOOP, "    ")
    done = tclint(tmp_path, model=MAKES_OPTIONS, train=train)
    assert done.returncode == 2
    said = " ".join(done.stdout.split())
    assert f"The program did not find {missing}." in said
    assert "options = {}" not in said


def test_a_tests_model_is_said_to_be_one(tmp_path: Path) -> None:
    test = "import numpy\nfrom model import Net\n\n\ndef test_net():\n    assert Net(16, 1) is not None\n"
    done = tclint(tmp_path, test_net=test)
    first = " ".join(done.stdout.split())
    assert first.startswith("model.py:Net: every figure rests on a guess: made with width = 16 and depth = 1")
    assert "although test_net.py:6 is a test, whose model may be small" in first


PAIRS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 4)

    def forward(self, nodes, edges):
        rows, columns = edges
        return self.layer(nodes[rows] - nodes[columns])

def ring(count):
    return [torch.LongTensor(range(count)), torch.LongTensor([*range(1, count), 0])]

if __name__ == "__main__":
    count = 12
    train_for_hours()
    edges = ring(count)
    nodes = torch.rand(count, 16)
    print(Net().cuda()(nodes.cuda(), edges=edges))
"""


def test_a_models_own_example_is_run_where_no_guess_fits(tmp_path: Path) -> None:
    done = tclint(tmp_path, model=PAIRS)
    first = " ".join(done.stdout.split())
    assert first.startswith("model.py:Net: every figure rests on a guess: made as model.py:22 passes them")
    assert "although it only shows how to use it, and called as there" in first
    assert "input nodes: float32 12x16 input edges[0]: int64 12 input edges[1]: int64 12" in first

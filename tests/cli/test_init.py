"""`tclint init`: what it finds, what it writes, and that what was there stays."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from tclint.cli import init as init_command
from tclint.cli.main import cli
from tclint.config.pyproject import load_config
from tclint.config.settings import SETTINGS_BY_KEY, Settings
from tclint.core.toml import parse_toml

MODEL = """\
import torch.nn as nn
raise SystemExit("this must never run")

class Net(nn.Module):
    def __init__(self, width): ...
    def forward(self, x): ...

def build_model() -> nn.Module: ...
def get_model(): return load()
"""


@pytest.fixture(autouse=True)
def _in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def init(*arguments: str, answers: str | None = None) -> Result:
    return CliRunner().invoke(cli, ["init", *arguments], input=answers)


def declared(file: Path) -> list[str]:
    return [model.target for model in load_config(file).models]


def test_a_model_is_declared_once(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "import torch.nn as nn\n\n"
        "class Net(nn.Module):\n    def __init__(self, width=8): ...\n    def forward(self, x): ...\n\n"
        "class Alone(nn.Module):\n    def forward(self, x): ...\n\n"
        "class Tuned(nn.Module):\n    def forward(self, x): ...\n\n"
        'def build():\n    """Builds it."""\n    return Net()\n\n'
        "def build_wide():\n    return Net(64)\n\n"
        "def build_tuned():\n    model = Tuned()\n    model.eval()\n    return model\n"
    )
    (tmp_path / "zoo.py").write_text("from net import build\n\ndef build_model():\n    return build()\n")
    init()
    assert declared(tmp_path / "pyproject.toml") == [
        "net.py:build",
        "net.py:build_wide",
        "net.py:build_tuned",
        "net.py:Alone",
    ]
    assert "zoo.py" not in (tmp_path / "pyproject.toml").read_text()


def test_declares_models_and_comments_what_needs_a_choice(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_model.py").write_text(MODEL)
    result = init()
    assert (result.exit_code, result.stderr) == (0, "")
    assert "traces the 1 declared model" in result.stdout
    file = tmp_path / "pyproject.toml"
    assert declared(file) == ["model.py:build_model"]
    text = file.read_text()
    assert '# { target = "model.py:Net", arg = ["width=..."] },' in text
    assert '# "model.py:get_model",' in text
    assert "test_model" not in text


def test_defaults_are_not_written_as_choices(tmp_path: Path) -> None:
    init()
    settings = load_config(tmp_path / "pyproject.toml")
    assert (settings.gpus, settings.explicit & {"gpus"}) == (Settings().gpus, set())


def test_every_commented_key_works_when_it_is_uncommented(tmp_path: Path) -> None:
    init("--gpu", "h100,a10")
    file = tmp_path / "pyproject.toml"
    text = re.sub(r"(?m)^# ([a-z-]+ = )", r"\1", file.read_text())
    file.write_text(text)
    settings = load_config(file)
    assert settings.gpus == ("h100", "a10")
    assert settings.explicit >= {SETTINGS_BY_KEY[name].field for name in init_command._SHOWN_KEYS}


@pytest.mark.parametrize(
    "before", [b"", b'[project]\nname = "a"\n', b'[project]\r\nname = "a"', b"\xef\xbb\xbfa = 1\n"]
)
def test_what_was_there_stays(tmp_path: Path, before: bytes) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_bytes(before)
    assert init().exit_code == 0
    after = file.read_bytes()
    assert after.startswith(before)
    assert (b"\r\n" in after) == (b"\r\n" in before)
    assert after.count(b"\n") == after.count(b"\r\n") or b"\r\n" not in after
    load_config(file)


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("[tool.tclint]\n", "has a [tool.tclint] section already"),
        ("[tool\n", "not valid TOML"),
        ("tool = { a = 1 }\n", "does not take a [tool.tclint] section"),
    ],
)
def test_refuses_in_one_sentence_and_writes_nothing(tmp_path: Path, before: str, said: str) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_text(before)
    result = init()
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert file.read_text() == before


def test_an_unknown_gpu_is_refused(tmp_path: Path) -> None:
    result = init("--gpu", "a1000")
    assert result.exit_code == 2
    assert not (tmp_path / "pyproject.toml").exists()


def test_prints_without_writing(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    result = init("--print")
    assert "model.py:build_model" in result.stdout
    assert not (tmp_path / "pyproject.toml").exists()


def test_many_models_are_left_to_choose(tmp_path: Path) -> None:
    classes = "".join(f"class N{n}(nn.Module):\n    def forward(self, x): ...\n" for n in range(40))
    (tmp_path / "zoo.py").write_text(f"import torch.nn as nn\n{classes}")
    init()
    assert len(declared(tmp_path / "pyproject.toml")) == init_command.DECLARED_AT_MOST
    assert "# 10 more: 'tclint models .' lists them" in (tmp_path / "pyproject.toml").read_text()


@given(st.text())
def test_any_text_is_a_toml_value(text: str) -> None:
    data = text.encode("utf-8", "replace").decode()
    assert parse_toml(f"a = {init_command._toml(data)}")["a"] == json.loads(json.dumps(data))

"""--arg: values, calls, files and fields; and configurations that make themselves."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tclint.core.errors import TargetError, UsageError
from tclint.tracing.worker.target_arguments import literal, parse_arguments, resolve
from tclint.tracing.worker.targets import LoadedTarget, load_target, parse_target

_GPT = """
from dataclasses import dataclass
from torch import nn

@dataclass(frozen=True)
class GPTConfig:
    n_layer: int = 12
    activation: type = nn.ReLU

@dataclass
class OtherConfig:
    depth: int = 3

CONFIGS = {"small": GPTConfig(n_layer=2)}
BASE = GPTConfig(n_layer=3)

def scaled(value):
    return value

class GPT:
    def __init__(self, config, flag=False):
        self.config = config
        self.flag = flag

class Annotated:
    def __init__(self, what: "OtherConfig | None"):
        self.config = what

class Plain:
    def __init__(self, width, name="a"):
        self.width, self.name = width, name

class MinGPT:
    @staticmethod
    def get_default_config():
        from types import SimpleNamespace
        return SimpleNamespace(model_type="gpt", n_layer=None)

    def __init__(self, config):
        self.config = config
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    name = f"gpt_{abs(hash(str(tmp_path)))}"
    (tmp_path / f"{name}.py").write_text(_GPT)
    return tmp_path


def _load(attribute: str, *arguments: str) -> LoadedTarget:
    (file,) = Path.cwd().glob("gpt_*.py")
    return load_target(parse_target(f"{file.name}:{attribute}"), parse_arguments(arguments))


def _built(attribute: str, *arguments: str) -> Any:
    return _load(attribute, *arguments).function()


def _error(attribute: str, *arguments: str) -> str:
    with pytest.raises(TargetError) as caught:
        _load(attribute, *arguments)
    return str(caught.value)


@pytest.mark.usefixtures("folder")
def test_a_configuration_is_made_with_its_defaults_and_said() -> None:
    loaded = _load("GPT")
    assert loaded.function().config.n_layer == 12
    assert [assumption.what for assumption in loaded.assumptions] == [
        "config = GPTConfig() with its defaults; --arg config.FIELD=VALUE sets a field"
    ]


@pytest.mark.usefixtures("folder")
def test_the_annotation_names_the_configuration() -> None:
    assert _built("Annotated").config.depth == 3


@pytest.mark.usefixtures("folder")
def test_a_class_may_have_its_own_way_to_its_configuration() -> None:
    built = _built("MinGPT", "config.model_type=gpt-mini", "config.n_layer=null")
    assert (built.config.model_type, built.config.n_layer) == ("gpt-mini", None)


@pytest.mark.usefixtures("folder")
def test_a_configuration_can_be_called() -> None:
    loaded = _load("GPT", "config=GPTConfig(n_layer=6, activation=nn.GELU)", "flag=true")
    built = loaded.function()
    assert (built.config.n_layer, built.config.activation.__name__, built.flag) == (6, "GELU", True)
    assert loaded.assumptions == ()


@pytest.mark.usefixtures("folder")
def test_fields_are_set_in_frozen_classes_too() -> None:
    assert _built("GPT", "config.n_layer=6").config.n_layer == 6
    assert _built("GPT", "config=GPTConfig()", "config.n_layer=7").config.n_layer == 7


@pytest.mark.usefixtures("folder")
def test_a_value_may_be_what_the_file_has() -> None:
    assert _built("GPT", "config=CONFIGS['small']").config.n_layer == 2
    assert _built("GPT", "config=BASE").config.n_layer == 3
    assert _built("Plain", "width=8", "name=BASE").name == "BASE"  # a text, as its default is
    assert _built("GPT", "config=scaled").config == "scaled"  # functions share names with texts: 'relu'
    assert _error("GPT", "config=CONFIGS['smal']") == "--arg config: CONFIGS['smal'] raised KeyError: 'smal'."
    assert "has no 'CONFIG'. Did you mean 'CONFIGS'?" in _error("GPT", "config=CONFIG['small']")
    assert "nn.GELLU raised AttributeError" in _error("Plain", "width=nn.GELLU")
    assert _built("GPT", "config=weights.pt").config == "weights.pt"


@pytest.mark.usefixtures("folder")
def test_a_field_may_be_what_a_name_leads_to() -> None:
    assert _built("GPT", "config.activation=nn.GELU").config.activation.__name__ == "GELU"


def test_the_default_of_a_callable_is_left_as_it_is() -> None:
    default = SimpleNamespace(width=8, parts={"depth": 2})

    def build(options: Any = default) -> Any:
        return options

    specs = parse_arguments(("options.width=16", "options.parts.depth=4"))
    values, _ = resolve(specs, build, ModuleType("here"))
    assert (values["options"].width, values["options"].parts) == (16, {"depth": 4})
    assert (default.width, default.parts) == (8, {"depth": 2})


def test_models_of_libraries_have_plain_arguments() -> None:
    pytest.importorskip("torch")
    with pytest.raises(
        TargetError, match=r"--arg config\.depth sets a field, and the arguments of timm:resnet18"
    ):
        load_target(parse_target("timm:resnet18"), parse_arguments(("config.depth=3",)))


@pytest.mark.usefixtures("folder")
def test_namespaces_need_no_import() -> None:
    assert vars(_built("Plain", "width=Namespace(small=False, dropout=0.5)").width) == {
        "small": False,
        "dropout": 0.5,
    }


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[2 * n for n in range(3)]", [0, 2, 4]),
        ("16 * 4", 64),
        ("[GPTConfig.n_layer] * 2", [12, 12]),
        ("[GPTConfig(n_layer=1 + 1).n_layer, true]", [2, True]),
        ("json.loads('[1]')", [1]),
        ("GPTConfig().activation.__name__", "ReLU"),
        ("dict(zip('ab', range(2)))", {"a": 0, "b": 1}),
    ],
)
def test_expressions_are_evaluated(text: str, value: Any) -> None:
    assert _built("Plain", f"width={text}").width == value


@pytest.mark.usefixtures("folder")
def test_an_expression_may_give_an_array() -> None:
    array = _built("Plain", "width=__import__('numpy').array([6041, 3953])").width
    assert array.tolist() == [6041, 3953]


@pytest.mark.parametrize(
    "text", ["relu", "resnet.v1", "a+b", "model.yaml", "nn", "min-max", "[min, max]", "a,b", "gpt-2"]
)
@pytest.mark.usefixtures("folder")
def test_other_text_stays_text(text: str) -> None:
    assert _built("Plain", "width=1", f"name={text}").name == text


@pytest.mark.usefixtures("folder")
def test_a_class_of_the_file_is_what_its_name_means() -> None:
    assert _built("Plain", "width=OtherConfig").width.__name__ == "OtherConfig"
    assert _built("Plain", "width=1", "name=OtherConfig").name == "OtherConfig"  # its default is a text


@pytest.mark.usefixtures("folder")
def test_a_dotted_name_that_leads_somewhere_is_what_it_names() -> None:
    assert _built("Plain", "width=1", "name=nn.GELU").name.__name__ == "GELU"


@pytest.mark.parametrize(
    ("name", "text"), [("c.json", '{"n_layer": 5}'), ("c.toml", "n_layer = 5"), ("c.yaml", "n_layer: 5")]
)
def test_files_fill_the_class_or_are_options(folder: Path, name: str, text: str) -> None:
    if name == "c.yaml":
        pytest.importorskip("yaml")
    if name == "c.toml" and sys.version_info < (3, 11):
        pytest.importorskip("tomli")
    (folder / name).write_text(text)
    assert type(_built("GPT", f"config=@{name}").config).__name__ == "GPTConfig"
    options = _built("Plain", f"width=@{name}").width
    assert options.n_layer == options["n_layer"] == 5
    assert _built("Plain", f"width=@{name}", "width.n_layer=4").width.n_layer == 4


def test_a_section_of_a_file_is_an_argument_or_holds_them(folder: Path) -> None:
    (folder / "c.json").write_text('{"train": {"lr": 1}, "model": {"net": {"n_layer": 5}}}')
    assert _built("Plain", "width=@c.json:model.net").width.n_layer == 5
    assert _built("GPT", "config=@c.json:model.net").config.n_layer == 5
    (folder / "d.json").write_text('{"arguments": {"width": 7}}')
    assert _built("Plain", "@d.json:arguments").width == 7
    assert _built("Plain", "@d.json:arguments", "width=3").width == 3
    assert "'c.json' has no section 'modl'. Did you mean 'model'?" in _error("Plain", "width=@c.json:modl")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["config=GPTConfg()"], r"--arg config: gpt_\d+ has no 'GPTConfg'. Did you mean 'GPTConfig'?"),
        (["config=GPTConfig(depth=1)"], "GPTConfig(depth=1) raised TypeError"),
        (["config=nowhere.at_all(1)"], "there is no 'nowhere.at_all' in "),
        (
            ["config.n_layr=1"],
            "GPTConfig has no 'n_layr'; it has n_layer, activation. Did you mean 'n_layer'?",
        ),
        (["config=@none.json"], "--arg config: 'none.json' cannot be read: No such file or directory."),
        (["config=GPTConfig()", "nothing.x=1"], "sets a field of 'nothing', which is not given"),
        (["config=3", "config.x=1"], "--arg config.x: int has no 'x'."),
    ],
)
@pytest.mark.usefixtures("folder")
def test_what_is_wrong_is_one_sentence(arguments: list[str], message: str) -> None:
    found = _error("GPT", *arguments)
    assert message in re.sub(r"gpt_\d+", r"gpt_\\d+", found)
    assert "\n" not in found


def test_a_file_that_is_no_mapping(folder: Path) -> None:
    (folder / "c.json").write_text("[1]")
    assert "'c.json' holds no keys" in _error("GPT", "config=@c.json")
    (folder / "c.json").write_text("{")
    assert "'c.json' cannot be read: Expecting property name" in _error("GPT", "config=@c.json")
    (folder / "c.json").write_text('{"depth": 1}')
    assert "GPTConfig does not take what 'c.json' holds" in _error("GPT", "config=@c.json")


@pytest.mark.parametrize("text", ["config", "=3", "a-b=3", "config.=3", ".x=1"])
def test_malformed(text: str) -> None:
    with pytest.raises(UsageError, match="is not an argument: write NAME=VALUE"):
        parse_arguments((text,))


def test_given_twice() -> None:
    with pytest.raises(UsageError, match=r"the argument 'config\.n_layer' was given twice"):
        parse_arguments(("config.n_layer=1", "config.n_layer=2"))


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), st.lists, max_leaves=5))
def test_literals_are_read_as_they_are_written(value: Any) -> None:
    assert literal(repr(value)) == value


@given(st.text(max_size=30))
def test_any_text_is_a_value(text: str) -> None:
    parse_arguments((f"name={text}",))
    literal(text)


@pytest.mark.usefixtures("folder")
def test_a_dict_is_read_by_key_and_by_attribute() -> None:
    config = _built("GPT", "config={'model': {'width': 8}, 'depths': [{'n': 2}]}").config
    assert config["model"]["width"] == config.model.width == 8
    assert config.depths[0].n == 2

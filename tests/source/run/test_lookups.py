"""What programs look up by texts: files, configurations, names and registries."""

from __future__ import annotations

from pathlib import Path

import pytest

from tclint.source.project import memory
from tests.support.programs import probed, probed_in, program_of


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a configuration and a class."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.yaml").write_text("width: 512\nmodel: {name: Net, depth: 3}\n", "utf-8")
    (tmp_path / "train.json").write_text('{"width": 256}', "utf-8")
    (tmp_path / "nets.py").write_text("class Net:\n    size = 7\n", "utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("f'{2}x{name}'", "'2xnet'"),
        ("f'{{{name}}}\\t'", "'{net}\\t'"),
        ("f'{width:.1f}'", "?"),
        ("f'{name!r}'", "?"),
        ("'%s_%d' % (name, 3)", "'net_3'"),
        ("'%d' % unknown", "?"),
        ("'{}-{key}'.format(name, key=4)", "'net-4'"),
        ("', '.join(['a', name])", "'a, net'"),
        ("os.path.join('configs', name + '.yaml')", "'configs/net.yaml'"),
        ("os.path.splitext('a/b.yaml')", "tuple('a/b', '.yaml')"),
        ("os.path.basename('a/b.yaml')", "'b.yaml'"),
        ("Path('a') / name", "'a/net'"),
        ("(Path('a/b.yaml')).stem", "'b'"),
        ("Path('a/b.yaml').parent", "'a'"),
        ("__file__", "'/nowhere/program.py'"),
        ("os.path.join(unknown, 'a')", "?"),
        ("f'{option}.yaml'", "'small.yaml' | ?"),
        ("re.sub('^n', 'm', name)", "'met'"),
        ("re.sub('(n+)+$', 'm', name)", "?"),
    ],
)
def test_texts_are_computed_where_all_parts_are_known(written: str, found: str) -> None:
    program = f"""
        import argparse, os, re
        from pathlib import Path

        parser = argparse.ArgumentParser()
        parser.add_argument("--option", default="small")
        option = parser.parse_args().option
        name, width = "net", 1.5
        probe({written})
    """
    assert probed(program) == [found]


@pytest.mark.parametrize(
    "read",
    [
        "yaml.safe_load(open('train.yaml'))",
        "yaml.load(open('train.yaml').read(), Loader=yaml.FullLoader)",
        "yaml.safe_load(Path('train.yaml').read_text())",
        "yaml.safe_load((Path(__file__).parent / 'train.yaml').open())",
        "OmegaConf.load('train.yaml')",
        "EasyDict(yaml.safe_load(open('train.yaml')))",
    ],
)
def test_configuration_files_are_read(project: Path, read: str) -> None:
    text = f"""
import yaml
from pathlib import Path
from easydict import EasyDict
from omegaconf import OmegaConf

config = {read}
probe((config["width"], config["model"]["depth"]))
"""
    assert probed_in(project, "train.py", text) == ["tuple(512, 3)"]


def test_function_of_a_name_is_asked_for_each_of_several(project: Path) -> None:
    (project / "others.py").write_text("class Other:\n    size = 9\n", "utf-8")
    text = """
import importlib

def found(name):
    parts = name.split(".")
    return getattr(importlib.import_module(".".join(parts[:-1])), parts[-1])

probe(found("nets.Net" if FLAG else "others.Other").size)
"""
    assert probed_in(project, "train.py", text) == ["7 | 9"]


def test_module_that_is_imported_twice_is_one(project: Path) -> None:
    text = "import nets\nimport nets\nprobe(nets.Net())"
    assert probed_in(project, "train.py", text) == ["Net"]


def test_json_is_read_from_a_file_and_not_from_any_text(project: Path) -> None:
    text = """
import json

with open("train.json") as file:
    probe(json.load(file)["width"])
probe(json.loads(answer())["width"])
"""
    assert probed_in(project, "train.py", text) == ["256", "?"]


def test_configuration_that_is_an_options_default_is_read(project: Path) -> None:
    text = """
import argparse, yaml

parser = argparse.ArgumentParser()
parser.add_argument("--config", default="train.yaml")
probe(yaml.safe_load(open(parser.parse_args().config))["width"])
"""
    assert probed_in(project, "train.py", text) == ["512"]


_REQUIRED = """
import argparse, yaml

parser = argparse.ArgumentParser()
parser.add_argument("config")
config = yaml.safe_load(open(parser.parse_args().config))
probe(config["width"])
probe(config["model"]["name"])
probe(config["model"]["depth"])
probe(config.get("rate", 1))
"""


def test_configuration_of_the_command_line_is_one_of_those_that_hold_what_is_read(project: Path) -> None:
    assert probed_in(project, "train.py", _REQUIRED) == ["512", "'Net'", "3", "1"]
    configs = project / "configs"
    configs.mkdir()
    (configs / "large.yml").write_text("width: 1024\nmodel: {name: Net}\nrate: 2\n", "utf-8")
    (configs / "no_model.yaml").write_text("width: 64\nother: model\n", "utf-8")
    (configs / "test_small.yaml").write_text("width: 8\nmodel: {name: Tiny, depth: 1}\n", "utf-8")
    memory.forget()
    assert probed_in(project, "train.py", _REQUIRED) == ["1024 | 512", "'Net'", "3 | ?", "2 | ?"]


def test_file_of_which_one_key_is_read_may_be_any(project: Path) -> None:
    text = _REQUIRED.replace('probe(config["model"]["name"])', "").replace('config["model"]["depth"]', "0")
    assert probed_in(project, "train.py", text)[0] == "?"


def test_file_that_only_unseen_code_names_may_be_any(project: Path) -> None:
    text = _REQUIRED.replace("parser.parse_args().config", "elsewhere()")
    assert probed_in(project, "train.py", text)[0] == "?"


def test_later_configurations_win() -> None:
    program = """
        from omegaconf import OmegaConf

        base = OmegaConf.create({"width": 1, "model": {"depth": 2, "name": "net"}})
        merged = OmegaConf.merge(base, {"model": {"depth": 3}}, OmegaConf.from_cli())
        probe((merged.width, merged.model.depth, merged.model.name, base.model.depth))
        probe(OmegaConf.merge(base, unknown).width)
    """
    assert probed(program) == ["tuple(1, 3, 'net', 2)", "?"]


def test_option_without_default_is_what_all_commands_on_pages_pass(project: Path) -> None:
    (project / "README.md").write_text(
        "It's trained by\n\n    python train.py -c train.yaml --resume last.pt --rate 3\n\nor by\n\n"
        "```\ntorchrun --nproc_per_node=2 train.py --resume <your file> --config train.yaml\n```\n",
        "utf-8",
    )
    text = """
import argparse, yaml

parser = argparse.ArgumentParser()
parser.add_argument("-c", "--config", required=True)
parser.add_argument("--resume")
parser.add_argument("--rate", type=int, default=1)
options = parser.parse_args()
probe(options.config)
probe(options.resume)
probe(options.rate)
probe(yaml.safe_load(open(options.config))["width"])
"""
    assert probed_in(project, "train.py", text) == ["'train.yaml' | ?", "None | ?", "1 | ?", "512"]


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("Net.__name__", "'Net'"),
        ("Net().__class__.size", "7"),
        ("type(Net()).__name__", "'Net'"),
        ("eval('Net').size", "7"),
        ("eval('Net + 1')", "?"),
        ("pydoc.locate('nets.Net').size", "7"),
        ("sys.modules[__name__].Net.size", "7"),
        ("sys.modules['nets'].Net.size", "7"),
        ("({'a': 1} | {'a': 2})['a']", "2"),
        ("inspect.isclass(Net)", "True"),
        ("inspect.isfunction(Net)", "False"),
        ("inspect.isclass(unknown)", "?"),
        ("inspect.getfullargspec(build).args", "list('width', 'depth')"),
        ("inspect.getfullargspec(build).defaults", "tuple(3)"),
    ],
)
def test_python_objects_tell_of_themselves(project: Path, written: str, found: str) -> None:
    text = f"""
import inspect, pydoc, sys
from nets import Net

def build(width, depth=3, **options):
    pass

probe({written})
"""
    assert probed_in(project, "train.py", text) == [found]


def test_what_is_written_into_the_dict_of_an_object_is_an_attribute() -> None:
    program = """
        class Options:
            def __init__(self):
                self.width = 1

        options = Options()
        vars(options).update({"width": 2, "depth": 3})
        options.__dict__["rate"] = 4
        probe((options.width, options.depth, options.rate))
        probe(dict(**vars(options))["width"])
    """
    assert probed(program) == ["tuple(2, 3, 4)", "2"]


_REGISTRY = """
class Registry:
    def __init__(self):
        self.entries = {}

    def register(self, name=None):
        def enter(item):
            self.entries[name or item.__name__] = item
            return item
        return enter

    def get(self, name):
        return self.entries.get(name)

MODELS = Registry()
"""


def test_modules_that_register_what_is_looked_up_have_been_imported(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "registry.py").write_text(_REGISTRY, "utf-8")
    package = tmp_path / "models"
    package.mkdir()
    (package / "__init__.py").write_text("from . import big\n", "utf-8")
    entry = "from registry import MODELS\n\n@MODELS.register({})\nclass {}:\n    size = {}\n"
    (package / "big.py").write_text(entry.format("", "Big", 9), "utf-8")
    (tmp_path / "named.py").write_text(entry.format("'tiny'", "Any", 1), "utf-8")
    (tmp_path / "other.py").write_text(entry.format("", "Other", 5), "utf-8")
    text = """
import models
import named
from registry import MODELS

probe(MODELS.get("Big").size)
probe("tiny" in MODELS.entries)
probe(MODELS.entries["tiny"].size)
probe(MODELS.get("Other"))
"""
    # Nothing imports other.py.
    assert probed_in(tmp_path, "train.py", text) == ["9", "True", "1", "None"]


def test_modules_beside_a_package_that_imports_them_by_name_register_too(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "registry.py").write_text(_REGISTRY, "utf-8")
    package = tmp_path / "models"
    package.mkdir()
    loads = "import importlib, os\nfor name in os.listdir('models'):\n    importlib.import_module(name)\n"
    (package / "__init__.py").write_text(loads, "utf-8")
    entry = "from registry import MODELS\n\n@MODELS.register()\nclass Big:\n    size = 9\n"
    (package / "big.py").write_text(entry, "utf-8")
    text = "import models\nfrom registry import MODELS\n\nprobe(MODELS.get('Big').size)\n"
    assert probed_in(tmp_path, "train.py", text) == ["9"]


def test_timm_makes_models_that_the_project_registers() -> None:
    program = """
        import argparse
        from timm.models import create_model
        from timm.models.registry import register_model

        parser = argparse.ArgumentParser()
        parser.add_argument("--model", default="small")

        @register_model
        def small(pretrained=False, width=4):
            return width

        probe(create_model(parser.parse_args().model, width=8))
        probe(create_model("resnet50", pretrained=True))
    """
    assert probed(program) == ["8", "module"]


def test_the_program_itself_may_use_most_events() -> None:
    part = "def part{0}(x):\n" + "    x = x + 1\n" * 40 + "    return x\n"
    calls = "".join(f"part{number}(torch.ones(2))\n" for number in range(3))
    text = "import torch\n" + "".join(map(part.format, range(3))) + calls
    assert not program_of(text, events=120).record.cut


def test_loops_over_nothing_do_not_run() -> None:
    program = """
        for item in ():
            probe("never")
        items = []
        fill(items)
        for item in items:
            probe("perhaps")
    """
    assert probed(program) == ["'perhaps'"]


_NESTED = "".join(f"a{number}: {number}\n" for number in range(40)) + (
    "model:\n" + "".join(f"  k{number}: {number}\n" for number in range(12)) + "  sub: {x: 9, deep: {y: 8}}\n"
)


def test_configurations_are_converted_key_by_key(project: Path) -> None:
    (project / "big.yaml").write_text(_NESTED, "utf-8")
    text = """
import argparse, yaml

def as_namespace(config):
    made = argparse.Namespace()
    for key, value in config.items():
        setattr(made, key, as_namespace(value) if isinstance(value, dict) else value)
    return made

config = as_namespace(yaml.safe_load(open("big.yaml")))
probe((config.a39, config.model.k11, config.model.sub.x, config.model.sub.deep.y))
"""
    assert probed_in(project, "train.py", text) == ["tuple(39, 11, 9, 8)"]


def test_configurations_are_merged_key_by_key(project: Path) -> None:
    (project / "big.yaml").write_text(_NESTED, "utf-8")
    text = """
import yaml

def merge(into, other):
    for key in other:
        if key in into and isinstance(into[key], dict) and isinstance(other[key], dict):
            merge(into[key], other[key])
        else:
            into[key] = other[key]
    return into

config = merge(yaml.safe_load(open("big.yaml")), {"a1": 7, "model": {"k1": 6, "sub": {"deep": {"y": 5}}}})
probe((config["a1"], config["a2"], config["model"]["k1"], config["model"]["sub"]["deep"]["y"]))
"""
    assert probed_in(project, "train.py", text) == ["tuple(7, 2, 6, 5)"]


def test_what_a_class_lacks_is_what_the_program_says_instead() -> None:
    program = """
        import torch

        class Net(torch.nn.Module):
            shared = 1

        probe((getattr(Net, "shared", 2), getattr(Net, "other", 3), hasattr({}, "__dict__")))
    """
    assert probed(program) == ["tuple(1, 3, False)"]


def test_modules_are_found_by_the_classes_in_them(project: Path) -> None:
    text = """
import importlib, sys
from nets import Net

probe(getattr(importlib.import_module(Net.__module__), "Net").size)
probe(sys.modules[Net.__module__].Net.size)
"""
    assert probed_in(project, "train.py", text) == ["7"]


@pytest.mark.parametrize(
    ("option", "found"),
    [
        ("'--net', default='wide'", ["64 | ?"]),
        ("'--net'", ["64 | 8"]),
        ("'--net', default='removed'", ["64 | 8"]),
    ],
)
def test_a_dict_that_lacks_the_default_of_an_option_is_asked_for_another_key(
    option: str, found: list[str]
) -> None:
    text = f"""
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument({option})
        probe({{"small": 8, "wide": 64}}[parser.parse_args().net])
    """
    assert probed(text) == found


def test_a_dict_of_the_pairs_of_one_of_several_things_has_their_values() -> None:
    text = """
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--net")
        sizes = {"small": {"width": 8}, "wide": {"width": 64}}[parser.parse_args().net]
        probe(dict(sizes.items())[unknown])
    """
    assert probed(text) == ["64 | 8"]

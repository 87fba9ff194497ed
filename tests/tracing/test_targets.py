"""Targets that cannot be loaded, each explained in one sentence; and those that can."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch  # noqa: F401 - before the fixture below, or it is imported twice, which crashes

from tclint.core.errors import TargetError
from tclint.tracing.worker.target_arguments import parse_arguments
from tclint.tracing.worker.targets import Target, load_target, parse_target


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    path, finders, modules = list(sys.path), list(sys.meta_path), set(sys.modules)
    yield tmp_path
    sys.path[:], sys.meta_path[:] = path, finders
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def error_of(text: str) -> str:
    with pytest.raises(TargetError) as caught:
        load_target(parse_target(text))
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith((".", "?"))
    return message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a/b.py:f", Target("a/b.py:f", "f", path="a/b.py")),
        ("b.py:C.make", Target("b.py:C.make", "C.make", path="b.py")),
        ("pkg.mod:C.make", Target("pkg.mod:C.make", "C.make", module="pkg.mod")),
    ],
)
def test_parsed(text: str, expected: Target) -> None:
    assert parse_target(text) == expected


@pytest.mark.parametrize("text", ["model.py", "model.py:", ":f", "model.py:1", "model.py:f()"])
def test_not_a_target(text: str) -> None:
    with pytest.raises(TargetError, match="names no callable"):
        parse_target(text)


def test_missing_file_names_the_closest(folder: Path) -> None:
    (folder / "model.py").write_text("")
    assert error_of("modle.py:f") == "There is no file 'modle.py'. Did you mean 'model.py'?"


def test_missing_folder(folder: Path) -> None:
    assert "There is no folder 'nowhere'" in error_of("nowhere/model.py:f")


def test_missing_function_lists_what_there_is(folder: Path) -> None:
    (folder / "m1.py").write_text("from os.path import join\nclass Net: pass\ndef build_model(): pass\n")
    message = error_of("m1.py:build_modle")
    assert "m1.py has no 'build_modle'" in message
    assert "Did you mean 'build_model'?" in message
    assert "It defines build_model, Net." in message


def test_missing_method(folder: Path) -> None:
    (folder / "m2.py").write_text("class Net:\n    def make(self): pass\n")
    assert "has no 'build'" in error_of("m2.py:Net.build")


def test_needs_arguments(folder: Path) -> None:
    (folder / "m3.py").write_text("\ndef build(size, *, depth): pass\n")
    message = error_of("m3.py:build")
    assert "build (m3.py:2) needs arguments (size, depth)" in message


def test_not_callable(folder: Path) -> None:
    (folder / "m4.py").write_text("width = 3\n")
    assert "width in m4.py is of type int, not a function" in error_of("m4.py:width")


def test_syntax_error(folder: Path) -> None:
    (folder / "m5.py").write_text("x = 1\ndef f(:\n")
    assert "m5.py:2" in error_of("m5.py:f")


def test_import_of_something_missing(folder: Path) -> None:
    (folder / "m6.py").write_text(
        "import os\nimport not_there_at_all\nif not_there_at_all.FAST:\n    f = 3\n"
    )
    message = error_of("m6.py:f")
    assert "m6.py imports 'not_there_at_all', which is not installed here (m6.py:2)" in message


def test_error_while_importing(folder: Path) -> None:
    (folder / "m7.py").write_text("\n\nraise ValueError('bad size\\nand more')\n")
    assert error_of("m7.py:f") == "m7.py could not be imported: ValueError: bad size (m7.py:3)."


def test_exit_while_importing(folder: Path) -> None:
    (folder / "m8.py").write_text("import sys\nsys.exit(3)\n")
    assert "called sys.exit(3) while it was imported (m8.py:2)" in error_of("m8.py:f")


@pytest.mark.parametrize("is_package", [True, False])
def test_relative_imports_work(folder: Path, is_package: bool) -> None:
    package = folder / f"pkg-9{is_package}" / "nets"
    package.mkdir(parents=True)
    if is_package:
        (package / "__init__.py").write_text("")
        (package.parent / "__init__.py").write_text("")
    (package.parent / "layers.py").write_text("value = 9\n")
    (package / "model.py").write_text("from ..layers import value\ndef build(): return value\n")
    assert load_target(parse_target(f"{package}/model.py:build")).function() == 9


def test_the_top_folder_of_the_project_is_importable(folder: Path) -> None:
    nets = folder / "project" / "nets"
    nets.mkdir(parents=True)
    (folder / "project" / "setup.py").write_text("")
    (folder / "project" / "common9.py").write_text("value = 9\n")
    (nets / "model.py").write_text("from common9 import value\ndef build(): return value\n")
    assert load_target(parse_target("project/nets/model.py:build")).function() == 9


_ENTRY = """
import os, sys
from pathlib import Path
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "third"))
sys.path.insert(0, str(Path(__file__).resolve().parent / "deep" / "er"))
if __name__ == "__main__": sys.path.append("./far")
sys.path.extend([
    "plain",  # (ours)
    "no such folder",
])
# sys.path.append("not")
sys.path.append(sys.argv[1])
sys.path.append(open("ran", "w").name)
"""


def test_folders_that_an_entry_script_adds_are_searched(folder: Path) -> None:
    (folder / "train.py").write_text(_ENTRY)
    for name in ("third", "deep/er", "far", "plain", "not"):
        (folder / name).mkdir(parents=True)
        (folder / name / f"{Path(name).name}_.py").write_text("")
    (folder / "net").mkdir()
    (folder / "net" / "__init__.py").write_text("")
    (folder / "net" / "model.py").write_text("import third_, er_, far_, plain_\ndef f(): pass\n")
    load_target(parse_target("net/model.py:f"))
    assert not (folder / "ran").exists()
    assert str(folder / "not") not in sys.path


def test_a_module_of_a_package_is_imported_once_under_its_name(folder: Path) -> None:
    package = folder / "pkg13"
    package.mkdir()
    (package / "__init__.py").write_text("registry = []\nfrom pkg13.model import build\n")
    (package / "model.py").write_text(
        "from pkg13 import registry\nregistry.append(1)\ndef build(): return len(registry)\n"
    )
    assert load_target(parse_target("pkg13/model.py:build")).function() == 1


def test_a_module_whose_package_cannot_be_imported_is_a_script(folder: Path) -> None:
    package = folder / "pkg14"
    package.mkdir()
    (package / "__init__.py").write_text("import not_there_at_all\n")
    (package / "part14.py").write_text("value = 14\n")
    (package / "model.py").write_text("from part14 import value\ndef build(): return value\n")
    assert load_target(parse_target("pkg14/model.py:build")).function() == 14


def test_the_checkout_goes_before_an_installed_release(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place, value in (("site", "release"), ("project/lib", "checkout")):
        (folder / place / "pkg15").mkdir(parents=True)
        (folder / place / "pkg15" / "__init__.py").write_text(f"value = {value!r}\n")
    monkeypatch.syspath_prepend(str(folder / "site"))
    (folder / "project" / "setup.py").write_text('setup(name="pkg15", package_dir={"": "lib"})\n')
    scripts = folder / "project" / "scripts"
    scripts.mkdir()
    (scripts / "model.py").write_text("from pkg15 import value\ndef build(): return value\n")
    assert load_target(parse_target("project/scripts/model.py:build")).function() == "checkout"


def test_all_missing_packages_are_named_at_once(folder: Path) -> None:
    (folder / "m16.py").write_text(
        "import missing16\nimport layers16\ntry:\n    import optional16\nexcept ImportError:\n    pass\n"
        "width = missing16.WIDTH + 1\n"
    )
    (folder / "layers16.py").write_text("import os\nfrom other16.nn import Layer\n")
    assert "install it and other16 in the environment" in error_of("m16.py:f")


def test_missing_module(folder: Path) -> None:
    assert "There is no module 'nowhere10'" in error_of("nowhere10.model:f")


def test_a_file_of_weights_holds_no_callable(folder: Path) -> None:
    (folder / "net.pt").write_bytes(b"PK")
    assert "net.pt is named like a file of weights, which holds no Python" in error_of("net.pt:Net")


def test_a_file_that_is_found_from_another_folder_says_which(folder: Path) -> None:
    (folder / "app17" / "src").mkdir(parents=True)
    (folder / "app17" / "names.txt").write_text("")
    (folder / "app17" / "src" / "m17.py").write_text("open('names.txt')\n")
    message = error_of("app17/src/m17.py:f")
    assert "(app17/src/m17.py:1); it lies in app17: run tclint there." in message


def test_missing_weights_say_that_none_are_needed(folder: Path) -> None:
    (folder / "m11.py").write_text("import torch\nweights = torch.load('best/model.pth')\n")
    assert "no weights are needed, so name a callable that builds the model" in error_of("m11.py:f")


def test_the_folder_of_the_file_is_importable(folder: Path) -> None:
    sub = folder / "sub"
    sub.mkdir()
    (sub / "helper11.py").write_text("value = 5\n")
    (sub / "m11.py").write_text("from helper11 import value\ndef build(): return value\n")
    loaded = load_target(parse_target("sub/m11.py:build"))
    assert loaded.function() == 5
    assert loaded.site is not None
    assert loaded.site.line == 2


def test_modules_are_found_from_the_working_directory(folder: Path) -> None:
    package = folder / "pkg12"
    package.mkdir()
    (package / "m.py").write_text("class A:\n    @staticmethod\n    def make(): return 7\n")
    assert load_target(parse_target("pkg12.m:A.make")).function() == 7


def test_a_file_named_like_an_imported_module(folder: Path) -> None:
    (folder / "json.py").write_text("def build(): return 'mine'\n")
    before = sys.modules["json"]
    assert load_target(parse_target("json.py:build")).function() == "mine"
    assert sys.modules["json"] is before


def test_arguments(folder: Path) -> None:
    (folder / "m13.py").write_text("def build(size, *, depth=1): return size, depth\n")
    loaded = load_target(parse_target("m13.py:build"), parse_arguments(("size=3",)))
    assert loaded.function() == (3, 1)
    with pytest.raises(
        TargetError, match=r"build \(m13.py:1\) has no argument 'dept'.*Did you mean 'depth'\?"
    ):
        load_target(parse_target("m13.py:build"), parse_arguments(("size=3", "dept=2")))
    assert "--arg size=VALUE" in error_of("m13.py:build")


def test_a_field_that_is_given_as_an_argument_is_told_with_its_path(folder: Path) -> None:
    text = """
from dataclasses import dataclass, field
from types import SimpleNamespace
@dataclass
class Config:
    width: int = 8
    blocks: dict = field(default_factory=lambda: {"depth": 2})
class Net:
    def __init__(self, config, options=SimpleNamespace(dropout=0.1)): pass
"""
    (folder / "m15.py").write_text(text)
    for name, path in (("width", "config.width"), ("depth", "config.blocks.depth")):
        with pytest.raises(TargetError, match=f"Did you mean --arg {path}=VALUE"):
            load_target(parse_target("m15.py:Net"), parse_arguments((f"{name}=6",)))
    with pytest.raises(TargetError, match=r"Did you mean --arg options\.dropout=VALUE"):
        load_target(parse_target("m15.py:Net"), parse_arguments(("dropout=0.2",)))
    with pytest.raises(TargetError, match=r"it takes config, options\.$"):
        load_target(parse_target("m15.py:Net"), parse_arguments(("length=6",)))


def test_arguments_of_a_callable_that_takes_any(folder: Path) -> None:
    (folder / "hubconf.py").write_text("dependencies = ['os']\ndef net(pretrained=False, **kw): return kw\n")
    loaded = load_target(parse_target("hubconf.py:net"), parse_arguments(("width=8",)))
    assert loaded.function() == {"width": 8}


def test_a_name_that_a_file_lacks_up_to_its_error_is_said(folder: Path) -> None:
    (folder / "m16.py").write_text("class Generator: pass\nraise ValueError('no data')\n")
    said = error_of("m16.py:Generater")
    assert "could not be imported: ValueError: no data (m16.py:2)" in said
    assert "Up to there it defines Generator, and no 'Generater'. Did you mean 'Generator'?" in said
    (folder / "m17.py").write_text("import math\nraise ValueError('no data')\n")
    assert "Up to there" not in error_of("m17.py:Generater")


def test_a_path_without_a_callable_says_how_to_list_them(folder: Path) -> None:
    (folder / "m14.py").write_text("")
    assert "tclint models" in error_of("m14.py")


@pytest.mark.parametrize("text", ["timm:resnet18", "hf:gpt2"])
def test_libraries_that_are_not_installed(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package = {"timm": "timm", "hf": "transformers"}[text.partition(":")[0]]
    monkeypatch.setitem(sys.modules, package, None)
    message = error_of(text)
    assert f"needs the package {package}" in message


def test_a_package_that_imports_a_part_when_it_is_asked_for_says_what_that_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lazy_parts").mkdir()
    (tmp_path / "lazy_parts" / "__init__.py").write_text(
        "def __getattr__(name):\n"
        "    if name != 'Net':\n"
        "        raise AttributeError(name)\n"
        "    try:\n"
        "        from lazy_parts.net import Net\n"
        "    except ModuleNotFoundError as error:\n"
        "        raise ModuleNotFoundError('Could not import Net.') from error\n"
        "    return Net\n"
    )
    (tmp_path / "lazy_parts" / "net.py").write_text("import no_such_package.optimize\n")
    with pytest.raises(TargetError, match="imports 'no_such_package', which is not installed"):
        load_target(parse_target("lazy_parts:Net"))

"""The index beside the rules: it says what they say, and saves their import."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tclint.config.settings import Settings
from tclint.engine.rules import index
from tclint.engine.rules.registry import all_rules, load_rules
from tclint.engine.sources.program import lint_text
from tclint.source.source_rule import SourceRule

RULE = """
from tclint.plugin import Location, SourceRule

class {name}(SourceRule):
    '''One line.'''
    code, name, since, level, confidence = "{code}", "{kebab}", "1", "info", "high"
    triggers = ("{trigger}",)
    sources = ("Handbook",)

    def check(self, context):
        yield self.finding(Location(context.path, 1), "{trigger}")

RULES = ({name},)
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package of two rules with an index of its own."""
    folder = tmp_path / "indexed_for_a_test"
    folder.mkdir()
    (folder / "family").mkdir()
    for init in (folder, folder / "family"):
        (init / "__init__.py").write_text("")
    one = RULE.format(name="One", code="XYZ001", kebab="one", trigger="first")
    two = RULE.format(name="Two", code="XYZ002", kebab="two", trigger="second")
    (folder / "family" / "one.py").write_text(one)
    (folder / "family" / "two.py").write_text(two)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(index, "PACKAGE", folder.name)
    (folder / index.FILE).write_text(index.build())
    for name in [name for name in sys.modules if name.partition(".")[0] == folder.name]:
        del sys.modules[name]
    index.indexed_rules.cache_clear()
    yield folder
    index.indexed_rules.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == folder.name]:
        del sys.modules[name]


def imported(folder: Path) -> set[str]:
    return {name.rpartition(".")[2] for name in sys.modules if name.startswith(f"{folder.name}.family.")}


def test_stand_ins_say_what_the_rules_say() -> None:
    found = index.indexed_rules()
    assert found is not None
    # A rule for traced models and its side for sources share a code.
    said = {(rule.code, issubclass(rule, SourceRule)): index.fields_of(rule) for rule in found}
    for rule in all_rules():
        side = rule.code, issubclass(rule, SourceRule)
        if issubclass(rule, SourceRule) and said[side].get("asks_settings"):
            assert rule.applies is not SourceRule.applies
        assert said.pop(side) == index.fields_of(rule)
    assert not said


def test_a_rule_is_imported_when_it_runs(package: Path) -> None:
    rules = index.indexed_rules()
    assert rules is not None
    assert not imported(package)
    (finding,) = lint_text("first()\n", [rule() for rule in rules if rule.code == "XYZ001"], Settings())  # type: ignore[misc]
    assert (finding.code, finding.message) == ("XYZ001", "first")
    assert imported(package) == {"one"}


def test_a_new_module_is_imported(package: Path) -> None:
    (package / "family" / "three.py").write_text(
        RULE.format(name="Three", code="XYZ003", kebab="three", trigger="third")
    )
    importlib.invalidate_caches()
    rules = index.indexed_rules()
    assert rules is not None
    assert [rule.code for rule in rules] == ["XYZ001", "XYZ003", "XYZ002"]
    assert imported(package) == {"three"}


@pytest.mark.parametrize("text", ["", "[]", '{"family.one": 1, "family.two": {}}', '{"family.one": [{}]}'])
def test_a_damaged_index_is_no_index(package: Path, text: str) -> None:
    (package / index.FILE).write_text(text)
    rules = index.indexed_rules()
    assert rules is None or {rule.code for rule in rules} == {"XYZ001", "XYZ002"}


def test_a_removed_module_is_gone(package: Path) -> None:
    (package / "family" / "two.py").unlink()
    assert "family.two" in json.loads((package / index.FILE).read_text())
    assert [rule.code for rule in index.indexed_rules() or ()] == ["XYZ001"]


def test_selected_rules_are_stand_ins_of_the_same_rules() -> None:
    everything = Settings(select=("ALL",))
    assert [rule.code for rule in load_rules(everything)] == [rule.code for rule in all_rules()]


def test_rules_that_cannot_fire_are_not_imported(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("x = 1\n")
    (tmp_path / "train.py").write_text("import torch\ntorch.backends.cudnn.enabled = False\n")
    program = f"""
import sys
import tclint
from tclint.engine.rules.registry import find_rule
from tclint.config.settings import Settings
def rules():
    return [name for name in sys.modules if name.startswith("tclint_rules.") and name.count(".") == 2]
tclint.check([{str(tmp_path / "plain.py")!r}], Settings(cache=False))
assert not rules(), rules()
assert not {{"numpy", "libcst", "torch"}} & set(sys.modules)
report = tclint.check([{str(tmp_path / "train.py")!r}], Settings(cache=False, select=("RUN004",)))
assert [finding.code for finding in report.findings] == ["RUN004"]
assert "cuDNN" in tclint.render(report, "sarif")
assert "cuDNN" in find_rule("RUN004")[0].__doc__
assert rules() == ["tclint_rules.runtime.cudnn_disabled"], rules()
assert "numpy" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

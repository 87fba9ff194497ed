"""How rules are found and selected."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tclint.config.settings import Override, Settings
from tclint.core.errors import UsageError
from tclint.core.finding import Finding, Location
from tclint.core.rule import DOC_SECTIONS
from tclint.engine.rules.registry import Selection, all_rules, find_rule, load_rules
from tclint.report.catalogue import rule_json, rule_page
from tclint.report.render import Style

PAGE = "".join(f"\n\n    {heading}\n    Text." for heading in DOC_SECTIONS)

LOCAL_RULE = f"""
from tclint.plugin import GraphRule

class Mine(GraphRule):
    '''One line.{PAGE}
    '''
    code, name, level, confidence = "{{code}}", "{{name}}", "info", "high"
    sources = ("Handbook, chapter 1",)

    def check(self, context):
        return iter(())

RULES = (Mine,)
"""


def codes(**changes: object) -> set[str]:
    return {rule.code for rule in load_rules(Settings(**changes))}  # type: ignore[arg-type]


def test_installed_rules_are_found_through_entry_points() -> None:
    found = [rule.code for rule in all_rules()]
    assert found == sorted(found)
    assert {"DIM001", "AMP001", "FMT001"} <= set(found)
    assert all(rule.__module__.startswith("tclint_rules") for rule in all_rules())


def test_without_its_own_rules_it_lints_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: ())
    with pytest.raises(UsageError, match="own rules are not installed"):
        all_rules()


def test_selectors_are_codes_prefixes_and_names() -> None:
    assert codes(select=("DIM003",)) == {"DIM003"}
    assert codes(select=("vocab-misaligned",)) == {"DIM003"}
    assert codes(select=("amp",)) == {code for code in codes(select=("ALL",)) if code.startswith("AMP")}
    assert codes(ignore=("DIM",)) == {code for code in codes() if not code.startswith("DIM")}
    assert codes(select=("DIM003",), extend_select=("AMP001",), ignore=("DIM003",)) == {"AMP001"}


@pytest.mark.parametrize("field", ["select", "extend_select", "ignore"])
def test_an_unknown_selector_is_an_error_with_the_closest_name(field: str) -> None:
    with pytest.raises(UsageError, match="DIM03X") as error:
        load_rules(Settings(**{field: ("DIM03X",)}))  # type: ignore[arg-type]
    assert "Did you mean" in str(error.value)


def test_find_rule_takes_code_or_name_in_any_case() -> None:
    assert find_rule("dim003") == find_rule("VOCAB-misaligned")
    with pytest.raises(UsageError, match="vocab-misaligned"):
        find_rule("vocab-missaligned")


def test_local_rules_are_loaded_from_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(LOCAL_RULE.format(code="ZZZ001", name="mine"))
    (tmp_path / "_helper.py").write_text("raise SystemExit\n")
    for path in (tmp_path, tmp_path / "mine.py"):
        assert "ZZZ001" in codes(rules=(str(path),))


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("\nraise ValueError('boom')", r"bad\.py' failed at line 2 with ValueError: boom\.$"),
        ("x = 1", r"no RULES tuple\.$"),
        (
            LOCAL_RULE.format(code="ZZZ001", name="mine").rpartition("RULES")[0],
            r"no RULES tuple; end it with RULES = \(Mine,\)\.$",
        ),
        ("RULES = (int,)", "not a GraphRule"),
        ("RULES = int", "a tuple of rule classes"),
        (LOCAL_RULE.format(code="DIM003", name="mine"), "DIM003"),
        (LOCAL_RULE.format(code="lower", name="mine"), "ABC001"),
    ],
)
def test_a_bad_local_rule_file_is_one_sentence(tmp_path: Path, source: str, says: str) -> None:
    file = tmp_path / "bad.py"
    file.write_text(source)
    with pytest.raises(UsageError, match=says):
        all_rules((str(file),))


GOOD_FIELDS = """\
    code = "ZZZ001"
    name = "mine"
    level = "info"
    confidence = "high"
    sources = ("Handbook, chapter 1",)
    triggers = ("nn",)
"""


def bad_rule(folder: Path, fields: str, page: str = f"One line.{PAGE}", check: str = "check") -> Path:
    """A file with one SourceRule."""
    file = folder / "bad.py"
    file.write_text(
        "import re\nfrom tclint.plugin import SourceRule\n\nclass Mine(SourceRule):\n"
        f"    '''{page}\n    '''\n{fields}\n"
        f"    def {check}(self, context):\n        return iter(())\n\nRULES = (Mine,)\n"
    )
    return file


def test_the_rule_that_the_next_tests_spoil_is_good(tmp_path: Path) -> None:
    file = bad_rule(tmp_path, GOOD_FIELDS)
    assert "ZZZ001" in [rule.code for rule in all_rules((str(file),))]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("code", None),
        ("code", "'zzz1'"),
        ("code", "7"),
        ("name", None),
        ("name", "'Not Kebab'"),
        ("level", None),
        ("level", "'fatal'"),
        ("level", "['info']"),
        ("confidence", None),
        ("confidence", "'sure'"),
        ("sources", None),
        ("sources", "()"),
        ("sources", "'Handbook'"),
        ("sources", "('',)"),
        ("enabled_by_default", "'yes'"),
        ("triggers", None),
        ("triggers", "()"),
        ("triggers", "'nn'"),
        ("triggers", "('nn', '')"),
        ("requires", "'nn'"),
        ("pattern", "'nn'"),
        ("pattern", "re.compile('nn')"),
        ("priced_as", "'DIM003'"),
        ("priced_as", "('dim',)"),
    ],
)
def test_a_field_that_is_missing_or_wrong_is_one_sentence(
    tmp_path: Path, field: str, value: str | None
) -> None:
    lines = [line for line in GOOD_FIELDS.splitlines() if not line.startswith(f"    {field} =")]
    if value is not None:
        lines.append(f"    {field} = {value}")
    file = bad_rule(tmp_path, "\n".join(lines))
    with pytest.raises(UsageError) as error:
        all_rules((str(file),))
    message = str(error.value)
    assert message.startswith(f"{file}: rule Mine needs `{field}`: ")
    assert ("; it has none." if value is None else "; it has ") in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("page", "says"),
    [
        ("", "needs a docstring"),
        ("One line.", "it lacks 'What it does'"),
        (f"One line.{PAGE}".replace("    Use instead\n", "    Instead\n"), "it lacks 'Use instead'"),
        (f"One line.{PAGE}".replace("Why it costs\n    Text.", "Why it costs\n"), "it lacks 'Why it costs'"),
        (
            f"One line.{PAGE}".replace("Example", "?")
            .replace("Use instead", "Example")
            .replace("?", "Use instead"),
            "in this order",
        ),
    ],
)
def test_a_page_that_is_incomplete_is_one_sentence(tmp_path: Path, page: str, says: str) -> None:
    file = bad_rule(tmp_path, GOOD_FIELDS, page)
    with pytest.raises(UsageError) as error:
        all_rules((str(file),))
    assert str(error.value).startswith(f"{file}: rule Mine needs a docstring: ")
    assert says in str(error.value)


def test_a_rule_without_check_is_one_sentence(tmp_path: Path) -> None:
    file = bad_rule(tmp_path, GOOD_FIELDS, check="chekc")
    with pytest.raises(UsageError, match=r"needs a method `check\(self, context\)`"):
        all_rules((str(file),))


def test_a_path_inside_tclint_that_is_gone_names_the_one_to_use(tmp_path: Path) -> None:
    file = tmp_path / "old.py"
    file.write_text("import os\nfrom tclint.rule import GraphRule\n")
    with pytest.raises(UsageError) as error:
        all_rules((str(file),))
    assert str(error.value).startswith(f"{file}:2: there is no module tclint.rule; ")
    assert str(error.value).endswith("from tclint.plugin.")


def test_another_missing_module_is_named_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "old.py"
    file.write_text("import tclint_of_somebody\n")
    with pytest.raises(UsageError, match="No module named 'tclint_of_somebody'"):
        all_rules((str(file),))


def test_a_missing_rules_path_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        all_rules((str(tmp_path / "nowhere"),))


def test_a_rules_file_that_is_no_module_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "rules.txt"
    file.write_text(LOCAL_RULE.format(code="ZZZ001", name="mine"))
    with pytest.raises(UsageError, match=r"rules\.txt' cannot be imported"):
        all_rules((str(file),))


TWO_SIDES = f"""\
from tclint.plugin import GraphRule, SourceRule

class Traced(GraphRule):
    '''Traced side.{PAGE}
    '''
    code, name, level, confidence = "ZZZ001", "mine", "info", "high"
    sources = ("Handbook, chapter 1",)

    def check(self, context):
        yield from ()

class Read(SourceRule):
    '''Read side.{PAGE}
    '''
    code, name, level, confidence = "{{code}}", "{{name}}", "info", "high"
    sources = ("Handbook, chapter 1",)
    triggers = ("nn",)

    def check(self, context):
        yield from ()

RULES = (Traced, Read)
"""


def test_a_rule_may_have_a_side_for_each_pass(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(TWO_SIDES.format(code="ZZZ001", name="mine"))
    sides = find_rule("mine", (str(file),))
    assert [side.summary() for side in sides] == ["Traced side.", "Read side."]
    chosen = Selection(Settings(rules=(str(file),), select=("ZZZ001",))).rules
    assert [type(rule).__name__ for rule in chosen] == ["Traced", "Read"]
    page = rule_page(sides, Style())
    assert page.index("In a traced model: Traced side.") < page.index("In training code: Read side.")
    assert page.count("\nWhy it costs\n  Text.\n") == 1, "what both sides say stands once"
    assert page.count("Handbook, chapter 1") == 1
    assert json.loads(rule_json(sides))["source_side"]["summary"] == "Read side."
    assert json.loads(rule_json(find_rule("DIM001")))["source_side"] is None


def test_a_side_that_is_off_stays_off_where_nothing_selects_it(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    text = TWO_SIDES.format(code="ZZZ001", name="mine")
    file.write_text(text.replace('triggers = ("nn",)', 'triggers = ("nn",)\n    enabled_by_default = False'))
    found = [
        Finding("ZZZ001", "mine", "info", "high", "It is slow.", Location(path, 1), target=target)
        for path in ("tests/a.py", "src/a.py")
        for target in ("m.py:f", None)
    ]
    settings = Settings(rules=(str(file),))
    selected = replace(settings, overrides=(Override(("tests/",), extend_select=("ZZZ001",)),))
    assert [one for one in found if Selection(selected).allows(one)] == found[:3]
    assert [one for one in found if Selection(settings).allows(one)] == [found[0], found[2]]


def test_what_others_wrote_under_references_is_shown_above_the_sources(tmp_path: Path) -> None:
    file = bad_rule(tmp_path, GOOD_FIELDS, page=f"One line.{PAGE}\n\n    References\n    A talk of ours.")
    page = rule_page(find_rule("ZZZ001", (str(file),)), Style())
    assert page.endswith("References\n  A talk of ours.\n  - Handbook, chapter 1\n")


@pytest.mark.parametrize(("code", "name"), [("ZZZ001", "other"), ("ZZZ002", "mine")])
def test_sides_share_code_and_name(tmp_path: Path, code: str, name: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(TWO_SIDES.format(code=code, name=name))
    with pytest.raises(UsageError, match=r"mine\.Traced and \S+mine\.Read both claim '\w+'; choose another"):
        all_rules((str(file),))

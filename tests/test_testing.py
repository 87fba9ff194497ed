"""tclint.testing: an example that proves nothing, or something else than its name says, fails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tclint.core.errors import UsageError
from tclint.plugin import (
    Edit,
    Effect,
    Finding,
    Fix,
    GraphContext,
    GraphRule,
    Location,
    Related,
    SourceContext,
    SourceRule,
)
from tclint.testing import check_rule, examples

PAGE = """One line.

    What it does
    x

    Why it costs
    x

    Example
    x

    Use instead
    x

    When it does not apply
    x
    """


class Seeds(SourceRule):
    __doc__ = PAGE
    code, name, level, confidence = "ZZZ001", "seeds", "info", "high"
    sources = ("Handbook, chapter 1",)
    triggers = ("manual_seed",)
    makes_edits = False
    message = "Seeded."
    fix = "Do not seed."
    writes = "pass"
    safety: Any = "safe"
    evidence: dict[str, int] = {"seeds": 1}  # noqa: RUF012
    copies = 1

    def check(self, context: SourceContext) -> Iterator[Finding]:
        if context.settings.mode == "infer":
            return
        for event in context.record.of("seed")[:1]:
            place = context.at(event)
            assert place.end_column is not None
            edit = Edit(place.path, (place.line, place.column), (place.line, place.end_column), self.writes)
            for copy in range(self.copies):
                yield self.finding(
                    place,
                    self.message,
                    evidence=self.evidence,
                    fix=Fix(self.fix, self.safety, (edit,) if self.makes_edits else ()),
                    identity=f"seed {copy}",
                )


class Linears(GraphRule):
    __doc__ = PAGE
    code, name, level, confidence = "ZZZ002", "linears", "info", "high"
    sources = ("Handbook, chapter 1",)

    def check(self, context: GraphContext) -> Iterator[Finding]:
        for op in context.graph.ops:
            if op.kind == "linear":
                yield self.finding(
                    context.location(op),
                    f"On {context.settings.gpus[0]}.",
                    effect=Effect(unknown="a test"),
                    evidence={"op": op.index},
                    fix=Fix("Leave it out."),
                    identity="the same for all",
                )


SEEDED = "# seeded\n\nimport torch\n\ntorch.manual_seed(0)\n"
FIXED = "# seeded\n\nimport torch\n\npass\n"
PLAIN = "# not seeded\n\nimport torch\n"
MODEL = "# a model\n\nfrom torch import nn, empty\n\n\ndef build_model():\n    return {}, empty(8, 8)\n"


def as_another_rule(self: Seeds, *args: Any, **fields: Any) -> Finding:
    return replace(SourceRule.finding(self, *args, **fields), code="ZZZ003")


def write(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        (folder / f"{name.replace('__', '.')}.py").write_text(text)
    return folder


def variant(**fields: object) -> type[Seeds]:
    return type("Variant", (Seeds,), {"__doc__": PAGE, **fields})


def test_good_examples_pass(tmp_path: Path) -> None:
    folder = write(tmp_path, invalid_seeded=SEEDED, valid_plain=PLAIN)
    check_rule(Seeds, folder)
    check_rule(Seeds, str(folder / "invalid_seeded.py"))
    assert [(example.flagged, example.reason) for example in examples(folder)] == [
        (True, "seeded"),
        (False, "not seeded"),
    ]


def test_the_fixed_text_is_checked(tmp_path: Path) -> None:
    folder = write(tmp_path, invalid_seeded=SEEDED, valid_plain=PLAIN, invalid_seeded__fixed=FIXED)
    check_rule(variant(makes_edits=True), folder)


def test_settings_count(tmp_path: Path) -> None:
    text = SEEDED.replace("\n\n", '\n# settings: mode = "infer", tensor-parallel = 2\n\n', 1)
    check_rule(Seeds, write(tmp_path, valid_infer=text, invalid_seeded=SEEDED))


def test_the_head_triggers_nothing(tmp_path: Path) -> None:
    """A reason that names what the rule looks for must not hide that the program does not."""
    text = "# manual_seed is called under another name\n\nfrom torch.random import *\n\nmanual_seeds = 1\n"
    write(tmp_path, valid_named=text)
    check_rule(Seeds, tmp_path / "valid_named.py")
    write(tmp_path, invalid_named="# scaler\n\nimport torch\n\ntorch.manual_seed(0)\n")
    with pytest.raises(AssertionError, match="keep the rule from seeing this file"):
        check_rule(variant(triggers=("scaler",)), tmp_path / "invalid_named.py")


@pytest.mark.parametrize(
    ("fields", "texts", "says"),
    [
        ({}, {"invalid_plain": PLAIN}, "should find something, and finds nothing"),
        ({}, {"valid_seeded": SEEDED}, "nothing should be found, but this was:\n  line 5: ZZZ001 Seeded."),
        ({"copies": 2}, {"invalid_seeded": SEEDED}, "one finding is expected, not 2"),
        ({"triggers": ("GradScaler",)}, {"invalid_seeded": SEEDED}, "keep the rule from seeing this file"),
        ({"message": "Seeded"}, {"invalid_seeded": SEEDED}, "lacks a message that ends with a full stop"),
        ({"fix": "Do not"}, {"invalid_seeded": SEEDED}, "lacks a fix whose advice ends with a full stop"),
        ({"evidence": {}}, {"invalid_seeded": SEEDED}, "lacks evidence"),
        ({"finding": as_another_rule}, {"invalid_seeded": SEEDED}, "lacks the rule's code ZZZ001"),
        ({"check": lambda *_: 1 / 0}, {"invalid_seeded": SEEDED}, "the rule raised:\nTraceback"),
        (
            {"makes_edits": True},
            {"invalid_seeded": SEEDED},
            "invalid_seeded.fixed.py must say what",
        ),
        (
            {"makes_edits": True},
            {"invalid_seeded": SEEDED, "invalid_seeded__fixed": FIXED + "\n"},
            "not what invalid_seeded.fixed.py says",
        ),
        (
            {"makes_edits": True, "writes": "if"},
            {"invalid_seeded": SEEDED},
            "edits that leave invalid Python are never made:\n  line 5: ZZZ001",
        ),
        ({"makes_edits": True, "safety": "sure"}, {"invalid_seeded": SEEDED}, "lacks a safety, 'safe'"),
        (
            {},
            {"invalid_seeded": SEEDED, "invalid_seeded__fixed": FIXED},
            "invalid_seeded.fixed.py exists, but no fix makes edits here",
        ),
    ],
)
def test_an_example_that_is_not_as_it_says_fails(
    tmp_path: Path, fields: dict[str, object], texts: dict[str, str], says: str
) -> None:
    both = {"invalid_good": SEEDED, "valid_good": PLAIN} if not fields else {}
    write(tmp_path, **both, **texts)
    with pytest.raises(AssertionError) as error:
        check_rule(variant(**fields), tmp_path / f"{next(iter(texts))}.py")
    assert says in str(error.value)
    assert next(iter(texts)) in str(error.value)


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        ({"invalid_seeded": SEEDED}, "has no valid_NAME.py"),
        ({"valid_plain": PLAIN}, "has no invalid_NAME.py"),
        ({"invalid_seeded": SEEDED, "helper": PLAIN}, "is called valid_NAME.py or invalid_NAME.py"),
        ({"invalid_seeded": SEEDED, "valid_plain": PLAIN, "invalid_other__fixed": FIXED}, "that this fixes"),
        ({"invalid_seeded": SEEDED, "valid_plain": PLAIN, "valid_plain__fixed": FIXED}, "that this fixes"),
        ({"invalid_seeded": "import torch\n\n"}, "the first line must be"),
        ({"invalid_seeded": "# reason\nimport torch\n\n"}, "can stand between the reason and the blank line"),
        ({"invalid_seeded": "# reason\n# setting: x = 1\n\n"}, "can stand between the reason and the blank"),
        (
            {"invalid_seeded": "# reason\n# settings: gpux = 1\n\n"},
            "'# settings: gpux = 1' is not",
        ),
        ({"invalid_seeded": "# reason\n# settings: nothing = 1\n\n"}, "there is no setting 'nothing'"),
        ({"invalid_seeded": "# reason\n# settings: mode = infer\n\n"}, "is not understood"),
        ({"invalid_seeded": '# reason\n# settings: mode = "play"\n\n'}, "is not understood"),
    ],
)
def test_a_folder_that_is_not_of_examples_fails(tmp_path: Path, texts: dict[str, str], says: str) -> None:
    with pytest.raises(AssertionError) as error:
        check_rule(Seeds, write(tmp_path, **texts))
    assert says in str(error.value)


def test_the_class_is_checked_as_well(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="`sources`"):
        check_rule(variant(sources=()), write(tmp_path, invalid_seeded=SEEDED, valid_plain=PLAIN))


def test_graph_rules_run_on_build_model(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    linear, relu = MODEL.format("nn.Linear(8, 8)"), MODEL.format("nn.ReLU()")
    check_rule(Linears, write(tmp_path, invalid_linear=linear, valid_relu=relu))
    (tmp_path / "invalid_linear.py").write_text(relu)
    (tmp_path / "valid_relu.py").write_text(linear.replace("\n\n", '\n# settings: gpu = "t4"\n\n', 1))
    with pytest.raises(AssertionError) as error:
        check_rule(Linears, tmp_path)
    assert "invalid_linear.py (a model): ZZZ002 should find something, and finds nothing" in str(error.value)
    assert "line 8: ZZZ002 On t4." in str(error.value)
    assert not list(tmp_path.glob("__pycache__"))


def test_graph_rules_say_a_thing_once(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    text = MODEL.format("nn.Sequential(*[nn.Linear(8, 8) for _ in range(2)])")
    write(tmp_path, invalid_twice=text)
    with pytest.raises(AssertionError, match="two findings say the same"):
        check_rule(Linears, tmp_path / "invalid_twice.py")


def test_graph_rules_relate_to_other_places(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    write(tmp_path, invalid_linear=MODEL.format("nn.Linear(8, 8)"))

    def about_itself(self: Linears, place: Location, *args: Any, **fields: Any) -> Finding:
        return GraphRule.finding(self, place, *args, **fields, related=(Related(place, "here"),))

    itself = type("Itself", (Linears,), {"__doc__": PAGE, "finding": about_itself})
    with pytest.raises(AssertionError, match="a related place is the finding's own"):
        check_rule(itself, tmp_path / "invalid_linear.py")


def test_an_example_of_a_graph_rule_has_a_model(tmp_path: Path) -> None:
    write(tmp_path, valid_nothing=PLAIN)
    with pytest.raises(AssertionError, match="defines build_model"):
        check_rule(Linears, tmp_path / "valid_nothing.py")

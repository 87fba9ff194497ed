"""Which findings a comment silences, and which comments are reported as useless."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tclint.analysis.graph_rule import GraphRule
from tclint.config.settings import Override, Settings
from tclint.core.finding import Finding, Location
from tclint.engine.check import check
from tclint.engine.suppressions import apply_suppressions, parse_suppressions
from tclint.source.source_rule import SourceRule


def make_finding(
    line: int, path: str = "m.py", end_line: int | None = None, target: str | None = None
) -> Finding:
    return Finding(
        code="DIM001",
        name="linear-misaligned",
        level="warning",
        confidence="high",
        message="m",
        location=Location(path, line, end_line=end_line),
        target=target,
    )


def silenced_lines(source: str, end_line: int | None = None) -> list[int]:
    suppressions = parse_suppressions(source)
    lines = range(1, source.count("\n") + 2)
    return [
        line
        for line in lines
        if any(item.matches(make_finding(line, end_line=end_line)) for item in suppressions)
    ]


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("a = 1  # tclint: ignore[DIM001]\nb = 2\n", [1]),
        ("a = 1  # tclint: ignore[linear-misaligned] pretrained\nb = 2\n", [1]),
        ("a = 1  # tclint: ignore[DIM] family\nb = 2\n", [1]),
        ("a = 1  # tclint: ignore\nb = 2\n", [1]),
        ("a = 1  # tclint: ignore[DIM002]\nb = 2\n", []),
        ("a = 1  # tclint: ignore[DIM002, DIM001]\nb = 2\n", [1]),
        ("# tclint: ignore[DIM001]\na = 1\nb = 2\n", [2]),
        ("# tclint: ignore[DIM001]\n\n# why\na = 1\nb = 2\n", [4]),
        ("# tclint: ignore[DIM001]\na = f(\n    1,\n)\nb = 2\n", [2, 3, 4]),
        ("a = f(  # tclint: ignore[DIM001]\n    1,\n)\nb = 2\n", [1, 2, 3]),
        ("a = f(\n    1,\n)  # tclint: ignore[DIM001]\nb = 2\n", [1, 2, 3]),
        ("a = f(\n    1,  # tclint: ignore[DIM001]\n    2,\n)\n", [2]),
        ("a = f(\n    # tclint: ignore[DIM001]\n    1,\n    2,\n)\n", [3]),
        ("# tclint: file-ignore[DIM001]\na = 1\nb = 2\n", [1, 2, 3, 4]),
        ("x = '# tclint: ignore[DIM001]'\n", []),
        ("a = 1  # noqa: DIM001\n", []),
        ("a = 1  # tclint: ignored[DIM001]\n", []),
        ("a = (  # tclint: ignore[DIM001]\n", [1]),
    ],
)
def test_lines_that_a_directive_speaks_for(source: str, lines: list[int]) -> None:
    assert silenced_lines(source) == lines


SPREAD = """\
results = [
    0,
    f(
        1,
        2,
    ),
    3,
]
"""


@pytest.mark.parametrize(
    ("commented", "silenced"), [(2, False), (3, True), (4, True), (5, True), (6, True), (7, False)]
)
def test_a_finding_of_several_lines_is_silenced_on_any_of_them(commented: int, silenced: bool) -> None:
    lines = SPREAD.splitlines()
    lines[commented - 1] += "  # tclint: ignore[DIM001]"
    [suppression] = parse_suppressions("\n".join(lines))
    assert suppression.matches(make_finding(3, end_line=6)) is silenced


@given(st.text(alphabet=st.sampled_from("#tclint: ignore[DIM01],\n\t()'\"abc\\=x\x00é"), max_size=120))
def test_any_text_is_parsed_without_an_error(text: str) -> None:
    for suppression in parse_suppressions(text + "# tclint: ignore[DIM001]"):
        assert 1 <= suppression.line <= text.count("\n") + 1 + text.count("\x0c") + text.count("\r")


class _Graph(GraphRule):
    code, name = "DIM001", "linear-misaligned"


class _Source(SourceRule):
    code, name = "AMP001", "fp16-autocast-no-scaler"


def test_an_unused_directive_is_reported_only_where_its_rule_ran(tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text("a = 1  # tclint: ignore[DIM001]\nb = 2  # tclint: ignore[AMP001]\n")
    path = str(file)

    standing, silenced = apply_suppressions(
        [], source_paths=[path], source_rules=[_Source()], graph_rules=[_Graph()]
    )
    assert silenced == []
    assert [(finding.code, finding.location.line) for finding in standing] == [("TCL002", 2)]

    finding = make_finding(2, path, target="m.py:f")
    standing, silenced = apply_suppressions(
        [finding], source_paths=[path], source_rules=[_Source()], graph_rules=[_Graph()]
    )
    assert silenced == []
    assert [(item.code, item.location.line) for item in standing] == [
        ("DIM001", 2),
        ("TCL002", 1),
        ("TCL002", 2),
    ]


def test_a_file_that_cannot_be_read_silences_nothing(tmp_path: Path) -> None:
    finding = make_finding(1, str(tmp_path / "gone.py"), target="t")
    standing, silenced = apply_suppressions(
        [finding], source_paths=[], source_rules=[], graph_rules=[_Graph()]
    )
    assert (standing, silenced) == ([finding], [])


def test_only_files_that_can_hold_directives_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tclint.engine.suppressions._read", lambda _: pytest.fail("read again"))
    findings = [make_finding(1, "a.py"), make_finding(1, "b.py")]
    standing, silenced = apply_suppressions(
        findings,
        source_paths=["a.py", "b.py", "c.py"],
        source_rules=[_Source()],
        graph_rules=[],
        marked={
            "b.py": "x = 1  # tclint: ignore[DIM001]\n",
            "c.py": "x = 1  # tclint: ignore[AMP001]\n",
        },
    )
    assert [finding.location.path for finding in silenced] == ["b.py"]
    assert [(finding.code, finding.location.path) for finding in standing] == [
        ("DIM001", "a.py"),
        ("TCL002", "c.py"),
    ]


def test_a_directive_for_a_rule_that_is_off_on_the_path_is_not_unused() -> None:
    def unused(allowed: bool) -> list[str]:
        standing, _ = apply_suppressions(
            [],
            source_paths=["a.py"],
            source_rules=[_Source()],
            graph_rules=[],
            marked={"a.py": "x = 1  # tclint: ignore[AMP001]\n"},
            allows=lambda finding: allowed or finding.code != "AMP001",
        )
        return [finding.code for finding in standing]

    assert unused(True) == ["TCL002"]
    assert unused(False) == []


def test_a_directive_for_a_rule_that_crashed_is_not_unused() -> None:
    crash = Finding("TCL001", "rule-crashed", "error", "high", "m", Location("a.py", 1), identity="AMP001")
    standing, _ = apply_suppressions(
        [crash],
        source_paths=["a.py"],
        source_rules=[_Source()],
        graph_rules=[],
        marked={"a.py": "x = 1\ny = 2  # tclint: ignore[AMP001]\n"},
    )
    assert standing == [crash]


def test_a_run_reads_marked_files_once_and_leaves_unread_ones_alone(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def (  # tclint: ignore[AMP006]\nautocast .backward(\n")
    (tmp_path / "used.py").write_text(
        "import torch\nwith torch.autocast('cuda'):\n    loss.backward()  # tclint: ignore[AMP006] why\n"
    )
    (tmp_path / "unused.py").write_text("x = 1  # TCLINT: ignore[backward-under-autocast]\n")
    report = check([str(tmp_path)], Settings(select=("AMP006",)))
    assert [(finding.code, Path(finding.location.path).name) for finding in report.findings] == [
        ("TCL003", "broken.py"),
        ("TCL002", "unused.py"),
    ]
    assert [finding.code for finding in report.suppressed] == ["AMP006"]
    override = Override(("unused.py",), ignore=("AMP006",), root=str(tmp_path))
    report = check([str(tmp_path)], Settings(select=("AMP006",), overrides=(override,)))
    assert [finding.code for finding in report.findings] == ["TCL003"]


def test_a_comment_behind_the_last_line_of_a_call_within_brackets_silences_it(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(
        "import torch\n"
        "with torch.autocast('cuda'):\n"
        "    done = [\n"
        "        loss.backward(\n"
        "            retain_graph=True\n"
        "        ),  # tclint: ignore[AMP006] measured\n"
        "        other.backward(\n"
        "            retain_graph=True\n"
        "        ),\n"
        "    ]\n"
    )
    report = check([str(file)], Settings(select=("AMP006",)))
    assert [finding.location.line for finding in report.suppressed] == [4]
    assert [(finding.code, finding.location.line) for finding in report.findings] == [("AMP006", 7)]

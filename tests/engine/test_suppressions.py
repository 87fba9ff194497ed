"""Which findings a comment silences, and which comments are reported as useless."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from tclint.analysis.graph_rule import GraphRule
from tclint.cli.main import cli
from tclint.config.settings import Override, Settings
from tclint.core.finding import Finding, Location
from tclint.edits.texts import apply_edits
from tclint.engine.check import check
from tclint.engine.ignores import ignoring
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


class _SourceTwin(SourceRule):
    code, name = "DIM001", "linear-misaligned"


def test_a_directive_that_may_be_meant_for_the_model_is_not_unused() -> None:
    def unused(*found: Finding) -> list[str]:
        standing, _ = apply_suppressions(
            found,
            source_paths=["a.py"],
            source_rules=[_SourceTwin()],
            graph_rules=[_Graph()],
            marked={"a.py": "x = 1  # tclint: ignore[DIM001]\n"},
        )
        return [finding.code for finding in standing if finding not in found]

    assert unused() == []
    assert unused(make_finding(3, "a.py", target="a.py:f")) == ["TCL002"], "the model was linted"


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
        "import torch\nwith torch.autocast('cuda'):\n    f(x).backward()  # tclint: ignore[AMP006] why\n"
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
        "        loss(x).backward(\n"
        "            retain_graph=True\n"
        "        ),  # tclint: ignore[AMP006] measured\n"
        "        other(x).backward(\n"
        "            retain_graph=True\n"
        "        ),\n"
        "    ]\n"
    )
    report = check([str(file)], Settings(select=("AMP006",)))
    assert [finding.location.line for finding in report.suppressed] == [4]
    assert [(finding.code, finding.location.line) for finding in report.findings] == [("AMP006", 7)]


OLD = """\
import torch

first = torch.cuda.amp.GradScaler(){comment}
second = torch.cuda.amp.GradScaler()
with torch.cuda.amp.autocast(enabled=True):
    pass
"""


def test_a_comment_on_one_of_several_places_silences_that_place_alone(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    settings = Settings(select=("AMP014",))

    def found(comment: str) -> list[list[int]]:
        """Lines of each finding."""
        file.write_text(OLD.format(comment=comment))
        return [
            [one.location.line, *(other.location.line for other in one.related if other.is_alike)]
            for one in check([str(file)], settings).findings
        ]

    assert found("") == [[3, 4, 5]]
    assert found("  # tclint: ignore[AMP014]") == [[4, 5]]
    assert found("\n# tclint: file-ignore[AMP014]") == []
    found("  # tclint: ignore[AMP014]")
    (finding,) = check([str(file)], settings).findings
    assert "The same goes for 1 more place." in finding.message
    assert finding.fix is not None
    assert {edit.start[0] for edit in finding.fix.edits} == {4, 5}, "what is silenced is not edited"


TWO_OPTIMIZERS = """\
import torch

def train(generator, critic, loader):
    generator, critic = generator.cuda(), critic.cuda()
    first = torch.optim.Adam(generator.parameters())
    second = torch.optim.Adam(critic.parameters()){comment}
    for images in loader:
        for network, optimizer in ((generator, first), (critic, second)):
            network(images).mean().backward()
            optimizer.step()
"""


@pytest.mark.parametrize(
    ("comment", "message", "edited"),
    [("", "The same goes for 1 more place.", {5, 6}), ("  # tclint: ignore[RUN012]", "one kernel.", {5})],
)
def test_one_of_several_optimizers_is_silenced_on_its_line(
    tmp_path: Path, comment: str, message: str, edited: set[int]
) -> None:
    (tmp_path / "a.py").write_text(TWO_OPTIMIZERS.format(comment=comment))
    (finding,) = check([str(tmp_path / "a.py")], Settings(select=("RUN012",))).findings
    assert finding.location.line == 5
    assert finding.message.endswith(message)
    assert finding.fix is not None
    assert {edit.start[0] for edit in finding.fix.edits} == edited


def test_an_import_that_a_silenced_use_needs_stays(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text(
        "import torch\nfrom torch.cuda.amp import GradScaler\n\n"
        "first = GradScaler()  # tclint: ignore[AMP014]\nsecond = GradScaler()\n"
    )
    (finding,) = check([str(file)], Settings(select=("AMP014",))).findings
    assert finding.location.line == 5
    assert finding.fix is not None
    assert finding.fix.edits == ()


@pytest.mark.parametrize(
    ("source", "line", "expected"),
    [
        ("a = 1\n", 1, "a = 1  # tclint: ignore[X]\n"),
        ("a = 1  \r\nb = 2\r\n", 1, "a = 1  # tclint: ignore[X]\r\nb = 2\r\n"),
        ("a = 1", 1, "a = 1  # tclint: ignore[X]"),
        ("a = 1  # noqa\n", 1, "a = 1  # noqa  # tclint: ignore[X]\n"),
        ("a = 1  # tclint: ignore[Y] why\n", 1, "a = 1  # tclint: ignore[Y, X] why\n"),
        ("a = 1  # tclint: file-ignore[Y]\n", 1, "a = 1  # tclint: file-ignore[Y]  # tclint: ignore[X]\n"),
        ("a = f(\n    1,\n)\n", 2, "a = f(\n    1,  # tclint: ignore[X]\n)\n"),
        ("a = 1 + \\\n    2\n", 1, "a = 1 + \\\n    2  # tclint: ignore[X]\n"),
        ('a = f("""\n\n""", 2)\n', 1, 'a = f("""\n\n""", 2)  # tclint: ignore[X]\n'),
        ('a = f(f"""{1}\n""", 2)\n', 1, 'a = f(f"""{1}\n""", 2)  # tclint: ignore[X]\n'),
        ("a = (\n", 1, "a = (\n"),
    ],
)
def test_where_a_comment_is_written(source: str, line: int, expected: str) -> None:
    text, _ = apply_edits(source, [ignoring("m.py", source, [(line, "X")])])
    assert text == expected
    if text != source:
        [*_, written] = [item for item in parse_suppressions(text) if "X" in item.rules]
        assert written.first_line <= line <= written.last_line


def test_comments_for_all_findings_are_written_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").write_text(OLD.format(comment=""))
    (tmp_path / "b.py").write_text("x = 1  # tclint: disable=AMP014\n")

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(cli, [".", "--isolated", "--select", "AMP014,TCL004", *arguments])

    assert run("--add-ignores", "--diff").exit_code == 2
    result = run("--add-ignores")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.startswith("ignored 1 finding in 1 file\n1 finding left: ")
    assert (tmp_path / "a.py").read_text().count("  # tclint: ignore[AMP014]\n") == 3
    assert "(enabled=True):  # tclint: ignore[AMP014]\n" in (tmp_path / "a.py").read_text()
    after = run("--format", "json")
    assert [one["code"] for one in json.loads(after.stdout)["findings"]] == ["TCL004"]

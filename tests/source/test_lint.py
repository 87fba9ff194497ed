"""The source pass as a whole: what it reads, skips, reports, and what it does not import."""

from __future__ import annotations

import random
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tclint.config.settings import Settings
from tclint.core.finding import Finding
from tclint.core.rule import CRASH_CODE, rules_of
from tclint.engine.sources.lint import lint
from tclint.source.context import SourceContext
from tclint.source.source_rule import SourceRule
from tclint.source.syntax.prefilter import MAX_SOURCE_BYTES
from tclint_rules.amp import backward_under_autocast
from tclint_rules.runtime.cudnn_benchmark_missing import CudnnBenchmarkMissing
from tclint_rules.runtime.sync_in_loop import SyncInLoop
from tclint_rules.scaling import loss_scaling
from tclint_rules.scaling.scaler_bypass import StepBypassesScaler

RULES = (*rules_of(loss_scaling), *rules_of(backward_under_autocast))
LOOP = """\
import torch

def train(model, loader, optimizer):
    for batch in loader:
        with torch.autocast("cuda"):
            loss = model(batch)
        loss.backward()
        optimizer.step()
"""


def rules() -> list[SourceRule]:
    return [rule() for rule in RULES if issubclass(rule, SourceRule)]


def lint_bytes(folder: Path, data: bytes, name: str = "train.py") -> tuple[list[Finding], list[str]]:
    (folder / name).write_bytes(data)
    result = lint([str(folder / name)], rules(), Settings())
    assert result.files == 1
    return result.findings, [skipped.reason for skipped in result.skipped]


def test_finding_has_exact_positions_evidence_and_fix(tmp_path: Path) -> None:
    (finding,), skipped = lint_bytes(tmp_path, LOOP.encode())
    assert not skipped
    location = finding.location
    assert (location.line, location.column, location.end_line, location.end_column) == (7, 9, 7, 24)
    assert location.path == str(tmp_path / "train.py")
    assert finding.related[0].location.line == 5
    assert finding.evidence["autocast"] == 'torch.autocast("cuda")'
    assert finding.evidence["dtype_from"] == "default"
    assert "2^-24" in finding.message
    assert finding.fix is not None
    assert "GradScaler" in finding.fix.advice
    assert finding.effect.unknown


@pytest.mark.parametrize("clips", [True, False])
def test_advice_names_every_step_that_the_program_needs(tmp_path: Path, clips: bool) -> None:
    clip = "        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n" if clips else ""
    text = LOOP.replace("        optimizer.step()\n", f"{clip}        optimizer.step()\n")
    assert (clip in text) is True
    found, _ = lint_bytes(tmp_path, text.encode())
    (advice,) = [one.fix.advice for one in found if one.code == "AMP001" and one.fix is not None]
    assert ("scaler.unscale_(optimizer)" in advice) is clips


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_positions_count_characters_whatever_the_line_ends(tmp_path: Path, newline: str) -> None:
    text = 'import torch\nwith torch.autocast("cpu"):\n    é = "日本"; model(é).sum().backward()\n'
    data = b"\xef\xbb\xbf" + text.replace("\n", newline).encode()
    (finding,), skipped = lint_bytes(tmp_path, data)
    assert not skipped
    assert (finding.location.line, finding.location.column) == (3, 15)
    assert finding.location.end_column == 15 + len("model(é).sum().backward()")
    assert finding.evidence["call"] == "model(é).sum().backward()"


def test_fingerprint_survives_edits_above(tmp_path: Path) -> None:
    before, _ = lint_bytes(tmp_path, LOOP.encode())
    after, _ = lint_bytes(tmp_path, ("# a comment\n" * 5 + LOOP).encode())
    assert before[0].location.line != after[0].location.line
    assert before[0].fingerprint == after[0].fingerprint


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (LOOP.encode() + b"x = 1\n" * (MAX_SOURCE_BYTES // 6), "larger than"),
        (LOOP.encode() + b"x = " + b"(" * 9000 + b"1" + b")" * 9000 + b"\n", "nested too deeply"),
        (LOOP.encode() + b"x = " + b"not " * 20000 + b"1\n", "nested too deeply"),
        (LOOP.encode() + b"if a: pass\n" + b"elif a: pass\n" * 20000, "nested too deeply"),
    ],
    ids=["large", "brackets", "nots", "elifs"],
)
def test_files_beyond_a_limit_are_skipped_with_a_reason(tmp_path: Path, data: bytes, reason: str) -> None:
    (tmp_path / "train.py").write_bytes(data)
    found = lint([str(tmp_path)], rules(), Settings())
    assert reason in found.skipped[0].reason
    named = lint([str(tmp_path / "train.py")], rules(), Settings())
    assert reason in named.errors[0][1]
    assert not [*found.findings, *found.errors, *named.findings, *named.skipped]


BROKEN = {
    "latin-1": (LOOP.replace("batch in", "b\xe4tch in").encode("latin-1"), "not UTF-8", (4, 10)),
    "binary": (LOOP.encode() + b"x\0", "binary", (9, 2)),
    "python 2": (LOOP.encode() + b"print 'loss', loss\n", "Python 2", (9, 1)),
    "template": (LOOP.encode() + b"{% if cookiecutter.amp %}\n", "template", (9, 2)),
    "syntax": (LOOP.encode() + b"def broken(:\n", "syntax error on line 9: ", (9, 12)),
    "end": (LOOP.encode() + b"if x:\n", "syntax error on line ", (9, 6)),
    "no rule concerns it": (b"import torch\n\ndef f(:\n", "syntax error on line 3: ", (3, 7)),
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("cached", [False, True])
def test_files_that_python_cannot_read_are_findings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, cached: bool
) -> None:
    data, reason, place = BROKEN[name]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "src").mkdir()
    path = tmp_path / "src" / "bad.py"
    path.write_bytes(data)
    for named in (path, tmp_path / "src", path):
        result = lint([str(named)], rules(), Settings(cache=cached))
        (finding,) = result.findings
        assert (finding.code, finding.name, finding.level) == ("TCL003", "unreadable-source", "error")
        assert reason in finding.message
        assert finding.location.path == str(path)
        assert (finding.location.line, finding.location.column) == place
        assert (result.skipped, result.paths, result.files) == ([], (), 1)


def test_a_file_without_torch_is_looked_at_only_where_it_is_named(tmp_path: Path) -> None:
    path = tmp_path / "other.py"
    path.write_text("def f(:\n")
    assert [finding.code for finding in lint([str(path)], rules(), Settings()).findings] == ["TCL003"]
    assert lint([str(tmp_path)], rules(), Settings()).findings == []


def test_odd_escapes_of_a_file_that_no_rule_concerns_warn_nobody(tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text("import torch\nunit = '\\d'\nsame = 1 is 1\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert lint([str(tmp_path / "odd.py")], rules(), Settings(cache=False)).findings == []


def test_one_bad_file_does_not_end_the_run(tmp_path: Path) -> None:
    (tmp_path / "a_bad.py").write_text("with autocast(: loss.backward()")
    (tmp_path / "b_good.py").write_text(LOOP)
    (tmp_path / "c_other.py").write_text("x = 1\n")
    result = lint([str(tmp_path)], rules(), Settings())
    assert [finding.code for finding in result.findings] == ["TCL003", "AMP001"]
    assert (result.files, result.parsed, result.skipped) == (3, 1, [])
    assert [Path(path).name for path in result.paths] == ["b_good.py", "c_other.py"]


def test_long_sums_do_not_exhaust_the_stack(tmp_path: Path) -> None:
    data = (LOOP + "total = " + " + ".join(["1"] * 900) + "\n").encode()
    findings, skipped = lint_bytes(tmp_path, data)
    assert [finding.code for finding in findings] == ["AMP001"]
    assert not skipped


class Crashing(SourceRule):
    code, name, since, level, confidence = "TST001", "crashing", "0", "warning", "high"
    triggers = ("torch",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        raise RuntimeError("mistake")
        yield


def test_crashing_rule_is_a_finding_and_the_others_run(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LOOP)
    result = lint([str(tmp_path)], [Crashing(), *rules()], Settings())
    assert [finding.code for finding in result.findings] == [CRASH_CODE, "AMP001"]
    line = Crashing.check.__code__.co_firstlineno + 1
    assert result.findings[0].message == (
        f"Rule TST001 (crashing) failed at test_lint.py:{line} with RuntimeError: mistake. "
        "The other rules ran; --debug shows the traceback."
    )


def test_a_scaler_that_a_library_made_on_import_is_said_to_come_from_elsewhere(tmp_path: Path) -> None:
    program = """
from apex import amp
import torch

model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
optimizer = torch.optim.AdamW(model.cuda().parameters(), lr=1e-3)
for batch in loader:
    loss = model(batch)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
"""
    (tmp_path / "train.py").write_text(program)
    result = lint([str(tmp_path / "train.py")], [StepBypassesScaler()], Settings())
    (finding,) = result.findings
    assert (finding.code, finding.location.line) == ("AMP005", 11)
    assert finding.evidence["scaler"] == "comes from elsewhere"


def test_pass_imports_no_torch_and_libcst_only_when_it_parses(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("x = 1\n")
    (tmp_path / "train.py").write_text(LOOP)
    program = f"""
import sys
import tclint.engine.sources.lint
from tclint.config.settings import Settings
from tclint.core.rule import rules_of
from tclint_rules.scaling import loss_scaling
from tclint_rules.scaling.scaler_bypass import StepBypassesScaler
rules = [rule() for rule in rules_of(loss_scaling)]
assert not {{"torch", "libcst"}} & set(sys.modules), "import"
assert not tclint.engine.sources.lint.lint([{str(tmp_path / "plain.py")!r}], rules, Settings()).findings
assert "libcst" not in sys.modules, "prefilter"
given = [{str(tmp_path / "train.py")!r}]
assert tclint.engine.sources.lint.lint(given, rules, Settings(cache=False)).findings
assert "libcst" in sys.modules
assert "torch" not in sys.modules, "lint"
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_speed_benchmark_prints_its_ratio() -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, str(root / "benchmarks" / "source_speed.py"), "--repeats", "1"]
    folder = str(Path(__file__).parent / "labelled" / "memory_format")
    done = subprocess.run([*command, folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "ratio pass / parse" in done.stdout


def test_linting_is_linear_in_the_size_of_a_file() -> None:
    """By the functions called, which no other process disturbs: a rule that looks at each step for each step
    comes to 1.3, all of them to 1.01."""
    root = Path(__file__).parents[2]
    command = [sys.executable, str(root / "benchmarks" / "source_scaling.py"), "--calls", "--sizes", "10,20"]
    done = subprocess.run([*command, "--growth", "1.05"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_result_may_be_thousands_of_operations_deep(tmp_path: Path) -> None:
    lines = [
        "import torch",
        "def train(model, loader, optimizer):",
        "    model.cuda()",
        "    for x, y in loader:",
        "        x = model(x.cuda())",
        *["        x = torch.relu(x)"] * 1200,
        "        loss = (x - y.cuda()).square().mean()",
        "        loss.backward()",
        "        optimizer.step()",
        "        print(loss.item())",
    ]
    (tmp_path / "train.py").write_text("\n".join(lines))
    [finding] = lint([str(tmp_path / "train.py")], [SyncInLoop()], Settings()).findings
    assert (finding.code, finding.location.line) == ("RUN014", len(lines))


def test_a_network_made_from_its_end_may_have_a_thousand_layers(tmp_path: Path) -> None:
    """Where each layer is follows from an input that later layers give on."""
    count = 1200
    lines = [
        "import torch",
        *[f"layer_{number} = torch.nn.Linear(64, 64)" for number in reversed(range(count))],
        "def train(loader, optimizer):",
        "    for x, y in loader:",
        "        x = x.cuda()",
        *[f"        x = layer_{number}(x)" for number in range(count)],
        "        loss = (x - y.cuda()).square().mean()",
        "        loss.backward()",
        "        optimizer.step()",
        "        print(loss.item())",
    ]
    (tmp_path / "train.py").write_text("\n".join(lines))
    [finding] = lint([str(tmp_path / "train.py")], [SyncInLoop()], Settings()).findings
    assert (finding.code, finding.location.line) == ("RUN014", len(lines))


@pytest.mark.parametrize(
    ("use", "said"),
    [
        ("images = resize(images)", "inputs of one size (`Resize`)"),
        ("show(resize(labels))", "inputs of one size, and"),
    ],
)
def test_a_size_is_said_to_come_from_what_gives_it(tmp_path: Path, use: str, said: str) -> None:
    text = f"""\
import torch
from torchvision import transforms
from batches import joined

resize = transforms.Resize((224, 224))
stem = torch.nn.Conv2d(3, 64, 3).cuda()
for images, labels in torch.utils.data.DataLoader(pictures, 64, collate_fn=joined):
    {use}
    stem(images.cuda()).mean().backward()
    optimizer.step()
"""
    (tmp_path / "train.py").write_text(text)
    [finding] = lint([str(tmp_path / "train.py")], [CudnnBenchmarkMissing()], Settings()).findings
    assert said in finding.message


EXAMPLES = Path(__file__).parents[2] / "fixtures" / "rules"
CORPUS = [
    path.read_text("utf-8")
    for folder in (Path(__file__).parent / "labelled", *(EXAMPLES / rule.code for rule in RULES))
    for path in sorted(folder.glob("*.py"))
]

FRAGMENTS = [
    "with torch.autocast('cuda'):",
    "loss.backward()",
    "    ",
    "\n",
    "else:",
    "lambda: ",
    "(",
    ")",
    "self.",
    "yield ",
    "*",
    "loss, loss = loss,",
    "@torch.autocast('cuda')",
    "{**loss}",
    "global loss",
    "loss = loss",
    "def loss(loss=loss):",
    "if loss: loss = loss * loss",
    "for loss in loss:",
    "ctx = ctx or ctx()",
]


@settings(max_examples=30, deadline=None)
@given(
    text=st.sampled_from(CORPUS),
    seed=st.integers(0, 2**32),
    fragments=st.lists(st.sampled_from(FRAGMENTS), max_size=4),
    kind=st.sampled_from(["drop", "swap", "double", "insert", "cut"]),
)
def test_mutated_programs_never_crash(text: str, seed: int, fragments: list[str], kind: str) -> None:
    from tclint.engine.sources.program import lint_text
    from tclint.source.syntax.parse import NotPython

    choose = random.Random(seed)
    lines = text.splitlines(keepends=True)
    first, second = choose.randrange(len(lines)), choose.randrange(len(lines))
    if kind == "drop":
        del lines[first]
    elif kind == "swap":
        lines[first], lines[second] = lines[second], lines[first]
    elif kind == "double":
        lines.insert(first, lines[second])
    elif kind == "cut":
        lines[first] = lines[first][: choose.randrange(len(lines[first]) + 1)] + "\n"
    for fragment in fragments:
        line = choose.randrange(len(lines)) if lines else 0
        indent = lines[line][: len(lines[line]) - len(lines[line].lstrip())] if lines else ""
        lines.insert(line, f"{indent}{fragment}\n")
    mutated = "".join(lines)
    try:
        findings = lint_text(mutated, rules(), Settings())
    except NotPython:
        return
    assert not [finding.evidence for finding in findings if finding.code == CRASH_CODE]
    for finding in findings:
        last = finding.location.end_line or finding.location.line
        assert "backward" in "".join(mutated.split("\n")[finding.location.line - 1 : last])


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_are_text_or_a_reason(data: bytes) -> None:
    from tclint.source.syntax.parse import NotPython, decode, parse

    try:
        parsed = parse(decode(data))
    except NotPython:
        return
    assert len(parsed.spans) == parsed.tables.node_ids

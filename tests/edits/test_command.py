"""`tclint fix` and `tclint check --fix`: what is written, what is said, and when nothing is."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tclint.cli.main import cli
from tclint.config.settings import Settings
from tclint.engine.check import check
from tclint.engine.fixes.files import write_each
from tclint.engine.fixes.sources import fix

BEFORE = """\
import torch
from torch.nn.utils import clip_grad_norm_

scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    scaler.scale(model(batch)).backward()
    clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
"""
AFTER = BEFORE.replace("    clip", "    scaler.unscale_(optimizer)\n    clip")
UNSAFE = "import torch\n\ntorch.backends.cudnn.benchmark = False\nmodel = build().cuda()\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.py").write_text(BEFORE)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments, "--isolated"], catch_exceptions=False)


def test_fix_writes_and_a_second_run_finds_nothing(folder: Path) -> None:
    result = run("fix", "train.py")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "fixed 1 finding in 1 file\n"
    assert (folder / "train.py").read_text() == AFTER
    written = (folder / "train.py").stat().st_mtime_ns
    assert run("fix", "train.py").stderr == "fixed 0 findings\n"
    assert (folder / "train.py").stat().st_mtime_ns == written
    assert sorted(path.name for path in folder.iterdir()) == [".git", "train.py"]


def test_what_was_of_no_use_beside_another_fix_is_tried_again(folder: Path) -> None:
    """The scaled loss makes another clipping wrong, so that there is one finding as before."""
    program = BEFORE.replace("    scaler.update()\n", "")
    second = """\
    scaler.scale(model(batch)).backward()
    scaler.unscale_(optimizer)
    for image in images: model(image).mean().backward()
    clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
"""
    (folder / "train.py").write_text(program + second)
    run("fix", "train.py")
    text = (folder / "train.py").read_text()
    assert text.index("unscale_") < text.index("clip_grad_norm_(model")
    assert "scaler.scale(model(image).mean()).backward()" in text
    run("fix", "train.py")
    assert (folder / "train.py").read_text() == text


def test_the_fix_of_an_error_comes_before_those_that_it_makes_needless(folder: Path) -> None:
    """A model that is not cast to float16 needs no batch norms put back to float32."""
    (folder / "train.py").write_text("""\
import torch
import torchvision

model = torchvision.models.resnet50()
model.half()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model = model.cuda()
scaler = torch.amp.GradScaler("cuda")
for images in loader:
    images = images.cuda()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(images).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""")
    run("check", "--fix", "--unsafe-fixes", "--select", "AMP009,ARC019,FMT001", "train.py")
    text = (folder / "train.py").read_text()
    assert "half()" not in text
    assert "channels_last" in text
    assert "BatchNorm" not in text


def test_check_fix_reports_what_is_left(folder: Path) -> None:
    (folder / "bench.py").write_text(UNSAFE)
    result = run("check", "--fix", "--fail-on", "info", "--select", "AMP003,RUN002", ".")
    assert result.exit_code == 1
    assert "RUN002" in result.stdout
    assert "AMP003" not in result.stdout
    assert result.stderr == "fixed 1 finding in 1 file, 1 needs --unsafe-fixes\n"
    assert (folder / "bench.py").read_text() == UNSAFE
    result = run("check", "--fix", "--unsafe-fixes", "--fail-on", "info", "--select", "AMP003,RUN002", ".")
    assert result.exit_code == 0
    assert (folder / "bench.py").read_text() == UNSAFE.replace("False", "True")


def test_unsafe_fixes_alone_change_nothing(folder: Path) -> None:
    assert run("check", "--unsafe-fixes", ".").exit_code == 1
    assert (folder / "train.py").read_text() == BEFORE


@pytest.mark.parametrize("command", [("fix",), ("check", "--fix"), ("check",)])
def test_diff_shows_and_changes_nothing(folder: Path, command: tuple[str, ...]) -> None:
    result = run(*command, "--diff", "train.py")
    assert result.exit_code == 1
    assert (folder / "train.py").read_text() == BEFORE
    assert result.stdout.startswith("--- train.py\n+++ train.py\n@@ -4,6 +4,7 @@\n")
    assert "+    scaler.unscale_(optimizer)\n" in result.stdout
    assert result.stderr == "would fix 1 finding in 1 file\n"
    (folder / "train.py").write_text(AFTER)
    result = run(*command, "--diff", "train.py")
    assert (result.exit_code, result.stdout) == (0, "")


@pytest.mark.parametrize(
    "before",
    [BEFORE, BEFORE.replace("\n", "\r\n"), BEFORE.rstrip(), "\ufeff" + BEFORE, BEFORE + "\n# é\x0c\n"],
)
def test_a_diff_is_a_patch(folder: Path, before: str) -> None:
    (folder / "train.py").write_bytes(before.encode())
    patch = run("fix", "--diff", "train.py").stdout_bytes
    (folder / "copy").mkdir()
    (folder / "copy" / "train.py").write_bytes(before.encode())
    subprocess.run(["git", "apply", "-p0", "-"], input=patch, cwd=folder / "copy", check=True)
    run("fix", "train.py")
    assert (
        (folder / "copy" / "train.py").read_bytes() == (folder / "train.py").read_bytes() != before.encode()
    )


def test_mode_bits_and_links_stay(folder: Path) -> None:
    (folder / "real").mkdir()
    file = folder / "real" / "train.py"
    file.write_text(BEFORE)
    file.chmod(0o754)
    (folder / "train.py").unlink()
    (folder / "train.py").symlink_to(file)
    assert run("fix", "train.py").exit_code == 0
    assert (folder / "train.py").is_symlink()
    assert file.read_text() == AFTER
    assert file.stat().st_mode & 0o777 == 0o754


def test_a_file_that_changed_meanwhile_is_left_alone(folder: Path) -> None:
    settings = Settings()
    report = check(["train.py"], settings)
    (folder / "train.py").write_text("# mine\n" + BEFORE)
    outcome = fix(report, lambda contents: check(["train.py"], settings, contents=contents), unsafe=True)
    assert outcome.files == []
    assert outcome.refused == ["train.py changed while it was linted; left as it is, run tclint again."]

    report = check(["train.py"], settings)
    outcome = fix(report, lambda contents: check(["train.py"], settings, contents=contents), unsafe=True)
    (folder / "train.py").write_text("# mine again\n" + BEFORE)
    outcome.files, outcome.refused = write_each(outcome.files)
    assert (outcome.files, outcome.exit_code(diff=False)) == ([], 2)
    assert outcome.refused == ["train.py changed while it was being fixed; left as it is, run tclint again."]
    assert (folder / "train.py").read_text() == "# mine again\n" + BEFORE


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_without_permission_is_an_error(folder: Path) -> None:
    folder.chmod(0o555)
    try:
        result = run("fix", "train.py")
    finally:
        folder.chmod(0o755)
    assert result.exit_code == 2
    assert "Permission denied" in result.stderr
    assert (folder / "train.py").read_text() == BEFORE


def test_a_missing_path_is_an_error_and_the_others_are_fixed(folder: Path) -> None:
    result = run("fix", "train.py", "gone.py")
    assert result.exit_code == 2
    assert "gone.py" in result.stderr
    assert (folder / "train.py").read_text() == AFTER


def test_suppressed_and_ignored_findings_are_not_fixed(folder: Path) -> None:
    suppressed = BEFORE.replace("1.0)", "1.0)  # tclint: ignore[AMP003] clipped on purpose")
    (folder / "train.py").write_text(suppressed)
    assert run("fix", "train.py").stderr == "fixed 0 findings\n"
    assert (folder / "train.py").read_text() == suppressed
    (folder / "train.py").write_text(BEFORE)
    assert run("fix", "--ignore", "AMP003", "train.py").stderr == "fixed 0 findings\n"
    assert (folder / "train.py").read_text() == BEFORE


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a = 1  # tclint: ignore[AMP003] why\n", "a = 1\n"),
        ("# tclint: ignore[AMP003]\na = 1\n", "a = 1\n"),
        ("# tclint: file-ignore[clip-before-unscale]\r\na = 1\r\n", "a = 1\r\n"),
        ("a = 1  # tclint: ignore[AMP003]  # noqa\n", "a = 1  # noqa\n"),
        ("a = 1  # tclint: ignore[AMP003, XYZ001] why\n", "a = 1  # tclint: ignore[XYZ001] why\n"),
        ("a = f(\n    1,  # tclint: ignore[AMP003,AMP004]\n)\n", "a = f(\n    1,\n)\n"),
        ("a = 1\n    # tclint: ignore[AMP003]", "a = 1\n"),
        ("é = 'ü'; b = 1\t# tclint: ignore[AMP003]\n", "é = 'ü'; b = 1\n"),
        ("a = 1  # tclint: ignore\n", "a = 1  # tclint: ignore\n"),
        ("a = 1  # tclint: ignore[DIM001]\n", "a = 1  # tclint: ignore[DIM001]\n"),
        ("a = '# tclint: ignore[AMP003]'\n", "a = '# tclint: ignore[AMP003]'\n"),
    ],
)
def test_unused_suppressions_are_removed(folder: Path, before: str, after: str) -> None:
    (folder / "train.py").write_bytes(before.encode())
    assert run("fix", "train.py").exit_code == 0
    assert (folder / "train.py").read_bytes().decode() == after


def test_a_suppression_that_a_fix_makes_useless_goes_as_well(folder: Path) -> None:
    text = BEFORE.replace("step(optimizer)", "step(optimizer)  # tclint: ignore[AMP004] here")
    (folder / "train.py").write_text(text)
    result = run("fix", "train.py")
    assert result.stderr == "fixed 2 findings in 1 file\n"
    assert (folder / "train.py").read_text() == AFTER


@pytest.mark.parametrize("command", [("fix",), ("fix", "--diff"), ("check", "--diff")])
def test_a_path_that_is_missing_is_named(folder: Path, command: tuple[str, ...]) -> None:
    result = run(*command, "mising.py")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "There is no file or folder 'mising.py'" in result.stderr
    assert "0 findings" not in result.stderr

    beside = run(*command, "mising.py", "train.py")
    assert beside.exit_code == 2
    assert "There is no file or folder 'mising.py'" in beside.stderr
    assert "1 finding in 1 file" in beside.stderr

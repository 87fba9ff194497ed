"""Every fix on programs that people write: before and after, in every layout that files come in.

The cases are pairs of files, `RULE-what.SAFETY.before` and `.after`; 'none' has no after: the finding stays
advice. '-pinned' stands in a project that requires torch 2.4.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable
from pathlib import Path

import libcst
import pytest
from fixing import fixed

from tclint.config.settings import Settings

CASES = Path(__file__).parent / "cases"
BEFORE = sorted(CASES.glob("*.before"))


def crlf(text: str) -> str:
    return text.replace("\n", "\r\n")


LAYOUTS: dict[str, Callable[[str], bytes]] = {
    "CRLF": lambda text: crlf(text).encode(),
    "byte order mark": lambda text: b"\xef\xbb\xbf" + text.encode(),
    "no last newline": lambda text: text.rstrip("\n").encode(),
    "tabs": lambda text: text.replace("    ", "\t").encode(),
    "wide characters": lambda text: text.replace("loader", "größe_界").encode(),
}


def case(path: Path) -> tuple[str, str, str]:
    """Rule, safety and text after the fix."""
    name, safety, _ = path.name.rsplit(".", 2)
    after = path.with_suffix(".after")
    text = after if safety != "none" else path
    return name.split("-")[0], safety, text.read_bytes().decode()


def test_every_pair_is_complete() -> None:
    assert len(BEFORE) >= 50
    after = {path.with_suffix(".before") for path in CASES.glob("*.after")}
    assert after == {path for path in BEFORE if ".none." not in path.name}


@pytest.mark.parametrize("path", BEFORE, ids=lambda path: path.name.removesuffix(".before"))
def test_fix(path: Path, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    if "-pinned" in path.name:
        (tmp_path / "requirements.txt").write_text("numpy\ntorch>=2.4  # warns\n")
    if "-old" in path.name:
        (tmp_path / "requirements.txt").write_text("torch>=2.0\n")
    rule, safety, after = case(path)
    settings = Settings(select=(rule,))
    file = tmp_path / "train.py"
    before = path.read_bytes().decode()
    file.write_bytes(before.encode())
    if safety == "unsafe":
        data, outcome = fixed(file, settings, unsafe=False)
        assert data.decode() == before
        assert outcome.unsafe == len(outcome.report.findings)
    data, outcome = fixed(file, settings, unsafe=safety != "safe")
    assert data.decode() == after
    assert bool(outcome.report.findings) == (safety == "none")
    if safety == "none":
        # Not even edits that would be of no use.
        assert not any(finding.fix.edits for finding in outcome.report.findings if finding.fix)
        return
    # Nothing is left to fix.
    file.write_bytes(data)
    again, outcome = fixed(file, settings)
    assert (again, outcome.fixed) == (data, 0)
    libcst.parse_module(data)
    # A layout is the same to every fix: each case comes in one more of them, each of them in many cases.
    layout = list(LAYOUTS)[BEFORE.index(path) % len(LAYOUTS)]
    written = LAYOUTS[layout]
    file.write_bytes(written(before))
    data, outcome = fixed(file, settings)
    assert data.decode() == written(after).decode(), layout
    libcst.parse_module(data)


@pytest.mark.parametrize("path", BEFORE, ids=lambda path: path.name.removesuffix(".before"))
def test_comments_stay(path: Path) -> None:
    def comments(text: str) -> list[str]:
        return sorted(line.split("#", 1)[1] for line in text.splitlines() if "#" in line)

    assert comments(case(path)[2]) == comments(path.read_text())


@pytest.mark.parametrize("path", BEFORE, ids=lambda path: path.name.removesuffix(".before"))
def test_only_a_few_lines_change(path: Path) -> None:
    before, after = path.read_text().splitlines(), case(path)[2].splitlines()
    ast.parse("\n".join(after))
    kept = sum(block.size for block in difflib.SequenceMatcher(None, before, after).get_matching_blocks())
    assert kept >= 0.5 * len(before) or len(before) < 12

"""The table of well-known models: every row is in the page, and the zoo, which writes the rest, keeps it."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import known_models
from zoo_table import write_table

from tclint.core.toml import parse_toml


def test_the_page_has_every_row_with_its_command() -> None:
    section = known_models.PAGE.read_text(encoding="utf-8").partition(known_models.HEADING)[2]
    for row in parse_toml(known_models.ROWS.read_text(encoding="utf-8"))["model"]:
        start = f"| {row['name']} | `{known_models._shortened(row['command'])}` |"
        assert start in section, f"run benchmarks/known_models.py --write: {row['name']}"


def test_the_zoo_keeps_the_section(tmp_path: Path) -> None:
    page = tmp_path / "coverage.md"
    page.write_text(f"# Old\n\n{known_models.HEADING}\n\nkept\n")
    write_table(known_models.ROWS.parent / "zoo", page)
    text = page.read_text(encoding="utf-8")
    assert "# Old" not in text
    assert text.endswith(f"\n\n{known_models.HEADING}\n\nkept\n")

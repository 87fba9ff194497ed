"""Generated pages are those that the code gives, and what pages and docstrings name is there."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]
GENERATE = ROOT / "docs" / "generate.py"

PATH = re.compile(r"(?<![\w./@-])(?:tclint|rules|tests|docs|benchmarks|fixtures)/[\w./-]*\w")
NAME = re.compile(r"(?<![\w./\[-])(?:tclint|tclint_rules)(?:\.[A-Za-z_]\w*)+(?!\w*[/-])")
OTHERS = {
    *("tclint.json", "tclint.prom", "tclint.sarif", "tclint.vsix"),  # files
    *(
        "tclint.args",
        "tclint.interpreter",
        "tclint.path",
        "tclint.trace.server",
        "tclint.traceOnSave",
    ),  # VS Code's
    "tclint.rules",  # the group of entry points
    "tclint.summary",  # what tables of libraries import
    *(
        "tclint/model.py",
        "tclint/packages/a/sources",
        "tclint/sources",
        "tests/test_lint_rules.py",
    ),  # of projects
    "docs/model_profile.csv",
}
"""Names that look like ours and are none."""


def test_no_page_is_stale() -> None:
    done = subprocess.run(
        [sys.executable, str(GENERATE), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"run `python docs/generate.py`:\n{done.stdout}{done.stderr}"


def read() -> Iterator[tuple[Path, str]]:
    """The texts that name files and names: pages whole, and what is triple-quoted in code."""
    for file in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")):
        yield file, file.read_text(encoding="utf-8")
    for folder in ("tclint", "rules", "benchmarks"):
        for file in (ROOT / folder).rglob("*.py"):
            yield file, "\n".join(file.read_text(encoding="utf-8").split('"""')[1::2])


def is_there(name: str) -> bool:
    """Whether the module is there, and speaks of the next part of the name."""
    module, *parts = name.replace("tclint_rules", "rules", 1).split(".")
    folder = ROOT / module
    while parts and (folder / parts[0]).is_dir():
        folder /= parts.pop(0)
    if parts and (folder / f"{parts[0]}.py").is_file():
        file = folder / f"{parts.pop(0)}.py"
    else:
        file = folder / "__init__.py"
    text = file.read_text(encoding="utf-8")
    return all(re.search(rf"\b{part}\b", text) for part in parts)


@pytest.mark.parametrize("kind", ["paths", "names"])
def test_what_pages_and_docstrings_name_is_there(kind: str) -> None:
    missing, count = set(), 0
    for file, text in read():
        for named in set((PATH if kind == "paths" else NAME).findall(text)) - OTHERS:
            count += 1
            found = (
                any((base / named).exists() for base in (ROOT, file.parent))
                if kind == "paths"
                else is_there(named)
            )
            if not found:
                missing.add((str(file.relative_to(ROOT)), named))
    assert count > 90
    assert sorted(missing) == []


def test_every_rule_is_in_the_menu_of_the_site() -> None:
    spec = importlib.util.spec_from_file_location("site_links", ROOT / "docs" / "site_links.py")
    assert spec is not None
    assert spec.loader is not None
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    config = SimpleNamespace(nav=[{"Home": "index.md"}, {"Reference": [{"Rules": "rules/index.md"}, "x.md"]}])
    hook.on_config(config)
    [index, *families], other = config.nav[1]["Reference"][0]["Rules"], config.nav[1]["Reference"][1]
    pages = [path for family in families for one in next(iter(family.values())) for path in one.values()]
    assert set(pages) == {f"rules/{page.name}" for page in (ROOT / "docs/rules").glob("*.md")} - set(
        index.values()
    )
    assert {"AMP001 fp16-autocast-no-scaler": "rules/AMP001.md"} in families[0]["AMP"]
    assert other == "x.md"

"""The recipes of docs/how-to/ci.md: valid by the schemas of those who run them, and true to the command."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "how-to" / "ci.md").read_text(encoding="utf-8")
RECIPES = re.findall(r"<!-- schema: ([a-z-]+) -->\n```yaml\n(.*?)```", GUIDE, re.DOTALL)


def test_every_yaml_recipe_is_checked() -> None:
    assert len(RECIPES) == GUIDE.count("```yaml") >= 5


@pytest.mark.parametrize(("schema", "recipe"), RECIPES)
def test_recipe_is_valid(schema: str, recipe: str, tmp_path: Path) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text(recipe)
    if schema == "pre-commit-config":
        clientlib = pytest.importorskip("pre_commit.clientlib")
        clientlib.load_config(str(file))
        return
    folders = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    check = shutil.which("check-jsonschema", path=folders)
    if check is None:
        pytest.skip("check-jsonschema is not installed")
    command = [check, "--builtin-schema", f"vendor.{schema}", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("schema", "recipe"), RECIPES)
def test_recipe_gives_the_action_what_it_has(schema: str, recipe: str) -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    for job in yaml.safe_load(recipe).get("jobs", {}).values():
        for step in job["steps"]:
            if step.get("uses", "").startswith("OWNER/tclint@"):
                assert set(step.get("with", {})) <= set(action["inputs"])
    used = set(re.findall(r"steps\.tclint\.outputs\.([a-z-]+)", recipe))
    assert used <= set(action["outputs"])


def test_formats_and_options_exist() -> None:
    from tclint.cli.main import cli
    from tclint.report.render import FORMATS

    listed = re.findall(r"^\| `([a-z]+)` \|", GUIDE, re.MULTILINE)
    assert set(listed) <= set(FORMATS)
    assert {"github", "markdown", "sarif", "json", "jsonl", "openmetrics"} <= set(listed)
    known = {name for command in cli.commands.values() for option in command.params for name in option.opts}
    written = set(re.findall(r"tclint[^\n`]*?(--[a-z-]+)", GUIDE))
    assert written <= known


def test_metric_names_exist() -> None:
    report = ROOT / "tclint" / "report"
    files = (report / "metrics.toml", report / "formats" / "openmetrics.py")
    source = "".join(file.read_text(encoding="utf-8") for file in files)
    for name in re.findall(r"`(tclint_[a-z_]+)`", GUIDE):
        assert f'"{name}"' in source

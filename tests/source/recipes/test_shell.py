"""Command lines of trainings in shell scripts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tclint.config.settings import Settings
from tclint.engine.check import check
from tclint.source.recipes.reading import read_recipe
from tclint.source.recipes.shell_text import parse_shell
from tclint.source.recipes.step import step_of
from tclint.source.recipes.tree import NotReadable

SCRIPT = """\
#!/bin/bash
# Don't run this twice.
MODEL=facebook/opt-1.3b
STAGE=$2
if [ "$STAGE" == "" ]; then
    STAGE=3
fi
echo "starts"
torchrun --nproc_per_node=4 train.py \\
    --model_name_or_path $MODEL \\
    --per_device_train_batch_size "2" \\
    --learning_rate 2e-5 --bf16 \\
    --max_seq_len 512 \\
    --zero_stage $STAGE \\
    --output_dir $OUT/opt &> log
"""


def test_options_of_a_command() -> None:
    entries = parse_shell(SCRIPT).entries
    assert {name: node.value for name, node in entries.items()} == {
        "nproc_per_node": 4,
        "model_name_or_path": "facebook/opt-1.3b",
        "per_device_train_batch_size": 2,
        "learning_rate": "2e-5",
        "bf16": True,
        "max_seq_len": 512,
        "zero_stage": 3,
        "output_dir": None,  # of the environment
    }
    span = entries["bf16"].span
    assert (span.line, span.column, span.end_column) == (12, 26, 32)


def test_variables_with_several_values_are_unknown() -> None:
    script = SCRIPT.replace("STAGE=$2", "STAGE=2")
    assert parse_shell(script).entries["zero_stage"].value is None


def test_quotes_that_are_not_closed() -> None:
    with pytest.raises(NotReadable, match="quotation") as caught:
        parse_shell("python a.py \\\n  --name 'x\n")
    assert caught.value.line == 2
    assert not parse_shell("echo 'a\nb'\n").entries


def test_what_a_script_says_of_its_step() -> None:
    recipe = read_recipe("run.sh", SCRIPT.encode())
    assert recipe is not None
    step = step_of(recipe)
    assert {name: said.value for name, said in step.stated.items()} == {
        "model": "facebook/opt-1.3b",
        "length": 512,
        "batch": 2,
        "precision": "bf16",
        "parallel": "zero3",
        "has_master_weights": True,
        "gpu_count": 4,
    }
    assert step.stated["batch"].line == 11


def test_scripts_are_read_where_they_are_named(tmp_path: Path) -> None:
    script, other = tmp_path / "run.sh", tmp_path / "clean.sh"
    script.write_text(SCRIPT)
    other.write_text("rm -r build\n")
    settings = Settings(cache=False, price_recipes=False)
    assert check(str(tmp_path), settings).paths == ()
    report = check(str(script), settings)
    assert not report.findings
    assert not report.errors
    (error,) = check(str(other), settings).errors
    assert "starts no training whose options tclint knows" in error.message

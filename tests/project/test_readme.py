"""The README's commands: each is one that the command line takes, and names what a fresh clone has."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from tclint.cli.main import cli
from tclint.core.target import LIBRARIES, is_model_target

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"([^\n]*)\n\n```sh\n(.*?)```", README, re.DOTALL)
OWN_PROJECT = "your own project"
"""Said in the line above a block whose files are the reader's."""

COMMANDS = [
    (said, shlex.split(line, comments=True))
    for said, block in BLOCKS
    for line in block.splitlines()
    if re.match(r"(\S*/)?tclint ", line)
]


def test_there_are_commands() -> None:
    assert len(COMMANDS) > 8
    assert any(OWN_PROJECT in said for said, _ in COMMANDS)
    assert sum(OWN_PROJECT not in said for said, _ in COMMANDS) > 3


@pytest.mark.parametrize(("said", "words"), COMMANDS, ids=[" ".join(words) for _, words in COMMANDS])
def test_the_command_is_taken_and_its_files_are_there(
    said: str, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    given_words = words[1:] if words[1] in cli.commands else ["check", *words[1:]]
    with click.Context(cli) as context:
        name, command, rest = cli.resolve_command(context, given_words)
        assert command is not None
        parsed = command.make_context(name, rest, parent=context)
    if OWN_PROJECT in said:
        return
    given = [
        value for key in ("targets", "target", "paths", "folder") for value in _all(parsed.params.get(key))
    ]
    for target in given:
        assert target.partition(":")[0] not in LIBRARIES, "a fresh clone has no such library"
        file = target.partition(":")[0] if is_model_target(target) else target
        file = file if file.endswith(".py") or "/" in file else file.replace(".", "/") + ".py"
        assert (ROOT / file).exists(), target


def _all(value: object) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else (value,) if isinstance(value, str) else ()

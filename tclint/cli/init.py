"""The command `init`: a commented configuration for the project in the working directory."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tclint.cli.command_group import say
from tclint.cli.options import parse_flag, setting_flags
from tclint.config.pyproject import FILE_NAME, find_config
from tclint.config.settings import DEFAULT_GPUS, SETTINGS_BY_KEY, Settings
from tclint.core.errors import UsageError
from tclint.core.files import write_bytes_atomically
from tclint.core.terminal import ProgressLine, write_stdout
from tclint.core.text import printable, wrapped
from tclint.core.toml import parse_toml

if TYPE_CHECKING:
    from tclint.engine.model_listing.candidates import Candidate

DECLARED_AT_MOST = 10
"""Models that are declared outright; the hook traces each, so a library's hundreds are left to choose."""

COMMENTED_AT_MOST = 20
"""Models that stand as comments; beyond this a comment counts them."""

_SHOWN_KEYS = ("precision", "mode", "optimizer", "min-gain", "fail-on", "ignore", "exclude", "baseline")
_EXAMPLES: dict[str, object] = {
    "ignore": ["ARC007"],
    "exclude": ["third_party/"],
    "baseline": "tclint-baseline.json",
}
_TEST_FILE = re.compile(r"(^|/)(tests?|testing)/|(^|/)(test_[^/]*|[^/]*_test|conftest|setup)\.py$")


@click.command()
@setting_flags("gpu")
@click.option("--print", "print_only", is_flag=True, help="Print the section; write nothing.")
def init(gpus: tuple[str, ...], print_only: bool) -> int:
    """Write a commented [tool.tclint] section into ./pyproject.toml.

    Models are found by reading the Python files here; nothing of them runs.
    """
    from tclint.cost.gpu import load_gpu

    chosen = parse_flag(SETTINGS_BY_KEY["gpu"], gpus)
    for name in chosen:
        load_gpu(name)  # raises UsageError where it is no GPU
    with ProgressLine() as progress:
        progress("reading the project")
        planned = plan(Path.cwd(), chosen)
    for path in planned.files_unread:
        say(f"note: {os.path.relpath(path)} cannot be read as Python 3.")
    if print_only:
        write_stdout(planned.section)
        return 0
    outer = find_config(Path.cwd().parent)
    if outer is not None:
        say(f"note: {outer} has settings too; here the new file replaces them.")
    write(planned)
    write_stdout("".join(f"{line}\n" for line in _said(planned)))
    return 0


def _said(planned: Plan) -> list[str]:
    lines = [f"[tool.tclint] is in {planned.file.name}."]
    found = len(planned.declared)
    if found:
        lines.append(f"  tclint check --models   # traces the {found} declared model{'s' * (found > 1)}")
    elif planned.possible:
        lines.append(
            "  Its models stand as comments: give them their arguments, then 'tclint check --models'."
        )
    lines.append("  tclint .                # reads the training code; nothing runs")
    return lines


@dataclass(frozen=True, slots=True)
class Plan:
    """What `tclint init` would write, and what it found."""

    file: Path
    section: str
    declared: tuple[Candidate, ...]
    """Models that the section declares."""
    possible: tuple[Candidate, ...]
    """Models that need arguments which the project does not state, or that only their name tells."""
    files_unread: tuple[str, ...]


def plan(folder: Path, gpus: Sequence[str]) -> Plan:
    """Look at the Python files below `folder`, the working directory; nothing is written or run.

    Args:
        folder: the working directory.
        gpus: those that the user named; none: the defaults stay.

    Raises:
        UsageError: `pyproject.toml` here cannot be read, is not TOML, or has a `[tool.tclint]` section.
    """
    from tclint.engine.model_listing.candidates import list_models
    from tclint.engine.script.construction import is_made
    from tclint.source.syntax.discovery import discover

    file = folder / FILE_NAME
    _refuse_configured(file)
    paths, _ = discover([str(folder)], Settings())
    candidates, unread = list_models(paths)
    usable = [candidate for candidate in candidates if _is_usable(candidate)]
    certain = [candidate for candidate in usable if candidate.certain]
    ready = [candidate for candidate in certain if not candidate.needs]
    once = _each_model_once(ready)
    made = (one for one in certain if one.needs and is_made(one.target, one.needs, Settings()))
    declared = tuple(islice(chain(once, made), DECLARED_AT_MOST))
    again = {candidate.target for candidate in ready} - {candidate.target for candidate in once}
    possible = tuple(
        candidate for candidate in usable if candidate not in declared and candidate.target not in again
    )
    section = _section(gpus, declared, possible)
    return Plan(file, section, declared, possible, tuple(unread))


def write(planned: Plan) -> None:
    """Append the section to the file, or make the file; what was there stays byte for byte.

    Raises:
        UsageError: the file got a section meanwhile, would not be TOML any more, or cannot be written.
    """
    _refuse_configured(planned.file)
    before = planned.file.read_bytes() if planned.file.exists() else b""
    newline = "\r\n" if b"\r\n" in before else "\n"
    gap = "" if not before else newline if before.endswith(b"\n") else 2 * newline
    data = before + (gap + planned.section.replace("\n", newline)).encode()
    try:
        parse_toml(data.decode("utf-8-sig"))
    except ValueError as error:
        raise UsageError(
            f"{FILE_NAME} does not take a [tool.tclint] section at its end ({printable(str(error))}); "
            "add what 'tclint init --print' shows by hand."
        ) from error
    write_bytes_atomically(str(planned.file), data)


def _refuse_configured(file: Path) -> None:
    if not file.exists():
        return
    try:
        data = parse_toml(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UsageError(f"Cannot read {FILE_NAME}: {error.strerror or error}.") from error
    except ValueError as error:
        raise UsageError(f"{FILE_NAME} is not valid TOML: {printable(str(error))}; fix it first.") from error
    tool = data.get("tool")
    if isinstance(tool, dict) and "tclint" in tool:
        raise UsageError(f"{FILE_NAME} has a [tool.tclint] section already; edit that one.")


def _each_model_once(ready: Sequence[Candidate]) -> list[Candidate]:
    """Without classes that a function builds as they are, and functions that build what another one does."""
    by_functions = {candidate.makes for candidate in ready if candidate.kind == "function"} - {""}
    seen: set[str] = set()
    kept = []
    for candidate in ready:
        if candidate.adds_nothing:
            if candidate.makes in seen or (candidate.kind == "class" and candidate.makes in by_functions):
                continue
            seen.add(candidate.makes)
        kept.append(candidate)
    return kept


def _is_usable(candidate: Candidate) -> bool:
    path = os.path.relpath(candidate.path).replace(os.sep, "/")
    try:
        candidate.target.encode()
    except UnicodeEncodeError:  # a file name that is no text cannot stand in TOML
        return False
    return not _TEST_FILE.search(path)


def _section(gpus: Sequence[str], declared: Sequence[Candidate], possible: Sequence[Candidate]) -> str:
    lines = [
        "[tool.tclint]",
        *_comment("Settings of tclint; flags of the command line win over them."),
        "",
        *_comment(SETTINGS_BY_KEY["gpu"].help),
        # Rules take what is written for a choice, so the defaults stand as a comment.
        f"gpu = {_toml(list(gpus))}" if gpus else f"# gpu = {_toml(list(DEFAULT_GPUS))}",
        "",
        *_comment(
            "Models that 'tclint check --models' and the pre-commit hook tclint-model trace. An entry may "
            "also be a table with settings of its own, such as "
            '{ target = "model.py:Net", input = ["8,3,224,224"], arg = ["width=64"] }.'
        ),
        *_models(declared, possible),
    ]
    for name in _SHOWN_KEYS:
        setting = SETTINGS_BY_KEY[name]
        value = _EXAMPLES.get(name, setting.default)
        lines += ["", *_comment(setting.help), f"# {name} = {_toml(value)}"]
    return "\n".join(lines) + "\n"


def _models(declared: Sequence[Candidate], possible: Sequence[Candidate]) -> Iterable[str]:
    if not declared and not possible:
        yield from _comment(
            "None was found by reading; write a function that returns the model, and name it here."
        )
        yield '# models = ["model.py:build_model"]'
        return
    yield "models = ["
    for candidate in declared:
        yield f"  {_toml(candidate.target)},  # {candidate.kind}, line {candidate.line}"
    for candidate in possible[:COMMENTED_AT_MOST]:
        yield f"  # {_possible(candidate)}"
    left = len(possible) - COMMENTED_AT_MOST
    if left > 0:
        yield f"  # {left} more: 'tclint models .' lists them"
    yield "]"


def _possible(candidate: Candidate) -> str:
    """A line that works once its comment sign and dots are replaced."""
    facts = f"{candidate.kind}, line {candidate.line}"
    if not candidate.needs:
        return f"{_toml(candidate.target)},  # {facts}" + ("" if candidate.certain else ", by its name")
    arguments = _toml([f"{name}=..." for name in candidate.needs])
    return f"{{ target = {_toml(candidate.target)}, arg = {arguments} }},  # {facts}"


def _toml(value: object) -> str:
    """A TOML value; JSON's texts, numbers, booleans and arrays are TOML but for DEL."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _comment(text: str) -> list[str]:
    return wrapped(text, 98, "# ")

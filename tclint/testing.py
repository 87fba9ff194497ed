"""What authors of rules test with: `check_rule` runs a rule on a folder of example programs.

An example is a Python file: `invalid_NAME.py` where the rule must speak, `valid_NAME.py` where it must not.

    # the reason, in one line
    # settings: gpu = "v100", mode = "infer"

    import torch
    ...

The second line is there only where the run's defaults would not do; its keys are those of `[tool.tclint]`.
For a GraphRule the program defines `build_model` and, where tclint could not infer them, `example_inputs`.
What the fixes of an invalid example make of it stands beside it, in `invalid_NAME.fixed.py`.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from dataclasses import dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import Any

from tclint.analysis.advice import advice, gains
from tclint.analysis.graph_context import GraphContext
from tclint.analysis.graph_rule import GraphRule
from tclint.config.settings import SETTINGS_BY_KEY, Settings
from tclint.core.finding import Finding
from tclint.core.rule import CRASH_CODE, Rule
from tclint.core.toml import parse_toml
from tclint.edits.registry import with_fixes
from tclint.edits.texts import apply_edits
from tclint.engine.rules.fields import check_fields
from tclint.engine.sources.program import lint_text
from tclint.source.source_rule import SourceRule
from tclint.source.syntax.prefilter import applicable
from tclint.tracing import trace_callable

__all__ = ["Example", "check_rule", "examples"]

_FIXED = ".fixed.py"
_SETTINGS = "# settings:"
_ROUNDS = 10
"""A fix can make way for another of the same rule; more than a few rounds are a circle."""
_module_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Example:
    """One example program of a rule."""

    path: Path
    flagged: bool
    """Whether the rule must flag it."""
    reason: str
    settings: Settings
    text: str
    """The whole file."""
    fixed: str | None
    """The whole file after its fixes; None: there are none to make."""

    @classmethod
    def read(cls, path: Path) -> Example:
        """The example in a file.

        Raises:
            AssertionError: its head or its name is not that of an example; the message names the file.
        """
        text = path.read_text(encoding="utf-8")
        head, blank, _ = text.partition("\n\n")
        reason, *rest = head.split("\n")
        if not (reason.startswith("# ") and blank):
            raise AssertionError(f"{path}: the first line must be '# ' and the reason, then a blank line")
        settings = Settings()
        if rest:
            if len(rest) > 1 or not rest[0].startswith(_SETTINGS):
                raise AssertionError(
                    f"{path}: only '{_SETTINGS} ...' can stand between the reason and the blank line"
                )
            settings = _settings(path, rest[0].removeprefix(_SETTINGS))
        kind = path.name.partition("_")[0]
        if kind not in ("valid", "invalid"):
            raise AssertionError(f"{path}: an example is called valid_NAME.py or invalid_NAME.py")
        after = path.with_name(path.stem + _FIXED)
        fixed = after.read_text(encoding="utf-8") if after.exists() else None
        return cls(path.resolve(), kind == "invalid", reason.removeprefix("# "), settings, text, fixed)

    @property
    def program(self) -> str:
        """The text without its head, on the same lines: a reason that speaks of autocast triggers no rule."""
        head = self.text.partition("\n\n")[0]
        return "\n" * head.count("\n") + self.text[len(head) :]


def examples(folder: str | Path) -> list[Example]:
    """The examples of a folder, by name.

    Raises:
        AssertionError: a file there is no example and no example's fixed text, or one kind is missing.
    """
    files = {path.name: path for path in sorted(Path(folder).glob("*.py"))}
    for name, path in files.items():
        if name.endswith(_FIXED):
            original = name.removesuffix(_FIXED) + ".py"
            if original not in files or not name.startswith("invalid_"):
                raise AssertionError(f"{path}: there is no invalid example {original} that this fixes")
    found = [Example.read(path) for name, path in files.items() if not name.endswith(_FIXED)]
    for flagged, kind in ((True, "invalid"), (False, "valid")):
        if not any(example.flagged is flagged for example in found):
            raise AssertionError(f"{folder} has no {kind}_NAME.py")
    return found


def check_rule(rule: type[Rule], path: str | Path) -> None:
    """Assert that a rule does on its examples what their names say, before any threshold or selection.

    Every `invalid` example yields findings of this rule alone, each with a sentence, evidence and a fix, on
    lines of the example (a SourceRule: exactly one; a GraphRule: one for each place), and its fixes make of
    it what `invalid_NAME.fixed.py` says. A `valid` example yields nothing.

    Args:
        rule: the class, a GraphRule or a SourceRule.
        path: a folder of examples, or one example.

    Raises:
        AssertionError: what differs, for every example that fails.
        UsageError: a field of the class is not what it should be.
    """
    check_fields(rule)
    path = Path(path)
    failures = []
    for example in [Example.read(path)] if path.is_file() else examples(path):
        failures += [f"{example.path} ({example.reason}): {says}" for says in _failures(rule, example)]
    # No assert statements here: they would be gone under `python -O`, and every example would pass.
    if failures:
        raise AssertionError("\n".join(failures))


def _settings(path: Path, text: str) -> Settings:
    # What only a training script can state has no key in a configuration file.
    known = {field.name for field in fields(Settings)} - {key.field for key in SETTINGS_BY_KEY.values()}
    try:
        stated = parse_toml(f"settings = {{{text}}}")["settings"]
        parsed: dict[str, Any] = {}
        for name, value in stated.items():
            key = SETTINGS_BY_KEY.get(name)
            if key is None and name not in known:
                raise ValueError(f"there is no setting {name!r}")
            parsed[key.field if key else name] = key.kind.parse(value) if key else value
        return Settings(**parsed)
    except ValueError as error:
        raise AssertionError(f"{path}: '{_SETTINGS}{text}' is not understood: {error}") from error


def _failures(rule: type[Rule], example: Example) -> list[str]:
    """What differs, a sentence each."""
    if issubclass(rule, SourceRule):
        return _source_failures(rule(), example)
    assert issubclass(rule, GraphRule)
    context = GraphContext(_trace(example), example.settings, f"{example.path}:build_model")
    found = [finding for finding in advice(rule(), context) if gains(finding, context)]
    failures = _said_or_not(rule, example, found) or _incomplete(rule, example, str(example.path), found)
    # Many layers that one line constructs are one thing to say.
    if len({(finding.location.line, finding.identity) for finding in found}) < len(found):
        failures.append(f"two findings say the same:{_listed(found)}")
    for finding in found:
        own = finding.location.path, finding.location.line
        if any((item.location.path, item.location.line) == own for item in finding.related):
            failures.append(f"a related place is the finding's own:{_listed([finding])}")
    return failures


def _trace(example: Example) -> Any:
    """The graph of the example's build_model, built in this process."""
    module = ModuleType(f"tclint_example_{next(_module_numbers)}")
    module.__file__ = str(example.path)
    sys.modules[module.__name__] = module  # dataclasses and others look their module up
    try:
        # Not imported by its path: that would leave bytecode beside the example.
        exec(compile(example.text, example.path, "exec"), module.__dict__)
        if not hasattr(module, "build_model"):
            raise AssertionError(f"{example.path}: an example of a GraphRule defines build_model()")
        inputs = module.example_inputs() if hasattr(module, "example_inputs") else None
        return trace_callable(module.build_model, inputs)
    finally:
        del sys.modules[module.__name__]


def _source_failures(rule: SourceRule, example: Example) -> list[str]:
    # A project of its own: other examples are no neighbours of this one.
    with tempfile.TemporaryDirectory(prefix="tclint-") as project:
        path = str(Path(project) / "example.py")
        Path(path).write_text(example.text, encoding="utf-8")
        found = lint_text(example.program, [rule], example.settings, path)
        failures = _said_or_not(type(rule), example, found) or _incomplete(type(rule), example, path, found)
        if failures or not found:
            return failures
        if len(found) > 1:
            failures.append(f"one finding is expected, not {len(found)}:{_listed(found)}")
        data = example.program.encode()
        if not applicable([rule], data):
            failures.append("triggers, requires, pattern or applies keep the rule from seeing this file")
        refused = [one for one in with_fixes(path, example.text, found) if _is_refused(example.text, one)]
        if refused:
            return [*failures, f"edits that leave invalid Python are never made:{_listed(refused)}"]
        after, left = _after_fixes(rule, example, path, found)
        if after != example.fixed:
            failures.append(_fixed_differs(example, after))
        elif after is not None and left:
            failures.append(f"the fixed text is flagged again:{_listed(left)}")
    return failures


def _is_refused(text: str, finding: Finding) -> bool:
    edits = finding.fix.edits if finding.fix is not None else ()
    return bool(edits) and not apply_edits(text, [edits])[1]


def _after_fixes(
    rule: SourceRule, example: Example, path: str, found: list[Finding]
) -> tuple[str | None, list[Finding]]:
    """The text after all fixes, None where there are none, and what is still found in it."""
    text, changed = example.text, False
    for _ in range(_ROUNDS):
        fixed = with_fixes(path, text, found)
        edits = [finding.fix.edits for finding in fixed if finding.fix is not None and finding.fix.edits]
        if not edits:
            break
        text, changed = apply_edits(text, edits)[0], True
        found = lint_text(text, [rule], example.settings, path)
    return (text if changed else None), found


def _said_or_not(rule: type[Rule], example: Example, found: list[Finding]) -> list[str]:
    if any(finding.code == CRASH_CODE for finding in found):
        return ["the rule raised:\n" + found[0].evidence["traceback"]]
    if not example.flagged:
        return [f"nothing should be found, but this was:{_listed(found)}"] if found else []
    if not found:
        return [f"{rule.code} should find something, and finds nothing"]
    return []


def _incomplete(rule: type[Rule], example: Example, path: str, found: list[Finding]) -> list[str]:
    """What findings lack that every finding has."""
    lines = example.text.splitlines()
    failures = []
    for finding in found:
        place = finding.location
        inside = place.path == path and 1 <= place.line <= len(lines)
        missing = {
            f"the rule's code {rule.code}": finding.code == rule.code,
            "a line of the example as its location": inside
            and lines[place.line - 1][place.column - 1 :].strip(),
            "a message that ends with a full stop": finding.message.endswith("."),
            "evidence": finding.evidence,
            "a fix whose advice ends with a full stop": finding.fix and finding.fix.advice.endswith("."),
            "a safety, 'safe' or 'unsafe', for its edits": not (finding.fix and finding.fix.edits)
            or finding.fix.safety in ("safe", "unsafe"),
        }
        failures += [
            f"this finding lacks {what}:{_listed([finding])}"
            for what, is_there in missing.items()
            if not is_there
        ]
    return failures


def _fixed_differs(example: Example, after: str | None) -> str:
    name = example.path.stem + _FIXED
    if after is None:
        return f"{name} exists, but no fix makes edits here"
    if example.fixed is None:
        return f"its fixes make edits, so {name} must say what becomes of it:\n{after}"
    return f"its fixes make this of it, not what {name} says:\n{after}"


def _listed(found: list[Finding]) -> str:
    return "".join(f"\n  line {finding.location.line}: {finding.code} {finding.message}" for finding in found)

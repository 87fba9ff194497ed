"""What every rule is: its metadata, its page, and how a crash of one becomes a finding."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Mapping
from types import ModuleType
from typing import Any, ClassVar

from tclint.core.finding import Confidence, Effect, Finding, Fix, Level, Location, Related

CODE_PATTERN = re.compile(r"[A-Z]{2,6}[0-9]{3}")
NAME_PATTERN = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")

DOC_SECTIONS = (
    "What it does",
    "Why it costs",
    "Example",
    "Use instead",
    "When it does not apply",
)
"""Sections that every rule's docstring has, in this order; each heading stands alone on a line."""

REFERENCES = "References"
"""The section that lists the sources; a docstring may end with text of its own under this heading."""


class Rule:
    """Base of all rules; subclass GraphRule or SourceRule (tclint.plugin), never this.

    The docstring is the rule's page: a one-line summary, then the DOC_SECTIONS.
    """

    code: ClassVar[str]
    """Family and number, 'DIM003'; stable."""
    name: ClassVar[str]
    """kebab-case, reads as 'allow <name>'; stable."""
    level: ClassVar[Level]
    confidence: ClassVar[Confidence]
    sources: ClassVar[tuple[str, ...]]
    """What every number and claim of the rule rests on, each as 'Document, section: claim'."""
    enabled_by_default: ClassVar[bool] = True
    """Low-confidence rules are off unless selected."""

    def finding(
        self,
        location: Location,
        message: str,
        *,
        effect: Effect | None = None,
        evidence: Mapping[str, Any] | None = None,
        fix: Fix | None = None,
        related: tuple[Related, ...] = (),
        level: Level | None = None,
        identity: str = "",
        group: str = "",
        change: object | None = None,
    ) -> Finding:
        """A Finding with this rule's code, name, level and confidence filled in."""
        level = level or self.level
        unknown = (
            "what is wrong here is no matter of speed"
            if level == "error"
            else "the source pass does not know the model's shapes"
        )
        return Finding(
            code=self.code,
            name=self.name,
            level=level,
            confidence=self.confidence,
            message=message,
            location=location,
            related=related,
            effect=effect or Effect(unknown=unknown),
            evidence=evidence or {},
            fix=fix,
            identity=identity,
            group=group,
            change=change,
        )

    @classmethod
    def summary(cls) -> str:
        """First line of the docstring."""
        return (inspect.getdoc(cls) or "").strip().split("\n", 1)[0]

    @classmethod
    def sections(cls) -> dict[str, str]:
        """The docstring's sections by heading, bodies stripped."""
        found: dict[str, str] = {}
        heading: str | None = None
        lines: list[str] = []
        for line in (inspect.getdoc(cls) or "").splitlines():
            if line.strip() in (*DOC_SECTIONS, REFERENCES) and not line.startswith(" "):
                if heading is not None:
                    found[heading] = "\n".join(lines).strip("\n")
                heading, lines = line.strip(), []
            elif heading is not None:
                lines.append(line)
        if heading is not None:
            found[heading] = "\n".join(lines).strip("\n")
        return found


def rules_of(module: ModuleType) -> tuple[type[Rule], ...]:
    """The rule classes that a module defines, in their order."""
    classes = (value for value in vars(module).values() if isinstance(value, type))
    return tuple(one for one in classes if issubclass(one, Rule) and one.__module__ == module.__name__)


CRASH_CODE = "TCL001"
CRASH_NAME = "rule-crashed"
UNREADABLE_CODE = "TCL003"
UNREADABLE_NAME = "unreadable-source"
BUDGET_CODE = "TCL005"
BUDGET_NAME = "over-budget"

NEVER_ACCEPTED = frozenset((CRASH_CODE, UNREADABLE_CODE, BUDGET_CODE))
"""Codes that no baseline holds: nobody knows what the rule, or the file, would have shown; and what a budget
accepts, the budget says."""


def apply_rule(rule: Rule, context: Any, location: Location) -> list[Finding]:
    """Run one rule; a rule that raises becomes an error finding about that rule at `location`."""
    try:
        return list(rule.check(context))  # type: ignore[attr-defined]
    except Exception as error:
        import traceback

        is_own = type(rule).__module__.startswith("tclint_rules.")
        message = (
            f"Rule {rule.code} ({rule.name}) failed{_where_in(rule, error)} with {type(error).__name__}: "
            f"{error}. The other rules ran; "
            f"{'please report this with --debug output' if is_own else '--debug shows the traceback'}."
        )
        return [
            Finding(
                code=CRASH_CODE,
                name=CRASH_NAME,
                level="error",
                confidence="high",
                message=message,
                location=location,
                effect=Effect(unknown="the rule failed"),
                evidence={"traceback": traceback.format_exc()},
                identity=rule.code,
            )
        ]


def _where_in(rule: Rule, error: Exception) -> str:
    """The last line of the rule's own module that led to an error, as ' at our001.py:12'; '' if none did."""
    import traceback

    module = type(rule).__module__
    frames = traceback.walk_tb(error.__traceback__)
    lines = [(frame, line) for frame, line in frames if frame.f_globals.get("__name__") == module]
    if not lines:
        return ""
    frame, line = lines[-1]
    return f" at {os.path.basename(frame.f_code.co_filename)}:{line}"

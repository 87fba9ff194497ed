"""The base class of rules on source files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from tclint.config.settings import Settings
from tclint.core.finding import Finding
from tclint.core.rule import Rule

if TYPE_CHECKING:
    from tclint.source.context import SourceContext


class SourceRule(Rule):
    """A rule on what a program does. It runs once for each program and never walks a syntax tree."""

    triggers: ClassVar[tuple[str, ...]]
    """Tokens, one of which a file must contain for the rule to fire; other files are not parsed for it."""
    requires: ClassVar[tuple[str, ...]] = ()
    """Tokens, all of which a file must contain in addition."""
    pattern: ClassVar[re.Pattern[bytes] | None] = None
    """A pattern that the file's bytes must match somewhere, for rules whose tokens let too many files
    through."""
    priced_as: ClassVar[tuple[str, ...]] = ()
    """Codes of rules that report the same problem in a traced model. Where both report a line, the finding of
    the other rule, which has a price, replaces this rule's."""
    program: ClassVar[tuple[str, ...]] = ()
    """Tokens, one of which some file of the program must contain: this file or one that its script leads
    to."""

    def applies(self, settings: Settings) -> bool:  # noqa: ARG002
        """Whether the rule can report anything under these settings; otherwise no file is parsed for it."""
        return True

    def check(self, context: SourceContext) -> Iterator[Finding]:
        raise NotImplementedError

    def change(self, finding: Finding, context: Any) -> Any:  # noqa: ARG002
        """The change that a finding's fix makes to the model that its file trains, if that model is linted
        too.

        Args:
            finding: one of this rule's.
            context: the model's tclint.plugin.GraphContext.

        Returns:
            A tclint.plugin.Change, whose price the finding gets if it gains anything; None if it is unknown.
        """
        return None

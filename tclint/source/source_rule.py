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
    """A rule on what a program does. It is asked once for each program, and never walks a syntax tree."""

    triggers: ClassVar[tuple[str, ...]]
    """Tokens one of which a file must contain for the rule to be able to fire; others are not parsed."""
    requires: ClassVar[tuple[str, ...]] = ()
    """Tokens all of which a file must contain as well."""
    pattern: ClassVar[re.Pattern[bytes] | None] = None
    """Where tokens alone would let too many files through: what their bytes must match somewhere."""
    priced_as: ClassVar[tuple[str, ...]] = ()
    """Codes of other rules that report the same problem of a traced model: their finding, which has a price,
    stands instead where both name a line."""
    program: ClassVar[tuple[str, ...]] = ()
    """Tokens one of which some file of the program must contain: this file, or what its script leads to."""

    def applies(self, settings: Settings) -> bool:  # noqa: ARG002
        """Whether it can report anything under these settings; otherwise no file is parsed for it."""
        return True

    def check(self, context: SourceContext) -> Iterator[Finding]:
        raise NotImplementedError

    def change(self, finding: Finding, context: Any) -> Any:  # noqa: ARG002
        """What a finding's fix does to the model that its file trains, where that is linted beside it.

        Args:
            finding: one of this rule's.
            context: the model's tclint.plugin.GraphContext.

        Returns:
            A tclint.plugin.Change, whose price the finding then has, if it gains anything; None: not known.
        """
        return None

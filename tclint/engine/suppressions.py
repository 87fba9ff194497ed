"""`# tclint: ignore[rule] reason` and `# tclint: file-ignore[rule]` comments."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tclint.analysis.graph_rule import GraphRule
from tclint.core.finding import Edit, Effect, Finding, Fix, Location
from tclint.core.rule import CODE_PATTERN, CRASH_CODE, Rule
from tclint.core.target import is_recipe
from tclint.engine.retired import named_by
from tclint.source.syntax.parse import NotPython, decode

_DIRECTIVE = re.compile(
    r"(?<!\S)#\s*tclint:\s*(?P<verb>[\w-]+)\s*"
    r"(?:\[(?P<rules>[^\]]*)\]|(?P<open>\[)|(?P<bare>[:=(]?\s*(?P<words>[\w-]+(?:\s*,\s*[\w-]+)*)\)?))?",
    re.IGNORECASE,
)
"""`bare` matches words that may be rules without brackets or the beginning of a reason."""
_VERBS = ("ignore", "file-ignore")
_NAMED = re.compile(r"[A-Z]{2,6}|[a-z0-9]+(-[a-z0-9]+)+")
"""Matches a family of rules or a rule's name; any other word begins a reason."""
_LAYOUT_TOKENS = frozenset(
    {tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING}
)


@dataclass(slots=True)
class Suppression:
    """One directive and the lines to which it applies."""

    line: int
    """The line of the comment, from 1."""
    rules: tuple[str, ...]
    """Codes, code prefixes or names as written; empty: every rule."""
    first_line: int
    last_line: int
    whole_file: bool = False
    used: set[str] = field(default_factory=set)
    """The members of `rules` that silenced a finding ('' for a bare directive)."""
    column: int = 1
    """The column where the comment begins, from 1."""
    comment: str = ""
    """The comment as written; '' if the text cannot be tokenized."""
    line_text: str = ""
    """The line with the comment, without its end."""
    words: tuple[str, ...] = ()
    """The words after a bare directive: rules without brackets, or the beginning of a reason."""
    mistake: str = ""
    """A sentence on why it silences nothing; '' if it is well formed."""

    def matches(self, finding: Finding) -> bool:
        """Whether it silences the finding; if so, it is noted as used."""
        if self.mistake:
            return False
        if not self.whole_file:
            end_line = finding.location.end_line or finding.location.line
            if end_line < self.first_line or finding.location.line > self.last_line:
                return False
        if not self.rules:
            self.used.add("")
            return True
        rule = named_by(self.rules, finding)
        if rule is not None:
            self.used.add(rule)
        return rule is not None

    @property
    def unused(self) -> tuple[str, ...]:
        """The named rules that silenced nothing; ('',) for an unused directive without rules."""
        return tuple(rule for rule in (self.rules or ("",)) if rule not in self.used)


def parse_suppressions(text: str, *, is_python: bool = True) -> list[Suppression]:
    """All directives, in order, of a Python source or of another file whose comments begin with '#'.

    A directive at the end of a statement's first or last line, or alone above it, applies to the whole
    statement; inside brackets it applies to its own line, or if alone on a line to the next one. A text
    that cannot be tokenized is searched line by line, and each directive applies to its own line. In files
    that are not Python, each line is a statement.
    """
    if "tclint:" not in text.lower():
        return []
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not is_python:
        return list(_from_lines(text.split("\n")))
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
        return _from_tokens(tokens, text.split("\n"))
    except (tokenize.TokenError, SyntaxError, IndentationError):
        found = (
            _directive(match, number)
            for number, line in enumerate(text.splitlines(), start=1)
            for match in _DIRECTIVE.finditer(line)
        )
        return list(found)


def _directive(match: re.Match[str], line: int) -> Suppression:
    verb = match["verb"].lower()
    whole_file = verb == "file-ignore"
    found = Suppression(line, _listed(match["rules"]), line, line, whole_file, words=_listed(match["words"]))
    if verb not in _VERBS:
        found.mistake = (
            f"There is no directive {match['verb']!r}: ignore[CODE], behind a line or alone above it, "
            "silences the line, and file-ignore[CODE] the file."
        )
    elif match["open"]:
        found.mistake = "Its bracket is never closed."
    elif match["rules"] is not None and not found.rules:
        found.mistake = f"It names no rule; write {verb}[CODE], or {verb} without brackets for every rule."
    return found


def _listed(text: str | None) -> tuple[str, ...]:
    return tuple(rule.strip() for rule in (text or "").split(",") if rule.strip())


def _from_lines(lines: Sequence[str]) -> Iterator[Suppression]:
    for number, line in enumerate(lines, start=1):
        for match in _DIRECTIVE.finditer(line):
            suppression = _directive(match, number)
            suppression.column, suppression.comment = match.start() + 1, line[match.start() :]
            suppression.line_text = line
            if not line[: match.start()].strip():
                following = range(number + 1, len(lines) + 1)
                texts = ((other, lines[other - 1].strip()) for other in following)
                anchor = next((other for other, text in texts if text and not text.startswith("#")), number)
                suppression.first_line = suppression.last_line = anchor
            yield suppression


def _from_tokens(tokens: Sequence[tokenize.TokenInfo], lines: Sequence[str]) -> list[Suppression]:
    statements = _statement_ranges(tokens)
    code_lines = sorted(
        {token.start[0] for token in tokens if token.type not in _LAYOUT_TOKENS and token.string.strip()}
    )
    found = []
    for token in tokens:
        if token.type != tokenize.COMMENT:
            continue
        # A directive may follow another comment on the line.
        for match in _DIRECTIVE.finditer(token.string):
            suppression = _directive(match, token.start[0])
            suppression.column = token.start[1] + match.start() + 1
            suppression.comment = token.string[match.start() :]
            suppression.line_text = lines[token.start[0] - 1]
            alone = not suppression.line_text[: token.start[1]].strip()
            anchor = suppression.line
            if alone:
                anchor = next((line for line in code_lines if line > anchor), anchor)
            first, last = next(
                ((first, last) for first, last in statements if first <= anchor <= last), (anchor, anchor)
            )
            speaks_for_statement = anchor in (first, last) and (not alone or suppression.line < first)
            if speaks_for_statement:
                suppression.first_line, suppression.last_line = first, last
            else:
                suppression.first_line = suppression.last_line = anchor
            found.append(suppression)
    return found


def _statement_ranges(tokens: Sequence[tokenize.TokenInfo]) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    first: int | None = None
    for token in tokens:
        if token.type == tokenize.NEWLINE:
            if first is not None:
                ranges.append((first, token.start[0]))
            first = None
        elif token.type not in _LAYOUT_TOKENS and token.type != tokenize.ENDMARKER and first is None:
            first = token.start[0]
    return ranges


@dataclass(frozen=True, slots=True)
class Comments:
    """The places in a text where comments can be added."""

    lines: Sequence[str]
    """The lines without their ends."""
    statements: Sequence[tuple[int, int]]
    without: frozenset[int]
    """Lines, from 1, that end inside a string or in a backslash and so cannot take a comment."""
    directives: Mapping[int, Suppression]
    """Line -> the directive with rules for that line."""

    @classmethod
    def of(cls, text: str) -> Comments | None:
        """The places in a text; None if it cannot be tokenized."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.split("\n")
        try:
            tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
        except (tokenize.TokenError, SyntaxError, IndentationError):
            return None
        commented = {token.start[0] for token in tokens if token.type == tokenize.COMMENT}
        without = {
            number
            for number, line in enumerate(lines, start=1)
            if line.endswith("\\") and number not in commented
        }
        opened: list[int] = []
        for token in tokens:
            name = tokenize.tok_name[token.type]
            if name.endswith("STRING_START"):
                opened.append(token.start[0])
            first = opened.pop() if name.endswith("STRING_END") else token.start[0]
            if name == "STRING" or name.endswith("STRING_END"):
                without.update(range(first, token.end[0]))
        directives = {
            item.line: item
            for item in (_from_tokens(tokens, lines) if "tclint:" in text.lower() else ())
            if item.rules and not item.whole_file and not item.mistake
        }
        return cls(lines, _statement_ranges(tokens), frozenset(without), directives)

    def line_for(self, line: int) -> int:
        """The line where a comment applies to code that begins on `line`: itself or its statement's last."""
        if line not in self.without:
            return line
        return next((last for first, last in self.statements if first <= line <= last), line)

    def end_of_rules(self, line: int) -> int | None:
        """The column, from 1, of the closing bracket of a directive's rules on a line; None if there is
        none."""
        found = self.directives.get(line)
        match = None if found is None else _DIRECTIVE.match(found.comment)
        return None if found is None or match is None else found.column + match.end("rules")


UNUSED_CODE = "TCL002"
UNUSED_NAME = "unused-suppression"
INVALID_CODE = "TCL004"
INVALID_NAME = "invalid-suppression"


Allows = Callable[[Finding], bool]
WhyUnknown = Callable[[str], str | None]
"""Returns a sentence on why a text names no rule, or None if it names one."""


def apply_suppressions(
    findings: Sequence[Finding],
    *,
    source_paths: Sequence[str],
    source_rules: Sequence[Rule],
    graph_rules: Sequence[Rule],
    marked: Mapping[str, str] | None = None,
    allows: Allows = lambda _: True,
    why_unknown: WhyUnknown = lambda _: None,
) -> tuple[list[Finding], list[Finding]]:
    """Split findings into those that remain and those that a comment in their file silences.

    A directive that silenced nothing is itself reported, but only for rules that ran on its file. A malformed
    directive silences nothing and is reported, and so is every name in a directive that no rule has.

    Args:
        source_paths: files that the source pass read and could parse.
        source_rules: rules that ran on those files.
        graph_rules: rules that ran on the traced models; they can report in any file.
        marked: texts of the files among `source_paths` that can hold directives; None: read them all.
        allows: tells whether a finding's rule is selected on the finding's path.
        why_unknown: explains names that no rule has.
    """
    read, on_models = frozenset(source_paths), {rule.code for rule in graph_rules}
    texts = {path: _read(path) for path in source_paths} if marked is None else marked
    by_path: dict[str, list[Finding]] = {path: [] for path in source_paths if path in texts}
    standing: list[Finding] = []
    silenced: list[Finding] = []
    for finding in findings:
        path = finding.location.path
        if path in read and path not in texts:
            standing.append(finding)
        else:
            by_path.setdefault(path, []).append(finding)
    for path, found in by_path.items():
        text = texts[path] if path in texts else _read(path)
        suppressions = parse_suppressions(text, is_python=not is_recipe(path))
        for suppression in suppressions:
            _find_missing_brackets(suppression, why_unknown)
        for finding in found:
            # No short circuit, since every matching directive counts as used.
            hits = [suppression.matches(finding) for suppression in suppressions]
            (silenced if any(hits) else standing).append(finding)
        if not suppressions:
            continue
        ran = list(source_rules) if path in read else []
        if any(finding.target is not None for finding in found):
            ran += graph_rules
        else:
            # A directive for a rule that models have, too, may be meant for them.
            ran = [rule for rule in ran if rule.code not in on_models]
        crashed = {finding.identity for finding in found if finding.code == CRASH_CODE}
        ran = [rule for rule in ran if rule.code not in crashed and allows(_at(rule, path))]
        standing.extend(_unused(path, suppressions, ran))
        standing.extend(finding for finding in _invalid(path, suppressions, why_unknown) if allows(finding))
    return standing, silenced


def _at(rule: Rule, path: str) -> Finding:
    target = "" if isinstance(rule, GraphRule) else None
    return Finding(rule.code, rule.name, "info", "high", "", Location(path, 1), target=target)


def _read(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return decode(file.read())
    except (OSError, NotPython):
        return ""


def _unused(path: str, suppressions: Sequence[Suppression], ran: Sequence[Rule]) -> list[Finding]:
    known = {key for rule in ran for key in (rule.code.lower(), rule.name)}
    found = []
    for suppression in suppressions:
        idle = [rule for rule in suppression.unused if rule.lower() in known]
        if not idle or suppression.mistake:
            continue
        found.append(
            Finding(
                code=UNUSED_CODE,
                name=UNUSED_NAME,
                level="info",
                confidence="high",
                message=f"This comment silences {', '.join(idle)}, which finds nothing here; remove it.",
                location=Location(path, suppression.line),
                effect=Effect(unknown="a suppression costs nothing"),
                evidence={"rules": idle},
                fix=_without(path, suppression, idle),
                identity=",".join(idle),
            )
        )
    return found


def _find_missing_brackets(suppression: Suppression, why_unknown: WhyUnknown) -> None:
    if suppression.mistake or not suppression.words:
        return
    first = suppression.words[0]
    if CODE_PATTERN.fullmatch(first) or (_NAMED.fullmatch(first) and why_unknown(first) is None):
        suppression.mistake = f"Rules stand in brackets: ignore[{', '.join(suppression.words)}]."


def _invalid(path: str, suppressions: Sequence[Suppression], why_unknown: WhyUnknown) -> Iterator[Finding]:
    for suppression in suppressions:
        unknown = {rule: why for rule in suppression.rules if (why := why_unknown(rule)) is not None}
        if suppression.mistake:
            message = f"This comment silences nothing. {suppression.mistake}"
        elif unknown:
            message = " ".join(unknown.values())
        else:
            continue
        yield Finding(
            code=INVALID_CODE,
            name=INVALID_NAME,
            level="warning",
            confidence="high",
            message=message,
            location=Location(path, suppression.line, suppression.column),
            effect=Effect(unknown="a suppression costs nothing"),
            evidence={"rules": [*(unknown or suppression.words)]},
            fix=_with_brackets(path, suppression),
            identity=",".join(unknown) or suppression.mistake,
        )


def _with_brackets(path: str, suppression: Suppression) -> Fix | None:
    """The fix that puts a directive's rules into brackets; None if there is none."""
    match = _DIRECTIVE.match(suppression.comment)
    if match is None or not suppression.mistake or not match["words"] or match["verb"].lower() not in _VERBS:
        return None
    start, end = (
        (suppression.line, suppression.column + offset) for offset in (match.end("verb"), match.end())
    )
    rules = f"[{', '.join(suppression.words)}]"
    return Fix(f"Write {match['verb']}{rules}.", "safe", (Edit(path, start, end, rules),))


def _without(path: str, suppression: Suppression, idle: Sequence[str]) -> Fix | None:
    """The fix that removes unused rules from a directive, or the whole comment if no rule is left."""
    match = _DIRECTIVE.match(suppression.comment)
    if match is None:
        return None
    line, column = suppression.line, suppression.column
    if len(idle) < len(suppression.rules):
        start, end = (column + offset for offset in match.span("rules"))
        kept = ", ".join(rule for rule in suppression.rules if rule not in idle)
        advice = f"Take {', '.join(idle)} out of the comment."
        return Fix(advice, "safe", (Edit(path, (line, start), (line, end), kept),))
    # A comment for another tool may follow after a second '#'.
    following = suppression.comment.find("#", match.end())
    before = suppression.line_text[: column - 1]
    code = before.rstrip(" \t\f")
    if following >= 0:
        edit = Edit(path, (line, column), (line, column + following), "")
    elif code:
        edit = Edit(path, (line, len(code) + 1), (line, column + len(suppression.comment)), "")
    else:
        edit = Edit(path, (line, 1), (line + 1, 1), "")
    return Fix("Remove the comment.", "safe", (edit,))

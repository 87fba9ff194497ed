"""Arguments of a call and items of a dict, added and taken out in the layout that they have."""

from __future__ import annotations

import libcst as cst
import libcst.matchers as m


def keyword(call: cst.Call, name: str) -> cst.Arg | None:
    """The argument passed by that keyword."""
    return next((item for item in call.args if item.keyword is not None and item.keyword.value == name), None)


def positional(call: cst.Call) -> list[cst.Arg]:
    """Arguments without a keyword, `*those` included."""
    return [item for item in call.args if item.keyword is None and item.star != "**"]


def has_stars(call: cst.Call) -> bool:
    """Whether arguments are passed that the call does not name."""
    return any(item.star for item in call.args)


def is_false(argument: cst.Arg | None) -> bool:
    return argument is not None and m.matches(argument.value, m.Name("False"))


def append_argument(call: cst.Call, code: str) -> cst.Call:
    """Add an argument behind the last one."""
    new = _argument(code)
    if not call.args:
        return call.with_changes(args=[new])
    *others, last = _in_parentheses(call).args
    before = others[-1].comma if others else None
    opening = before.whitespace_after if isinstance(before, cst.Comma) else call.whitespace_before_args
    trailing = last.comma if isinstance(last.comma, cst.Comma) else None
    closing = trailing.whitespace_after if trailing is not None else last.whitespace_after_arg
    between, closing = _between(opening, closing)
    last = last.with_changes(comma=cst.Comma(whitespace_after=between), whitespace_after_arg=_NOTHING)
    if trailing is not None and isinstance(closing, cst.ParenthesizedWhitespace):
        new = new.with_changes(comma=trailing.with_changes(whitespace_after=closing))
    else:
        new = new.with_changes(whitespace_after_arg=closing)
    return call.with_changes(args=[*others, last, new])


def prepend_argument(call: cst.Call, code: str) -> cst.Call:
    """Add an argument before the first one."""
    new = _argument(code)
    if call.args:
        between, _ = _between(call.whitespace_before_args, _NOTHING)
        new = new.with_changes(comma=cst.Comma(whitespace_after=between))
    return call.with_changes(args=[new, *_in_parentheses(call).args])


def remove_argument(call: cst.Call, argument: cst.Arg) -> cst.Call:
    """Take one argument out with its comma."""
    left = [item for item in call.args if item is not argument]
    if not left:
        return call.with_changes(args=[], whitespace_before_args=_NOTHING)
    if argument is call.args[-1]:
        left[-1] = left[-1].with_changes(
            comma=argument.comma, whitespace_after_arg=argument.whitespace_after_arg
        )
    return call.with_changes(args=left)


def append_item(display: cst.Dict, code: str) -> cst.Dict:
    """Add an item behind the last one of a dict display that has some."""
    new = cst.ensure_type(cst.parse_expression(f"{{{code}}}"), cst.Dict).elements[0]
    *others, last = display.elements
    before = others[-1].comma if others else None
    opening = before.whitespace_after if isinstance(before, cst.Comma) else display.lbrace.whitespace_after
    between, closing = _between(opening, display.rbrace.whitespace_before)
    if isinstance(last.comma, cst.Comma) and isinstance(closing, cst.ParenthesizedWhitespace):
        new = new.with_changes(comma=last.comma)
    last = last.with_changes(comma=cst.Comma(whitespace_after=between))
    rbrace = display.rbrace.with_changes(whitespace_before=closing)
    return display.with_changes(elements=[*others, last, new], rbrace=rbrace)


_NOTHING = cst.SimpleWhitespace("")


def _argument(code: str) -> cst.Arg:
    return cst.ensure_type(cst.parse_expression(f"f({code})"), cst.Call).args[0]


def _in_parentheses(call: cst.Call) -> cst.Call:
    """A generator that is the only argument needs parentheses of its own beside another."""
    if m.matches(call, m.Call(args=[m.Arg(m.GeneratorExp(lpar=[]))])):
        alone = call.args[0].value.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
        return call.with_changes(args=[call.args[0].with_changes(value=alone)])
    return call


def _between(
    opening: cst.BaseParenthesizableWhitespace, closing: cst.BaseParenthesizableWhitespace
) -> tuple[cst.BaseParenthesizableWhitespace, cst.BaseParenthesizableWhitespace]:
    """The whitespace before a new last item, by that before the old one; and what is before the bracket.

    Where items have lines of their own, a comment behind the old last one stays there.
    """
    if not isinstance(opening, cst.ParenthesizedWhitespace):
        return cst.SimpleWhitespace(" "), closing
    between = opening.with_changes(first_line=cst.TrailingWhitespace(), empty_lines=())
    if isinstance(closing, cst.ParenthesizedWhitespace):
        between = between.with_changes(first_line=closing.first_line)
        closing = closing.with_changes(first_line=cst.TrailingWhitespace())
    return between, closing

"""Texts and paths, computed where all their parts are known. A `pathlib.Path` is represented by its text."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import PurePath

from tclint.source.run.interpreter.containers import Containers
from tclint.source.run.values import Constant, Option, Value, join, options_of

_LARGEST_TEXT = 200
_REPEATS = frozenset("*+?{|")
_MOST_COMBINED = 16
"""The most combinations of alternatives for which a text is computed."""
_OF_PATHS = frozenset({"basename", "dirname", "join", "normpath", "split", "splitext"})
_PARTS_OF_PATHS = frozenset({"name", "parent", "stem", "suffix"})


class Texts(Containers):
    """Computes texts."""

    def computed(
        self, operator: str, operands: Sequence[Value], compute: Callable[..., object]
    ) -> Value | None:
        """What a function of texts and numbers gives for all alternatives of its operands; None if one of
        them is neither known nor chosen outside the program.

        Args:
            operator: names the operation in a result that depends on what is chosen outside.
        """
        several = [options_of(operand) for operand in operands]
        if sum(map(len, several)) - len(several) > _MOST_COMBINED:
            return None
        ways: list[Option] = []
        is_known = False
        for combination in product(*several):
            values = [option.value for option in combination]
            guard = tuple(atom for option in combination for atom in option.guard)
            made: Value | None
            if all(isinstance(value, Constant) for value in values):
                made = self._text(compute, [value.value for value in values])  # type: ignore[attr-defined]
                if made is None and len(values) < sum(map(len, several)):
                    continue  # Python raises an error for this alternative
                is_known |= made is not None
            else:
                made = self.from_outside(operator, tuple(values))
            if made is None:
                return None
            ways.append(Option(made, guard))
        return join(ways) if is_known else None

    def _text(self, compute: Callable[..., object], values: list[object]) -> Value | None:
        try:
            found = compute(*values)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, re.error):
            return None
        if isinstance(found, list | tuple):
            return self.container("tuple", [Constant(part) for part in found])
        if isinstance(found, str) and len(found) > _LARGEST_TEXT:
            return self.unknown("text")
        return Constant(found)

    def text_function(self, name: str, arguments: Sequence[Value]) -> Value | None:
        """The result of a function of `os.path`, or of `re.sub`, on known texts."""
        if name == "re.sub" and len(arguments) == 3:
            pattern = self.text_of(arguments[0])
            # A pattern that repeats something may take any time.
            is_quick = pattern is not None and _REPEATS.isdisjoint(pattern)
            return self.computed(name, arguments, re.sub) if is_quick else None
        module, _, last = name.rpartition(".")
        if module != "os.path" or last not in _OF_PATHS or not arguments:
            return None
        return self.computed(name, arguments, getattr(os.path, last))

    def part_of_path(self, value: Value, name: str) -> Value | None:
        """An attribute of a path: texts have none of these names."""
        if name not in _PARTS_OF_PATHS or not isinstance(value, Constant) or not isinstance(value.value, str):
            return None
        return Constant(str(getattr(PurePath(value.value), name)))

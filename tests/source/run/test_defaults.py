"""What values are by default: nested choices are decided once each."""

from __future__ import annotations

from tclint.source.questions.defaults import Defaults
from tclint.source.run.values import Atom, Constant, Option, Thing, Union, Value


class Counted(Defaults):
    """Counts the tests that it decides."""

    decided = 0

    def holds(self, atom: Atom) -> bool | None:
        self.decided += 1
        return super().holds(atom)


def test_choices_that_rest_on_choices_take_linear_time() -> None:
    value: Value = Union((Option(Constant(True), ()), Option(Thing("", "option"), ())))
    for _ in range(16):
        ways = (Atom("truth", value, None, holds) for holds in (True, False))
        value = Union(tuple(Option(Constant(way.holds), (way,)) for way in ways))
    defaults = Counted()
    assert defaults.constant(value) is True
    assert defaults.decided < 100

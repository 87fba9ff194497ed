"""The whole interpreter: files and entry points."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from tclint.source.run.files import File
from tclint.source.run.library import Program
from tclint.source.run.values import (
    ClassValue,
    Event,
    Frame,
    FunctionValue,
    Place,
    Thing,
    Value,
)
from tclint.source.syntax.tables import (
    Call,
    Name,
)

if TYPE_CHECKING:
    from tclint.source.syntax.parse import Parsed
from tclint.source.run.interpreter.loops import Loops


@cache
def _parsed(text: str) -> Parsed:
    """The tables of a library's summary, parsed once for all programs."""
    from tclint.source.syntax.parse import parse

    return parse(text)


class Machine(Loops):
    """The whole interpreter."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._summaries: dict[str, File] = {}
        self.looked_at = 0
        """The number of events in which modules without a call have been searched for."""
        self.modules: list[tuple[Event, Thing]] = []
        """Modules that were made and not called so far, each with the event that made it."""
        self.called: set[Thing] = set()
        self.objects: dict[ClassValue, list[Thing]] = {}
        self.reached: set[str] = set()
        """The linted files of which the program itself runs something that matters to rules."""
        self.run_alone_of: dict[object, int] = {}
        """Class -> the number of its modules that were run although the program does not call them."""

    # -- files

    def run_file(self, file: File, name: str = "__main__") -> None:
        """Run a file as a program."""
        file.name = name
        self.run_module(file)

    def run_module(self, file: File) -> None:
        """Run the body of a file, once."""
        if file in self.frames:
            return
        self.frames[file] = Frame(file, file.tables.module, None)
        saved = (self.frame, self.path, self.loops, self.regions, self.stack, self.node_id)
        self.path, self.loops, self.regions, self.stack = (), (), (), ()
        self.frame = self.frames[file]
        try:
            with self.store.lasting():
                self.run_body(self.frame, None)
        finally:
            self.frame, self.path, self.loops, self.regions, self.stack, self.node_id = saved

    def summary(self, program: Program) -> File:
        found = self._summaries.get(program.name)
        if found is None:
            parsed = _parsed(program.text)
            found = File(
                f"<{program.name}>",
                parsed.tables,
                lambda: parsed.spans,
                lambda: parsed.lines,
                name=program.name,
                is_library=True,
            )
            self._summaries[program.name] = found
            self.run_module(found)
        return found

    # -- entry points

    def begin(self, parts: int = 2) -> None:
        """Begin an entry point. Its events have no order relative to earlier entry points, and it may use
        1/`parts` of the program's events."""
        self.run_number += 1
        self.most_events = min(len(self.record.events) + self.events // parts, self.events)
        self._spent.update(self._spending)
        self._spending.clear()

    def run_unknown(self, value: FunctionValue, stack: tuple[Place, ...] = (), parts: int = 2) -> Value:
        """Run a function without a known caller, on arguments that its parameters declare; return its result.

        Args:
            stack: the places to record as the calls that lead there.
            parts: as for `begin`.
        """
        self.begin(parts)
        if value.file.is_library and not stack:
            stack = (self.here,)  # it runs for the code at hand, as an inherited constructor does
        before, self.frame, self.stack = self.frame, value.frame, stack
        self.node_id = value.function.node_id
        frame = self.enter_function(value, [], self.undeclared(value))
        result = self.run_frame(frame, value, None)
        # An unknown caller may read the result.
        self.happen("return", value.function.qualified_name, None, {"0": result})
        self.frame = before
        return result

    def run_alone(self, module: Thing, frame: Frame) -> None:
        """Call a module that the program makes but does not call."""
        self.begin()
        before, self.frame, self.stack = self.frame, frame, ()
        method = module.cls.find("forward") if module.cls is not None else None
        arguments: list[Value] = [self.unknown("input")]
        keywords: dict[str, Value] = {}
        if isinstance(method, FunctionValue):
            arguments, keywords = [], self.undeclared(method.bound_to(module))
        node_id = module.made.place.node_id if module.made is not None else frame.function.node_id
        self.node_id = node_id
        result = self.call_thing(module, arguments, keywords, Call(Name(""), (), node_id))
        self.happen("return", "", None, {"0": result})
        self.frame = before

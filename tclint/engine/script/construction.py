"""The arguments that a project's own programs give a model's class or builder, for a target that needs some.

`tclint model.py:Net` has to make a Net. Where its constructor needs arguments that nobody gave, a program
that makes one says what they are in practice: as constants, through variables and functions, or as the
defaults of its options. The program is read, not run.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tclint.config.settings import Settings
from tclint.core.errors import TargetError
from tclint.core.text import listed
from tclint.engine.script.models import file_of, parsed
from tclint.graph.ops import Assumption, Site
from tclint.source.project.scripts import Scripts
from tclint.source.project.test_paths import is_test_path
from tclint.source.questions.defaults import Defaults
from tclint.source.run.files import File
from tclint.source.run.program import Program
from tclint.source.run.project import ProjectFiles
from tclint.source.run.values import Constant, Event, FunctionValue, Thing, Value, options_of
from tclint.tracing import TraceResult, trace_targets

_MOST_PROGRAMS = 12
"""The most files of a project that are read for the calls of one class."""
_MOST_LISTED = 12
_PLAIN = (int, float, bool, type(None))


@dataclass(frozen=True)
class Construction:
    """How a program calls a class or a function that builds a model."""

    arguments: Mapping[str, str]
    """What is known of its arguments, as `--arg` takes them."""
    site: Site
    files: tuple[str, ...]
    """The paths of those that the program reads."""

    @property
    def place(self) -> str:
        return f"{os.path.relpath(self.site.path)}:{self.site.line}"


def trace_as_built(
    targets: Sequence[str],
    settings: Settings,
    own: dict[str, Settings],
    on_progress: Callable[[str], None] | None = None,
    trace: Callable[..., Iterator[TraceResult]] = trace_targets,
) -> Iterator[TraceResult]:
    """Trace targets; one that needs arguments, or fails without, is traced again with those that its project
    states.

    Args:
        own: target -> its settings, which the arguments become part of.
        trace: `tclint.tracing.trace_targets`, or another function that does the same.
    """
    for result in trace(targets, settings, own=own, on_progress=on_progress):
        needed = result.error.needed if result.error is not None else ()
        has_failed = result.error is not None and result.error.has_run and not result.input_set
        found = construction(result.target, needed, settings) if needed or has_failed else None
        if found is None:
            yield result
            continue
        if not set(needed) <= set(found.arguments):
            yield replace(result, error=_incomplete(result.target, needed, found))
            continue
        given = own.get(result.target, settings)
        named = {text.partition("=")[0].partition(".")[0] for text in given.arguments}
        stated = {name: text for name, text in found.arguments.items() if name not in named}
        texts = (f"{name}={text}" for name, text in stated.items())
        made_so = {result.target: replace(given, arguments=(*given.arguments, *texts))}
        again = list(trace([result.target], settings, own=made_so, on_progress=on_progress)) if stated else []
        if needed or (again and all(one.graph is not None for one in again)):
            own.update(made_so)
            yield from (_noted(one, stated, found) for one in again)
        else:
            yield result  # what was made as the user named it is nearer


def _noted(result: TraceResult, stated: Mapping[str, str], found: Construction) -> TraceResult:
    shown = listed([f"{name} = {text}" for name, text in stated.items()], _MOST_LISTED)
    if result.graph is not None:
        note = Assumption(f"made with {shown}, as its project does; --arg NAME=VALUE sets others", found.site)
        read = dict.fromkeys([*result.graph.metadata.get("source_files", ()), *found.files])
        metadata = {**result.graph.metadata, "source_files": [*read]}
        # At the end: what is said of guesses counts assumptions from the front.
        assumptions = (*result.graph.assumptions, note)
        return replace(result, graph=replace(result.graph, assumptions=assumptions, metadata=metadata))
    if result.error is None:
        return result
    message = f"{result.error} It was made with {shown}, as {found.place} does; --arg NAME=VALUE sets others."
    error = TargetError(message, details=result.error.details, captured_output=result.error.captured_output)
    return replace(result, error=error)


def _incomplete(target: str, needed: Sequence[str], found: Construction) -> TargetError:
    missing = [name for name in needed if name not in found.arguments]
    values = {**dict.fromkeys(needed, "VALUE"), **found.arguments}
    given = " ".join(f"--arg {shlex.quote(f'{name}={text}')}" for name, text in values.items())
    return TargetError(
        f"{target.rpartition(':')[2]} needs arguments ({', '.join(needed)}). {found.place} makes one, "
        f"and only running it tells what it gives for {listed(missing, _MOST_LISTED)}: "
        f"tclint {shlex.quote(target)} {given}"
    )


def construction(target: str, needed: Collection[str], settings: Settings) -> Construction | None:
    """The call of a target's class or function in its project that states most of the arguments it needs.

    A call in the target's own file comes first, as its example of inputs fits it; then those of the program
    that the file belongs to, and of the other files that name the target. None if a file does not define it,
    or no call states any argument.
    """
    files = ProjectFiles(parsed)
    where, _, name = target.rpartition(":")
    file = file_of(where, files)
    if file is None or all(item.qualified_name != name for item in file.tables.functions):
        return None
    best: Construction | None = None
    for path in _programs(file.path, name):
        start = files.file(path)
        if start is None:
            continue
        program = Program.of(start, files, tokens=(name,), events=settings.program_events, watched=name)
        read = tuple(item.path for item in program.files if not item.is_library)
        for event in program.record.of("make", "enter"):
            parameters = _parameters(event, file, name)
            if parameters is None:
                continue
            found = Construction(_arguments(event, parameters), _site(event), read)
            if best is None or _known(found, needed) > _known(best, needed):
                best = found
        if best is not None and set(needed) <= set(best.arguments):
            break
    return best if best is not None and best.arguments else None


def _known(found: Construction, needed: Collection[str]) -> tuple[int, int]:
    return len(set(needed) & set(found.arguments)), len(found.arguments)


def _programs(path: str, name: str) -> list[str]:
    """The files whose programs may make the class, best first."""
    scripts = Scripts.around(path)
    call = re.compile(rb"\b%s\b" % re.escape(name.encode()))
    others = sorted(
        (other for other, data in scripts.files.items() if call.search(data)),
        key=lambda other: (is_test_path(other), len(other), other),
    )
    return list(dict.fromkeys([path, scripts.of(path), *others]))[:_MOST_PROGRAMS]


def _parameters(event: Event, file: File, name: str) -> Sequence[str] | None:
    """The parameters of what an event calls, if that is the file's class or function of the name."""
    for option, _ in options_of(event.result) if event.result is not None else ():
        cls = option.cls if isinstance(option, Thing) else None
        called = option if isinstance(option, FunctionValue) else cls
        if called is None or called.function.qualified_name != name:
            continue
        if os.path.realpath(called.file.path) == os.path.realpath(file.path):
            function = called if cls is None else cls.find("__init__")
            given = function.function.parameters if isinstance(function, FunctionValue) else ()
            return [item.name for item in given if not item.star][0 if cls is None else 1 :]
    return None


def _arguments(event: Event, parameters: Sequence[str]) -> dict[str, str]:
    found = {}
    for key, value in event.arguments.items():
        name = parameters[int(key)] if key.isdigit() and int(key) < len(parameters) else key
        text = _text(value)
        if name.isidentifier() and text is not None:
            found[name] = text
    return found


def _text(value: Value) -> str | None:
    """A value that a program has by default, as `--arg` takes it; None where reading does not tell."""
    found = Defaults().value(value)
    if isinstance(found, Constant):
        if isinstance(found.value, str):
            return json.dumps(found.value, ensure_ascii=False)  # in the quotes that a shell leaves alone
        return repr(found.value) if isinstance(found.value, _PLAIN) else None
    if not isinstance(found, Thing) or found.kind not in ("list", "tuple"):
        return None
    length = found.fields.get("[]")
    if not isinstance(length, Constant) or "[*]" in found.fields or "[~]" in found.fields:
        return None
    items = [_text(found.fields["item", position]) for position in range(int(str(length.value)))]
    if None in items:
        return None
    inner = ", ".join(str(item) for item in items)
    if found.kind == "list":
        return f"[{inner}]"
    return f"({inner},)" if len(items) == 1 else f"({inner})"


def _site(event: Event) -> Site:
    file = event.place.file
    return Site(file.path, file.spans()[event.place.node_id].line)

"""The arguments that a project's own programs give a model's class or builder, for a target that needs some.

`tclint model.py:Net` has to make a Net. Where its constructor needs arguments that nobody gave, a program
that makes one says what they are in practice: as constants, through variables and functions, or as the
defaults of its options. tclint reads the program and, if that does not tell, runs it up to there.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from tclint.config.settings import Settings
from tclint.core.errors import TargetError
from tclint.core.examples import README, python_blocks
from tclint.core.text import listed
from tclint.engine.script.argument_text import argument_text, sized_text
from tclint.engine.script.guessed_sizes import with_guessed_sizes
from tclint.engine.script.models import file_of, files_of_project
from tclint.engine.script.program_runs import calls_by_running
from tclint.graph.ops import Assumption, Graph, Site
from tclint.source.project.scripts import Scripts, root_of
from tclint.source.project.test_paths import is_test_path
from tclint.source.run.files import File
from tclint.source.run.program import Program
from tclint.source.run.values import Event, FunctionValue, Thing, options_of
from tclint.source.syntax.parse import NotPython, parse_tree
from tclint.source.syntax.tables import Function, Literal, Parameter
from tclint.tracing import TraceResult, in_order, trace_callable, trace_targets
from tclint.tracing.values.sites import SiteFinder

_MOST_PROGRAMS = 12
"""The most files of a project that are read for the calls of one class."""
_MOST_LISTED = 12
_MOST_CALLS = 2
"""The most calls of a class whose arguments are tried."""
_EVENTS_BESIDE_DEFAULTS = 10_000
"""The most calls and operations that are followed for a model that also runs with its defaults."""
_MOST_SHOWN = 60
"""The most characters of an argument in a sentence."""


@dataclass(frozen=True)
class Construction:
    """How a program calls a class or a function that builds a model."""

    arguments: Mapping[str, str]
    """What is known of its arguments, as `--arg` takes them."""
    sizes: Mapping[str, str]
    """The arguments that are or hold sizes of data, with `SIZE` for each."""
    site: Site
    files: tuple[str, ...]
    """The paths of those that the program reads, of its configuration and of its commands."""
    is_own: bool = True
    """Whether it calls that class or function, and not another file's of the same name and parameters."""
    is_trained: bool = False
    """Whether the program trains."""
    untold: tuple[str, ...] = ()
    """Arguments that it gives, whose values reading does not tell and whose defaults are numbers."""
    trained_at: str = ""
    """Where another program, which trains, makes it with arguments that reading does not tell."""
    otherwise: str = ""
    """Where another call, of equal standing, makes it with other arguments."""
    is_run: bool = False
    """Whether the program was run up to there rather than only read."""
    inputs: tuple[str, ...] = ()
    """Inputs of the model's first call, as `--input` takes them, if the program was run up to that call."""

    @property
    def place(self) -> str:
        return f"{os.path.relpath(self.site.path)}:{self.site.line}"


Runs: TypeAlias = "Sequence[tuple[str, Settings]]"
"""Targets and their settings."""
Traced: TypeAlias = "Iterable[tuple[int, list[TraceResult]]]"
"""By the position of a run, in any order: a result per set of its inputs."""


def runs_as_built(
    runs: Runs, trace: Callable[[Runs], Traced], written_at: Mapping[str, str] | None = None
) -> Generator[tuple[int, list[TraceResult]], None, None]:
    """Trace runs; those that need arguments, or fail without, are traced again with those that their project
    states. A single run whose inputs are guessed gets those with which its program calls the model.

    Args:
        trace: `tclint.tracing.trace_runs`, or another function that does the same.
        written_at: run's target -> the file and the name of its code, if the target does not say; '' for a
            model that is made already.
    """
    asked: set[str] = set()
    for at, results in _runs_with_arguments(runs, trace, written_at or {}, asked):
        where = (written_at or {}).get(runs[at][0], runs[at][0])
        is_open = len(runs) == 1 and where not in asked and _has_guessed_inputs(results)
        yield at, _as_called(where, runs[at], trace, results) if is_open else results


def _has_guessed_inputs(results: Sequence[TraceResult]) -> bool:
    graph = results[0].graph if len(results) == 1 else None
    return graph is not None and bool(graph.guesses) and graph.metadata.get("inputs_from") == "inferred"


def _as_called(
    where: str, run: tuple[str, Settings], trace: Callable[[Runs], Traced], results: list[TraceResult]
) -> list[TraceResult]:
    """Trace a run again with what the project's program gives the model; the results so far if the program
    does not call it."""
    target, settings = run
    called = [one for one in _by_running(where, (), settings) if one.inputs]
    for one, stated in _tries(called[:1], (), settings):
        tried = _Again(results, [(one, stated)]).given
        [(_, [result, *_])] = trace([(target, tried.made_so(settings))])
        if result.graph is not None:
            return [replace(_noted(result, one, stated), arguments=tried.arguments, inputs=tried.inputs)]
    return results


def _runs_with_arguments(
    runs: Runs, trace: Callable[[Runs], Traced], written_at: Mapping[str, str], asked: set[str]
) -> Generator[tuple[int, list[TraceResult]], None, None]:
    """As `runs_as_built`, but leaves guessed inputs alone.

    Args:
        asked: receives the targets whose programs were run.
    """
    known: dict[tuple[str, tuple[str, ...]], list[Construction]] = {}
    read_only: dict[int, tuple[str, tuple[str, ...]]] = {}
    """The runs whose programs were not run so far."""
    again: dict[int, _Again] = {}
    open_sizes: dict[int, tuple[_Again, Construction, Sequence[str]]] = {}
    for at, results in trace(runs) if runs else ():
        target, settings = runs[at]
        error = results[0].error if len(results) == 1 else None
        where = written_at.get(target, target)
        has_failed = error is not None and (bool(error.needed) or error.has_run)
        if not where or not (has_failed or _rests_on_defaults(results, settings)):
            yield at, results
            continue
        needed = () if error is None else tuple(error.needed)
        if (where, needed) not in known:
            read = constructions(where, needed, settings) if has_failed else _trained_so(where, settings)
            is_open = (has_failed and not needed) or not _is_certain(read, where, needed)
            if (has_failed or read) and is_open:
                asked.add(where)
                read = _with_runs(where, needed, read, settings)
            elif has_failed:
                read_only[at] = where, needed
            known[where, needed] = read
        found = known[where, needed]
        tries = list(_tries(found, needed, settings))
        if tries:
            again[at] = _Again(results, tries)
        elif found and needed:
            told = replace(results[0], error=_incomplete(target, needed, found[0]))
            open_sizes[at] = _Again([told], []), found[0], needed
        else:
            yield at, results
    while again or open_sizes:
        positions = [*again]
        made = [(runs[at][0], again[at].given.made_so(runs[at][1])) for at in positions]
        for number, results in trace(made) if made else ():
            at = positions[number]
            last = again.pop(at)
            maker, stated = last.tries[0]
            given = last.given
            noted = [
                replace(_noted(one, maker, stated), arguments=given.arguments, inputs=given.inputs)
                for one in results
            ]
            following = last.following(noted)
            if maker.sizes and any(one.graph is None for one in noted):
                open_sizes[at] = following, maker, ()
                continue
            if not following.tries and any(one.graph is None for one in noted) and at in read_only:
                where, needed = read_only.pop(at)
                asked.add(where)
                ran = _with_runs(where, needed, [], runs[at][1])
                following = replace(following, tries=list(_tries(ran, needed, runs[at][1])))
            if following.tries:
                again[at] = following
            else:
                yield at, following.results
        for at, (following, maker, lacking) in open_sizes.items():
            guessed = _with_guessed_sizes(runs[at], following.results[0], maker, trace, lacking)
            if guessed is None and following.tries:
                again[at] = following
            else:
                yield at, following.results if guessed is None else [guessed]
        open_sizes.clear()


def _rests_on_defaults(results: Sequence[TraceResult], settings: Settings) -> bool:
    """Whether a model ran with its defaults alone, without arguments or inputs of the user."""
    graph = results[0].graph if len(results) == 1 else None
    return (
        graph is not None
        and graph.metadata.get("inputs_from") == "inferred"
        and not results[0].arguments
        and not settings.arguments
    )


def _trained_so(where: str, settings: Settings) -> list[Construction]:
    """The calls of a model that needs no arguments in the programs that train it."""
    settings = replace(settings, program_events=min(settings.program_events, _EVENTS_BESIDE_DEFAULTS))
    return [one for one in constructions(where, (), settings) if one.is_own and one.is_trained]


def _with_guessed_sizes(
    run: tuple[str, Settings],
    before: TraceResult,
    found: Construction,
    trace: Callable[[Runs], Traced],
    needed: Collection[str],
) -> TraceResult | None:
    """A run with the arguments that are known, and a guess for sizes of data; None where it does not run so.

    Args:
        before: what it gave so far.
        needed: what the model cannot be made without: where reading tells nothing of it, it may be a size.
    """
    target, settings = run
    named = {text.partition("=")[0] for text in settings.arguments}
    unknown = {name: text for name, text in sorted(found.sizes.items()) if name not in named}
    unclear = [name for name in needed if name not in {*named, *unknown, *found.arguments}]
    stated = {name: text for name, text in found.arguments.items() if name not in {*named, *unknown}}

    def with_sizes(sizes: dict[str, str]) -> TraceResult:
        texts = tuple(f"{name}={text}" for name, text in {**stated, **sizes}.items())
        given = replace(before, arguments=texts)
        [(_, [result, *_])] = trace([(target, given.made_so(settings))])
        result = _noted(result, found, stated) if stated else result
        return replace(result, arguments=texts)

    return with_guessed_sizes(unknown, unclear, found.site, with_sizes)


@dataclass(frozen=True)
class _Again:
    """A run that is traced again, with arguments that its project states."""

    results: list[TraceResult]
    """What it gave as the user named it; where that lacks arguments, what it gave with the first ones."""
    tries: list[tuple[Construction, dict[str, str]]]
    """What is left to try, and the arguments that it adds to the user's."""

    @property
    def given(self) -> TraceResult:
        texts = tuple(f"{name}={text}" for name, text in self.tries[0][1].items())
        return replace(self.results[0], arguments=texts, inputs=self.tries[0][0].inputs)

    def following(self, made: list[TraceResult]) -> _Again:
        """What is left after a try; nothing where it ran."""
        if all(one.graph is not None for one in made):
            return _Again(made, [])
        error = self.results[0].error  # what was made as the user named it is nearer
        return _Again(made if error is not None and error.needed else self.results, self.tries[1:])


def _tries(
    found: Sequence[Construction], needed: Collection[str], settings: Settings
) -> Iterator[tuple[Construction, dict[str, str]]]:
    """The calls that give a callable what it needs; then the first of them without what it can do without."""
    named = {text.partition("=")[0] for text in settings.arguments}
    complete = [one for one in found if set(needed) <= set(one.arguments)]
    is_free = not (settings.inputs or settings.input_sets or settings.phase != "none")
    for one in complete[:_MOST_CALLS]:
        stated = {name: text for name, text in one.arguments.items() if name not in named}
        if one.inputs and is_free:
            yield one, stated
        if stated:
            yield replace(one, inputs=()), stated
    for one in complete[:1] if needed else ():
        if set(needed) < set(one.arguments) - named:
            least = {name: text for name, text in one.arguments.items() if name in needed}
            yield replace(one, inputs=()), least


def trace_as_built(
    targets: Sequence[str],
    settings: Settings,
    own: Mapping[str, Settings] | None = None,
    on_progress: Callable[[str], None] | None = None,
    trace: Callable[..., Iterable[TraceResult]] = trace_targets,
    written_at: Mapping[str, str] | None = None,
) -> Iterator[TraceResult]:
    """The results of `runs_as_built`, in the order of the targets.

    Args:
        own: target -> its settings.
        trace: `tclint.tracing.trace_targets`, or another function that does the same.
        written_at: as of `runs_as_built`.
    """

    def run(runs: Runs) -> Traced:
        given = dict(runs)
        at = {target: position for position, target in enumerate(given)}
        sets: list[TraceResult] = []
        for result in trace([*given], settings, own=given, on_progress=on_progress):
            if sets and sets[0].target != result.target:
                yield at[sets[0].target], sets
                sets = []
            if result.input_set:
                sets.append(result)
            else:  # it is alone, and is passed on before the next one is awaited
                yield at[result.target], [result]
        if sets:
            yield at[sets[0].target], sets

    runs = [(target, (own or {}).get(target, settings)) for target in dict.fromkeys(targets)]
    for results in in_order(runs_as_built(runs, run, written_at)):
        yield from results


def trace_callable_as_built(
    given: Any, inputs: Any, kwargs: Mapping[str, Any] | None, settings: Settings
) -> Graph:
    """As `tclint.tracing.trace_callable`.

    Raises:
        TargetError: the model could not be built or traced.
        UsageError: the settings name several sets of inputs.
    """

    def run(runs: Runs) -> Traced:
        for at, (name, own) in enumerate(runs):
            try:
                yield at, [TraceResult(name, trace_callable(given, inputs, kwargs, own))]
            except TargetError as error:
                yield at, [TraceResult(name, error=error)]

    [(_, [result])] = runs_as_built([("", settings)], run, {"": builder_at(given)})
    if result.graph is None:
        assert result.error is not None
        raise result.error
    return result.graph


def builder_at(one: Any) -> str:
    """The target for a class or a function that builds a model; '' for a model."""
    return written_at(one) if hasattr(one, "__qualname__") else ""


def written_at(one: Any) -> str:
    """The target for a model's class or for the callable that builds it."""
    code = one if hasattr(one, "__qualname__") else type(one)
    module = sys.modules.get(code.__module__)
    return f"{getattr(module, '__file__', None) or code.__module__}:{code.__qualname__}"


def _noted(result: TraceResult, found: Construction, stated: Mapping[str, str]) -> TraceResult:
    shown = listed([f"{name} = {_shown(text)}" for name, text in stated.items()], _MOST_LISTED)
    holder = next((f"{name}.FIELD" for name, text in stated.items() if text.startswith("Namespace(")), "")
    sets = f"--arg {holder or 'NAME'}=VALUE sets {'a field' if holder else 'others'}"
    if result.graph is not None:
        does = "does" if found.is_own else f"makes another {result.target.rpartition(':')[2]}"
        kept = f", and {listed(found.untold, _MOST_LISTED)} by default, as only running the program tells"
        if found.is_run:
            kept = f", and {listed(found.untold, _MOST_LISTED)} by default, as the program lacks its data"
        trained = f", although {found.trained_at}, which trains it, gives what only running tells"
        how = f"as {found.place} passes them, run up to there" if found.is_run else f"as its project {does}"
        what = f"made with {shown}, {how}{kept if found.untold else ''}"
        what += trained if found.trained_at else ""
        what += ", and called as there" if found.inputs else ""
        what += f", although {found.otherwise} makes it otherwise" if found.otherwise else ""
        is_doubtful = bool(found.untold or found.trained_at or found.otherwise)
        note = Assumption(f"{what}; {sets}", found.site, is_doubtful=is_doubtful)
        read = dict.fromkeys([*result.graph.metadata.get("source_files", ()), *found.files])
        metadata = {**result.graph.metadata, "source_files": [*read]}
        # At the end: what is said of guesses counts assumptions from the front.
        assumptions = (*result.graph.assumptions, note)
        return replace(result, graph=replace(result.graph, assumptions=assumptions, metadata=metadata))
    if result.error is None:
        return result
    message = f"{result.error} It was made with {shown}, as {found.place} does; {sets}."
    error = TargetError(message, details=result.error.details, captured_output=result.error.captured_output)
    return replace(result, error=error)


def _shown(text: str) -> str:
    """A long argument without its middle."""
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 4]}...{text[-1]}"


def _incomplete(target: str, needed: Sequence[str], found: Construction) -> TargetError:
    missing = [name for name in needed if name not in found.arguments]
    values = {**dict.fromkeys(needed, "VALUE"), **found.arguments}
    given = " ".join(f"--arg {shlex.quote(f'{name}={text}')}" for name, text in values.items())
    tells = "running it up to there does not tell" if found.is_run else "only running it with its data tells"
    return TargetError(
        f"{target.rpartition(':')[2]} needs arguments ({', '.join(needed)}). {found.place} makes one, "
        f"and {tells} what it gives for {listed(missing, _MOST_LISTED)}: "
        f"tclint {shlex.quote(target)} {given}"
    )


def _is_certain(found: Sequence[Construction], where: str, needed: Collection[str]) -> bool:
    """Whether reading tells all of how a program makes the model. Tests and the model's own file do not
    count, since they may make a small one."""
    one = found[0] if found else None
    if one is None or not set(needed) <= set(one.arguments):
        return False
    if one.untold or one.trained_at or one.otherwise:
        return False
    own = os.path.realpath(where.rpartition(":")[0])
    is_elsewhere = one.is_trained or os.path.realpath(one.site.path) != own
    return is_elsewhere and not is_test_path(one.site.path)


def _by_running(where: str, needed: Collection[str], settings: Settings) -> list[Construction]:
    """The calls of the target that the project's programs reach when they run."""
    target, _, name = where.rpartition(":")
    file = file_of(target, files_of_project(settings)) if settings.run_programs else None
    if file is None or not SiteFinder().is_user_file(file.path):
        return []
    programs = _programs(file.path, re.compile(rf"\b{re.escape(name)}\b"), ())
    return [
        Construction(
            call["arguments"],
            call["sizes"],
            Site(call["path"], call["line"]),
            tuple(call["files"]),
            is_trained=call["trains"],
            untold=tuple(call["untold"]),
            is_run=True,
            # A demonstration says nothing of the batches that the model is trained on.
            inputs=tuple(call.get("inputs", ())) if call["trains"] else (),
        )
        for call in calls_by_running(f"{file.path}:{name}", programs, needed, settings)
    ]


def _with_runs(
    where: str, needed: Collection[str], found: list[Construction], settings: Settings
) -> list[Construction]:
    """The calls of a training program that was run; if there are none, those that were read, together with
    those of other runs that tell more."""
    wanted = set(needed)
    more = [
        one
        for one in _by_running(where, needed, settings)
        if not (one.untold and any(set(one.arguments) <= set(read.arguments) for read in found))
    ]
    best = [one for one in more if one.is_trained and wanted <= set(one.arguments)]
    # Nothing beside the best: where that fails, a test's small model would stand for the trained one.
    return best or sorted([*found, *more], key=lambda one: -len(wanted & set(one.arguments)))


def constructions(target: str, needed: Collection[str], settings: Settings) -> list[Construction]:
    """The calls of a target's class or function in its project, those first that state most of the arguments
    it needs.

    Among equals those of the programs that use the model come first, then its own file's example, which may
    be small, and last those of another file's class that takes the same. Empty if no file of the user's
    defines it, or no call states any argument.
    """
    where, _, name = target.rpartition(":")
    file = file_of(where, files_of_project(settings))
    own = [] if file is None else [item for item in file.tables.functions if item.qualified_name == name]
    if file is None or all(item.kind == "function" and not item.parameters for item in own):
        return []  # there is none, or no call can give it anything
    if not SiteFinder().is_user_file(file.path):  # the users of a library are not in its own package
        return []
    found: dict[tuple[Any, ...], Construction] = {}
    call = re.compile(rf"\b{re.escape(name)}\b")
    readme = _readme(file.path, call)
    files = files_of_project(settings, readme, has_pages=True)
    paths = _programs(file.path, call, readme)
    done: set[str] = set()
    events_left = settings.program_events
    for path in paths:
        start = None if path in done or events_left <= 0 else files.file(path)
        if start is None:
            continue
        program = Program.of(start, files, paths, (name,), events_left, watched=name)
        done |= program.within
        events_left -= len(program.record.events)
        read = (*(item.path for item in program.files if not item.is_library), *files.others)
        is_trained = bool(program.record.of("backward"))
        for event in program.record.of("make", "enter"):
            called = _called(event, file, name)
            if called is None:
                continue
            parameters, is_own = called
            texts, sizes = _arguments(event, parameters, file.path)
            if event.arguments:
                untold = _untold(event, parameters, {*texts, *sizes})
                one = Construction(texts, sizes, _site(event), read, is_own, is_trained, untold)
                found.setdefault((not is_own, *sorted(texts.items()), *sorted(sizes.items())), one)
        complete = [one for one in found.values() if set(needed) <= set(one.arguments)]
        if any(one.is_own and not _is_in(one, file) for one in complete):
            break

    def known(one: Construction) -> tuple[int, int, bool, bool, bool, int]:
        wanted = set(needed)
        given = len(wanted & set(one.arguments)), len(wanted & set(one.sizes))
        return *given, one.is_own, one.is_trained, not _is_in(one, file), len(one.arguments)

    first, *others = [*sorted(found.values(), key=known, reverse=True), None]
    if first is not None and not first.is_trained and set(needed) <= set(first.arguments):
        # A number of classes changes little, and a configuration everything.
        whole = {name for name in needed if not first.arguments[name].isdigit()}
        trained = next((one for one in others if one and one.is_trained and whole - {*one.arguments}), None)
        first = first if trained is None else replace(first, trained_at=trained.place)
        given = first.arguments
        for rival in found.values() if trained is None else ():
            if known(rival) == known(first) and any(rival.arguments[name] != given[name] for name in whole):
                first = replace(first, otherwise=rival.place)
                break
    return [one for one in (first, *others) if one is not None]


def is_made(target: str, needed: Collection[str], settings: Settings) -> bool:
    """Whether a target's project states what it needs, but for sizes of data, which can be guessed."""
    found = constructions(target, needed, settings)[:1]
    return any(set(needed) <= one.arguments.keys() | one.sizes.keys() for one in found)


def _is_in(found: Construction, file: File) -> bool:
    return os.path.realpath(found.site.path) == os.path.realpath(file.path)


def _programs(path: str, call: re.Pattern[str], readme: Iterable[str]) -> list[str]:
    """The files whose programs may make the class, best first."""
    scripts = Scripts.around(path)
    naming = re.compile(call.pattern.encode())
    others = [other for other, data in scripts.files.items() if naming.search(data)]
    # Those come first whose program trains: others may make another branch of the model, or a small one.
    others.sort(
        key=lambda other: (is_test_path(other), scripts.place_of(scripts.of(other)), len(other), other)
    )
    tests = [other for other in others if is_test_path(other)]
    own = others[: len(others) - len(tests)]
    # What makes the model may be a part of a program, whose options another file of it reads.
    best = [path, scripts.of(path), *(file for other in own for file in (scripts.of(other), other))]
    return [*dict.fromkeys([*[*dict.fromkeys(best)][: _MOST_PROGRAMS - 1], *readme, *tests])][:_MOST_PROGRAMS]


def _readme(path: str, call: re.Pattern[str]) -> dict[str, bytes]:
    """The nearest README, as a program of its examples that name a class, at their lines."""
    root, folder = root_of(path), os.path.dirname(path)
    while not os.path.isfile(readme := os.path.join(folder, README)):
        if folder == root or folder == os.path.dirname(folder):
            return {}
        folder = os.path.dirname(folder)
    lines: list[str] = []
    try:
        with open(readme, encoding="utf-8", errors="replace") as file:
            text = file.read()
        for before, code in python_blocks(text):
            with contextlib.suppress(NotPython):
                if call.search(code) and parse_tree(code):
                    lines += [""] * (before - len(lines)) + code.splitlines()
    except OSError:
        return {}
    return {readme: "\n".join([*lines, ""]).encode()} if lines else {}


def _called(event: Event, file: File, name: str) -> tuple[list[Parameter], bool] | None:
    """The parameters of what an event calls, and whether that is the file's class or function of a name; it
    may also be another file's that takes the same, as where an option chooses the file."""
    found = None
    for option, _ in options_of(event.result) if event.result is not None else ():
        cls = option.cls if isinstance(option, Thing) else None
        called = option if isinstance(option, FunctionValue) else cls
        if called is None or called.function.qualified_name != name:
            continue
        function = called if cls is None else cls.find("__init__")
        given = function.function if isinstance(function, FunctionValue) else None
        parameters = _taken(given)[0 if cls is None else 1 :]
        if os.path.realpath(called.file.path) == os.path.realpath(file.path):
            return parameters, True
        own = next((one for one in file.tables.functions if one.qualified_name == f"{name}.__init__"), None)
        if cls is not None and parameters and _names(parameters) == _names(_taken(own)[1:]):
            found = parameters, False
    return found


def _taken(function: Function | None) -> list[Parameter]:
    return [] if function is None else [item for item in function.parameters if not item.star]


def _names(parameters: Iterable[Parameter]) -> list[str]:
    return [item.name for item in parameters]


def _untold(event: Event, parameters: Sequence[Parameter], told: Collection[str]) -> tuple[str, ...]:
    """The arguments of a call that are not told, of those that are a number by default."""
    given = {
        parameters[int(key)].name if key.isdigit() else key
        for key in event.arguments
        if _fits(key, parameters)
    }
    numbers = (
        item.name
        for item in parameters
        if isinstance(item.default, Literal) and type(item.default.value) is int
    )
    return tuple(name for name in numbers if name in given and name not in told)


def _fits(key: str, parameters: Sequence[Parameter]) -> bool:
    return not key.isdigit() or int(key) < len(parameters)


def _arguments(
    event: Event, parameters: Sequence[Parameter], home: str
) -> tuple[dict[str, str], dict[str, str]]:
    """The values that are known, by argument, and the arguments that are or hold sizes of data."""
    found: dict[str, str] = {}
    sizes: dict[str, str] = {}
    for key, value in event.arguments.items():
        name = parameters[int(key)].name if key.isdigit() and int(key) < len(parameters) else key
        for texts, text in ((found, argument_text(value, home)), (sizes, sized_text(value, home))):
            if name.isidentifier() and text is not None:
                texts[name] = text
    return found, sizes


def _site(event: Event) -> Site:
    file = event.place.file
    return Site(file.path, file.spans()[event.place.node_id].line)

"""Traces targets; those that need arguments get those that their project's own programs give.

`tclint model.py:Net` has to make a Net. Where its constructor needs arguments that nobody gave, a program
that makes one says what they are in practice: as constants, through variables and functions, or as the
defaults of its options. tclint reads the program and, if that does not tell, runs it up to there.
"""

from __future__ import annotations

import ast
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
from tclint.core.text import listed
from tclint.engine.script.construction import Construction, constructions
from tclint.engine.script.guessed_sizes import with_guessed_sizes
from tclint.engine.script.program_runs import by_running, is_certain, with_runs
from tclint.graph.ops import Assumption, Graph
from tclint.tracing import TraceResult, in_order, trace_callable, trace_targets

_MOST_LISTED = 12
_MOST_CALLS = 2
"""The most calls of a class whose arguments are tried."""
_EVENTS_BESIDE_DEFAULTS = 10_000
"""The most calls and operations that are followed for a model that also runs with its defaults."""
_MOST_SHOWN = 60
"""The most characters of an argument in a sentence."""


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
    called = [one for one in by_running(where, (), settings) if one.inputs and one.is_trained]
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
    unread: dict[tuple[str, tuple[str, ...]], set[str]] = {}
    """The files that the search for those left out."""
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
            left = unread[where, needed] = set()
            if has_failed:
                read = constructions(where, needed, settings, unread=left)
            else:
                read = _trained_so(where, settings, left)
            is_open = (has_failed and not needed) or not is_certain(read, where, needed)
            if (has_failed or read) and is_open:
                asked.add(where)
                read = with_runs(where, needed, read, settings)
            else:
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
            yield at, _cut_short(results, unread[where, needed])
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
                ran = with_runs(where, needed, [], runs[at][1])
                following = replace(following, tries=list(_tries(ran, needed, runs[at][1])))
            if following.tries:
                again[at] = following
            else:
                yield at, _although(following.results, last.results, maker)
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


def _trained_so(where: str, settings: Settings, unread: set[str]) -> list[Construction]:
    """The calls of a model that needs no arguments in the programs that train it."""
    settings = replace(settings, program_events=min(settings.program_events, _EVENTS_BESIDE_DEFAULTS))
    found = constructions(where, (), settings, of_training=True, unread=unread)
    return [one for one in found if one.is_own and one.is_trained]


def _cut_short(results: list[TraceResult], unread: Collection[str]) -> list[TraceResult]:
    """The results, which say what the search for programs that make the model left out."""
    if not unread:
        return results
    result, *others = results
    files = listed([os.path.relpath(path) for path in sorted(unread)], 3)
    left = f"the search for programs that make it was cut short before {files}"
    if result.graph is not None:
        note = Assumption(f"made with its defaults: {left}; --arg NAME=VALUE sets others")
        graph = replace(result.graph, assumptions=(*result.graph.assumptions, note))
        return [replace(result, graph=graph), *others]
    error = result.error
    assert error is not None
    told = TargetError(
        f"{error} Perhaps a program tells: {left} ('program-events').",
        details=error.details,
        captured_output=error.captured_output,
        needed=error.needed,
        has_run=error.has_run,
    )
    return [replace(result, error=told), *others]


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
        made = {**stated, **sizes}
        texts = tuple(f"{name}={text}" for name, text in made.items())
        given = replace(before, arguments=texts)
        [(_, [result, *_])] = trace([(target, given.made_so(settings))])
        known = {name: text for name, text in made.items() if name in found.arguments}
        result = _noted(result, found, known) if known else result
        return replace(result, arguments=texts)

    return with_guessed_sizes(unknown, unclear, found.site, with_sizes)


def _although(
    results: list[TraceResult], before: list[TraceResult], maker: Construction
) -> list[TraceResult]:
    """The results; where those of before stay, which ran with defaults, with a doubt: their project makes the
    model otherwise."""
    graph = results[0].graph
    if results is not before or graph is None:
        return results
    what = f"made with its defaults, although {maker.place} makes it otherwise, as which it fails here"
    note = Assumption(f"{what}; --arg NAME=VALUE sets others", maker.site, is_doubtful=True)
    graph = replace(graph, assumptions=(*graph.assumptions, note))
    return [replace(results[0], graph=graph), *results[1:]]


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
        error, maker = self.results[0].error, self.tries[0][0]
        # What was made as the user named it is nearer, unless the other one tells what is missing.
        tells_more = error is not None and (bool(error.needed) or bool(maker.missing))
        return _Again(made if tells_more else self.results, self.tries[1:])


def _tries(
    found: Sequence[Construction], needed: Collection[str], settings: Settings
) -> Iterator[tuple[Construction, dict[str, str]]]:
    """The calls that give a callable what it needs; then the first of them without what it can do without."""
    named = {text.partition("=")[0] for text in settings.arguments}
    complete = [one for one in found if set(needed) <= set(one.arguments)]
    is_free = not (settings.inputs or settings.input_sets or settings.phase != "none")
    for one in complete[:_MOST_CALLS]:
        stated = {name: text for name, text in one.arguments.items() if name not in named}
        if one.inputs and one.is_trained and is_free:
            yield one, stated
        if stated:
            yield replace(one, inputs=()), stated
    for one in complete[:1] if needed else ():
        if set(needed) < set(one.arguments) - named:
            least = {name: text for name, text in one.arguments.items() if name in needed}
            yield replace(one, inputs=()), least
    for one in complete:
        if (
            one.inputs and not one.is_trained and is_free
        ):  # an example says nothing of the batches of training
            yield one, {name: text for name, text in one.arguments.items() if name not in named}
            return


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
    where, _, name = result.target.rpartition(":")
    shown = listed([f"{name} = {_shown(text, where)}" for name, text in stated.items()], _MOST_LISTED)
    holder = next((f"{name}.FIELD" for name, text in stated.items() if text.startswith("Namespace(")), "")
    sets = f"--arg {holder or 'NAME'}=VALUE sets {'a field' if holder else 'others'}"
    if result.graph is not None:
        how = "as its project does" if found.is_own else f"as its project makes another {name}"
        if found.command:
            how = f"as {found.place} passes them, run up to there"
            how += f" as `{_cut(found.command)}`" if " " in found.command or found.chosen_from else ""
        doubts = [f", {said}" for said in _doubts(found)]
        called = ", and called as there" if found.inputs else ""
        what = f"made {f'with {shown}, ' if stated else ''}{how}{''.join(doubts)}{called}"
        note = Assumption(f"{what}; {sets}", found.site, is_doubtful=any(doubts))
        read = dict.fromkeys([*result.graph.metadata.get("source_files", ()), *found.files])
        metadata = {**result.graph.metadata, "source_files": [*read]}
        # At the end: what is said of guesses counts assumptions from the front.
        assumptions = (*result.graph.assumptions, note)
        return replace(result, graph=replace(result.graph, assumptions=assumptions, metadata=metadata))
    if result.error is None:
        return result
    message = f"{result.error} It was made with {shown}, as {found.place} does; {sets}.{_lacking(found)}"
    error = TargetError(message, details=result.error.details, captured_output=result.error.captured_output)
    return replace(result, error=error)


def _doubts(found: Construction) -> Iterator[str]:
    """What may make the model another one than the user's."""
    if found.untold:
        lacks = "the program lacks its data" if found.command else "only running the program tells"
        yield f"and {listed(found.untold, _MOST_LISTED)} by default, as {lacks}"
    if found.trained_at:
        yield f"although {found.trained_at}, which trains it, gives what only running tells"
    if found.otherwise:
        yield f"although {found.otherwise} makes it otherwise"
    if found.chosen_from:
        yield f"by the first of several {found.chosen_from}"
    if found.is_of_test:
        yield f"although {found.place} is a test, whose model may be small"
    if found.inputs and not found.is_trained:
        yield "although it only shows how to use it"


def _shown(text: str, where: str) -> str:
    """An argument; of a long record those fields that the model's file names."""
    if len(text) <= _MOST_SHOWN:
        return text
    with contextlib.suppress(OSError, SyntaxError):
        call = ast.parse(text, mode="eval").body
        with open(where, encoding="utf-8", errors="replace") as file:
            words = set(re.findall(r"\w+", file.read()))
        if isinstance(call, ast.Call) and (named := [one for one in call.keywords if one.arg in words]):
            fields = [
                *map(ast.unparse, named[:_MOST_LISTED]),
                *["..."] * (len(call.keywords) > len(named[:_MOST_LISTED])),
            ]
            return f"{ast.unparse(call.func)}({', '.join(fields)})"
    return _cut(text)


def _cut(text: str) -> str:
    """A long text without its middle."""
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 4]}...{text[-1]}"


def _incomplete(target: str, needed: Sequence[str], found: Construction) -> TargetError:
    missing = [name for name in needed if name not in found.arguments]
    values = {**dict.fromkeys(needed, "VALUE"), **found.arguments}
    given = " ".join(f"--arg {shlex.quote(f'{name}={text}')}" for name, text in values.items())
    tells = "running it up to there does not tell" if found.command else "only running it with its data tells"
    return TargetError(
        f"{target.rpartition(':')[2]} needs arguments ({', '.join(needed)}). {found.place} makes one, "
        f"and {tells} what it gives for {listed(missing, _MOST_LISTED)}: "
        f"tclint {shlex.quote(target)} {given}{_lacking(found)}"
    )


def _lacking(found: Construction) -> str:
    """A sentence on the files that a program which was run did not find; '' where it found all of them."""
    files = listed([os.path.relpath(file) for file in found.missing], 3)
    return f" The program did not find {files}." if files else ""

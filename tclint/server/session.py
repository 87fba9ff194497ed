"""The state of one session of the server: open documents, models, and what was published of them.

Handlers run in the event loop; texts are read, and models priced, one after the other in a thread beside it.
Models are traced in a thread of their own, which waits for a worker process: the end of the server does not
wait for it.
"""

from __future__ import annotations

import asyncio
import os
import threading
import uuid
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path

from tclint.core.errors import TclintError
from tclint.core.finding import Finding
from tclint.core.version import __version__
from tclint.engine.declared_models import file_of
from tclint.server import answers
from tclint.server.models import LastTrace, TraceTarget, look_up, priced, targets_in, trace
from tclint.server.sources import Linted, SettingsOf, lint, with_earlier
from tclint.server.text import Text

DEBOUNCE_S = 0.2
"""Without another key for so long, what was typed is read."""
TRACE = "tclint.trace"
"""The command that builds and traces a model; its argument is the target."""
TRACE_ON_SAVE = "traceOnSave"
"""The option that asks for it again after every save."""

Result = TypeVar("Result")


class Server(LanguageServer):
    """The state of one session."""

    def __init__(self, settings_of: SettingsOf, debounce_s: float = DEBOUNCE_S) -> None:
        # pygls splits lines at form feeds too when it applies parts of a change.
        super().__init__("tclint", __version__, text_document_sync_kind=types.TextDocumentSyncKind.Full)
        self.settings_of = settings_of
        self.debounce_s = debounce_s
        self.trace_on_save = False
        self.linted: dict[str, Linted] = {}
        """By URI of the open documents, the last version that was read."""
        self.models: dict[str, tuple[TraceTarget, LastTrace | None]] = {}
        """By target: what the last trace says; None where there is none."""
        self._reading: dict[str, asyncio.Task[None]] = {}
        self._tracing: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._reader = ThreadPoolExecutor(1, "tclint")
        self._said: set[str] = set()

    # --- documents

    def read_soon(self, uri: str) -> None:
        """Read a document once nothing more has been typed for a while."""
        waiting = self._reading.pop(uri, None)
        if waiting is not None:
            waiting.cancel()

        async def read() -> None:
            await asyncio.sleep(self.debounce_s)
            # From here on another key starts another reading beside this one, which notices.
            self._reading.pop(uri, None)
            await self.read(uri)

        self._reading[uri] = asyncio.create_task(read())

    async def read(self, uri: str, *, keep: bool = False) -> Linted:
        """Read a document as it is now, and publish what is found unless it has changed meanwhile."""
        document = self.workspace.get_text_document(uri)
        path = to_fs_path(uri) or ""
        if not path or not uri.startswith("file:"):
            path = os.path.abspath("untitled.py")
        text, version = Text(document.source, document.position_codec), document.version
        linted = await self.beside(
            lambda: lint(os.path.abspath(path), text, version, self.settings_of, keep=keep)
        )
        if uri in self.linted and self.workspace.get_text_document(uri).version == version:
            linted = with_earlier(linted, self.linted[uri])
            self.linted[uri] = linted
            self.publish(uri)
            if linted.problem:
                self.say(linted.problem, types.MessageType.Warning, once=True)
            for _, sentence in linted.settings.refused:
                self.say(sentence, types.MessageType.Info, once=True)
        return linted

    async def current(self, uri: str) -> Linted:
        """What was found in a document as it is now."""
        known = self.linted.get(uri)
        document = self.workspace.get_text_document(uri)
        if known is not None and known.report is not None and known.version == document.version:
            return known
        return await self.read(uri)

    def findings(self, linted: Linted) -> list[Finding]:
        """Those of the source, and those of the last traces whose lines are unchanged."""
        traced = [
            finding
            for _, known in self.models.values()
            if known is not None
            for finding in known.findings_in(linted.path, linted.text.lines)
        ]
        same = {(finding.code, finding.location.line) for finding in traced}
        read = [one for one in linted.findings if (one.code, one.location.line) not in same]
        return [*read, *traced]

    def publish(self, uri: str) -> None:
        linted = self.linted[uri]
        self.text_document_publish_diagnostics(
            types.PublishDiagnosticsParams(
                uri,
                [answers.diagnostic(finding, linted.text) for finding in self.findings(linted)],
                linted.version,
            )
        )

    # --- models

    def look_up_soon(self, targets: list[TraceTarget]) -> None:
        """Find out what is known of models whose trace nobody has looked up with these settings."""
        fresh = [one for one in targets if not self._is_known(one)]
        for one in fresh:
            self.models[one.target] = (one, None)

        async def look() -> None:
            found = False
            for one in fresh:
                traced = await self.beside(lambda one=one: look_up(one))  # type: ignore[misc]
                if traced is not None and self.models[one.target][1] is None:
                    self.models[one.target] = (one, traced)
                    found = True
            if found:
                self.show_models()

        if fresh:
            self._start(look())

    def _is_known(self, one: TraceTarget) -> bool:
        known = self.models.get(one.target)
        return known is not None and known[0].settings == one.settings

    def trace_soon(self, target: str, *, asked: bool) -> None:
        """Trace a model in the background, and show what is found.

        Args:
            asked: whether the user did, who is told how it went.
        """
        if target not in self._tracing:
            self._tracing.add(target)
            self._start(self._trace(target, asked))

    async def _trace(self, target: str, asked: bool) -> None:
        token = await self._begin(f"tclint: tracing {target}")
        self.refresh_lenses()
        failed = True
        try:
            model = await self.beside(lambda: self._model(target))
            results, at_ns = await _in_thread(lambda: trace(model, lambda _: None))
            traced = await self.beside(lambda: priced(model, results, at_ns))
            self.models[target] = (model, traced)
            said, failed = f"{target}: {traced.title}", bool(traced.report.errors)
        except TclintError as error:
            said = f"{target}: {error}"
        except Exception as error:  # the task has no caller that would see it
            said = f"{target}: internal error, {type(error).__name__}: {error}; please report it."
        self._tracing.discard(target)
        if token is not None:
            self.work_done_progress.end(token, types.WorkDoneProgressEnd(message=said))
        self.show_models()
        kind = types.MessageType.Error if failed else types.MessageType.Info
        if asked:
            self.say(said, kind)
        else:
            self.window_log_message(types.LogMessageParams(kind, said))

    async def _begin(self, title: str) -> str | None:
        """The token of a progress that the client shows; None where it shows none."""
        token = str(uuid.uuid4())
        try:
            if self._client("window.work_done_progress"):
                await self.work_done_progress.create_async(token)
                self.work_done_progress.begin(token, types.WorkDoneProgressBegin(title))
                return token
        except JsonRpcException:
            pass
        return None

    def _model(self, target: str) -> TraceTarget:
        path = os.path.abspath(file_of(target))
        settings = self.settings_of(path)
        if os.path.isfile(path):
            listed = targets_in(path, Path(path).read_bytes(), settings)
            return next((one for one in listed if one.target == target), TraceTarget(target, 1, settings))
        return TraceTarget(target, 1, settings)

    def show_models(self) -> None:
        """Publish afresh what rests on traces."""
        for uri in self.linted:
            self.publish(uri)
        self.refresh_lenses()

    def refresh_lenses(self) -> None:
        if self._client("workspace.code_lens.refresh_support"):
            self.workspace_code_lens_refresh(None)

    def lens(self, one: TraceTarget) -> types.CodeLens:
        traced = self.models[one.target][1] if one.target in self.models else None
        unsaved = {linted.path: linted.text.data for linted in self.linted.values()}
        if one.target in self._tracing:
            title = "tclint: tracing"
        elif traced is None:
            title = "tclint: trace this model"
        elif traced.is_older_than(unsaved):
            title = f"tclint: before the last change {traced.title}"
        else:
            title = f"tclint: {traced.title}"
        place = types.Position(one.line - 1, 0)
        return types.CodeLens(types.Range(place, place), types.Command(title, TRACE, arguments=[one.target]))

    # --- what they share

    def say(self, message: str, kind: types.MessageType, *, once: bool = False) -> None:
        if not once or message not in self._said:
            self._said.add(message)
            self.window_show_message(types.ShowMessageParams(kind, message))

    def configure(self, options: object) -> None:
        """Take the client's options: {"traceOnSave": true}, alone or under "tclint"."""
        if isinstance(options, dict):
            options = options.get("tclint", options)
        if isinstance(options, dict) and isinstance(options.get(TRACE_ON_SAVE), bool):
            self.trace_on_save = options[TRACE_ON_SAVE]

    def _client(self, capability: str) -> bool:
        parts = capability.split(".")
        return bool(reduce(lambda one, name: getattr(one, name, None), parts, self.client_capabilities))  # type: ignore[arg-type, return-value]

    async def beside(self, run: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._reader, run)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)  # the loop itself holds tasks weakly
        task.add_done_callback(self._tasks.discard)


async def _in_thread(run: Callable[[], Result]) -> Result:
    """The result of what runs in a thread that nobody waits for at the end of the process."""
    done: Future[Result] = Future()

    def work() -> None:
        try:
            done.set_result(run())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return await asyncio.wrap_future(done)

"""What the server does on each message of the protocol.

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
from concurrent.futures import ThreadPoolExecutor
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
from tclint.engine.projects import file_of
from tclint.server import answers
from tclint.server.models import Traced, TraceTarget, look_up, priced, targets_in, trace
from tclint.server.sources import Linted, SettingsOf, fix_all, lint
from tclint.server.text import Text
from tclint.source.names import neighbours, requirements

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
        self.models: dict[str, tuple[TraceTarget, Traced | None]] = {}
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
        linted = await self._beside(
            lambda: lint(os.path.abspath(path), text, version, self.settings_of, keep=keep)
        )
        if uri in self.linted and self.workspace.get_text_document(uri).version == version:
            self.linted[uri] = linted
            self.publish(uri)
            if linted.problem:
                self.say(linted.problem, types.MessageType.Warning, once=True)
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
                traced = await self._beside(lambda one=one: look_up(one))  # type: ignore[misc]
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
            model = await self._beside(lambda: self._model(target))
            results, at_ns = await _in_thread(lambda: trace(model, lambda _: None))
            traced = await self._beside(lambda: priced(model, results, at_ns))
            self.models[target] = (model, traced)
            said, failed = f"{target}: {traced.title}", bool(traced.report.errors)
        except TclintError as error:
            said = f"{target}: {error}"
        except Exception as error:  # nobody else would hear of it
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

    async def _beside(self, run: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._reader, run)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)  # the loop itself holds tasks weakly
        task.add_done_callback(self._tasks.discard)


async def _in_thread(run: Callable[[], Result]) -> Result:
    """The result of what runs in a thread that nobody waits for at the end of the process."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Result] = loop.create_future()

    def give(result: Result | None, error: BaseException | None) -> None:
        if not done.done():
            done.set_exception(error) if error is not None else done.set_result(result)  # type: ignore[arg-type]

    def work() -> None:
        try:
            result = run()
        except BaseException as error:
            loop.call_soon_threadsafe(give, None, error)
        else:
            loop.call_soon_threadsafe(give, result, None)

    threading.Thread(target=work, daemon=True).start()
    return await done


def make_server(settings_of: SettingsOf, debounce_s: float = DEBOUNCE_S) -> Server:
    """A server that answers everything that it says it can."""
    server = Server(settings_of, debounce_s)
    for method, handler in _HANDLERS.items():
        server.feature(method)(handler)
    server.feature(
        types.TEXT_DOCUMENT_CODE_ACTION,
        types.CodeActionOptions([types.CodeActionKind.QuickFix, answers.FIX_ALL], resolve_provider=True),
    )(_code_actions)
    server.feature(types.TEXT_DOCUMENT_DID_SAVE, types.SaveOptions())(_did_save)
    server.command(TRACE)(_trace)
    return server


def _initialize(server: Server, params: types.InitializeParams) -> None:
    server.configure(params.initialization_options)
    root = server.workspace.root_path or next(
        (path for folder in params.workspace_folders or () if (path := to_fs_path(folder.uri))), None
    )
    if root and os.path.isdir(root):
        os.chdir(root)  # targets and reports name files from there, as in the user's terminal


def _did_change_configuration(server: Server, params: types.DidChangeConfigurationParams) -> None:
    server.configure(params.settings)


async def _did_open(server: Server, params: types.DidOpenTextDocumentParams) -> None:
    uri = params.text_document.uri
    server.linted[uri] = Linted("", Text("", server.workspace.position_codec), None, server.settings_of(""))
    await server.read(uri, keep=True)


def _did_change(server: Server, params: types.DidChangeTextDocumentParams) -> None:
    server.read_soon(params.text_document.uri)


async def _did_save(server: Server, params: types.DidSaveTextDocumentParams) -> None:
    # Findings may rest on other files, whose text is remembered.
    neighbours.forget()
    requirements.forget()
    saved = params.text_document.uri
    for uri in (saved, *(uri for uri in server.linted if uri != saved)):
        await server.read(uri, keep=uri == saved)
    path = server.linted[saved].path if saved in server.linted else ""
    touched = [
        target
        for target, (_, traced) in server.models.items()
        if traced is not None and (path in traced.sources or traced.report.errors)
    ]
    for target in touched if server.trace_on_save else ():
        server.trace_soon(target, asked=False)
    server.refresh_lenses()


def _did_close(server: Server, params: types.DidCloseTextDocumentParams) -> None:
    uri = params.text_document.uri
    server.linted.pop(uri, None)
    server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, []))


async def _code_actions(server: Server, params: types.CodeActionParams) -> list[types.CodeAction]:
    uri = params.text_document.uri
    linted = await server.current(uri)
    wanted = params.context.only or [types.CodeActionKind.QuickFix, answers.FIX_ALL]
    actions: list[types.CodeAction] = []
    if any(_is_kind(types.CodeActionKind.QuickFix, kind) for kind in wanted):
        # Editors that ask at the cursor mean the line.
        here = [
            finding
            for finding in linted.findings
            if answers.share_a_line(linted.text.range_of(finding.location), params.range)
        ]
        actions += answers.quick_fixes(here, uri, linted.version, linted.text)
    if any(_is_kind(answers.FIX_ALL, kind) for kind in wanted) and any(
        finding.fix is not None and finding.fix.safety == "safe" for finding in linted.findings
    ):
        action = types.CodeAction("tclint: make all safe fixes", answers.FIX_ALL, data=uri)
        support = server.client_capabilities.text_document
        lazily = support and support.code_action and support.code_action.resolve_support
        actions.append(action if lazily else await _resolve(server, action))
    return actions


def _is_kind(kind: str, wanted: str) -> bool:
    return kind == wanted or kind.startswith(f"{wanted}.") or wanted == ""


async def _resolve(server: Server, action: types.CodeAction) -> types.CodeAction:
    """The action with its edits, worked out when somebody wants to make them."""
    if action.kind == answers.FIX_ALL and isinstance(action.data, str):
        linted = await server.current(action.data)
        edits = await server._beside(lambda: fix_all(linted))
        action.edit = answers.workspace_edit(edits, action.data, linted.version, linted.text)
    return action


async def _hover(server: Server, params: types.HoverParams) -> types.Hover | None:
    linted = await server.current(params.text_document.uri)
    text, position = linted.text, params.position
    here = types.Range(position, position)
    found = [one for one in server.findings(linted) if answers.overlap(text.range_of(one.location), here)]
    parts = {one.code: answers.paragraphs(one) for one in found}
    line = text.lines[position.line] if position.line < len(text.lines) else ""
    codec = server.workspace.position_codec
    at = codec.position_from_client_units([line], types.Position(0, position.character))
    named = answers.code_at(line, at.character)
    if named is not None:
        parts.setdefault(named, "")
    rules = linted.settings.rules
    pages = await server._beside(
        lambda: [
            "\n\n".join(filter(None, (said, page)))
            for code, said in parts.items()
            if (page := answers.page(code, rules)) is not None
        ]
    )
    if not pages:
        return None
    return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, "\n\n---\n\n".join(pages)))


async def _code_lenses(server: Server, params: types.CodeLensParams) -> list[types.CodeLens]:
    linted = await server.current(params.text_document.uri)
    if linted.report is None:
        return []
    targets = await server._beside(lambda: targets_in(linted.path, linted.text.data, linted.settings))
    server.look_up_soon(targets)
    return [server.lens(one) for one in targets]


def _trace(server: Server, target: str) -> None:
    server.trace_soon(target, asked=True)


_HANDLERS: dict[str, Callable[..., Any]] = {
    types.INITIALIZE: _initialize,
    types.WORKSPACE_DID_CHANGE_CONFIGURATION: _did_change_configuration,
    types.TEXT_DOCUMENT_DID_OPEN: _did_open,
    types.TEXT_DOCUMENT_DID_CHANGE: _did_change,
    types.TEXT_DOCUMENT_DID_CLOSE: _did_close,
    types.CODE_ACTION_RESOLVE: _resolve,
    types.TEXT_DOCUMENT_HOVER: _hover,
    types.TEXT_DOCUMENT_CODE_LENS: _code_lenses,
}

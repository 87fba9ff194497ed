"""A client without an editor: pygls' own, which starts the real server and speaks with it."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from lsprotocol import types
from pygls.lsp.client import LanguageClient

WAIT_S = 60.0
Result = TypeVar("Result")

CAPABILITIES = types.ClientCapabilities(
    workspace=types.WorkspaceClientCapabilities(
        code_lens=types.CodeLensWorkspaceClientCapabilities(refresh_support=True)
    ),
    window=types.WindowClientCapabilities(work_done_progress=True),
    text_document=types.TextDocumentClientCapabilities(
        code_action=types.CodeActionClientCapabilities(
            resolve_support=types.ClientCodeActionResolveOptions(["edit"])
        )
    ),
)


class Editor:
    """Opens, changes and saves files, and keeps what the server publishes."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        tclint: Sequence[str] = (sys.executable, "-m", "tclint"),
        **options: Any,
    ) -> None:
        self.folder = folder
        self.published: dict[str, types.PublishDiagnosticsParams] = {}
        self.messages: list[types.ShowMessageParams] = []
        self.refreshed = 0
        self.progress: list[Any] = []
        self.returncode: int | None = None
        self._versions: dict[str, int] = {}
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self.client = LanguageClient("test", "1")
        self._listen()
        self.do(self.client.start_io(*tclint, "server", *arguments, cwd=folder))
        self.result = self.do(
            self.client.initialize_async(
                types.InitializeParams(
                    capabilities=options.pop("capabilities", CAPABILITIES),
                    root_uri=folder.as_uri(),
                    initialization_options=options or None,
                )
            )
        )
        self.client.initialized(types.InitializedParams())

    def _listen(self) -> None:
        client = self.client

        @client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def _(params: types.PublishDiagnosticsParams) -> None:
            self.published[params.uri] = params

        @client.feature(types.WINDOW_SHOW_MESSAGE)
        def _(params: types.ShowMessageParams) -> None:
            self.messages.append(params)

        @client.feature(types.WORKSPACE_CODE_LENS_REFRESH)
        def _(_params: None) -> None:
            self.refreshed += 1

        @client.feature(types.WINDOW_WORK_DONE_PROGRESS_CREATE)
        def _(_params: types.WorkDoneProgressCreateParams) -> None:
            return

        @client.feature(types.PROGRESS)
        def _(params: types.ProgressParams) -> None:
            self.progress.append(params.value)

    def do(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)

    def until(self, holds: Callable[[], Any], what: str = "it") -> Any:
        end = time.monotonic() + WAIT_S
        while not (found := holds()):
            assert time.monotonic() < end, f"waited in vain for {what}"
            time.sleep(0.01)
        return found

    def uri(self, name: str) -> str:
        return (self.folder / name).as_uri()

    def open(self, name: str, text: str | None = None) -> list[types.Diagnostic]:
        """Open a file, with other text where some is given; what is found in it."""
        text = (self.folder / name).read_text() if text is None else text
        self._versions[name] = 1
        self.published.pop(self.uri(name), None)
        document = types.TextDocumentItem(self.uri(name), types.LanguageKind.Python, 1, text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(document))
        return self.diagnostics(name)

    def change(self, name: str, text: str) -> None:
        self._versions[name] += 1
        document = types.VersionedTextDocumentIdentifier(uri=self.uri(name), version=self._versions[name])
        change = types.TextDocumentContentChangeWholeDocument(text)
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(document, [change]))

    def save(self, name: str, text: str) -> None:
        """Write a file as an editor does, and say so."""
        (self.folder / name).write_text(text)
        self.change(name, text)
        identifier = types.TextDocumentIdentifier(self.uri(name))
        self.client.text_document_did_save(types.DidSaveTextDocumentParams(identifier))

    def close(self, name: str) -> None:
        identifier = types.TextDocumentIdentifier(self.uri(name))
        self.client.text_document_did_close(types.DidCloseTextDocumentParams(identifier))

    def diagnostics(self, name: str) -> list[types.Diagnostic]:
        """Those of the text as it is now."""

        def found() -> types.PublishDiagnosticsParams | None:
            known = self.published.get(self.uri(name))
            return known if known is not None and known.version == self._versions[name] else None

        published: types.PublishDiagnosticsParams = self.until(found, f"diagnostics of {name}")
        return list(published.diagnostics)

    def actions(self, name: str, at: types.Range, only: list[str] | None = None) -> list[types.CodeAction]:
        params = types.CodeActionParams(
            types.TextDocumentIdentifier(self.uri(name)), at, types.CodeActionContext([], only)
        )
        return list(self.do(self.client.text_document_code_action_async(params)) or [])  # type: ignore[arg-type]

    def hover(self, name: str, line: int, character: int) -> str:
        params = types.HoverParams(
            types.TextDocumentIdentifier(self.uri(name)), types.Position(line, character)
        )
        found = self.do(self.client.text_document_hover_async(params))
        return found.contents.value if found is not None else ""  # type: ignore[union-attr]

    def lenses(self, name: str) -> list[types.CodeLens]:
        params = types.CodeLensParams(types.TextDocumentIdentifier(self.uri(name)))
        return list(self.do(self.client.text_document_code_lens_async(params)) or [])

    def execute(self, command: str, *arguments: Any) -> None:
        params = types.ExecuteCommandParams(command, list(arguments))
        self.do(self.client.workspace_execute_command_async(params))

    def quit(self) -> None:
        self.do(self.client.shutdown_async(None))
        self.client.exit(None)
        self.do(self._ended())
        self._loop.call_soon_threadsafe(self._loop.stop)

    async def _ended(self) -> None:
        server = self.client._server
        assert server is not None
        self.returncode = await asyncio.wait_for(server.wait(), WAIT_S)


def applied(text: str, action: types.CodeAction) -> str:
    """The text with an action's edits made, as an editor makes them: columns in UTF-16."""
    assert action.edit is not None
    (change,) = action.edit.document_changes or ()
    lines = text.splitlines(keepends=True)

    def offset(position: types.Position) -> int:
        if position.line >= len(lines):
            return len(text)
        before = lines[position.line].encode("utf-16-le")[: 2 * position.character].decode("utf-16-le")
        return sum(map(len, lines[: position.line])) + len(before)

    for edit in sorted(change.edits, key=lambda edit: offset(edit.range.start), reverse=True):  # type: ignore[union-attr]
        text = text[: offset(edit.range.start)] + edit.new_text + text[offset(edit.range.end) :]  # type: ignore[union-attr]
    return text

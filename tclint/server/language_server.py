"""What the server does on each message of the protocol."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from lsprotocol import types
from pygls.uris import to_fs_path

from tclint.config.settings import Settings
from tclint.server import answers
from tclint.server.models import targets_in
from tclint.server.session import DEBOUNCE_S, TRACE, Server
from tclint.server.sources import Linted, SettingsOf, fix_all
from tclint.server.text import Text
from tclint.source.project import memory


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
    server.linted[uri] = Linted("", Text("", server.workspace.position_codec), None, Settings())
    await server.read(uri, keep=True)


def _did_change(server: Server, params: types.DidChangeTextDocumentParams) -> None:
    server.read_soon(params.text_document.uri)


async def _did_save(server: Server, params: types.DidSaveTextDocumentParams) -> None:
    # Findings may rest on other files, whose text is remembered.
    memory.forget()
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
            for finding in server.findings(linted)
            if answers.share_a_line(linted.text.range_of(finding.location), params.range)
        ]
        actions += answers.quick_fixes(here, uri, linted.version, linted.text)
        actions += answers.ignoring_actions(here, linted.path, uri, linted.version, linted.text)
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
        edits = await server.beside(lambda: fix_all(linted))
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
    pages = await server.beside(
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
    targets = await server.beside(lambda: targets_in(linted.path, linted.text.data, linted.settings))
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

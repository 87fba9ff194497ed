"""A real editor: it sees two mistakes, applies a quick fix to each, and the file is right."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pygls")
if shutil.which("nvim") is None:
    pytest.skip("nvim is not installed", allow_module_level=True)

from test_documents import AFTER, TWO

SCRIPT = """\
vim.cmd("edit train.py")
local id = vim.lsp.start_client({ name = "tclint", cmd = COMMAND, root_dir = vim.fn.getcwd() })
vim.lsp.buf_attach_client(0, id)
local function left() return #vim.diagnostic.get(0) end
assert(vim.wait(30000, function() return left() == 2 end), "the two mistakes were not seen")
for count = 1, 0, -1 do
  vim.api.nvim_win_set_cursor(0, { vim.diagnostic.get(0)[1].lnum + 1, 0 })
  local params = vim.lsp.util.make_range_params(0, "utf-16")
  params.context = { diagnostics = {}, only = { "quickfix" } }
  local action = vim.lsp.buf_request_sync(0, "textDocument/codeAction", params, 30000)[id].result[1]
  vim.lsp.util.apply_workspace_edit(action.edit, "utf-16")
  assert(vim.wait(30000, function() return left() == count end), "the mistake stayed")
end
vim.cmd("write")
vim.cmd("qa!")
"""


def test_two_mistakes_are_seen_and_fixed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TWO)
    command = "{" + ", ".join(map(json.dumps, (sys.executable, "-m", "tclint", "server"))) + "}"
    (tmp_path / "script.lua").write_text(SCRIPT.replace("COMMAND", command))
    editor = ("nvim", "-n", "--headless", "-u", "NONE", "-c", "luafile script.lua", "-c", "cquit")
    done = subprocess.run(editor, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "train.py").read_text() == AFTER

"use strict";

const assert = require("node:assert");
const { spawn } = require("node:child_process");
const { mkdtempSync } = require("node:fs");
const { tmpdir } = require("node:os");
const { join } = require("node:path");
const { test } = require("node:test");
const { pathToFileURL } = require("node:url");
const Module = require("node:module");

const { serverCommand } = require("../dist/command.js");

const interpreter = process.env.TCLINT_INTERPRETER ?? "";

test("the command is what the settings ask for", async () => {
  assert.deepStrictEqual(await serverCommand({ path: "", interpreter: "", args: [] }), {
    command: "tclint",
    args: ["server"],
  });
  assert.deepStrictEqual(await serverCommand({ path: "", interpreter: "/python", args: ["--gpu", "h100"] }), {
    command: "/python",
    args: ["-m", "tclint", "server", "--gpu", "h100"],
  });
  assert.deepStrictEqual(await serverCommand({ path: "/tclint", interpreter: "/python", args: [] }), {
    command: "/tclint",
    args: ["server"],
  });
});

test("the interpreter of the Python extension counts where it has tclint, and nothing else is set", async () => {
  const unset = { path: "", interpreter: "", args: [] };
  const without = { command: "tclint", args: ["server"] };
  assert.deepStrictEqual(await serverCommand(unset, "/no/such/python"), without);
  assert.deepStrictEqual(await serverCommand(unset, "/bin/false"), without);
  // Any program that ends well stands for a Python that has tclint.
  const found = { command: "/bin/true", args: ["-m", "tclint", "server"] };
  assert.deepStrictEqual(await serverCommand(unset, "/bin/true"), found);
  const chosen = await serverCommand({ ...unset, interpreter: "/python" }, "/bin/true");
  assert.strictEqual(chosen.command, "/python");
});

test("the bundle loads, and has what VS Code calls", () => {
  // What VS Code provides is there in name only: every name is a class, a function and a namespace.
  const anything = () =>
    new Proxy(class {}, {
      get: (target, name) => (name in target || typeof name === "symbol" ? target[name] : anything()),
      apply: () => undefined,
    });
  const load = Module._load;
  Module._load = (name, ...rest) => (name === "vscode" ? anything() : load(name, ...rest));
  try {
    const extension = require("../dist/extension.js");
    assert.strictEqual(typeof extension.activate, "function");
    assert.strictEqual(typeof extension.deactivate, "function");
  } finally {
    Module._load = load;
  }
});

test("VS Code's protocol library speaks with the real server", { skip: interpreter === "" }, async () => {
  const protocol = require("vscode-languageserver-protocol/node");
  const folder = mkdtempSync(join(tmpdir(), "tclint-vscode-"));
  const { command, args } = await serverCommand({ path: "", interpreter: "", args: ["--ignore", "AMP012"] }, interpreter);
  assert.strictEqual(command, interpreter);
  const server = spawn(command, args, { cwd: folder, stdio: ["pipe", "pipe", "inherit"] });
  const connection = protocol.createProtocolConnection(
    new protocol.StreamMessageReader(server.stdout),
    new protocol.StreamMessageWriter(server.stdin),
  );
  const published = new Promise((resolve) =>
    connection.onNotification(protocol.PublishDiagnosticsNotification.type, resolve),
  );
  connection.listen();
  const { capabilities } = await connection.sendRequest(protocol.InitializeRequest.type, {
    processId: process.pid,
    rootUri: pathToFileURL(folder).href,
    capabilities: {},
    initializationOptions: { traceOnSave: false },
  });
  assert.deepStrictEqual(capabilities.executeCommandProvider.commands, ["tclint.trace"]);
  const uri = pathToFileURL(join(folder, "train.py")).href;
  const text = 'import torch\n\nscaler = torch.cuda.amp.GradScaler()\n';
  await connection.sendNotification(protocol.DidOpenTextDocumentNotification.type, {
    textDocument: { uri, languageId: "python", version: 1, text },
  });
  const { diagnostics } = await published;
  assert.deepStrictEqual(diagnostics.map((one) => one.code), ["AMP014"]);
  const actions = await connection.sendRequest(protocol.CodeActionRequest.type, {
    textDocument: { uri },
    range: diagnostics[0].range,
    context: { diagnostics, only: ["quickfix"] },
  });
  const [edit] = actions[0].edit.documentChanges[0].edits;
  assert.match(edit.newText, /amp.GradScaler\("cuda"\)|"cuda"/);
  await connection.sendRequest(protocol.ShutdownRequest.type);
  await connection.sendNotification(protocol.ExitNotification.type);
  await new Promise((resolve) => server.on("exit", resolve));
  assert.strictEqual(server.exitCode, 0);
});

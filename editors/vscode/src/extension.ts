import * as vscode from "vscode";
import { LanguageClient } from "vscode-languageclient/node";

import { serverCommand } from "./command";

const NEEDS_RESTART = ["tclint.path", "tclint.interpreter", "tclint.args"];

let client: LanguageClient | undefined;

export async function activate(context: vscode.ExtensionContext): Promise<void> {
  context.subscriptions.push(
    vscode.commands.registerCommand("tclint.restart", restart),
    vscode.workspace.onDidChangeConfiguration(async (event) => {
      if (NEEDS_RESTART.some((key) => event.affectsConfiguration(key))) {
        await restart();
      }
    }),
  );
  await start();
}

export async function deactivate(): Promise<void> {
  await client?.stop();
  client = undefined;
}

async function restart(): Promise<void> {
  await deactivate();
  await start();
}

async function start(): Promise<void> {
  const settings = vscode.workspace.getConfiguration("tclint");
  const { command, args } = serverCommand({
    path: settings.get("path", ""),
    interpreter: settings.get("interpreter", ""),
    args: settings.get("args", []),
  });
  // Targets are named from the folder in which the server starts.
  const cwd = vscode.workspace.workspaceFolders?.[0]?.uri.fsPath;
  client = new LanguageClient(
    "tclint",
    "tclint",
    { command, args, options: { cwd } },
    {
      documentSelector: [
        { scheme: "file", language: "python" },
        { scheme: "untitled", language: "python" },
      ],
      initializationOptions: { traceOnSave: settings.get("traceOnSave", false) },
      synchronize: { configurationSection: "tclint" },
    },
  );
  try {
    await client.start();
  } catch (error) {
    void vscode.window.showErrorMessage(
      `tclint: '${[command, ...args].join(" ")}' did not start (${String(error)}). Install ` +
        "'tensorcore-lint[lsp]', and set tclint.interpreter or tclint.path to where it is.",
    );
  }
}

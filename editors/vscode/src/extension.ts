import * as vscode from "vscode";
import { LanguageClient } from "vscode-languageclient/node";

import { serverCommand } from "./command";

const NEEDS_RESTART = ["tclint.path", "tclint.interpreter", "tclint.args"];

/** The part that is used of what the Python extension offers to others. */
interface PythonExtension {
  environments?: {
    getActiveEnvironmentPath(resource?: vscode.Uri): { path: string };
    resolveEnvironment(path: { path: string }): Promise<{ executable: { uri?: vscode.Uri } } | undefined>;
    onDidChangeActiveEnvironmentPath: vscode.Event<unknown>;
  };
}

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
  const environments = (await pythonExtension())?.environments;
  if (environments !== undefined) {
    context.subscriptions.push(environments.onDidChangeActiveEnvironmentPath(restart));
  }
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

async function pythonExtension(): Promise<PythonExtension | undefined> {
  return vscode.extensions.getExtension<PythonExtension>("ms-python.python")?.activate();
}

/** The interpreter chosen for a folder; undefined without the Python extension. */
async function activeInterpreter(folder?: vscode.Uri): Promise<string | undefined> {
  const environments = (await pythonExtension())?.environments;
  const chosen = await environments?.resolveEnvironment(environments.getActiveEnvironmentPath(folder));
  return chosen?.executable.uri?.fsPath;
}

async function start(): Promise<void> {
  const settings = vscode.workspace.getConfiguration("tclint");
  const folder = vscode.workspace.workspaceFolders?.[0]?.uri;
  const stated = {
    path: settings.get("path", ""),
    interpreter: settings.get("interpreter", ""),
    args: settings.get<string[]>("args", []),
  };
  const { command, args } = await serverCommand(stated, await activeInterpreter(folder));
  // Targets are named from the folder in which the server starts.
  const cwd = folder?.fsPath;
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

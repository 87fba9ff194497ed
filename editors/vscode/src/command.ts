/** How the server is started: apart from VS Code, so that it is tested without one. */

export interface Settings {
  path: string;
  interpreter: string;
  args: string[];
}

export interface Command {
  command: string;
  args: string[];
}

/** The command that `tclint.path`, `tclint.interpreter` and `tclint.args` ask for. */
export function serverCommand(settings: Settings): Command {
  const args = ["server", ...settings.args];
  if (settings.path !== "") {
    return { command: settings.path, args };
  }
  if (settings.interpreter !== "") {
    return { command: settings.interpreter, args: ["-m", "tclint", ...args] };
  }
  return { command: "tclint", args };
}

/** How the server is started: apart from VS Code, so that it is tested without one. */

import { execFile } from "node:child_process";

export interface Settings {
  path: string;
  interpreter: string;
  args: string[];
}

export interface Command {
  command: string;
  args: string[];
}

/** The command that `tclint.path`, `tclint.interpreter` and `tclint.args` ask for.
 *
 * Without the first two it is the module in `active`, the interpreter that the Python extension has chosen, if
 * that has tclint.
 */
export async function serverCommand(settings: Settings, active?: string): Promise<Command> {
  const args = ["server", ...settings.args];
  if (settings.path !== "") {
    return { command: settings.path, args };
  }
  const usable = active !== undefined && settings.interpreter === "" && (await hasServer(active));
  const interpreter = usable ? active : settings.interpreter;
  return interpreter !== ""
    ? { command: interpreter, args: ["-m", "tclint", ...args] }
    : { command: "tclint", args };
}

/** Whether an interpreter can run the server; what `-I` leaves out is the folder of the user. */
function hasServer(interpreter: string): Promise<boolean> {
  const code = "import importlib.util as u; exit(not (u.find_spec('tclint') and u.find_spec('pygls')))";
  return new Promise((resolve) => {
    execFile(interpreter, ["-I", "-c", code], { timeout: 10_000 }, (error) => resolve(error === null));
  });
}

"""The `tclint` command in processes that are forked from one which has imported it already.

For tests of scripts that run the command, as CI and git hooks do: to start it takes longer than most of what
it does. As a script, with the address of a server first, this file is a command that runs there: with its
caller's arguments, folder, environment and streams.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path

_LARGEST_MESSAGE = 1 << 17


@contextlib.contextmanager
def serving(folder: Path, template: int) -> Iterator[list[str]]:
    """The words of a command line for `python -m tclint`; models are traced in workers of a
    `warm_worker.Template`, whose socket is given."""
    address = str(folder / "socket")
    start = f"warm_command._serve({address!r}, {template})"
    code = f"import sys; sys.path[:] = {sys.path!r}; import warm_command; {start}"
    command, pipe = [sys.executable, "-c", code], subprocess.PIPE
    with subprocess.Popen(command, pass_fds=[template], stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        assert process.stdout.read(1)  # it listens
        yield [sys.executable, "-I", "-S", __file__, address]


def _serve(address: str, template: int) -> None:
    import warm_worker
    from in_process import tclint

    from tclint.tracing.worker import client

    with contextlib.suppress(ImportError):
        importlib.import_module("tclint.server.language_server")
    # What it imports on the way to a finding is imported as well.
    script = Path(address).with_name("train.py")
    script.write_text(
        "import torch\ntorch.backends.cudnn.benchmark = False\nscaler = torch.cuda.amp.GradScaler()\n"
    )
    tclint(
        "check", str(script), "--isolated", "--no-cache", *(f"--format={name}" for name in ("json", "sarif"))
    )
    client._start_worker = warm_worker.Template(template).start_worker  # type: ignore[assignment]
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(address)
        listening.listen()
        os.write(1, b"x")
        while 0 not in select.select([0, listening], [], [])[0]:  # until whoever started it has gone
            connection, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                _become_the_command(connection)
            connection.close()
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass


def _become_the_command(connection: socket.socket) -> None:
    from tclint.cli.main import main

    code: object = 1
    try:
        data, streams, _, _ = socket.recv_fds(connection, _LARGEST_MESSAGE, 3)
        message = json.loads(data)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.chdir(message["folder"])
        os.environ.clear()
        os.environ.update(message["environment"])
        tempfile.tempdir = None  # the environment may name another folder
        sys.argv = ["tclint", *message["arguments"]]
        try:
            main()
        except SystemExit as end:
            code = end.code
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        connection.send(str(code or 0).encode())
        os._exit(0)


def _run_there(address: str, arguments: list[str]) -> int:
    message = {"arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(address)
        socket.send_fds(connection, [json.dumps(message).encode()], [0, 1, 2])
        return int(connection.recv(16) or 1)


if __name__ == "__main__":
    sys.exit(_run_there(sys.argv[1], sys.argv[2:]))

"""The command as a process: start-up, pipes, signals, terminals."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from in_process import tclint

COMMAND = [sys.executable, "-m", "tclint"]


def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_importing_the_command_imports_nothing_heavy() -> None:
    heavy = ("torch", "libcst", "rich", "numpy", "tclint_rules", "pathspec", "tclint.engine.check")
    code = f"import sys, tclint.cli.main; print([name for name in {heavy!r} if name in sys.modules])"
    assert run_python(code).stdout == "[]\n"


@pytest.mark.parametrize("arguments", [["gpus", "-v"], ["explain", "DIM003"]])
def test_reader_that_goes_away_is_no_error(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.run(
        [*COMMAND, *arguments], stdout=writing, stderr=subprocess.PIPE, timeout=60, check=False
    )
    os.close(writing)
    assert (process.returncode, process.stderr) == (0, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_full_disk_is_one_sentence() -> None:
    with open("/dev/full", "w") as full:
        process = subprocess.run(
            [*COMMAND, "gpus"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    assert process.returncode == 2
    assert process.stderr == "error: Cannot write to standard output: No space left on device.\n"


def test_interrupt_signal() -> None:
    code = (
        "import sys, time, tclint.engine.check, tclint.cli.main\n"
        "def wait(*_, **__):\n"
        "    print('waiting', file=sys.stderr, flush=True)\n"
        "    time.sleep(60)\n"
        "tclint.engine.check.check = wait\n"
        "tclint.cli.main.cli.main(['train.py'])\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert process.stderr.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (130, "interrupted\n")


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["net.py:first", "net.py:second", "net.py"], "net.py:first: Linear"),
        (["--models", "net.py"], "net.py:first: Linear"),
        (["net.py:first", "net.py:second", "--format", "json"], ""),
    ],
)
def test_interrupted_tclint_prints_the_models_that_are_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], printed: str
) -> None:
    from tclint import tracing

    trace = tracing.trace_targets

    def trace_one(*targets: Any, **options: Any) -> Iterator[Any]:
        yield next(trace(*targets, **options))
        raise KeyboardInterrupt

    monkeypatch.setattr(tracing, "trace_targets", trace_one)
    (tmp_path / "net.py").write_text(
        "from torch import nn\n\ndef first():\n    return nn.Linear(30, 30)\n\nsecond = first\n"
    )
    (tmp_path / "pyproject.toml").write_text(
        "[tool.tclint]\ncache = false\ninput = ['8,30']\nmodels = ['net.py:first', 'net.py:second']\n"
    )
    process = tclint(*arguments, cwd=tmp_path)
    assert (process.returncode, process.stderr) == (130, "interrupted after 1 model\n")
    assert printed in process.stdout
    assert bool(process.stdout) is bool(printed)
    assert "second" not in process.stdout


def on_terminal(arguments: list[str], **environment: str) -> str:
    """What the command prints on a terminal of its own."""
    leader, follower = pty.openpty()
    inherited = {
        name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "TERM")
    }
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env={**inherited, "TERM": "xterm", **environment},
    )
    os.close(follower)
    printed = b""
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s:
        try:
            part = os.read(leader, 65536)
        except OSError:  # Linux: the other side has been closed
            break
        if not part:
            break
        printed += part
    os.close(leader)
    process.wait(timeout=30)
    return printed.decode()


def test_colours_on_a_terminal_only(tmp_path: Path) -> None:
    assert "\x1b[1mDIM003" in on_terminal(["explain", "DIM003"])
    assert "\x1b" not in on_terminal(["explain", "DIM003"], NO_COLOR="1")
    assert "\x1b" not in on_terminal(["explain", "DIM003"], TERM="dumb")
    unforced = {name: value for name, value in os.environ.items() if name != "FORCE_COLOR"}
    for environment, coloured in ((unforced, False), ({**unforced, "FORCE_COLOR": "1"}, True)):
        piped = subprocess.run(
            [*COMMAND, "explain", "DIM003"], capture_output=True, check=True, env=environment
        )
        assert (b"\x1b" in piped.stdout) is coloured


def test_ascii_locale_prints_escapes_not_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "größe.toml").write_text("[tool.tclint]\n")
    process = subprocess.run(
        [*COMMAND, "check", "--config", "größe.toml", "-v"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        check=False,
    )
    assert b"Traceback" not in process.stderr
    assert b"gr\\xf6\\xdfe.toml" in process.stderr
    assert process.returncode == 0

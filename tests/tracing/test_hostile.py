"""Models that misbehave: each becomes one clear error or a graph, in time, and leaves nothing running."""

from __future__ import annotations

import mmap
import os
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tclint.config.settings import Settings
from tclint.tracing import TraceResult
from tclint.tracing.worker.client import in_order, trace_runs

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs POSIX processes"),
    pytest.mark.usefixtures("fresh_workers"),
]

HEAD = """
import atexit, ctypes, os, re, signal, socket, subprocess, sys, threading, time
import torch
from torch import nn

def net():
    return nn.Linear(4, 3)
"""

# Name: what the file says after HEAD, and words of the error (none: it must be traced all the same).
MODELS: dict[str, tuple[str, tuple[str, ...] | None]] = {
    "endless_python": ("def build():\n    while True: pass\n", ("took longer than 1 s",)),
    "endless_native": ("def build():\n    re.match('(a+)+$', 'a' * 60 + 'b')\n", ("took longer than 1 s",)),
    "endless_ignoring_signals": (
        "def build():\n"
        "    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):\n"
        "        signal.signal(number, signal.SIG_IGN)\n"
        "    while True:\n"
        "        try:\n"
        "            time.sleep(9)\n"
        "        except BaseException: pass\n",
        ("took longer than 1 s",),
    ),
    "children_that_detach": (
        "def build():\n"
        "    for _ in range(5):\n"
        "        if os.fork() == 0:\n"
        "            os.setsid()\n"
        "            if os.fork() == 0:\n"
        "                os.setsid()\n"
        "                time.sleep(600)\n"
        "            os._exit(0)\n"
        "    sleep = [sys.executable, '-c', 'import time; time.sleep(600)']\n"
        "    subprocess.Popen(sleep, start_new_session=True)\n"
        "    return net()\n",
        (),
    ),
    "children_that_hang_too": (
        "def build():\n"
        "    for _ in range(3):\n"
        "        if os.fork() == 0:\n"
        "            os.setsid()\n"
        "    while True: time.sleep(1)\n",
        ("took longer than 1 s",),
    ),
    "forked_builder": ("def build():\n    os.fork()\n    return net()\n", ()),
    "forked_copy_returns": (
        "def build():\n"
        "    copy = os.fork()\n"
        "    if copy == 0: return net()\n"
        "    os.waitpid(copy, 0); os._exit(7)\n",
        ("exit code 7",),
    ),
    "huge_bytes": (
        "def build():\n    return bytearray(100 << 30)\n",
        ("more than 1024 MiB", "--memory-limit"),
    ),
    "huge_array": (
        "def build():\n    import numpy\n    numpy.ones(100 << 30, dtype='uint8')\n",
        ("more than 1024 MiB", "--memory-limit"),
    ),
    "segfault": ("def build():\n    ctypes.string_at(0)\n", ("segmentation fault",)),
    "abort": ("def build():\n    os.abort()\n", ("SIGABRT",)),
    "exit_hard": ("def build():\n    os._exit(7)\n", ("exit code 7",)),
    "exit_hard_in_thread": (
        "def build():\n    threading.Thread(target=os._exit, args=(0,)).start()\n    time.sleep(60)\n",
        ("exit code 0",),
    ),
    "exit_in_thread": (
        "def build():\n"
        "    thread = threading.Thread(target=sys.exit)\n"
        "    thread.start(); thread.join()\n"
        "    return net()\n",
        (),
    ),
    "exit_at_exit": ("atexit.register(sys.exit, 5)\natexit.register(os._exit, 6)\nbuild = net\n", ()),
    "no_exit": (
        "def build():\n    os._exit = sys.exit = lambda *_: None\n    return net()\n",
        (),
    ),
    "recursion": ("def build(depth=0):\n    return build(depth + 1)\n", ("RecursionError",)),
    # Newer versions of Python look after the C stack themselves.
    "recursion_unlimited": (
        "def build(_=0):\n    sys.setrecursionlimit(1 << 30)\n    return max([0], key=build)\n",
        ("segmentation fault",) if sys.version_info < (3, 12) else None,
    ),
    "reads_stdin": ("def build():\n    return nn.Linear(int(input()), 2)\n", ("EOFError",)),
    "reads_all_stdin": ("def build():\n    sys.stdin.read(); os.read(0, 1)\n    return net()\n", ()),
    "prints_megabytes": (
        "def build():\n"
        "    for _ in range(150):\n"
        "        sys.stderr.write('x' * 9999); sys.stdout.write('y' * 9999); os.write(1, b'z' * 9999)\n"
        "    return net()\n",
        (),
    ),
    "changes_folder": ("os.chdir('/')\ndef build():\n    os.chdir('/tmp')\n    return net()\n", ()),
    "removes_its_folder": (
        "def build():\n    os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')\n    return net()\n",
        (),
    ),
    "changes_path": ("sys.path[:] = []\nsys.modules.pop('json', None)\nbuild = net\n", ()),
    "daemon_thread": (
        "def build():\n"
        "    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
        "    return net()\n",
        (),
    ),
    "endless_thread": (
        "def build():\n    threading.Thread(target=time.sleep, args=(600,)).start()\n    return net()\n",
        (),
    ),
    "closes_descriptors": ("def build():\n    os.closerange(0, 4096)\n    return net()\n", ()),
    "garbage_everywhere": (
        "def build():\n"
        "    for number in range(256):\n"
        '        try: os.write(number, b\'{"id": 0, "garbage\\n\' * 99)\n'
        "        except OSError: pass\n"
        "    return net()\n",
        (),
    ),
    "replaces_stdout": (
        "class Rude:\n"
        "    def __getattr__(self, name): raise BaseException('no')\n"
        "sys.stdout = sys.stderr = Rude()\n"
        "build = net\n",
        (),
    ),
    "base_exception": (
        "class Odd(BaseException): pass\ndef build():\n    raise Odd('strange')\n",
        ("build in base_exception.py raised Odd: strange", "(base_exception.py:10)"),
    ),
    "interrupts_itself": ("def build():\n    raise KeyboardInterrupt\n", ("raised KeyboardInterrupt",)),
    "error_without_text": (
        "class Mute(Exception):\n"
        "    def __str__(self): raise RuntimeError\n"
        "    __repr__ = __str__\n"
        "def build():\n    raise Mute\n",
        ("raised Mute",),
    ),
    "model_without_text": (
        "class Net(nn.Linear):\n"
        "    def __repr__(self): raise RuntimeError('no repr')\n"
        "    __str__ = extra_repr = __repr__\n"
        "def build():\n    return Net(4, 3)\n",
        (),
    ),
    "error_that_clears_the_screen": (
        "Odd = type('Odd\\nName', (Exception,), {})\n"
        "def build():\n    os.write(1, bytes(range(256)))\n    raise Odd('\\x1b[2Jgone\\udcff')\n",
        (r"raised Odd\nName: \x1b[2Jgone\udcff (",),
    ),
    "lies_about_its_class": (
        "class Net:\n    __class__ = property(lambda self: nn.Linear)\nbuild = Net\n",
        ("returned a Net, not an nn.Module",),
    ),
    "raises_when_deleted": (
        "class Net(nn.Linear):\n"
        "    def __del__(self): raise BaseException('del')\n"
        "def build():\n    Net(4, 3)\n    return Net(4, 3)\n",
        (),
    ),
    "replaces_the_clock": (
        "time.time = time.monotonic = time.perf_counter = lambda: 'late'\nbuild = net\n",
        (),
    ),
    "endless_inputs": (
        "def build():\n    nested = []\n    nested.append(nested)\n    return net(), nested\n",
        ("nest without an end",),
    ),
    "patches_module": (
        "def broken(*_args, **_kwargs): raise RuntimeError('patched')\n"
        "nn.Module.__call__ = nn.Module.named_modules = broken\n"
        "build = net\n",
        ("RuntimeError: patched", "(patches_module.py:8)", "changed"),
    ),
    "patches_builtins": (
        "import builtins, json\n"
        "def broken(*_args, **_kwargs): raise RuntimeError('patched')\n"
        "builtins.open = json.dumps = os.replace = broken\n"
        "build = net\n",
        ("unable to report its result (RuntimeError: patched)",),
    ),
    "kills_parent": (
        "def build():\n    os.kill(os.getppid(), signal.SIGKILL); time.sleep(0.2)\n    return net()\n",
        None,
    ),
    "kills_itself": ("def build():\n    os.kill(os.getpid(), signal.SIGKILL)\n", ("was killed",)),
    "terminates_itself": ("def build():\n    os.kill(os.getpid(), signal.SIGTERM)\n", ("SIGTERM",)),
    "kills_its_group": ("def build():\n    os.killpg(0, signal.SIGKILL)\n", ("was killed",)),
    "connects_by_name": (
        "import urllib.request\ndef build():\n    urllib.request.urlopen('http://model.invalid')\n",
        ("URLError", "--network"),
    ),
    "connects_to_itself": (
        "def build():\n"
        "    server = socket.create_server(('127.0.0.1', 0))\n"
        "    socket.create_connection(server.getsockname()).close()\n"
        "    return net()\n",
        (),
    ),
    "leaves_files": (
        "import tempfile\ndef build():\n    print(tempfile.mkdtemp())\n    return net()\n",
        (),
    ),
    "tells_its_pages": (
        "def build():\n    print(open('/proc/self/smaps_rollup').read())\n    return net()\n",
        (),
    ),
    "stops_itself": ("def build():\n    os.kill(os.getpid(), signal.SIGSTOP)\n", ("took longer than 1 s",)),
}
"""None for words: a graph or an error, by what the system can do."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("hostile")
    for name, (code, _) in MODELS.items():
        (path / f"{name}.py").write_text(HEAD + code)
    (path / "good.py").write_text(HEAD)
    before = os.getcwd()
    os.chdir(path)
    yield path
    os.chdir(before)


def trace_all() -> dict[str, TraceResult]:
    """Every model in one run, with a good one before and after them."""
    runs = [("good.py:net", Settings())]
    for name, (_, words) in MODELS.items():
        # A busy machine may need more time for the rest: what they show is not how fast they are.
        limit_s = 1.0 if words and "took longer" in words[0] else 60.0
        runs.append((f"{name}.py:build", Settings(timeout_s=limit_s, memory_limit_mib=1024)))
    runs.append(("good.py:net", Settings()))
    first, *found, last = (result for [result] in in_order(trace_runs(runs, jobs=8)))
    for good in (first, last):
        assert good.graph is not None
        assert [op.name for op in good.graph.ops] == ["linear"]
    return dict(zip(MODELS, found, strict=True))


def check_result(name: str, result: TraceResult) -> None:
    words = MODELS[name][1]
    if words is None:
        assert (result.graph is None) != (result.error is None)
        return
    if not words:
        assert result.error is None, str(result.error)
        assert result.graph is not None
        assert [op.name for op in result.graph.ops] == ["linear"]
        return
    assert result.graph is None
    text = str(result.error)
    assert "\n" not in text
    assert text.endswith(".")
    assert "please report" not in text
    for word in words:
        assert word in text


@pytest.fixture(scope="module", params=["namespaces", "descendants"])
def results(folder: Path, request: pytest.FixtureRequest, mark_processes: Any) -> dict[str, TraceResult]:
    """All models at once, contained by namespaces where the system has them, and without."""
    path, current = list(sys.path), os.getcwd()
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "descendants":
            patch.setenv("TCLINT_NAMESPACES", "0")
        spawned = mark_processes(patch)
        found = trace_all()
        spawned.assert_gone()
    assert (list(sys.path), os.getcwd()) == (path, current)
    return found


@pytest.mark.parametrize("name", MODELS)
def test_one_clear_end(results: dict[str, TraceResult], name: str) -> None:
    check_result(name, results[name])
    assert len(results[name].captured_output) <= 1 << 16


def test_temporary_files_vanish(results: dict[str, TraceResult]) -> None:
    printed = results["leaves_files"].captured_output.strip()
    assert printed
    assert not os.path.exists(printed)


def test_forks_of_many_targets_are_of_huge_pages(results: dict[str, TraceResult]) -> None:
    """Where the system has them; small pages take longer to fork than small models to trace."""
    with mmap.mmap(-1, 8 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.write(bytes(8 << 20))
        try:
            memory.madvise(25)  # MADV_COLLAPSE
        except OSError:
            pytest.skip("the system makes no huge pages")
    told = re.search(r"AnonHugePages: +(\d+) kB", results["tells_its_pages"].captured_output)
    assert told
    assert int(told[1]) > 0


def test_the_network_is_off_unless_asked_for(folder: Path) -> None:
    with socket.socket() as server:
        # Not on the loopback, which targets may use among themselves.
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                probe.connect(("192.0.2.1", 9))
                own_address = probe.getsockname()[0]
        except OSError:
            pytest.skip("needs a network interface")
        server.bind((own_address, 0))
        server.listen()
        (folder / "connects.py").write_text(
            f"{HEAD}\ndef build():\n"
            f"    socket.create_connection({server.getsockname()!r}, timeout=2)\n    return net()\n"
        )
        runs = [("connects.py:build", Settings(network=network)) for network in (False, True)]
        [off], [on] = in_order(trace_runs(runs))
    assert "--network" in str(off.error)
    assert on.graph is not None, str(on.error)

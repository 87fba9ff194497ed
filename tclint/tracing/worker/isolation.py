"""What keeps the code of a target from other processes and the network; Linux does most of it.

Where the system lets an ordinary user have namespaces, a target gets its own: a PID namespace, in which it
sees no process but its own and which ends as a whole, and a network namespace with nothing but a loopback.
Elsewhere descendants are found by their parents and killed one by one, and an audit hook refuses sockets;
that holds against carelessness, not against malice. So it is, too, where the environment variable
TCLINT_NAMESPACES is 0.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import re
import shlex
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

_DOWNLOADERS = frozenset(
    {"aria2c", "aws", "azcopy", "curl", "ftp", "gdown", "gsutil", "huggingface-cli", "kaggle"}
    | {"rsync", "scp", "sftp", "ssh", "wget"}
)
_WITH_SUBCOMMANDS = {
    "git": frozenset({"clone", "fetch", "lfs", "ls-remote", "pull", "submodule"}),
    **dict.fromkeys(("pip", "pip3", "uv", "conda", "mamba"), frozenset({"download", "install", "sync"})),
    **dict.fromkeys(("apt", "apt-get", "brew", "npm", "yarn", "yum"), frozenset({"install", "update"})),
}
_PREFIXES = frozenset({"command", "env", "exec", "nohup", "sudo", "time"})
_SHELLS = frozenset({"bash", "dash", "sh", "zsh"})
_ENDS_COMMAND = re.compile(r"&&|\|\||[;&|\n()`]")


def downloader(command: Any) -> str | None:
    """The program of a command (a shell's line, or a list of arguments) that downloads; None: none does."""
    if isinstance(command, (str, bytes, os.PathLike)):
        line = os.fsdecode(command)
        return next(filter(None, map(_of_words, map(_words, _ENDS_COMMAND.split(line)))), None)
    return _of_words([os.fsdecode(word) for word in command])


def refuse_downloads() -> None:
    """Have such commands fail in this process, for good: as an error, from os.system as an exit status."""
    start: Any = subprocess.Popen.__init__
    system = os.system

    def __init__(self: Any, args: Any, *others: Any, **options: Any) -> None:
        program = downloader(args)
        if program is not None:
            raise ConnectionError(f"`{program}` was not run, because it downloads")
        start(self, args, *others, **options)

    def run_line(command: Any) -> int:
        program = downloader(command)
        if program is None:
            return system(command)
        print(f"`{program}` was not run, because it downloads", file=sys.stderr)
        return 1

    subprocess.Popen.__init__ = __init__  # type: ignore[method-assign]
    os.system = run_line


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:  # an apostrophe
        return line.split()


def _of_words(words: list[str]) -> str | None:
    rest = _without_prefix(words)
    program = next(rest, "")
    name = os.path.basename(program).removesuffix(".exe")
    arguments = list(rest)
    if name in _SHELLS and "-c" in arguments[:-1]:
        return downloader(arguments[arguments.index("-c") + 1])
    if re.fullmatch(r"python[\d.]*", name) and arguments[:1] == ["-m"]:
        return _of_words(arguments[1:])
    if name in _DOWNLOADERS or _WITH_SUBCOMMANDS.get(name, frozenset()) & set(arguments):
        return name
    return None


def _without_prefix(words: list[str]) -> Iterator[str]:
    """The words from the program on: without `sudo`, `env` and variables."""
    began = False
    for word in words:
        began = began or not (word in _PREFIXES or re.match(r"\w+=", word))
        if began:
            yield word


_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_WRITE_FILE = 1 << 1
_CHANGES = 0x7FFF & ~(1 << 2 | 1 << 3)
"""All rights of Landlock but reading: starting programs, writing, removing, making, renaming, truncating."""
_LANDLOCK_BITS = {1: 13, 2: 14}
"""Version of Landlock -> how many rights it knows, if that is not all of them."""
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWPID = 0x20000000
_CLONE_NEWNET = 0x40000000
_SIOCSIFFLAGS = 0x8914
_IFF_UP_AND_RUNNING = 0x41
_AF_UNIX = 1
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_KILL_TREE_S = 2.0


def limit_resources(memory_mib: int, cpu_s: float) -> None:
    """Make allocations beyond `memory_mib` fail in this process, and end it after `cpu_s` of CPU time.

    Memory counts what is private and writable (RLIMIT_DATA), so that large mappings of files and reserved
    address space do not count. macOS does not enforce it; Windows has neither limit.
    """
    if sys.platform == "win32":
        return
    import resource

    def lower(what: int, wanted: int) -> None:
        _, hard = resource.getrlimit(what)
        if hard != resource.RLIM_INFINITY:
            wanted = min(wanted, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(what, (wanted, hard))

    lower(resource.RLIMIT_DATA, memory_mib << 20)
    lower(resource.RLIMIT_CPU, max(1, math.ceil(cpu_s)))
    # A crash is reported in one sentence; nobody wants its core file.
    lower(resource.RLIMIT_CORE, 0)


def enter_namespaces(*, network: bool) -> bool:
    """Give the children of this process a PID namespace and, without `network`, cut it off the network.

    Only for a process with a single thread.

    Returns:
        False where the system does not allow it; then nothing has changed.
    """
    if sys.platform != "linux" or os.environ.get("TCLINT_NAMESPACES") == "0":
        return False
    wanted = _CLONE_NEWPID | (0 if network else _CLONE_NEWNET)
    # With the privilege for it, no user namespace: that would take away access to other users' files.
    if not _unshare(wanted):
        user, group = os.geteuid(), os.getegid()
        if not _unshare(wanted | _CLONE_NEWUSER):
            return False
        with contextlib.suppress(OSError):
            _write("/proc/self/setgroups", "deny")
            _write("/proc/self/gid_map", f"{group} {group} 1")
        with contextlib.suppress(OSError):
            _write("/proc/self/uid_map", f"{user} {user} 1")
    if not network:
        with contextlib.suppress(OSError):
            _start_loopback()
    return True


def refuse_network() -> None:
    """Make this process raise where it looks up names or connects to anything but itself; for good."""

    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "socket.getaddrinfo":
            address = arguments[0]
        elif event in ("socket.connect", "socket.sendto"):
            if int(getattr(arguments[0], "family", 0)) == _AF_UNIX:
                return
            address = arguments[1][0] if isinstance(arguments[1], tuple) else arguments[1]
        elif event in ("socket.gethostbyname", "socket.gethostbyaddr"):
            address = arguments[0]
        else:
            return
        if address not in (None, "", b"", *_LOOPBACK):
            raise ConnectionError("the network is off while tclint builds a model")

    sys.addaudithook(refuse)


def landlock_version() -> int:
    """The version of Landlock in this kernel; below 1 where there is none, as before Linux 5.13."""
    if sys.platform != "linux":
        return 0
    return int(ctypes.CDLL(None).syscall(_LANDLOCK_CREATE, None, 0, 1))


def read_only(writable: str) -> bool:
    """Have the kernel refuse this process, for good, to change files outside a folder and to start programs.

    Returns:
        False where it cannot.
    """
    version = landlock_version()
    if version < 1 or not _prctl(_PR_SET_NO_NEW_PRIVS, 1):
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    refused = _CHANGES & ((1 << _LANDLOCK_BITS.get(version, 15)) - 1)
    rules = libc.syscall(_LANDLOCK_CREATE, struct.pack("Q", refused), 8, 0)
    for place, allowed in ((writable, refused & ~1), (os.devnull, _WRITE_FILE)):
        descriptor = os.open(place, os.O_PATH | os.O_CLOEXEC)
        libc.syscall(_LANDLOCK_ADD, rules, 1, struct.pack("=Qi", allowed, descriptor), 0)
        os.close(descriptor)
    return bool(libc.syscall(_LANDLOCK_RESTRICT, rules, 0) == 0)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent dies (Linux).

    Args:
        parent: what os.getppid() says in this process while the parent lives.
    """
    if _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) and os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends, so that they can be found (Linux)."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def kill_group(pid: int) -> None:
    """Kill a process group, if there is one."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def kill_descendants(pid: int) -> None:
    """Kill what descends from a process, again while it still forks (Linux)."""
    deadline = time.monotonic() + _KILL_TREE_S
    while (found := _descendants(pid)) and time.monotonic() < deadline:
        for descendant in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(descendant, signal.SIGKILL)
        time.sleep(0.002)


def children_of(pid: int) -> list[int]:
    """PIDs of the children of a process, ended ones included (Linux, from /proc)."""
    return _by_parent(with_ended=True).get(pid, [])


def _descendants(pid: int) -> list[int]:
    by_parent = _by_parent()
    found, unseen = [], list(by_parent.get(pid, ()))
    while unseen:
        child = unseen.pop()
        found.append(child)
        unseen += by_parent.get(child, ())
    return found


def _by_parent(*, with_ended: bool = False) -> dict[int, list[int]]:
    """Processes by their parent."""
    found: dict[int, list[int]] = {}
    try:
        names = os.listdir("/proc")
    except OSError:
        return found
    for name in names:
        if not name.isdecimal():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                # The name in brackets may hold anything, brackets included.
                state, parent = file.read().rpartition(b")")[2].split()[:2]
        except (OSError, ValueError):
            continue
        if with_ended or state not in (b"Z", b"X"):
            found.setdefault(int(parent), []).append(int(name))
    return found


def _unshare(flags: int) -> bool:
    try:
        return bool(ctypes.CDLL(None, use_errno=True).unshare(flags) == 0)
    except (OSError, AttributeError):
        return False


def _prctl(option: int, value: int) -> bool:
    if sys.platform != "linux":
        return False
    try:
        return bool(ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def _start_loopback() -> None:
    """A process group of one on localhost is common in training code."""
    import fcntl
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP_AND_RUNNING))

"""Commands that reach for the network, which a target's code would wait for: refused before they start."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
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

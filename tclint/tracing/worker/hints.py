"""What to do about an error of torch or of the user's code: what it means, or what it lacks here."""

from __future__ import annotations

import errno
import os
import re
import socket
import traceback
from pathlib import Path, PurePath

from tclint.core.target import WEIGHT_FILES

_WORDS = (
    (
        r"QuantizedMeta|QuantizedCPU|quantized::|quantized_decomposed",
        "quantized weights cannot be traced; name the model before it is quantized, and give "
        "--quantized int8 to check its dims for int8",
    ),
    (
        r"Couldn't load custom C\+\+ ops|operator torchvision::\w+ does not exist",
        "the compiled operators of torchvision do not fit the torch installed here; install the torchvision "
        "that was built for it",
    ),
    (r"Sparse(Csr)?Meta'", "this use of a sparse tensor cannot be traced; give the model a dense one"),
    (
        r"NestedTensorImpl",
        "nested tensors of the strided layout cannot be traced; make them with layout=torch.jagged, or give "
        "the model a padded tensor",
    ),
    (
        r"NestedIntNode|NestedTensor\b",
        "this use of nested tensors cannot be traced; give the model a padded tensor",
    ),
)


def in_plain_words(message: str) -> str | None:
    """What the message means and what to do about it, where that is known."""
    return next((words for pattern, words in _WORDS if re.search(pattern, message)), None)


# Of urllib, requests, httpx and huggingface_hub.
_NETWORK_ERRORS = frozenset(
    {"URLError", "ConnectError", "LocalEntryNotFoundError", "OfflineModeIsEnabled", "NewConnectionError"}
)


def holds_weights(path: str) -> bool:
    """Whether a file of that name is one of weights, and no Python."""
    return PurePath(path).suffix.lower() in WEIGHT_FILES


def hint_for(error: BaseException) -> str:
    """The end of a sentence about the error, from its semicolon on; '' where nothing is known."""
    try:
        message = str(error)
    except Exception:
        message = ""  # user code can make even that fail
    if "process group" in message or "rendezvous" in message:
        return "; return the model before it is spread over processes"
    if isinstance(error, FileNotFoundError):
        name = error.filename if isinstance(error.filename, str) else ""
        named = [name, *re.findall(r"[^\s'\"]+\.\w+", message)]
        if any(map(holds_weights, named)):
            return "; no weights are needed, so name a callable that builds the model without reading them"
        if (folder := _folder_with(name, error)) is not None:
            return f"; it lies in {os.path.relpath(folder)}: run tclint there"
    if "no internet connection" in message:  # torch.hub.load
        return "; name a callable in a clone of that repository, or give --network"
    return _network_hint(error)


_LEVELS = 4
"""Folders above a file of the code, from which it may be meant to be run."""


def _folder_with(name: str, error: BaseException) -> Path | None:
    """The folder above the code that asked for a file from which its relative path leads to it."""
    if not name or os.path.isabs(name):
        return None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        path = Path(os.path.abspath(frame.f_code.co_filename))
        for folder in [*path.parents][:_LEVELS]:
            if (folder / name).exists():
                return folder
    return None


def _network_hint(error: BaseException) -> str:
    """'; models are built without network ...' for what looks like an attempt to reach it."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        is_socket_error = isinstance(cause, (ConnectionError, socket.gaierror)) or (
            isinstance(cause, OSError) and cause.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH)
        )
        if is_socket_error or type(cause).__name__ in _NETWORK_ERRORS:
            return "; models are built without the network unless --network is given"
        cause = cause.__cause__ or cause.__context__
    return ""

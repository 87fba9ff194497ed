"""Which torch is installed and which GPUs it sees, asked of a process of its own: torch may be broken."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata

from tclint.core.errors import TargetError

_TIMEOUT_S = 120
_PROBE = """
import json, torch
gpus = torch.cuda.is_available() and [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]
print(json.dumps({"version": torch.__version__, "cuda": torch.version.cuda or "", "gpus": gpus or []}))
"""


@dataclass(frozen=True, slots=True)
class Torch:
    """What `import torch` gives here."""

    version: str
    cuda: str
    """Version that it is built for; '' for none."""
    gpus: tuple[str, ...]
    """Names as CUDA has them."""


def probe() -> Torch | None:
    """None where torch is not installed.

    Raises:
        TargetError: it cannot be imported.
    """
    try:
        metadata.version("torch")
    except metadata.PackageNotFoundError:
        return None
    why = ""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE], capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
        )
        why = done.stderr.strip().rpartition("\n")[2]
        found = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        raise TargetError(f"torch cannot be imported ({why or error}); install it again.") from None
    return Torch(found["version"], found["cuda"], tuple(found["gpus"]))

"""Finding and reading the GPUs' TOML files."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from importlib import resources

from tclint.core.errors import UsageError, closest
from tclint.core.toml import parse_toml
from tclint.cost.gpu.factors import load_factors
from tclint.cost.gpu.gpu import Gpu


def load_gpu(name: str, calibration: str = "") -> Gpu:
    """The GPU of that id or alias; torch.cuda.get_device_name()'s spelling is understood too.

    Args:
        calibration: a file whose factors its times are multiplied by; '' for none.

    Raises:
        UsageError: no such GPU (the message has the closest known name), or the file holds no calibration.
    """
    gpus, names = _index()
    found = names.get(_normalise(name))
    if found is None:
        hint = closest(_normalise(name), sorted(names))
        raise UsageError(f"Unknown GPU {name!r}.{hint} 'tclint gpus' lists the known ones.")
    if calibration:
        factors = tuple(factor for factor in load_factors(calibration) if factor.gpu == found)
        return replace(gpus[found], factors=factors)
    return gpus[found]


def all_gpus() -> tuple[Gpu, ...]:
    """Every known GPU, oldest generation first, then by id."""
    gpus, _ = _index()
    return tuple(sorted(gpus.values(), key=lambda gpu: (gpu.compute_capability, gpu.id)))


def _normalise(name: str) -> str:
    words = re.split(r"[\s_\-]+", name.strip().lower())
    return "-".join(word for word in words if word not in ("nvidia", "tesla", "geforce"))


@cache
def _index() -> tuple[dict[str, Gpu], dict[str, str]]:
    """GPUs by id, and ids by every name.

    A document's `inherit` names GPUs whose own calibrations fill in what it lacks, the first one first.
    """
    files = [file for file in resources.files(__package__).iterdir() if file.name.endswith(".toml")]
    documents = [parse_toml(file.read_text(encoding="utf-8")) for file in files]
    own = {data["id"]: Gpu.from_toml(data) for data in documents}
    complete = {}
    for data in documents:
        gpu = own[data["id"]]
        calibrations = dict(gpu.calibrations)
        for donor_id in data.get("inherit", ()):
            for key, calibration in own[donor_id].calibrations.items():
                calibrations.setdefault(key, calibration.inherited(donor_id))
        complete[gpu.id] = replace(gpu, calibrations=calibrations)
    names = {_normalise(name): gpu.id for gpu in own.values() for name in (gpu.id, *gpu.aliases)}
    return complete, names

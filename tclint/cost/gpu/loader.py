"""Finding and reading the GPUs' TOML files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Any

from tclint.core.errors import UsageError, closest
from tclint.core.toml import parse_toml
from tclint.cost.gpu.factors import load_factors
from tclint.cost.gpu.gpu import Gpu, GpuDataError


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
    documents: dict[str, Mapping[str, Any]] = {}
    for file in resources.files("tclint.cost.gpu").iterdir():
        if file.name.endswith(".toml"):
            try:
                documents[file.name] = parse_toml(file.read_text(encoding="utf-8"))
            except ValueError as error:
                raise GpuDataError(f"{file.name}: not valid TOML: {error}.") from None
    return index_gpus(documents)


def index_gpus(documents: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, Gpu], dict[str, str]]:
    """GPUs by id, and ids by every name, from parsed documents keyed by file name.

    A document's `inherit` names GPUs whose own calibrations fill in what it lacks, the first one first.

    Raises:
        GpuDataError: a document is wrong, two GPUs share a name, or `inherit` names no GPU.
    """
    own = {}
    names: dict[str, str] = {}
    for file_name, data in sorted(documents.items()):
        gpu = Gpu.from_toml(data, file_name)
        if file_name != f"{gpu.id}.toml":
            raise GpuDataError(f"{file_name}: a file is named after its GPU's id, here {gpu.id}.toml.")
        own[gpu.id] = gpu
        for name in (gpu.id, *gpu.aliases):
            if names.setdefault(_normalise(name), gpu.id) != gpu.id:
                raise GpuDataError(f"{file_name}: {name!r} already names {names[_normalise(name)]}.")
    complete = {}
    for file_name, data in documents.items():
        gpu = own[data["id"]]
        calibrations = dict(gpu.calibrations)
        for donor_id in data.get("inherit", ()):
            if donor_id not in own:
                raise GpuDataError(f"{file_name}: inherit names {donor_id!r}, which is no known GPU.")
            for key, calibration in own[donor_id].calibrations.items():
                calibrations.setdefault(key, calibration.inherited(donor_id))
        complete[gpu.id] = replace(gpu, calibrations=calibrations)
    return complete, names

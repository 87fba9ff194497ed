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

_DATASHEETS = "datasheets.toml"
"""GPUs without calibrations of their own, one table each."""


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
        raise UsageError(f"Unknown GPU {name!r}.{_hint(name)} 'tclint gpus' lists the known ones.")
    if calibration:
        factors = tuple(factor for factor in load_factors(calibration) if factor.gpu == found)
        return replace(gpus[found], factors=factors)
    return gpus[found]


def all_gpus() -> tuple[Gpu, ...]:
    """Every known GPU, oldest generation first, then by id."""
    gpus, _ = _index()
    return tuple(sorted(gpus.values(), key=lambda gpu: (gpu.compute_capability, gpu.id)))


def _hint(name: str) -> str:
    """' Did you mean ...?' of a GPU of the same family; '' where none is known.

    A family is what stands before a name's number, and how many digits that has: an A5000 is of the A6000's,
    and not of the A100's. The first of a GeForce's four digits is its generation.
    """
    letters, number = _family(_normalise(name))
    kin = []
    for other in _index()[1]:
        own, digits = _family(other)
        same = own and letters.endswith(own)  # a GB200 has B200s
        if len(digits) == len(number) and (same or (own == letters == "" and number[:1] == digits[:1])):
            kin.append((own != letters, abs(int(digits or 0) - int(number or 0)), len(other), other))
    if kin:
        return f" Did you mean {min(kin)[-1]!r}?"
    return closest(
        _normalise(name), [other for other in _index()[1] if letters and _family(other)[0] == letters]
    )


def _family(name: str) -> tuple[str, str]:
    """What stands before the number of a normalised name, and the number: ('', '2080') of 'rtx-2080-ti'."""
    found = re.match(r"([a-z]*)(\d*)", name.replace("-", "").removeprefix("rtx"))
    assert found is not None
    return found[1], found[2]


def _normalise(name: str) -> str:
    words = re.split(r"[\s_\-]+", name.strip().lower())
    return "-".join(word for word in words if word not in ("nvidia", "tesla", "geforce"))


@cache
def _index() -> tuple[dict[str, Gpu], dict[str, str]]:
    """GPUs by id, and ids by every name.

    A document's `inherit` names GPUs whose own calibrations fill in what it lacks, the first one first.
    """
    documents = []
    for file in resources.files(__package__).iterdir():
        if file.name.endswith(".toml"):
            data = parse_toml(file.read_text(encoding="utf-8"))
            if file.name == _DATASHEETS:
                documents += [{"id": name, **row} for name, row in data.items()]
            else:
                documents.append(data)
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

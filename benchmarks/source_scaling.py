"""CPU time of linting one file against its size: a file twice as long shall take twice as long.

    python benchmarks/source_scaling.py
    python benchmarks/source_scaling.py autocast steps --sizes 250,500,1000,2000 --seconds 3

Every generator repeats one piece of training code in one file, behind a beginning that all of them share.
Each size is linted in a process of its own, with no cache, and its CPU time (user and system) is printed,
less that of the beginning alone. `growth` is the exponent that fits the last two sizes: 1 is linear, 2
quadratic. With `--calls`, the Python and C functions called are counted instead, in this process, which is
the same on every machine.
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tclint.cli.main import cli

BEGINNING = """\
import torch
from torch import nn

torch.backends.cudnn.benchmark = True
device = "cuda"
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cuda")
loader = torch.utils.data.DataLoader(dataset, batch_size=32, num_workers=2, pin_memory=True)
for x, y in loader:
    with torch.autocast("cuda", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()

"""
"""With words that every source rule listens to: no rule is left out because a file does not concern it."""


def _times(piece: str) -> Callable[[int], str]:
    return lambda count: "".join(piece.replace("@", str(number)) for number in range(count))


def _in_loop(piece: str) -> Callable[[int], str]:
    return lambda count: "for epoch in range(9):\n" + _times(piece)(count)


def _model(count: int) -> str:
    layers = "".join(f"        self.conv{number} = nn.Conv2d(8, 8, 3)\n" for number in range(count))
    calls = "".join(f"        x = self.conv{number}(x)\n" for number in range(count))
    return (
        "class Deep(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"{layers}\n    def forward(self, x):\n{calls}        return x\n"
    )


GENERATORS: dict[str, Callable[[int], str]] = {
    "lines": _times("constant = 1\n"),
    "chain": _times("value@ = value\nvalue = value@\n"),
    "autocast": _times('with torch.autocast("cuda"):\n    loss = model(x)\n    loss.backward()\n'),
    "steps": _in_loop(
        "    loss = model(x).mean()\n    loss.backward()\n    optimizer.step()\n    print(loss.item())\n"
    ),
    "scalers": _times(
        "scaler@ = torch.amp.GradScaler()\nscaler@.scale(loss).backward()\nscaler@.step(optimizer)\n"
        "scaler@.update()\n"
    ),
    "optimizers": _times(
        "optimizer@ = torch.optim.SGD(model.parameters(), lr=0.1)\nloss@ = model(x).mean()\n"
        "optimizer@.zero_grad()\nloss@.backward()\noptimizer@.step()\n"
    ),
    "loaders": _times(
        "loader@ = torch.utils.data.DataLoader(dataset@)\nfor batch in loader@:\n"
        "    y = model(batch.to(device))\n"
    ),
    "models": _times(
        "class Net@(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.conv = nn.Conv2d(3, 1@, 3)\n\n"
        "    def forward(self, x):\n        return self.conv(x)\n\n"
        "net@ = Net@().cuda()\n"
    ),
    "layers": _model,
    "branches": _times("if flag@:\n    model = first@(model)\nelse:\n    model = second@(model)\n"),
    "attempts": _times("try:\n    x = model(x)\nexcept ValueError:\n    pass\n"),
    "calls": _times(
        "def step@(model, x):\n    with torch.autocast(device):\n        y = step@(model, x)\n"
        "    y.backward()\n    return y\n"
    ),
    "imports": _times("import library@\nfrom package import name@\nname@(library@.value)\n"),
}


def cpu_seconds(path: Path) -> float:
    """The CPU time of `tclint FILE` as a process, all rules selected."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "tclint", *_arguments(path)], capture_output=True, check=False, cwd=path.parent
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode == 2:
        raise SystemExit(f"{path.name} was not linted: {done.stderr.decode(errors='replace')[-500:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def calls(path: Path) -> int:
    """Functions called to lint a file in this process."""
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    with open(os.devnull, "w") as nowhere:
        written, sys.stdout = sys.stdout, nowhere
        sys.setprofile(note)
        try:
            cli.main(_arguments(path))
        except SystemExit as ended:
            if ended.code == 2:
                raise SystemExit(f"{path.name} was not linted") from None
        finally:
            sys.setprofile(None)
            sys.stdout = written
    return count


def _arguments(path: Path) -> list[str]:
    return ["check", "--no-cache", "--isolated", "--select", "ALL", "--format", "concise", str(path)]


def growth(sizes: Sequence[int], costs: Sequence[float]) -> float:
    """The exponent of a power law through the last two sizes."""
    one, other = (max(cost, 1e-9) for cost in costs[-2:])
    return math.log(other / one) / math.log(sizes[-1] / sizes[-2])


def measure(name: str, sizes: Sequence[int], cost: Callable[[Path], float]) -> list[float]:
    """What linting costs by size, less that of the beginning."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "train.py")
        found = []
        for size in (1, 0, *sizes):  # the first one imports and compiles
            path.write_text(BEGINNING + (GENERATORS[name](size) if size else ""))
            found.append(cost(path))
    return [one - found[1] for one in found[2:]]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help=f"of {', '.join(GENERATORS)}; all if none is given")
    parser.add_argument("--sizes", default="250,500,1000", help="pieces in a file (default 250,500,1000)")
    parser.add_argument("--calls", action="store_true", help="count calls instead of seconds")
    parser.add_argument("--growth", type=float, help="fail if a generator grows with a larger exponent")
    parser.add_argument("--seconds", type=float, help="fail if the largest size takes more CPU seconds")
    options = parser.parse_args(arguments)
    sizes = [int(size) for size in options.sizes.split(",")]
    unknown = set(options.names) - set(GENERATORS)
    if unknown or len(sizes) < 2:
        parser.error(f"there is no {', '.join(sorted(unknown))}" if unknown else "give two sizes or more")

    failed = []
    unit = "calls" if options.calls else "CPU s"
    print(f"{unit:12}" + "".join(f"{size:>10}" for size in sizes) + "    growth")
    for name in options.names or GENERATORS:
        costs = measure(name, sizes, calls if options.calls else cpu_seconds)
        exponent = growth(sizes, costs)
        shown = "".join(f"{cost:10.0f}" if options.calls else f"{cost:10.2f}" for cost in costs)
        print(f"{name:12}{shown}{exponent:10.2f}", flush=True)
        if options.growth is not None and exponent > options.growth:
            failed.append(f"{name} grows with the power {exponent:.2f} of its size")
        if options.seconds is not None and costs[-1] > options.seconds and not options.calls:
            failed.append(f"{name} takes {costs[-1]:.1f} s of CPU at {sizes[-1]}")
    print("\n".join(failed))
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())

"""Compares the bytes that a training step keeps for its backward pass with what autograd keeps.

Random small nets, whose layers pad, mask, normalise, pool and transform, run once on the CPU under
torch.autograd.graph.saved_tensors_hooks.

    python benchmarks/saved_tensors.py
    python benchmarks/saved_tensors.py --nets 1000 --seed 5000

Exit code 1 if the prediction of any net is off by more than 2 %.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence

from saved_nets import net, really_saved_bytes

import tclint
from tclint.cost.memory.saved_tensors import saved_tensors

TOLERANCE = 0.02


def deviation(seed: int) -> tuple[float, list[str], dict[str, int]]:
    """How far the prediction for one net is off, what it is made of, and the operators without a formula."""
    model, x, names = net(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        really = really_saved_bytes(model, (x,))
        predicted = saved_tensors(tclint.trace(model, (x,)))
    return predicted.bytes / really - 1, names, dict(predicted.unknown)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nets", type=int, default=300, help="how many  [300]")
    parser.add_argument("--seed", type=int, default=0, help="of the first  [0]")
    options = parser.parse_args(arguments)
    off = []
    for seed in range(options.seed, options.seed + options.nets):
        error, names, unknown = deviation(seed)
        if abs(error) > TOLERANCE:
            off.append(seed)
            formula = f" (no formula: {', '.join(unknown)})" if unknown else ""
            print(f"net {seed}: {100 * error:+.1f} %{formula}: {', '.join(names)}", flush=True)
    print(f"{len(off)} of {options.nets} nets are off by more than {100 * TOLERANCE:g} %")
    return int(bool(off))


if __name__ == "__main__":
    sys.exit(main())

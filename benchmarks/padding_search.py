"""Searches small random nets, some of which read their sizes in Python, for a false 'exact'.

Each net is built at two sizes; `tclint.verify_padding` says whether the padded one computes the same, and an
independent run with other weights says whether that is true.

    python benchmarks/padding_search.py --examples 800
    python benchmarks/padding_search.py --examples 800 --seed 7 --csv found.csv

Exit code 1 if something that was called exact is not.
"""

from __future__ import annotations

import argparse
import csv
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any

import padding_nets
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from padded_equality import Equality, compare

COLUMNS = ("verdict", "equal", "grown", "reason", "difference", "edits", "net")


def widths(smallest: int = 2, largest: int = 9) -> st.SearchStrategy[tuple[int, int]]:
    """A size, and the same or a larger one."""
    return st.tuples(st.integers(smallest, largest), st.integers(0, 4)).map(lambda pair: (pair[0], sum(pair)))


functions = st.sampled_from(sorted(padding_nets.FUNCTIONS))
readers = st.sampled_from(sorted(padding_nets.READERS))
numbers = st.recursive(
    st.one_of(
        st.just(("K",)), st.just(("K",)), st.sampled_from([("number", n) for n in (0.5, 1, 2, 3, 4, 10)])
    ),
    lambda part: st.one_of(
        st.tuples(st.sampled_from(["+", "-", "*", "/", "//"]), part, part),
        st.tuples(st.sampled_from(["root", "power", "log"]), part),
    ),
    max_leaves=4,
)
even = widths(1, 4).map(lambda pair: (2 * pair[0], 2 * pair[1]))
fixed = st.integers(1, 3).map(lambda size: (size, size))
orders = st.sampled_from(["qkv heads", "heads qkv", "heads of qkv", "split"])
products = st.sampled_from(
    ["fused", "fused with scale", "of constant scale", "cosine", "linear", "einsum", "masked", "baddbmm"]
)
plain_layers = (
    st.tuples(st.just("function"), st.booleans(), functions),
    st.tuples(st.just("mlp"), st.booleans(), widths(), functions, st.booleans()),
    st.tuples(st.just("gate"), st.booleans(), widths(),
              st.sampled_from(["glu", "chunk", "slice", "pairs", "unbind"])),
    st.tuples(st.just("attention"), st.booleans(), fixed | widths(1, 3), widths(2, 5), orders, products,
              st.booleans()),
    st.tuples(st.just("recurrent"), st.booleans(), widths(), st.sampled_from(["lstm", "gru", "rnn"]),
              st.integers(1, 2), st.booleans()),
    st.tuples(st.just("joined"), st.booleans(), widths(), widths(), st.sampled_from(["cat", "split"])),
    st.tuples(st.just("bank"), st.booleans(), widths(1, 4), st.integers(1, 3),
              st.sampled_from(["plain", "depthwise", "multiplied", "transposed", "weight norm", "shuffled"]),
              st.sampled_from(["none", "batch", "instance", "group"])),
    st.tuples(st.just("norm"), st.booleans(), st.sampled_from(["batch", "layer", "rms"])),
    st.tuples(st.just("frozen"), st.booleans()),
    st.tuples(st.just("squeeze"), st.booleans(), widths()),
    st.tuples(st.just("rotary"), st.booleans(), even),
)  # fmt: skip
reading_layers = (
    st.tuples(st.just("mlp"), st.booleans(), widths(4, 12), readers, st.booleans()),
    st.tuples(st.just("function"), st.booleans(), readers),
    st.tuples(st.just("scaled"), st.booleans(), widths(), numbers,
              st.sampled_from(["times", "plus", "over", "alpha", "product"])),
)  # fmt: skip
layers = st.one_of(*plain_layers, *reading_layers)
ends = st.tuples(
    st.sampled_from(["words", "numbers"]),
    st.sampled_from(["tied", "flat", "probabilities", "features", "plain"]),
    widths(5, 9),
)
nets = st.tuples(
    widths(2, 6),
    st.tuples(st.lists(layers, max_size=2), st.one_of(*reading_layers)).map(lambda pair: [*pair[0], pair[1]]),
    ends,
)
"""(width, layers, ends) of nets with at least one layer that reads a size."""
plain_nets = st.tuples(widths(2, 6), st.lists(st.one_of(*plain_layers), min_size=1, max_size=3), ends)


def compared(width: Any, described: Any, chosen: Any, *, always: bool = False) -> Equality:
    """What is said of one net, and what is so."""
    original, larger = padding_nets.nets(width, described, chosen, seed=0)
    words = chosen[0] == "words"
    x = torch.randint(0, 5, (2, 4)) if words else torch.randn(2, 4, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return compare(original, larger, (x,), always=always)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--examples", type=int, default=800, help="nets  [800]")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--csv", help="also write a row per net to this file")
    options = parser.parse_args(arguments)
    rows: list[dict[str, Any]] = []

    @seed(options.seed)
    @settings(
        max_examples=options.examples,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
        database=None,
    )
    @given(net=nets)
    def search(net: Any) -> None:
        found = compared(*net, always=True)
        rows.append(
            {"verdict": found.verdict, "equal": found.equal, "grown": found.grown, "reason": found.reason,
             "difference": found.difference, "edits": "; ".join(edit.text for edit in found.edits),
             "net": repr(net)}
        )  # fmt: skip

    search()
    if options.csv:
        with open(options.csv, "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(rows)
    grown = [row for row in rows if row["grown"]]
    print(f"{len(rows)} nets, {len(grown)} of which have weights that grow")
    for (verdict, equal), count in sorted(
        Counter((row["verdict"], row["equal"]) for row in grown).items(), key=str
    ):
        print(f"  {count:4} {verdict:10} {'equal' if equal else 'NOT EQUAL' if equal is False else ''}")
    lies = [row for row in rows if row["verdict"].startswith("exact") and row["equal"] is False]
    for row in lies[:10]:
        print(f"called {row['verdict']}, and {row['difference']}: {row['net']}")
    return int(bool(lies) or not grown)


if __name__ == "__main__":
    sys.exit(main())

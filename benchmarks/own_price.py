#!/usr/bin/env python
"""No advice against its own price: every change that a graph rule advises, made, priced and linted again.

    python benchmarks/own_price.py                       # 300 models and more: fixtures, the zoo, random nets
    python benchmarks/own_price.py --only random --most 50 --seed 1000

Of each finding with a change: its gain is the difference of the two steps as a report prices them,
the geometric mean of the step times over the GPUs falls, and the same rule, run on the changed model,
finds neither it nor anything new that a report would list. All graph rules run, those included that are off
by default. Exit code 1 on an exception.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import tclint  # noqa: E402
from tclint.analysis.advice import advice, asked_again, gains  # noqa: E402
from tclint.analysis.change import Change  # noqa: E402
from tclint.analysis.graph_context import GraphContext  # noqa: E402
from tclint.analysis.graph_rule import GraphRule  # noqa: E402
from tclint.config.settings import Settings  # noqa: E402
from tclint.core.finding import Finding  # noqa: E402
from tclint.engine.rules.registry import load_rules  # noqa: E402
from tclint.graph.ops import Graph  # noqa: E402

SETS = ("fixtures", "custom", "timm", "transformers", "random")
SKIPPED = ("gpt3_175b",)
SAME = 1e-6


def graph_rules(settings: Settings) -> list[GraphRule]:
    return [rule for rule in load_rules(settings) if isinstance(rule, GraphRule)]


def exceptions(rule: GraphRule, context: GraphContext, finding: Finding) -> Iterator[str]:
    """How one finding breaks the property; nothing where it holds."""
    change = finding.change
    if not isinstance(change, Change):
        return
    present = context.with_settings(**change.presupposes)
    made = present.after(change)
    gains_percent = []
    for own, other in zip(present.scenarios, made.scenarios, strict=True):
        before, after = present.estimate(own), made.estimate(other)
        gain_us = before.step_time_us - after.step_time_us / change.samples
        gains_percent.append(before.percent_of_step(gain_us))
        stated = finding.effect.per_gpu[before.gpu.id].gain_us
        if abs(stated - gain_us) > SAME * before.step_time_us:
            yield f"states a gain of {stated:.1f} us on {before.gpu.id}, and the step gains {gain_us:.1f}"
    if max(gains_percent) < context.settings.min_gain_percent:
        return  # no report lists it
    mean_percent = finding.effect.mean_gain_percent
    if mean_percent <= 0.0 and finding.level != "error":
        yield f"loses {-mean_percent:.2f} % of the step on the mean of the GPUs"
    known = {other.key for other in advice(rule, context) if gains(other, context)}
    for other in asked_again(rule, context, finding, known):
        what = "is still found" if other.key == finding.key else f"makes way for {other.code}"
        yield f"made, it {what}: {other.message}"


def models(names: tuple[str, ...], first_seed: int, most: int) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Name, a function that traces it, and settings."""
    if "fixtures" in names:
        for path in sorted((HERE.parent / "fixtures").glob("*.py")):
            if not path.stem.startswith("train") and path.stem not in SKIPPED:
                yield f"fixture {path.stem}", partial(_fixture, path), {}
    if "custom" in names:
        from zoo_custom import cases

        for case in cases.cases():
            yield f"custom {case.name}", partial(tclint.trace, case.build), {}
    for library in ("timm", "transformers"):
        if library in names:
            from compare_targets import build, sample

            for name, family, small in sample(library):
                make = partial(build, library, name, family, small=small)
                yield f"{library} {name}", partial(tclint.trace, make), {}
    if "random" in names:
        from random_steps import random_step

        for seed in range(first_seed, first_seed + most):
            name, net, inputs, settings = random_step(seed)
            yield name, partial(tclint.trace, net, inputs), settings


def _fixture(path: Path) -> Graph:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    inputs = module.example_inputs() if hasattr(module, "example_inputs") else None
    return tclint.trace(module.build_model, inputs)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=SETS, help="these models")
    parser.add_argument("--seed", type=int, default=0, help="of the first random net")
    parser.add_argument("--most", type=int, default=150, help="random nets")
    parser.add_argument("--verbose", action="store_true", help="a line for each model")
    arguments = parser.parse_args()
    count, failed = 0, 0
    codes: Counter[str] = Counter()
    for name, trace, circumstances in models(tuple(arguments.only or SETS), arguments.seed, arguments.most):
        began = time.process_time()
        try:
            graph = trace()
        except Exception as error:
            print(f"{name}: not traced: {str(error)[:100]}")
            continue
        settings = Settings(**circumstances)
        context = GraphContext(graph, settings, name)
        count += 1
        for rule in graph_rules(settings):
            for finding in advice(rule, context):
                if finding.code.startswith("TCL"):
                    print(f"{name}: {finding.message}")
                    failed += 1
                codes[finding.code] += isinstance(finding.change, Change)
                for problem in exceptions(rule, context, finding):
                    failed += 1
                    print(f"{name}: {finding.code} {finding.message}\n    {problem}", flush=True)
        if arguments.verbose:
            print(f"{name}: {time.process_time() - began:.1f} s", flush=True)
    checked = ", ".join(f"{code} {number}" for code, number in sorted(codes.items()) if number)
    print(f"{count} models, {sum(codes.values())} changes ({checked}): {failed} exceptions")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())

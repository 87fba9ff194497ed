"""What rules on the precision of float32 work share: switches, what set them, what they were set to."""

from __future__ import annotations

import re

from tclint.core.finding import Related
from tclint.source.context import SourceContext
from tclint.source.facts.program import Training
from tclint.source.facts.switches import Switch
from tclint.source.names.queries import names_in, words
from tclint.source.names.resolve import Resolver
from tclint.source.syntax.tables import Assignment, CallEvent, Function, dotted, method_of
from tclint.source.training.comments import comment_says

MATMUL = "torch.backends.cuda.matmul"
CUDNN = "torch.backends.cudnn"
SETTER = "torch.set_float32_matmul_precision"
SCIENCE = words(
    "gym gymnasium scipy torchdiffeq torchsde gpytorch deepxde sympy control mujoco mujoco_py pybullet jax "
    "torch_geometric dgl stable_baselines3 openai qiskit pennylane e3nn ase openmm pyro"
)
"""Programs whose matrices are tiny, or whose accuracy is the result."""


def training_evidence(context: SourceContext, training: Training) -> tuple[Related, ...]:
    node_id = training.step.call.node_id
    return (context.related(node_id, "the optimizer steps here: this file trains"),)


def imported_packages(context: SourceContext) -> set[str]:
    return {
        item.qualified.split(".", 1)[0] for function in context.tables.functions for item in function.imports
    }


_DETERMINISM = words(
    "determin seed reprod invarian test restore debug verify exact bench compare parity check accura"
)


_REASON = re.compile(
    r"#.*(?:determin|reprod|accura|exact|precis|numeric|parity|match|compare|stab)", re.IGNORECASE
)
"""A comment that says why float32 has to be exact."""
_SWITCHES = re.compile(r".*(?:torch\.backends\.|matmul_precision)")


def reason_given(context: SourceContext, switch: Switch) -> bool:
    """A comment beside the switch, or above it and the switches before it, says why it is set."""
    return comment_says(context, switch, _REASON, over=_SWITCHES)


def computes_in_float64(context: SourceContext) -> bool:
    """`torch.set_default_dtype(torch.float64)` that always runs."""
    return any(
        context.program.unconditional(switch.function, switch.block)
        and switch.expression is not None
        and dotted(switch.expression).rpartition(".")[2] in ("float64", "double")
        for switch in context.program.switches_of("torch.set_default_dtype")
    )


def about_determinism(context: SourceContext, switch: Switch) -> bool:
    """The switch belongs to a helper for reproducible or exact runs."""
    for function in context.program.outer_functions(switch.function):
        if function.kind == "class" and not function.index:
            continue
        if any(word in function.name.lower() for word in _DETERMINISM) or function.name in (
            "__enter__",
            "__exit__",
        ):
            return True
    return any(
        other.value.values == (True,)
        and other.name.rpartition(".")[2] in ("deterministic", "use_deterministic_algorithms")
        for other in context.program.switches
    )


def set_again(context: SourceContext, switch: Switch) -> bool:
    """The same switch is read or set elsewhere in the file: somebody manages it."""
    program = context.program
    if len(program.switches_of(switch.name)) > 1:
        return True
    getter = "get_float32_matmul_precision"
    if switch.name == SETTER and getter in context.tables.identifiers:
        return True
    return any(_reads(program.resolver, function, switch.name) for function in context.tables.functions)


def _reads(resolver: Resolver, function: Function, name: str) -> bool:
    last = name.rpartition(".")[2]
    for event in function.events:
        if isinstance(event, Assignment):
            read = names_in(event.value)
        elif isinstance(event, CallEvent):
            read = {found for argument in event.call.arguments for found in names_in(argument.value)}
        else:
            continue
        for found in read:
            if found.endswith("." + last) and name in resolver.qualified(function, found):
                if isinstance(event, CallEvent) and method_of(event.call)[1] in ("print", "info", "debug"):
                    continue
                return True
    return False

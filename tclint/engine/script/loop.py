"""The batch that a training script loads and the optimizer that it steps."""

from __future__ import annotations

import re

from tclint.config.settings import OPTIMIZERS
from tclint.engine.script.reading import (
    Evidence,
    argument_of,
    certain,
    consensus,
    given,
    stated_at,
    unpacks_unknown,
    with_default,
)
from tclint.source.context import SourceContext
from tclint.source.syntax.tables import Assignment, CallEvent, Function, Name

_NOT_TRAINING = ("val", "test", "eval", "valid")


def batch(context: SourceContext) -> Evidence | None:
    """The batch of the loaders that training uses: those that shuffle, else those not named after tests."""
    shuffling, others, loaded = [], [], False
    for function, event in context.tables.calls:
        called = context.resolver.called(function, event.call)
        if not any(name.endswith(".DataLoader") and name.startswith("torch.") for name in called):
            continue
        loaded = True
        size, default = with_default(context, *given(context, function, event.call, "batch_size", 1))
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            return None
        words = f"DataLoader with batch_size={size}{default}"
        stated = stated_at(context, "batch", size, event.call.node_id, words)
        shuffle = argument_of(event.call, "shuffle", 2)
        if shuffle is not None and certain(context, function, shuffle) is not False:
            shuffling.append(stated)
        elif not any(word in name for name in _target(function, event) for word in _NOT_TRAINING):
            others.append(stated)
    return consensus(shuffling or others) if loaded else _constant_batch(context)


_CROSS_ENTROPY = frozenset(
    {
        "torch.nn.CrossEntropyLoss",
        "torch.nn.functional.cross_entropy",
        "torch.nn.modules.loss.CrossEntropyLoss",
    }
)
_LOSS = re.compile(r"torch\.nn\.(modules\.loss\.\w+Loss|\w+Loss|functional\.(\w+_loss|\w*cross_entropy\w*))")


def loss(context: SourceContext) -> Evidence | None:
    """Cross-entropy where a script computes it and no other loss of torch's."""
    found = []
    for function, event in context.tables.calls:
        for called in context.resolver.called(function, event.call):
            if _LOSS.fullmatch(called):
                value = "cross_entropy" if called in _CROSS_ENTROPY else called
                words = called.rpartition(".")[2]
                found.append(stated_at(context, "loss", value, event.call.node_id, words))
    stated = consensus(found)
    return stated if stated is not None and stated.value == "cross_entropy" else None


_BATCH_NAMES = re.compile(r"(device_|micro_|train_)?batch_size", re.IGNORECASE)


def _constant_batch(context: SourceContext) -> Evidence | None:
    """The constant `batch_size` of a script that loads its data by itself."""
    module = context.tables.functions[0]
    found = []
    for event in module.assignments:
        for target in event.targets:
            size, default = with_default(context, module, Name(target))
            if _BATCH_NAMES.fullmatch(target) and isinstance(size, int) and size > 0:
                words = f"{target} = {size}{default}"
                found.append(stated_at(context, "batch", size, event.node_id, words))
    return consensus(found)


def _target(function: Function, event: CallEvent) -> tuple[str, ...]:
    """The names that the call's value is assigned to."""
    for other in function.events:
        if isinstance(other, Assignment) and other.value == event.call:
            return tuple(target.lower() for target in other.targets)
    return ()


_OPTIMIZER_NAMES = {
    "torch.optim.AdamW": "adamw",
    "torch.optim.Adam": "adam",
    "torch.optim.SGD": "sgd",
    "torch.optim.RMSprop": "rmsprop",
    "torch.optim.Adagrad": "adagrad",
    "bitsandbytes.optim.AdamW8bit": "adamw-8bit",
}


def optimizer(context: SourceContext) -> Evidence | None:
    found = []
    for function, event in context.tables.calls:
        called = context.resolver.called(function, event.call)
        base: str | None = next((_OPTIMIZER_NAMES[name] for name in called if name in _OPTIMIZER_NAMES), None)
        if base is None:
            continue
        if unpacks_unknown(context, function, event.call):
            return None
        # momentum is SGD's third parameter.
        momentum, _ = with_default(context, *given(context, function, event.call, "momentum", 2))
        name = f"{base}-momentum" if base == "sgd" and momentum else base
        where, fused = given(context, function, event.call, "fused")
        if fused is not None and context.resolver.evaluate(where, fused).values != (False,):
            # `fused=on_gpu`: on a GPU, it is.
            name += "-fused"
        if name in OPTIMIZERS:
            words = f"torch.optim.{called[0].rpartition('.')[2]}" + (" (fused)" if "-fused" in name else "")
            words = called[0] if base == "adamw-8bit" else words
            if base == "rmsprop" and momentum:
                words += f" with momentum={momentum}, whose buffer is not counted"
            found.append(stated_at(context, "optimizer", name, event.call.node_id, words))
    return consensus(found)

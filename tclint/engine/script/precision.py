"""The precision that a training script runs in: its autocast regions and its TF32 switches."""

from __future__ import annotations

from dataclasses import replace

from tclint.config.settings import Precision
from tclint.engine.script.reading import (
    Evidence,
    argument_of,
    certain,
    consensus,
    holds_on_gpu,
    runs_always,
    stated_at,
    value_on_gpu,
    with_default,
)
from tclint.source.context import SourceContext
from tclint.source.names.frameworks import names
from tclint.source.names.queries import Condition
from tclint.source.names.resolve import dtype_of
from tclint.source.syntax.tables import method_of

_PRECISIONS: dict[str, Precision] = {"float16": "fp16", "bfloat16": "bf16"}


def precision_of_autocast(context: SourceContext) -> Evidence | None:
    """What autocast says; a value of None where it says so by being off by default."""
    found, off = [], []
    for function in context.tables.functions:
        for region in context.amp.autocasts.regions(function):
            autocast = region.autocast
            on_gpu = autocast.devices is None or "cuda" in autocast.devices
            if (
                autocast.enabled is False
                or not on_gpu
                or not context.amp.gradients_on(function, region.block)
            ):
                continue
            where, call = next(
                ((f, e.call) for f, e in context.tables.calls if e.call.node_id == autocast.node_id),
                (function, None),
            )
            words = default = ""
            if autocast.enabled is None:
                enabled = call and argument_of(call, "enabled")
                on, default = with_default(context, where, enabled)
                if on is False:
                    off.append(
                        stated_at(context, "precision", None, region.node_id, f"autocast is off{default}")
                    )
                on_gpu = enabled is None and all(map(_true_on_gpu, autocast.conditions))
                if not (on is True or on_gpu or (enabled and holds_on_gpu(context, where, enabled))):
                    continue  # switched on or off at run time, or off by default
            dtype = autocast.dtype
            if dtype is None and call is not None:
                value, words = value_on_gpu(context, where, argument_of(call, "dtype", 1))
                dtype = dtype_of(value)
            words = f"autocast in {dtype or 'a dtype known at run time only'}{words}{default}"
            precision = _PRECISIONS.get(dtype or "")
            found.append(stated_at(context, "precision", precision, region.node_id, words))
    same = consensus(found)
    return same if same is not None and same.value is not None else None if found else consensus(off)


def _true_on_gpu(condition: Condition) -> bool:
    """`device_type == "cuda"`, and that it is not "cpu"."""
    return ("'cuda'" if condition.holds else "'cpu'") in condition.text and "==" in condition.text


_MATMUL_PRECISIONS = {"highest": False, "high": True, "medium": True}
_TF32_SWITCHES = ("torch.backends.cuda.matmul.allow_tf32", "torch.backends.cudnn.allow_tf32")
_FP32_PRECISIONS: dict[tuple[bool, bool], Precision] = {
    (False, False): "fp32",
    (False, True): "tf32-cudnn",
    (True, False): "tf32-matmul",
    (True, True): "tf32",
}
"""By the two TF32 switches, of matrix products and of cuDNN; torch's defaults are off and on."""
_OTHER_PRECISIONS = (
    "half",
    "bfloat16",
    "float16",
    "autocast",
    "fp16",
    "bf16",
    "deepspeed",
    "mixed_precision",
)


def precision_without_autocast(context: SourceContext, off: Evidence | None = None) -> Evidence | None:
    """fp32 and the TF32 switches; only where the file trains by itself, in no other precision.

    Args:
        context: the script.
        off: what says that autocast is off by default, if anything does.
    """
    tables = context.tables
    imports = (item.qualified for function in tables.functions for item in function.imports)
    if any(names().framework_of(qualified) for qualified in imports):
        return None
    others = [
        word for word in _OTHER_PRECISIONS if off is None or word not in ("autocast", "float16", "bfloat16")
    ]
    if any(word in identifier.lower() for identifier in tables.identifiers for word in others):
        return None
    backward = next((e for _, e in context.tables.calls if method_of(e.call)[1] == "backward"), None)
    if backward is None:
        return None
    switches = tf32_switches(context)
    if switches is None:
        return None
    precision, words, node_id = switches
    if off is not None:
        return replace(off, value=precision)
    if node_id is None:
        words, node_id = (
            "a backward pass, and no autocast or TF32 switch in this script",
            backward.call.node_id,
        )
    return stated_at(
        context, "precision", precision, node_id, f"no autocast, and {words}" if switches[2] else words
    )


def tf32_switches(context: SourceContext) -> tuple[Precision, str, int | None] | None:
    """What float32 is under the script's TF32 switches, and the last of them; None where it is not known."""
    switches: dict[str, bool] = {}
    words, node_id = "", None
    for function, event in context.tables.calls:
        if "torch.set_float32_matmul_precision" in context.resolver.called(function, event.call):
            level = certain(context, function, argument_of(event.call, "precision", 0))
            if level not in _MATMUL_PRECISIONS or not runs_always(function, event.block, context):
                return None
            switches[_TF32_SWITCHES[0]] = _MATMUL_PRECISIONS[str(level)]
            words, node_id = f"float32 matrix products in {level!r} precision", event.call.node_id
    for function, assignment in context.tables.assignments:
        symbols = {name for t in assignment.targets for name in context.resolver.qualified(function, t)}
        for switch in symbols & set(_TF32_SWITCHES):
            on = certain(context, function, assignment.value)
            if not isinstance(on, bool) or not runs_always(function, assignment.block, context):
                return None
            switches[switch] = on
            words, node_id = f"{switch.removeprefix('torch.backends.')} = {on}", assignment.node_id
    matmul, cudnn = (switches.get(name, name == _TF32_SWITCHES[1]) for name in _TF32_SWITCHES)
    return _FP32_PRECISIONS[matmul, cudnn], words, node_id

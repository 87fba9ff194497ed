"""Questions of graph rules about ops: their dims, lines and costs, and phrases for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tclint.analysis.graph_context import GraphContext
from tclint.core.finding import Effect, Location, Related
from tclint.graph.dims.coupled import CoupledDims, DimGroup
from tclint.graph.ops import Op, Site


@dataclass(frozen=True, slots=True)
class OpDim:
    """One dim of one op, in the layer's own words, with the dims that must change together with it."""

    op: Op
    role: str
    """'in_features', 'out_channels', 'hidden_size', 'head_dim', 'rows', 'inner', 'columns' ..."""
    size: int
    group: DimGroup | None
    """The coupled dims; None if it is unknown what depends on this one."""


def width_dims(op: Op, dims: CoupledDims) -> tuple[OpDim, ...]:
    """The dims of the op's layer, leaving out batch and tokens; empty for ops without known operands."""
    if op.kind in ("linear", "matmul"):
        return _product_dims(op, dims)
    if op.kind == "conv":
        return _channel_dims(op, dims)
    if op.kind == "rnn":
        return _recurrent_dims(op, dims)
    return ()


def _product_dims(op: Op, dims: CoupledDims) -> tuple[OpDim, ...]:
    positions = op.operand_positions
    if positions is None or not op.outputs:
        return ()
    first, _ = positions
    a, output = op.inputs[first], op.outputs[0]
    if len(a.shape) < 2 or not output.shape:
        return ()
    inner, columns = ("in_features", "out_features") if op.kind == "linear" else ("inner", "columns")
    return (
        OpDim(op, inner, a.shape[-1], dims.group_of_input(op.index, first, len(a.shape) - 1)),
        OpDim(op, columns, output.shape[-1], dims.group_of_output(op.index, 0, len(output.shape) - 1)),
    )


def _channel_dims(op: Op, dims: CoupledDims) -> tuple[OpDim, ...]:
    source, output = op.input("input"), op.outputs[0]
    # An unbatched input has no batch dim in front, so its channels would be a guess.
    weight = op.input("weight")
    if source is None or weight is None or len(source.shape) != len(weight.shape):
        return ()
    position = op.input_names.index("input")
    return (
        OpDim(op, "in_channels", source.shape[1], dims.group_of_input(op.index, position, 1)),
        OpDim(op, "out_channels", output.shape[1], dims.group_of_output(op.index, 0, 1)),
    )


def _recurrent_dims(op: Op, dims: CoupledDims) -> tuple[OpDim, ...]:
    source = op.inputs[0]
    found = [
        OpDim(op, "input_size", source.shape[-1], dims.group_of_input(op.index, 0, len(source.shape) - 1))
    ]
    for name, position in zip(op.input_names, range(len(op.inputs)), strict=False):
        # weight_hh is the second parameter of every layer and direction: [gates * hidden, hidden]; a cell
        # names it.
        if name in ("params[1]", "w_hh") and len(op.inputs[position].shape) == 2:
            size = op.inputs[position].shape[1]
            found.append(OpDim(op, "hidden_size", size, dims.group_of_input(op.index, position, 1)))
    return tuple(found)


def cuts_patches(op: Op) -> bool:
    """Whether the windows of an ungrouped convolution are wider than one element and do not overlap."""
    weight, stride = op.input("weight"), op.attributes.get("stride")
    if weight is None or op.kind != "conv" or "transpose" in op.name or op.groups != 1:
        return False
    kernel = weight.shape[2:]
    steps = tuple(stride) if isinstance(stride, list | tuple) else (stride,) * len(kernel)
    return steps == kernel and len(kernel) == 2 and max(kernel) > 1


def by_line(ops: Iterable[Op]) -> dict[tuple[str, int], list[Op]]:
    """Line that constructs a layer -> its ops; a loop that builds 12 layers at one line gives one entry."""
    lines: dict[tuple[str, int], list[Op]] = {}
    for op in ops:
        lines.setdefault(op.line, []).append(op)
    return lines


_LISTED = 3
"""The most module names to write out if no single pattern covers them."""


def module_pattern(ops: Iterable[Op]) -> str:
    """Names of the ops' modules: 'blocks.*.mlp.fc1' for many, else a few names, the rest as '...'."""
    paths = list(dict.fromkeys(op.module_path for op in ops if op.module_path))
    if not paths:
        return ""
    listed = ", ".join(paths[:_LISTED]) + (", ..." if len(paths) > _LISTED else "")
    split = [path.split(".") for path in paths]
    if len(paths) == 1 or len({len(parts) for parts in split}) > 1:
        return listed
    merged = [parts[0] if len(set(parts)) == 1 else "*" for parts in zip(*split, strict=True)]
    # A pattern with several stars is vague, and one of only stars would match every module.
    return ".".join(merged) if merged.count("*") == 1 and len(merged) > 1 else listed


def layers_phrase(ops: Sequence[Op], noun: str) -> str:
    """'12 linear layers (blocks.*.mlp.fc1)'; a layer that runs several times counts once."""
    pattern = module_pattern(ops)
    count = max(len({op.module_path for op in ops}), 1)
    if not pattern:
        count = len(ops)
    counted = f"{count} {noun}s" if count > 1 else f"the {noun}"
    return f"{counted} ({pattern})" if pattern else counted


def layers_take(ops: Sequence[Op], noun: str, shares: dict[str, float]) -> str:
    """'12 linear layers (blocks.*.mlp.fc1) take 12.3 % of the step on a100-sxm4-80gb'."""
    phrase = layers_phrase(ops, noun)
    return f"{phrase} {'takes' if phrase.startswith('the ') else 'take'} {share_phrase(shares)}"


def sentence(text: str) -> str:
    """The text with a capital first letter; names inside it stay as they are."""
    return text[:1].upper() + text[1:]


def indices_of(ops: Iterable[Op]) -> tuple[int, ...]:
    """The indices of ops in their graph, by which prices are asked for."""
    return tuple(op.index for op in ops)


def share_phrase(shares: dict[str, float]) -> str:
    """'12.3 % of the step', on several GPUs 'up to 20.1 % of the step (v100-sxm2-16gb)'."""
    return _largest(shares) if shares else "an unknown share of the step"


_NOTHING_PERCENT = 0.05


def gain_phrase(effect: Effect, cut_back: Mapping[str, float] | None = None) -> str:
    """The gain of a priced effect: 'is predicted to gain up to 30.0 % of the step (v100-sxm2-16gb)'.

    Args:
        effect: known.
        cut_back: GPU id -> the gain, in percent, with the padded outputs cut back to their size.
    """
    gains = {gpu: gain.gain_percent for gpu, gain in effect.per_gpu.items()}
    if max(gains.values()) < _NOTHING_PERCENT:
        return "is not predicted to gain anything"
    worst = min(gains, key=lambda gpu: gains[gpu])
    loses = f" and to lose {-gains[worst]:.1f} % on {worst}" if gains[worst] < -_NOTHING_PERCENT else ""
    cut = ""
    if cut_back and any(gains[gpu] - less >= _NOTHING_PERCENT for gpu, less in cut_back.items()):
        less = _largest(cut_back).replace(" of the step", "")
        cut = f", or {less} where tclint fix cuts the padded outputs back"
    return f"is predicted to gain {_largest(gains)}{loses}{cut}"


def _largest(percentages: Mapping[str, float]) -> str:
    gpu = max(percentages, key=lambda name: percentages[name])
    phrase = f"{percentages[gpu]:.1f} % of the step"
    return phrase if len(percentages) == 1 else f"up to {phrase} ({gpu})"


def rounded(shares: dict[str, float]) -> dict[str, float]:
    """Shares rounded for evidence; more digits than the model can predict would only make reports differ."""
    return {gpu: round(share, 2) for gpu, share in shares.items()}


def costliest(context: GraphContext, ops: Sequence[Op]) -> Op:
    """The first op of the line whose layers together take the largest share of the step on any GPU."""
    return max(by_line(ops).values(), key=lambda at: context.largest_share_percent(indices_of(at)))[0]


def related_sites(
    sites: Iterable[Site | None], primary: Location, message: str, limit: int = 8
) -> tuple[Related, ...]:
    """The other lines that a change must touch, each once and without the finding's own."""
    seen = {(primary.path, primary.line)}
    related = []
    for site in sites:
        if site is None or (site.path, site.line) in seen:
            continue
        seen.add((site.path, site.line))
        related.append(Related(Location(site.path, site.line), message))
    return tuple(related[:limit])

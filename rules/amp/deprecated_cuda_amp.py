"""A rule on torch.cuda.amp, which torch.amp has replaced."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import (
    Constant,
    Event,
    Finding,
    Fix,
    SourceContext,
    SourceRule,
    Symbol,
    Thing,
    distinct,
    options_of,
    render,
)
from tclint.plugin.source import exclude

_VERSIONS = ("torch.__version__", "torch.version.", "importlib.metadata.version", "packaging.version.")
_CHOSEN_BY_FAILURE = Constant("exception")


class DeprecatedCudaAmp(SourceRule):
    """torch.cuda.amp, which torch.amp has replaced.

    What it does
    Finds, once per file, uses of `torch.cuda.amp.autocast`, `GradScaler`, `custom_fwd` and `custom_bwd`,
    and of their counterparts in torch.cpu.amp.

    Why it costs
    Since torch 2.4 every use emits a FutureWarning, in a training loop once per step and process; the
    names are kept only for compatibility. torch.amp has the same classes for every device.

    `tclint fix` rewrites all uses in a file and their imports in one go. That is safe unless a
    requirements file allows a torch that lacks the new names: torch.amp has had autocast since 1.10,
    GradScaler since 2.3, custom_fwd and custom_bwd since 2.4.

    Example
        with torch.cuda.amp.autocast(enabled=amp):
            loss = model(batch)

    Use instead
        with torch.amp.autocast("cuda", enabled=amp):
            loss = model(batch)

    When it does not apply
    Projects whose requirement files pin torch below 2.4, exception handlers, branches on the version of
    torch or on what it has, branches whose other side does the same by the new name, classes of other
    modules (torch_npu, torch_xla).
    """

    code = "AMP014"
    name = "deprecated-cuda-amp"
    level = "info"
    confidence = "high"
    sources = (
        "PyTorch Automatic Mixed Precision package: deprecation notes of the torch.cuda.amp names",
        "PyTorch 2.13 torch/cuda/amp/autocast_mode.py: every use raises a FutureWarning",
    )
    triggers = ("cuda.amp", "cpu.amp", "cuda import amp", "cpu import amp", "import cuda")
    requires = ()

    def check(self, context: SourceContext) -> Iterator[Finding]:
        if not context.torch_may_be((2, 4)):
            return
        for event in distinct(context.record.events):
            old = _deprecated_in(context, event) if context.lints(event) else ""
            if old and _is_for_old_torch(context, event, old):
                context.skip(event, "it runs only where torch lacks the new name")
            elif old:
                yield self._finding(context, event, old)

    def _finding(self, context: SourceContext, event: Event, old: str) -> Finding:
        new = context.facts.library.deprecated[old]
        written = render(event.call.function) if event.call is not None and event.name == old else old
        meaning = "" if written == old else f" ({old})"
        return self.finding(
            context.at(event),
            f"`{written}`{meaning} is deprecated since torch 2.4 (FutureWarning); write `{new}`.",
            evidence={"name": old, "replacement": new},
            fix=Fix("Write the names of torch.amp, and import them from there."),
            identity="torch.cuda.amp",
            group=f"torch.cuda.amp in {context.at(event).path}",
        )


def _deprecated_in(context: SourceContext, event: Event) -> str:
    """The deprecated name that an event calls, passes or uses as decorator; '' if there is none."""
    values = (option for value in event.arguments.values() for option, _ in options_of(value))
    names = (event.name, *(option.name for option in values if isinstance(option, Symbol)))
    return next((name for name in names if name in context.facts.library.deprecated), "")


def _is_for_old_torch(context: SourceContext, event: Event, old: str) -> bool:
    """Whether an event is under a test of torch's version or of its attributes, or under one whose other
    branch uses the new name."""
    last = old.rpartition(".")[2]
    new = {f"torch.amp.{last}", f"torch.{last}"}
    for atom in event.path:
        chosen = {option.name for option, _ in options_of(atom.subject) if isinstance(option, Symbol)}
        names = context.facts.names_in(atom.subject)
        if not new.isdisjoint(chosen) or any(name.startswith(_VERSIONS) for name in names):
            return True
        things = (thing for thing in context.facts.within(atom.subject) if isinstance(thing, Thing))
        for thing in things:
            asked = thing.operation[1][0] if thing.operation is not None else None
            if thing.fields.get("@chosen by") == _CHOSEN_BY_FAILURE or (
                thing.operation is not None
                and thing.operation[0] == "hasattr"
                and isinstance(asked, Symbol)
                and asked.name.startswith("torch")
            ):
                return True
    return any(
        other.name in new and exclude(other.path, event.path) and _does_the_same(other, event)
        for other in context.record.of("make", "decorate")
    )


def _does_the_same(new: Event, old: Event) -> bool:
    """Whether two contexts or scalers differ only in their names."""
    given = {key: value for key, value in new.arguments.items() if key not in ("device", "device_type")}
    device = new.arguments.get("device_type", new.arguments.get("device"))
    return given == old.arguments and device != Constant("cpu" if ".cuda." in old.name else "cuda")

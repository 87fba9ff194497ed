"""4-bit layers: the dtype in which they compute, beside that of the training around them."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import NamedTuple

from tclint.source.project.requirements import may_run
from tclint.source.questions.precision.autocasts import Autocasts
from tclint.source.questions.precision.weights import dtype_named
from tclint.source.questions.steps import Steps
from tclint.source.run.values import NONE, TRUE, Event, Region, Thing, Value

_KEEPS_COMPUTE_DTYPE = (0, 47)
"""From this release of bitsandbytes on, layers compute in the dtype that they get when they are made; before,
in that of their first input where this is float32 or bfloat16 (bitsandbytes/nn/modules.py,
compute_type_is_set)."""


class Mismatch(NamedTuple):
    """4-bit layers that compute in another dtype than the training around them."""

    event: Event
    """It chose, or left out, the layers' dtype."""
    thing: Thing
    """What the event made."""
    compute: str
    """The layers' dtype, such as 'torch.float32'."""
    is_default: bool
    """Whether nobody chose it."""
    trained: str
    """The autocast's dtype."""
    region: Region


class Quantized:
    """Answers about one program."""

    def __init__(self, autocasts: Autocasts, steps: Steps) -> None:
        self.autocasts = autocasts
        self.steps = steps
        self.facts = autocasts.facts

    def mismatched(self) -> Iterator[Mismatch]:
        """The choices of 4-bit layers that are run in training under an autocast of another dtype."""
        for use, module in self._trained():
            found = self.autocasts.around(use)
            if found is None:
                continue
            trained = self.autocasts.dtype_on_gpu(found[1])
            for event, thing, given in self._choices(module):
                compute = "torch.float32" if given is None else dtype_named(given)
                is_on = self.facts.is_on(found[1], (*use.path, *event.path))
                is_known = bool(trained and compute) and is_on is True
                if is_known and compute != trained and self._computes_so(event, trained):
                    yield Mismatch(event, thing, compute, given is None, trained, found[0])

    def _trained(self) -> Iterator[tuple[Event, Thing]]:
        """The forwards of training steps, with the quantized modules that they run."""
        for backward in self.steps.all_backwards:
            for use in self.autocasts.differentiated(self.facts.loss_of(backward)):
                for module in self.facts.kinds(use.subject, "module"):
                    if "@quantized" in module.fields and module.made is not None:
                        yield use, module

    def _choices(self, module: Thing) -> Iterator[tuple[Event, Thing, Value | None]]:
        """(event, what it made, the dtype that it gives or None) for what chooses 4-bit layers of a loaded
        module."""
        made = module.made
        assert made is not None
        patterns = self.facts.library.quantized_checkpoints
        if any(fnmatchcase(name, item) for name in self.facts.texts(made.first) for item in patterns):
            return
        configurations = self.facts.kinds(module.fields["@quantized"], "quantization")
        for thing in (*configurations, *(() if configurations else (module,))):
            event = thing.made
            if event is None or "**" in event.arguments or event.arguments.get("load_in_4bit") != TRUE:
                continue
            given = event.arguments.get("bnb_4bit_compute_dtype", NONE)
            yield event, thing, None if given == NONE else given

    def _computes_so(self, event: Event, trained: str) -> bool:
        path = event.place.file.path
        return trained == "torch.float16" or may_run(path, _KEEPS_COMPUTE_DTYPE, "bitsandbytes")

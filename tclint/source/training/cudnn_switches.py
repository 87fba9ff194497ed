"""What rules on cuDNN's switches share: where a switch stands, and words that explain its value."""

from __future__ import annotations

import re

from tclint.source.context import SourceContext
from tclint.source.facts.program import Program
from tclint.source.facts.switches import Switch
from tclint.source.names.queries import words
from tclint.source.training.comments import comment_says

VARIABLE_SIZE = words(
    "detection bbox bboxes boxes coco speech audio mel wav waveform asr tts vocoder pad_sequence collate "
    "captions ocr multiscale lengths anchor anchors rcnn yolo ragged"
)
SEEDING = ("seed", "determin", "reprod")
CUDNN_ENABLED = "torch.backends.cudnn.enabled"
_REASON = re.compile(
    r"#.*(?:work.?around|segfault|crash|\bbugs?\b|\berror|\bfail|not supported|unsupported|backward|gradient|"
    r"determin|reprod|hang)",
    re.IGNORECASE,
)
_BEFORE = re.compile(r"\s*(?:#|try:|import |from \w+ import )")
_LINES_ABOVE = 3


def reason_given(context: SourceContext, switch: Switch) -> bool:
    """A comment beside the switch, or shortly above it, says what is wrong otherwise."""
    return comment_says(context, switch, _REASON, over=_BEFORE, lines_above=_LINES_ABOVE)


def in_any_with(switch: Switch) -> bool:
    return any(
        switch.function.blocks[index].kind == "with" for index in switch.function.enclosing(switch.block)
    )


def inside_named(program: Program, switch: Switch, parts: tuple[str, ...]) -> bool:
    """A function or class around the switch has one of these in its name."""
    return any(
        part in function.name.lower()
        for function in program.outer_functions(switch.function)
        for part in parts
    )

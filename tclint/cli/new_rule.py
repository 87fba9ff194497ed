"""`tclint rules --new`: a rule on training code to begin with, its examples and its test."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tclint.core.errors import UsageError
from tclint.core.files import write_atomically
from tclint.core.rule import CODE_PATTERN
from tclint.engine.retired import retired_as

_FILES = {
    "lint_rules/our001.py": '''\
from collections.abc import Iterator

from tclint.plugin import Edit, Finding, Fix, SourceContext, SourceRule, distinct


class Our001(SourceRule):
    """The CUDA memory cache emptied in a loop.

    What it does
    Finds `torch.cuda.empty_cache()` called in a loop.

    Why it costs
    The call waits for the GPU, and the next allocations ask the driver for memory again.

    Example
        for batch in loader:
            train_step(batch)
            torch.cuda.empty_cache()

    Use instead
        for batch in loader:
            train_step(batch)

    When it does not apply
    Phases of very different sizes in one loop.
    """

    code = "OUR001"
    name = "our001"
    level = "warning"
    confidence = "medium"
    sources = ("Where you know it from",)
    triggers = ("empty_cache",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        for event in distinct(e for e in context.record.events if e.name == "torch.cuda.empty_cache"):
            if event.loop is None:
                context.skip(event, "no loop is around it")
                continue
            place = context.at(event)
            yield self.finding(
                place,
                f"`{context.code(event)}` waits for the GPU in every iteration of a loop.",
                evidence={"function": event.place.function.qualified_name},
                fix=Fix(
                    "Remove the call.",
                    safety="unsafe",
                    edits=(Edit(place.path, (place.line, 1), (place.line + 1, 1), ""),),
                ),
                identity=event.place.function.qualified_name,
            )


RULES = (Our001,)
''',
    "examples/OUR001/invalid_every_batch.py": """\
# emptied after every batch

import torch

for batch in loader:
    train_step(batch)
    torch.cuda.empty_cache()
""",
    "examples/OUR001/invalid_every_batch.fixed.py": """\
# emptied after every batch

import torch

for batch in loader:
    train_step(batch)
""",
    "examples/OUR001/valid_between_phases.py": """\
# once, between training and evaluation

import torch

train(model)
torch.cuda.empty_cache()
evaluate(model)
""",
    "tests/test_our001.py": """\
from pathlib import Path

from lint_rules.our001 import Our001
from tclint.testing import check_rule


def test_rule_does_what_its_examples_say():
    check_rule(Our001, Path(__file__).parent.parent / "examples" / "OUR001")
""",
}


def write_new_rule(code: str, taken: Sequence[str]) -> list[str]:
    """Write the files of a rule below the working directory; their paths.

    Args:
        code: of the new rule.
        taken: the codes of the rules that there are.

    Raises:
        UsageError: the code is none, or taken; a file is there already.
    """
    if CODE_PATTERN.fullmatch(code) is None:
        raise UsageError(f"{code!r} is no code; give two to six capital letters and three digits: OUR001.")
    if code in taken or retired_as(code) is not None:
        raise UsageError(f"{code} is a rule, or was one; choose another code.")
    texts = {_named(path, code): _named(text, code) for path, text in _FILES.items()}
    for path in texts:
        if Path(path).exists():
            raise UsageError(f"{path} exists already; choose another code, or move it away.")
    for path, text in texts.items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)
    return list(texts)


def _named(text: str, code: str) -> str:
    for old, new in (("OUR001", code), ("our001", code.lower()), ("Our001", code.capitalize())):
        text = text.replace(old, new)
    return text

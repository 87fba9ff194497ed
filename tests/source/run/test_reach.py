"""How far a program is followed: into modules that only act, inherited methods, and until its budget ends."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent

import pytest

from tclint.config.settings import Settings
from tclint.engine.sources.program import SourceProgram
from tclint.source.project import memory
from tclint.source.project.effects import acting, reached
from tclint.source.syntax.parse import parse, parse_tree
from tclint.source.syntax.walk import walk
from tests.support.programs import events, probed, program_of


@pytest.fixture
def write(tmp_path: Path) -> object:
    memory.forget()

    def files(**texts: str) -> Path:
        for name, text in texts.items():
            (tmp_path / f"{name}.py").write_text(dedent(text))
        return tmp_path

    return files


@pytest.mark.parametrize(
    ("text", "acts"),
    [
        ("torch.backends.cudnn.benchmark = True\n", True),
        ("if fast:\n    torch.set_float32_matmul_precision('high')\n", True),
        ("try:\n    import apex\nexcept ImportError:\n    apex = None\n", False),
        ("def f():\n    torch.backends.cudnn.benchmark = True\n", False),
        ("class A:\n    limit = 1\n    register(limit)\n", False),
        ("@register(\n    name)\ndef f(): ...\n", False),
        ("log = logging.getLogger(__name__)\n", False),
        ("if __name__ == '__main__':\n    main()\n", False),
        ("with torch.no_grad():\n    warm_up()\n", True),
    ],
)
def test_a_module_acts_where_importing_it_does_something(text: str, acts: bool, write: object) -> None:
    folder = write(settings=f"import torch\n{text}")  # type: ignore[operator]
    assert bool(acting(str(folder / "main.py"), "settings")) is acts


def test_imports_are_followed_through_files_and_by_name_through_packages(tmp_path: Path) -> None:
    memory.forget()
    package = tmp_path / "parts"
    package.mkdir()
    (package / "__init__.py").write_text("from .a import (\n    A,\n)\nfrom .b import B\n")
    (package / "a.py").write_text("from . import \\\n    c\nclass A: ...\n")
    (package / "b.py").write_text("class B: ...\n")
    (package / "c.py").write_text("def later():\n    from .b import B\n")
    found = reached(str(tmp_path / "main.py"), "parts.A")
    assert [Path(path).name for path in found] == ["__init__.py", "a.py", "c.py"]


def test_a_module_that_nothing_is_read_of_is_run_for_what_it_sets(write: object) -> None:
    folder = write(  # type: ignore[operator]
        between="import fast\ndef unused(): ...\n",
        fast="import torch\ntorch.set_float32_matmul_precision('high')\n",
        idle="import torch\nLIMIT = 3\n",
    )
    program = program_of("import between\nimport idle\n", folder)
    assert [event.name for event in program.record.of("switch")] == ["torch.set_float32_matmul_precision"]
    assert {Path(file.path).name for file in program.files if not file.is_library} == {
        "program.py",
        "fast.py",
    }


BASE = """\
    import torch

    class Base:
        def fit(self, loader):
            for batch in loader:
                self.step(batch).backward()

        def report(self):
            torch.cuda.synchronize()
"""


def test_an_inherited_method_is_run_where_it_calls_what_the_file_defines(write: object) -> None:
    folder = write(base=BASE)  # type: ignore[operator]
    own = """\
        from base import Base

        class Own(Base):
            def step(self, batch):
                return self.model(batch).mean()
    """
    assert len(events(own, "backward", folder=folder)) > 0
    names = {event.name for event in program_of(own, folder).record.events}
    assert "torch.cuda.synchronize" not in names


CALLED_OFTEN = """\
    import functools
    import os

    {decorator}
    def is_there(name):
        os.path.exists(name)
        return name == "cuda"

    for name in ("cuda", "hpu"):
        for again in (1, 2, 3, 4, 5):
            probe(is_there(name))
"""


@pytest.mark.parametrize(
    ("decorator", "times"),
    [
        ("@functools.cache", 2),
        ("@functools.lru_cache(maxsize=None)", 2),
        ("@functools.wraps(print)", 4),
    ],
)
def test_what_has_nothing_to_do_with_tensors_is_not_run_again_and_again(decorator: str, times: int) -> None:
    text = CALLED_OFTEN.format(decorator=decorator)
    program = program_of(text)
    assert sum(event.name == "os.path.exists" for event in program.record.events) == times
    assert probed(text) == ["True", "False"]


def test_what_gives_a_new_object_is_run_for_each_call() -> None:
    text = """\
        def fresh():
            return []
        one, other, third = fresh(), fresh(), fresh()
        third.append(3)
        probe(one)
        probe(third)
    """
    assert probed(text) == ["list()", "list(3)"]


def test_a_cached_method_runs_once_for_each_object() -> None:
    text = """\
        import functools
        import os
        class Reader:
            def __init__(self, name):
                self.name = name
            @functools.cache
            def read(self):
                return os.path.exists(self.name)
        for name in ("a", "b"):
            reader = Reader(name)
            reader.read()
            reader.read()
    """
    assert sum(event.name == "os.path.exists" for event in program_of(text).record.events) == 2


CHAIN = """\
    import torch

    def first(x):
        return second(x)

    def second(x):
        return third(x)

    def third(x):
        return fourth(x)

    def fourth(x):
        return x.relu()
"""


@pytest.mark.parametrize(
    ("own", "is_package", "is_followed"),
    [
        ("", False, True),
        ("", True, False),
        ("if __name__ == '__main__':\n    step(torch.ones(8))\n", True, True),
    ],
)
def test_calls_out_of_a_module_are_followed_three_files_deep(
    own: str, is_package: bool, is_followed: bool, write: object, tmp_path: Path
) -> None:
    folder = write(  # type: ignore[operator]
        chain=CHAIN,
        start=f"import torch\nfrom chain import first\n\ndef step(x):\n    return first(x)\n{own}",
    )
    if is_package:
        (folder / "__init__.py").write_text("")
    start = str(folder / "start.py")
    program = SourceProgram.of(start, [start], Settings(), parse, {}, ("first",))
    assert program.context is not None
    assert (".relu" in {event.name for event in program.context.record.events}) is is_followed


def test_calls_that_come_back_to_the_module_are_followed(write: object) -> None:
    folder = write(  # type: ignore[operator]
        __init__="",
        chain=CHAIN.replace("return fourth(x)", "return x()"),
        start="import torch\nfrom chain import first\n\ndef run(x):\n    first(lambda: x.relu())\n",
    )
    start = str(folder / "start.py")
    program = SourceProgram.of(start, [start], Settings(), parse, {}, ("first",))
    assert program.context is not None
    assert ".relu" in {event.name for event in program.context.record.events}


def test_the_tree_of_a_file_does_not_outlive_its_place_among_the_last() -> None:
    text = "with a as b, c as d:\n    e = [f(g) for g in h if g for i in g]\n    j = {k: k for k in e}\n"
    tree = parse_tree(text)
    tables, _ = walk(tree)
    del _
    # The collector would find it in the end, but would have to walk all trees for that.
    assert sys.getrefcount(tree) == 2
    assert tables.functions


DEEP = 8


def test_a_long_function_at_the_end_of_a_chain_of_calls_is_followed() -> None:
    calls = "".join(f"def call{n}(x):\n    call{n + 1}(x)\n    after(x)\n" for n in range(DEEP))
    text = (
        "import torch\n"
        "def after(x):\n    torch.cuda.synchronize()\n"
        "def last(x):\n    torch.cuda.empty_cache()\n"
        f"def call{DEEP}(x):\n"
        + "    torch.relu(x)\n" * 8_000
        + "    last(x)\n"
        + calls
        + "call0(torch.ones(1))\n"
    )
    program = program_of(text)
    assert not program.record.cut
    names = [event.name for event in program.record.events if event.run == 0]
    assert names.count("torch.cuda.empty_cache") == 1
    assert names.count("torch.cuda.synchronize") >= 1

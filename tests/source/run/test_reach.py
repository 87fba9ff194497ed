"""How far a program is followed: into modules that only act, inherited methods, and until its budget ends."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from tclint.source.project import memory
from tclint.source.project.effects import acting, reached
from tests.support.programs import events, program_of


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
    (package / "a.py").write_text("from . import c\nclass A: ...\n")
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

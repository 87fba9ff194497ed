"""What names stand for and which values expressions can have."""

from __future__ import annotations

import pickle
import textwrap

import pytest

from tclint.source.facts.autocasts import Autocasts
from tclint.source.names.resolve import Possible, Resolver, Symbol
from tclint.source.syntax.parse import parse
from tclint.source.syntax.tables import Assignment, CallEvent, Function, Tables, dotted


def tables_of(source: str) -> Tables:
    return parse(textwrap.dedent(source)).tables


def value_of_result(source: str) -> Possible:
    """Possible values of what is last assigned to `result`, in whichever scope."""
    tables = tables_of(source)
    resolver = Resolver(tables)
    for function in reversed(tables.functions):
        for event in reversed(function.events):
            if isinstance(event, Assignment) and event.targets == ("result",):
                return resolver.evaluate(function, event.value)
    raise AssertionError("no result")


FLOAT16 = Symbol("torch.float16")
BFLOAT16 = Symbol("torch.bfloat16")


@pytest.mark.parametrize(
    ("source", "values"),
    [
        ("result = 2**10 * 3 - 1", (3071,)),
        ("A = 4\nB = A * 8\ndef f():\n    result = B // 3", (10,)),
        ("result = -(3.5 + 1)", (-4.5,)),
        ("result = not (3 > 2)", (False,)),
        ("import torch as t\nresult = t.float16", (FLOAT16,)),
        ("from torch import float16 as half\ndef f():\n    result = half", (FLOAT16,)),
        ("from torch import *\nresult = float16", (FLOAT16,)),
        ("import torch\nresult = getattr(torch, 'float16')", (FLOAT16,)),
        (
            "import torch\nD = {'fp16': torch.float16, 'bf16': torch.bfloat16}\nN = 'fp16'\nresult = D[N]",
            (FLOAT16,),
        ),
        (
            "import torch\nd = torch.float16 if torch.cuda.is_available() else torch.bfloat16\nresult = d",
            (FLOAT16, BFLOAT16),
        ),
        ("import torch\nresult = torch.float16 if True else torch.bfloat16", (FLOAT16,)),
        ("import torch\ndev = torch.device('cuda:1')\nresult = dev.type", ("cuda",)),
        ("x = 1\nif y:\n    x = 2\nresult = x", (1, 2)),
        ("a, b = 1, 2\nresult = b", (2,)),
        (
            "class C:\n    def a(self):\n        self.n = 7\n    def f(self):\n        result = self.n",
            (7,),
        ),
        ("result = 'cuda' and 0", (0,)),
        ("result = 'a' 'b'", ("ab",)),
    ],
)
def test_values_that_the_file_fixes(source: str, values: tuple[object, ...]) -> None:
    assert value_of_result(source) == Possible(values, True)


@pytest.mark.parametrize(
    ("source", "values"),
    [
        ("def f(x=3):\n    result = x", (3,)),
        (
            """
            import argparse
            p = argparse.ArgumentParser()
            p.add_argument("--batch-size", "-b", type=int, default=96)
            args = p.parse_args()
            result = args.batch_size
            """,
            (96,),
        ),
        (
            """
            import argparse
            p = argparse.ArgumentParser()
            p.add_argument("--amp", action="store_true")
            args = p.parse_args()
            def f():
                result = args.amp
            """,
            (False,),
        ),
        (
            """
            from dataclasses import dataclass
            @dataclass
            class Config:
                width: int = 3 * 64
            config = Config()
            result = config.width
            """,
            (192,),
        ),
        ("n = 5\nexec(open('configurator.py').read())\nresult = n", (5,)),
        ("n = 5\ndef set_n(v):\n    global n\n    n = v\nresult = n", (5,)),
    ],
)
def test_defaults_are_known_but_not_certain(source: str, values: tuple[object, ...]) -> None:
    possible = value_of_result(source)
    assert possible.values == values
    assert not possible.complete


@pytest.mark.parametrize(
    "source",
    [
        "result = unknown",
        "import os\nresult = os.environ['X']",
        "result = result",
        "a = b\nb = a\nresult = a",
        "x = 1\nx += 1\nresult = x",
        "for x in range(3):\n    result = x",
        "result = 10 ** 10 ** 10",
        "result = 1 / 0",
        "result = 'x' * 10**9",
        "with f() as x:\n    result = x",
        "result = [1, 2]",
        "x, *y = 1, 2\nresult = x",
    ],
)
def test_everything_else_is_unknown(source: str) -> None:
    assert not value_of_result(source).complete


def called_names(source: str) -> dict[str, tuple[str, ...]]:
    tables = tables_of(source)
    resolver = Resolver(tables)
    return {
        f"{function.qualified_name}:{dotted(event.call.function)}": resolver.called(function, event.call)
        for function in tables.functions
        for event in function.events
        if isinstance(event, CallEvent)
    }


def test_imports_are_resolved_in_their_scope() -> None:
    names = called_names(
        """
        import torch.cuda.amp
        from . import helpers
        from ..lib import scale as s
        try:
            from torch.amp import autocast
        except ImportError:
            from torch.cuda.amp import autocast

        def f(torch):
            torch.autocast()

        def g():
            from other import autocast
            autocast()
            def h():
                autocast()

        class C:
            autocast = 3
            def m(self):
                autocast()
                helpers.run()
                s()
                torch.cuda.amp.autocast()

        def local():
            autocast = print
            autocast()
        """
    )
    assert names == {
        "f:torch.autocast": (),
        "g:autocast": ("other.autocast",),
        "g.h:autocast": ("other.autocast",),
        "C.m:autocast": ("torch.amp.autocast", "torch.cuda.amp.autocast"),
        "C.m:helpers.run": (".helpers.run",),
        "C.m:s": ("..lib.scale",),
        "C.m:torch.cuda.amp.autocast": ("torch.cuda.amp.autocast",),
        "local:autocast": (),
    }


def test_torch_comes_through_a_star_import_of_the_project() -> None:
    tables = tables_of("from common import *\ntorch.save(x, y)\nnn.Linear(1, 1)")
    resolver = Resolver(tables)
    assert resolver.qualified(tables.module, "torch.save") == ("torch.save",)
    assert resolver.qualified(tables.module, "nn.Linear") == ()


def test_tables_are_plain_data_and_survive_pickling() -> None:
    tables = tables_of(
        "import torch\nclass A(torch.nn.Module):\n    def f(self, x=1):\n        return lambda: x\n"
    )
    again = pickle.loads(pickle.dumps(tables))
    assert again == tables
    assert "libcst" not in repr(tables)
    assert [function.qualified_name for function in again.functions] == ["", "A", "A.f", "A.f.<lambda>"]


def test_events_keep_order_and_blocks() -> None:
    tables = tables_of(
        """
        def f(x):
            with a(), b() as c:
                for i in range(3):
                    if x:
                        g()
                    else:
                        h()
            return c
        """
    )
    function: Function = tables.functions[1]
    kinds = {
        dotted(event.call.function): [
            function.blocks[block].kind for block in function.enclosing(event.block)
        ]
        for event in function.events
        if isinstance(event, CallEvent)
    }
    assert kinds["a"] == ["body"]
    assert kinds["b"] == ["with", "body"]
    assert kinds["range"] == ["with", "with", "body"]
    assert kinds["g"] == ["if", "loop", "with", "with", "body"]
    assert kinds["h"] == ["else", "loop", "with", "with", "body"]


@pytest.mark.parametrize(
    ("context", "devices", "dtype", "enabled"),
    [
        ("torch.autocast('cuda')", ("cuda",), "float16", True),
        ("torch.autocast('cpu')", ("cpu",), "bfloat16", True),
        ("torch.autocast('mps')", ("mps",), None, True),
        ("torch.autocast('cuda' if flag else 'mps')", ("cuda", "mps"), "float16", True),
        ("torch.autocast('cpu' if flag else 'mps')", ("cpu", "mps"), None, True),
        ("torch.autocast(device)", None, None, True),
        ("torch.autocast(device, torch.half)", None, "float16", True),
        ("torch.autocast('cuda', None)", ("cuda",), "float16", True),
        ("torch.autocast('cuda', torch.bfloat16, False)", ("cuda",), "bfloat16", False),
        ("torch.cuda.amp.autocast(False)", ("cuda",), "float16", False),
        ("torch.cuda.amp.autocast(True, torch.bfloat16)", ("cuda",), "bfloat16", True),
        ("torch.cuda.amp.autocast(enabled=flag)", ("cuda",), "float16", None),
        ("torch.cuda.amp.autocast(enabled=not True)", ("cuda",), "float16", False),
        ("torch.cpu.amp.autocast()", ("cpu",), "bfloat16", True),
        ("torch.autocast('cuda', **options)", ("cuda",), None, None),
        ("torch.autocast('cuda', dtype=getattr(torch, name))", ("cuda",), None, True),
        ("torch.autocast('cuda:0') if flag else nullcontext()", ("cuda",), "float16", None),
        ("nullcontext() if not True else torch.autocast('cuda')", ("cuda",), "float16", True),
    ],
)
def test_autocast_arguments(
    context: str, devices: tuple[str, ...] | None, dtype: str | None, enabled: bool | None
) -> None:
    tables = tables_of(f"import torch\nfrom contextlib import nullcontext\nwith {context}:\n    pass\n")
    (region,) = Autocasts(Resolver(tables)).regions(tables.module)
    assert (region.autocast.devices, region.autocast.dtype, region.autocast.enabled) == (
        devices,
        dtype,
        enabled,
    )


def test_default_dtype_is_unknown_where_the_program_changes_it() -> None:
    tables = tables_of(
        """
        import torch
        torch.set_autocast_dtype("cuda", torch.bfloat16)
        with torch.autocast("cuda"):
            pass
        """
    )
    (region,) = Autocasts(Resolver(tables)).regions(tables.module)
    assert region.autocast.dtype is None


def test_context_manager_that_enters_itself_ends() -> None:
    tables = tables_of(
        """
        import torch
        from contextlib import contextmanager

        @contextmanager
        def amp():
            with amp():
                yield

        with amp():
            loss.backward()
        """
    )
    assert Autocasts(Resolver(tables)).regions(tables.module) == ()


def test_fields_of_an_object_that_nothing_changes_are_certain() -> None:
    source = (
        "class Config:\n    width = 3 * 64\ndef build():\n    config = Config()\n    result = config.width\n"
    )
    assert value_of_result(source).only == 192
    assert value_of_result(source + "def widen(other):\n    other.width = 256\n").only is None


@pytest.mark.parametrize(
    ("calls", "values", "complete"),
    [
        ("run('a')", ("a",), True),
        ("run('a')\nrun(name='b')", ("a", "b"), True),
        ("run()", ("c",), True),
        ("run(*names)", (), False),
        ("start(run, 'a')\nrun('b')", ("b",), False),
        ("", ("c",), False),
    ],
)
def test_parameters_have_the_values_that_calls_pass(
    calls: str, values: tuple[object, ...], complete: bool
) -> None:
    possible = value_of_result(f"def run(name='c'):\n    result = name\n{calls}")
    assert (possible.values, possible.complete) == (values, complete)


def test_functions_that_call_themselves_end() -> None:
    assert value_of_result("def f(n):\n    result = n\n    f(n - 1)\n    f(n)\n    f(f)\nf(3)").values

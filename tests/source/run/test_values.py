"""What values programs have, as far as their text says."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import events, probed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("probe(1 + 2)", ["3"]),
        ("a, (b, c) = 1, (2, 3)\nprobe(c)", ["3"]),
        ("probe('cuda' if FLAG else 'cpu')", ["'cpu' | 'cuda'"]),
        ("x = 1\nif FLAG:\n    x = 2\nprobe(x)", ["1 | 2"]),
        ("x = None\nif FLAG:\n    x = 2\nif x is not None:\n    probe(x)", ["2"]),
        ("if FLAG:\n    x = 1\nelse:\n    x = 2\nif FLAG:\n    probe(x)", ["1"]),
        ("if FLAG:\n    x = 1\nelse:\n    x = 2\nif not FLAG:\n    probe(x)", ["2"]),
        ("mode = read()\nif mode == 'a':\n    x = 1\nelse:\n    x = 2\nif mode == 'a':\n    probe(x)", ["1"]),
        ("DEBUG = False\nif DEBUG:\n    probe(1)\nprobe(2)", ["2"]),
        ("TABLE = {'a': 1, 'b': 2}\nprobe(TABLE['b'])", ["2"]),
        ("TABLE = {'a': 1, 'b': 2}\nprobe(TABLE.get('c', 3))", ["3"]),
        ("TABLE = {(0,): 1, 0: 2}\nprobe(TABLE[0,])", ["1 | 2"]),  # a tuple, and no key that is known
        ("options = dict(a=1)\noptions['b'] = 2\nprobe(options['b'])", ["2"]),
        ("items = []\nitems.append(1)\nprobe(items[0])", ["1"]),
        ("probe([x * 2 for x in (1, 2)][1])", ["4"]),
        ("probe({k: v for k, v in [('a', 5)]}['a'])", ["5"]),
        ("from munch import Munch\nm = Munch(a=1)\nm.b = 2\nprobe(m.a)\nprobe(m['b'])", ["1", "2"]),
        ("from munch import Munch\nm = Munch({'a': 1})\nfor k in m.keys():\n    probe(m[k])", ["1"]),
        ("from munch import Munch\nprobe(Munch(f=len).f((1, 2)))", ["2"]),
        (
            "class Easy(dict):\n    def __getattr__(self, name):\n        return self[name]\n"
            "    def __setattr__(self, name, value):\n        self[name] = value\n"
            "def f(**more):\n    probe(more['a'])\n    probe(more['b'])\n"
            "c = Easy(a=1)\nc.b = 2\nc.update(d=3)\nprobe(c.d)\nf(**c)",
            ["3", "1", "2"],
        ),
        (
            "class Easy(dict):\n    def __init__(self, given):\n        super().__init__(given)\n"
            "        self.__dict__ = self\n"
            "e = Easy({'a': 1})\nprobe(e.a)\nfor key in e:\n    probe(key)",
            ["1", "'a'"],
        ),
        ("import torch\nnet = torch.nn.Linear(8, 8)\nprobe(net.state_dict()['weight'])", ["tensor"]),
        ("def f(c: dict):\n    probe(c.get('a', 1))", ["?"]),
        ("class Easy(dict):\n    pass\ndef f(c: Easy):\n    probe(c.get('a', 1))", ["1 | ?"]),
        (
            "def f(a, b=4):\n    probe(a)\n    probe(b)\nf(**({'a': 1} if FLAG else {'a': 2, 'b': 3}))",
            ["1 | 2", "3 | ?"],
        ),
        ("probe('fp16'.upper())", ["'FP16'"]),
        ("probe('--batch-size'.lstrip('-').replace('-', '_'))", ["'batch_size'"]),
        ("x = 0\nfor i in data:\n    x += 1\n    probe(x)", ["number"]),
        ("def f(n=3):\n    probe(n)\nf()", ["3"]),
        ("def f(n=3):\n    probe(n)\nf(n=4)", ["4"]),
        ("def f(*rest, **more):\n    probe(rest[1])\n    probe(more['b'])\nf(1, 2, b=3)", ["2", "3"]),
        ("def f(a, b):\n    probe(b)\nf(*(1, 2))", ["2"]),
        ("def f(a, b):\n    probe(b)\nf(**{'a': 1, 'b': 2})", ["2"]),
        ("def f():\n    return 1\nprobe(f())", ["1"]),
        ("def f():\n    if FLAG:\n        return 1\n    return 2\nprobe(f())", ["1 | 2"]),
        ("def outer(n):\n    def inner():\n        return n\n    return inner\nprobe(outer(7)())", ["7"]),
        ("probe((lambda n: n + 1)(1))", ["2"]),
        ("from functools import partial\ndef f(a, b):\n    probe(b)\npartial(f, 1)(2)", ["2"]),
        ("n = 1\ndef f():\n    global n\n    n = 5\nf()\nprobe(n)", ["5"]),
        ("def f(n):\n    return 1 if n == 0 else n * f(n - 1)\nprobe(f(READ))", ["1 | ?"]),
        (
            "def twice(f):\n    def inner(n):\n        return f(f(n))\n    return inner\n"
            "@twice\ndef g(n):\n    return n + 1\nprobe(g(1))",
            ["3"],
        ),
        ("probe(getattr(settings, 'missing', 3))", ["3 | ?"]),
        ("import torch\nprobe(getattr(torch, 'float16'))", ["torch.float16"]),
        ("import torch\nprobe(torch.half)", ["torch.float16"]),
        ("import torch\nprobe(torch.device('cuda:1'))", ["'cuda'"]),
        ("import torch\nprobe(torch.device(f'cuda:{rank}'))", ["'cuda'"]),
    ],
)  # fmt: skip
def test_values(text: str, expected: list[str]) -> None:
    assert probed(text) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("class A:\n    n = 1\nprobe(A().n)", ["1"]),
        ("class A:\n    def __init__(self, n):\n        self.n = n\nprobe(A(2).n)", ["2"]),
        ("class A:\n    def get(self):\n        return 3\nclass B(A):\n    pass\nprobe(B().get())", ["3"]),
        (
            "class A:\n    def get(self):\n        return 3\nclass B(A):\n    def get(self):\n"
            "        return super().get() + 1\nprobe(B().get())",
            ["4"],
        ),
        ("class A:\n    @property\n    def n(self):\n        return 5\nprobe(A().n)", ["5"]),
        ("class A:\n    @staticmethod\n    def f(n):\n        return n\nprobe(A.f(6))", ["6"]),
        ("class A:\n    @classmethod\n    def make(cls):\n        return cls()\nprobe(A.make())", ["A"]),
        ("class A:\n    pass\na = A()\nif FLAG:\n    a.n = 1\nelse:\n    a.n = 2\nprobe(a.n)", ["1 | 2"]),
        (
            "from dataclasses import dataclass\n@dataclass\nclass C:\n    a: int\n    b: int = 2\n"
            "c = C(1)\nprobe(c.a)\nprobe(c.b)",
            ["1", "2"],
        ),
        ("class A:\n    def __call__(self, n):\n        return n\nprobe(A()(8))", ["8"]),
        ("class A:\n    def __getitem__(self, n):\n        return n + 1\nprobe(A()[1])", ["2"]),
        (
            "class A:\n    def step(self):\n        probe(self.n)\n"
            "    def __init__(self):\n        self.n = 1\n",
            ["1"],
        ),
    ],
)  # fmt: skip
def test_objects(body: str, expected: list[str]) -> None:
    assert probed(body) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def items():\n    yield 1\nfor x in items():\n    probe(x)", ["1"]),
        ("def items():\n    yield 1\n    yield 2\nprobe(next(iter(items())))", ["1 | 2"]),
        ("def items():\n    yield 4\nfor i, x in enumerate(items()):\n    probe(x)", ["4"]),
        (
            "from contextlib import contextmanager\n@contextmanager\ndef f():\n    yield 9\n"
            "with f() as x:\n    probe(x)",
            ["9"],
        ),
        (
            "class C:\n    def __enter__(self):\n        return 3\n    def __exit__(self, *a): ...\n"
            "with C() as x:\n    probe(x)",
            ["3"],
        ),
        ("for name, x in {'a': 1}.items():\n    probe(x)", ["1"]),
        ("for a, b in zip((1,), (2,)):\n    probe(b)", ["2"]),
        ("try:\n    x = 1\nexcept KeyError:\n    x = 2\nprobe(x)", ["1 | 2"]),
        ("for x in data:\n    if x:\n        continue\n    probe(1)", ["1"]),
        ("match read():\n    case 1:\n        x = 1\n    case _:\n        x = 2\nprobe(x)", ["1 | 2"]),
    ],
)  # fmt: skip
def test_what_rounds_and_contexts_give(text: str, expected: list[str]) -> None:
    assert probed(text) == expected


def test_options_are_their_default_and_something_else() -> None:
    text = """
        import argparse
        def arguments():
            parser = argparse.ArgumentParser()
            group = parser.add_argument_group("training")
            group.add_argument("-b", "--batch-size", type=int, default=8)
            group.add_argument("--amp", action="store_true")
            group.add_argument("--name", dest="title", default="x")
            return parser.parse_args()
        args = arguments()
        probe(args.batch_size)
        probe(args.amp)
        probe(args.title)
        probe(args.unknown)
    """
    assert probed(text) == ["8 | ?", "False | ?", "'x' | ?", "?"]


def test_code_that_is_not_seen_may_set_what_a_module_has() -> None:
    text = "n = 1\nexec(open('configurator.py').read())\nprobe(n)"
    assert probed(text) == ["1 | ?"]
    assert probed("n = 1\nshown = {k: v for k, v in globals().items()}\nprobe(n)") == ["1"]


def test_what_many_alternatives_are_is_unknown() -> None:
    choices = "".join(f"if FLAG{n}:\n    x = {n}\n" for n in range(20))
    assert "?" in probed(f"x = -1\n{choices}probe(x)")[0]


def test_parts_of_joined_texts_are_evaluated_once() -> None:
    # Twice each would be 2 to the power of 64 times.
    text = "print(" + " ".join('f"{probe(x)}"' for _ in range(64)) + ")\n"
    assert sum(event.name == "probe" for event in events(text, "call")) == 64


_BY_NAME = """
    import argparse
    import importlib

    def find(name):
        module = importlib.import_module("nets." + name + "_net")
        wanted = name.replace("_", "") + "net"
        for key, value in {items}:
            if key.lower() == wanted.lower() and issubclass(value, Base):
                return value
        raise ValueError

    from nets.base import Base
    parser = argparse.ArgumentParser()
    parser.add_argument("--net", default="big_one")
    {name}
    probe(find(name)())
"""


@pytest.mark.parametrize("items", ["module.__dict__.items()", "vars(module).items()"])
@pytest.mark.parametrize(
    ("name", "expected"),
    [("name = 'big_one'", "BigOneNet"), ("name = parser.parse_args().net", "Base | BigOneNet | ?")],
)
def test_classes_are_found_by_name(tmp_path: Path, items: str, name: str, expected: str) -> None:
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "base.py").write_text("class Base:\n    pass\n")
    (tmp_path / "nets" / "big_one_net.py").write_text(
        "import os\nfrom nets.base import Base\n"
        "class Other:\n    pass\nclass BigOneNet(Base):\n    pass\ndef bigonenet():\n    pass\n"
    )
    assert probed(_BY_NAME.format(items=items, name=name), tmp_path) == [expected]


def test_forward_of_a_library_class_runs_its_layers() -> None:
    text = """
        import torch
        from torch import nn


        class Net(nn.Sequential):
            def __init__(self):
                super().__init__(nn.Linear(4, 4))

            def forward(self, x):
                return super().forward(x)


        Net()(torch.ones(2, 4))
    """
    assert [event.name for event in events(text, "forward")] == ["Net", "torch.nn.Linear"]


def test_a_method_may_be_put_in_its_own_place() -> None:
    """As wrappers do that return some methods as they are."""
    text = (
        "import torch\nnet = torch.nn.Linear(8, 8)\nnet.fit = net.fit\nnet.fit(1)\n"
        "net.forward = net.forward\nnet.forward(torch.zeros(8))\n"
    )
    assert [event.name for event in events(text, "call")] == [".fit"]
    assert len(events(text, "forward")) == 1

"""In which order things happen, how often, and under which tests."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from programs import events, lines, program_of

from tclint.source.run.conditions import exclude
from tclint.source.run.record import conditions_in


def test_sides_of_one_test_exclude_each_other() -> None:
    text = "if FLAG:\n    probe(1)\nelse:\n    probe(2)\nif FLAG:\n    probe(3)\n"
    one, other, again = events(text, "call")
    assert exclude(one.path, other.path)
    assert exclude(other.path, again.path)
    assert not exclude(one.path, again.path)


@pytest.mark.parametrize(
    ("first", "second", "excluded"),
    [
        ("x", "not x", True),
        ("x and y", "not x", True),
        ("x or y", "not x", False),
        ("x is None", "x is not None", True),
        ("x == 'a'", "x == 'b'", True),
        ("x == 'a'", "x != 'a'", True),
        ("x > 1", "not (x > 1)", True),
        ("x", "y", False),
        ("f()", "not f()", True),
    ],
)
def test_which_tests_exclude_each_other(first: str, second: str, excluded: bool) -> None:
    text = f"if {first}:\n    read(1)\nif {second}:\n    read(2)\n"
    one, other = (event for event in events(text, "call") if event.name == "read")
    assert exclude(one.path, other.path) is excluded


def test_what_stands_behind_a_test_that_leaves_runs_where_it_fails() -> None:
    text = "for x in data:\n    if x:\n        read(1)\n        continue\n    read(2)\n"
    found = [event for event in events(text, "call") if event.name == "read"]
    assert exclude(found[0].path, found[1].path)
    assert len(conditions_in(found[1], found[1].loop)) == 1  # type: ignore[arg-type]


def test_bodies_of_loops_run_twice_and_inner_ones_once_in_the_second_round() -> None:
    text = "for a in one:\n    for b in two:\n        read(1)\n"
    found = [event for event in events(text, "call") if event.name == "read"]
    assert [tuple(round_.number for round_ in event.loops) for event in found] == [(0, 0), (0, 1), (1, 0)]


def test_loops_over_known_items_run_once_for_each() -> None:
    text = "for name in ('a', 'b', 'c'):\n    read(name)\n"
    found = [event for event in events(text, "call") if event.name == "read"]
    assert [repr(event.first) for event in found] == ["'a'", "'b'", "'c'"]


def test_what_a_generator_does_happens_where_it_is_looped_over() -> None:
    text = """
        def prefetched(loader):
            for batch in loader:
                start(1)
                yield batch
                end(1)
        for batch in prefetched(loader):
            use(batch)
    """
    found = [event.name for event in events(text, "call")]
    assert found == ["start", "use", "end"] * 2


def test_what_a_generator_does_after_a_yield_is_placed_in_it(tmp_path: Path) -> None:
    (tmp_path / "data.py").write_text(
        dedent("""
            from torch.utils.data import DataLoader
            class Batches:
                def __init__(self):
                    self.loader = DataLoader(samples, batch_size=4)
                def __iter__(self):
                    for batch in self.loader:
                        yield batch
        """),
        "utf-8",
    )
    text = "from data import Batches\n\n" + "first = 1\n" * 50 + "for batch in Batches():\n    use(batch)\n"
    found = [event.place for event in events(text, "batch", folder=tmp_path)]
    assert [place.file.spans()[place.node_id][0] for place in found] == [7, 7]


def test_a_context_of_a_function_is_around_its_body() -> None:
    text = """
        import torch
        from contextlib import contextmanager
        @contextmanager
        def half():
            with torch.autocast("cuda"):
                yield
        with half():
            read(1)
        read(2)
    """
    inside, outside = (event for event in events(text, "call") if event.name == "read")
    assert [region.context.kind for region in inside.regions] == ["autocast"]  # type: ignore[attr-defined]
    assert outside.regions == ()


def test_a_context_that_decorates_is_around_each_call() -> None:
    text = "import torch\n@torch.no_grad()\ndef f():\n    read(1)\nf()\nread(2)\n"
    inside, outside = (event for event in events(text, "call") if event.name == "read")
    assert [region.context.kind for region in inside.regions] == ["no_grad"]  # type: ignore[attr-defined]
    assert outside.regions == ()


def test_the_calls_that_lead_to_something_are_kept() -> None:
    text = "def f():\n    read(1)\ndef g():\n    f()\ng()\n"
    (found,) = (event for event in events(text, "call") if event.name == "read")
    spans = found.place.file.spans()
    assert [spans[place.node_id].line for place in found.places] == [5, 4, 2]


def test_what_entry_points_do_has_no_order_among_each_other() -> None:
    text = "def f():\n    read(1)\ndef g():\n    read(2)\n"
    record = program_of(text).record
    first, second = (event for event in record.of("call") if event.name == "read")
    assert list(record.after(first, "call")) == []
    assert list(record.before(second, "call")) == []


def test_functions_that_are_called_run_with_what_they_get_alone() -> None:
    text = "def f(n):\n    read(n)\ndef g():\n    f(1)\n"
    assert [repr(event.first) for event in events(text, "call") if event.name == "read"] == ["1"]


def test_files_are_followed(tmp_path: Path) -> None:
    (tmp_path / "helpers").mkdir()
    (tmp_path / "helpers" / "__init__.py").write_text("from .inner import work\n")
    (tmp_path / "helpers" / "inner.py").write_text("LIMIT = 3\ndef work(n):\n    read(n, LIMIT)\n")
    text = "from helpers import work\nimport helpers.inner as inner\nwork(inner.LIMIT + 1)\n"
    (found,) = events(text, "call", folder=tmp_path)
    assert [repr(value) for value in found.arguments.values()] == ["4", "3"]
    assert found.place.file.path.endswith("inner.py")
    assert lines([found]) == [3]


def test_recursion_and_depth_end_in_something_unknown() -> None:
    record = program_of("def f(n):\n    return f(n)\nread(f(1))\n").record
    assert record.of("escape")


def test_what_a_function_may_do_is_bounded() -> None:
    body = "    torch.zeros(n)\n" * 3
    calls = "".join(f"def f{n}(n):\n{body}    f{n + 1}(n)\n    f{n + 1}(n)\n" for n in range(18))
    record = program_of(f"import torch\n{calls}def f18(n):\n    pass\nf0(1)\n").record
    assert len(record.events) < 55_000
    assert record.cut


def test_a_loop_over_a_generator_goes_on_with_that() -> None:
    (step,) = events(
        """
        def batches():
            while True:
                yield draw()

        def train(model, optimizer):
            for epoch in range(9):
                for batch in batches():
                    loss = model(batch)
                    loss.backward()
                    optimizer.step()

        train(Model(), Optimizer())
        """,
        "backward",
    )[:1]
    epochs, drawing, over_batches = (round_.loop for round_ in step.loops)
    assert over_batches.source is drawing
    assert epochs.source is None


def test_the_networks_behind_a_loss_come_in_one_order() -> None:
    program = program_of(
        """\
        import torch
        from torch import nn

        first, second = nn.Conv2d(3, 8, 3), nn.ConvTranspose2d(8, 3, 3)
        loss = second(first(torch.rand(4, 3, 32, 32))).mean()
        loss.backward()
        """
    )
    backward = program.record.of("backward")[0]
    found = program.facts.networks_of(backward.subject)
    assert [thing.name for thing in found] == ["torch.nn.ConvTranspose2d", "torch.nn.Conv2d"]


def test_a_test_that_a_function_begins_with_stands_in_the_function() -> None:
    text = "import torch\ndef f(x):\n    if not x:\n        g()\nf(torch.ones(1))\n"
    assert set(lines(events(text, "wait"))) == {3}

"""The statement at a line is the one that a syntax tree of the whole file has there."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path
from types import CodeType

import pytest

import tclint.tracing
from tclint.tracing.values.statements import Statement, statement_at

_WAYS_OUT = (ast.Return, ast.Raise, ast.Break, ast.Continue)
_OWN_FILES = sorted(Path(tclint.tracing.__file__).parent.glob("*.py"))[::6]


def _functions(code: CodeType) -> list[CodeType]:
    """The code objects of all functions that are no lambdas or comprehensions, outermost first."""
    inner = [
        item for constant in code.co_consts if isinstance(constant, CodeType) for item in _functions(constant)
    ]
    return inner if code.co_name.startswith("<") else [code, *inner]


def _last_function(source: str, path: Path) -> CodeType:
    path.write_text(source, encoding="utf-8")
    return _functions(compile(source, str(path), "exec"))[-1]


def _found(tmp_path: Path, source: str, line: str) -> Statement | None:
    """What stands in the first line with the given words, of the last function."""
    source = textwrap.dedent(source)
    numbers = [number for number, text in enumerate(source.splitlines(), 1) if line in text]
    return statement_at(_last_function(source, tmp_path / "module.py"), numbers[0])


def _dump(nodes: list[ast.stmt] | tuple[ast.stmt, ...]) -> str:
    return "; ".join(ast.dump(node, include_attributes=True) for node in nodes)


@pytest.mark.parametrize("path", _OWN_FILES, ids=lambda path: path.name)
def test_simple_statements_and_conditions_of_real_files(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    codes = {
        (code.co_name, code.co_firstlineno): code for code in _functions(compile(source, str(path), "exec"))
    }
    seen = 0
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef):
            continue
        first = min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])
        code = codes.get((function.name, first))
        for node in ast.walk(function) if code is not None else ():
            if not isinstance(node, ast.stmt) or isinstance(node, (ast.Try, ast.FunctionDef, ast.ClassDef)):
                continue
            found = statement_at(code, node.lineno)
            assert found is not None, node.lineno
            if isinstance(node, (ast.If, ast.While)):
                assert ast.dump(found.tree[0].test) == ast.dump(node.test)
            elif not isinstance(node, (ast.For, ast.With)):
                assert _dump(found.tree) == _dump([node])
            if isinstance(node, ast.If):
                assert found.has_else == bool(node.orelse)
                expected = node.body[-1]
                if isinstance(expected, ast.Try):
                    assert not isinstance(found.last, _WAYS_OUT)
                else:
                    assert type(found.last) is type(expected)
            seen += 1
    assert seen > 10 or len(source) < 2000


@pytest.mark.parametrize(
    ("line", "loop"),
    [
        ("in_for", "for"),
        ("in_while", "while"),
        ("in_else_of_a_loop", ""),
        ("in_if_of_a_for", "for"),
        ("in_with_of_an_async_for", "for"),
        ("in_no_loop", ""),
    ],
)
def test_the_loop_around(tmp_path: Path, line: str, loop: str) -> None:
    source = """
        async def f(x):
            for i in x:
                in_for
                while i:
                    in_while
                if i:
                    in_if_of_a_for
                elif x:
                    pass
            else:
                in_else_of_a_loop
            async for i in x:
                with i:
                    in_with_of_an_async_for
            in_no_loop
        """
    found = _found(tmp_path, source, line)
    assert found is not None
    assert found.loop == loop


def test_a_function_in_a_loop_is_in_none(tmp_path: Path) -> None:
    source = """
        for i in range(3):
            def f(x):
                here
        """
    found = _found(tmp_path, source, "here")
    assert found is not None
    assert found.loop == ""


@pytest.mark.parametrize(
    ("source", "last", "has_else"),
    [
        ("if x.any(): return 1", ast.Return, False),
        ("if x.any(): y = 1; return y", ast.Return, False),
        ("if x.any():  # why\n        y = 1\n        # done\n        raise y", ast.Raise, False),
        ("if x.any(): return 1\n    else: return 2", ast.Return, True),
        ("if x.any():\n        return 1\n    elif y:\n        z = 1", ast.Return, True),
        ("if x.any():\n        for _ in x:\n            return 1", ast.For, False),
        ("if x.any():\n        try:\n            return 1\n        finally:\n            pass", None, False),
        ("if x.any():\n        if y: pass\n        else: return 1", ast.If, False),
        ("if x.any():\n        try: return 1\n        except E: return 2", None, False),
        ("if (x.any()\n            and x):\n        return 1", ast.Return, False),
        ("if x.any() == '''\n#:''':\n        return 1", ast.Return, False),
        ("if y:\n        pass\n    elif x.any():\n        return 1\n    return 2", ast.Return, False),
    ],
)
def test_what_an_if_ends_with(tmp_path: Path, source: str, last: type | None, has_else: bool) -> None:
    found = _found(tmp_path, f"def f(x, y):\n    {source}\n", "x.any()")
    assert found is not None
    assert ast.unparse(found.tree[0]).startswith("if")
    assert found.has_else == has_else
    if last is not None:
        assert type(found.last) is last
    else:
        assert not isinstance(found.last, _WAYS_OUT)


@pytest.mark.parametrize(
    "source",
    [
        "if y:\n        pass\n    else: z = x.any() if y else 1",
        "try: z = x.any()\n    finally: pass",
        "z = x.any(); w = 2",
        "for z in x.any(): pass",
        "with x.any() as z:\n        pass",
        "return lambda: x.any()",
    ],
)
def test_calls_in_other_statements(tmp_path: Path, source: str) -> None:
    found = _found(tmp_path, f"def f(x, y):\n    {source}\n", "x.any()")
    assert found is not None
    assert any("x.any()" in ast.unparse(node) for node in found.tree)


def test_the_decorator_of_a_function(tmp_path: Path) -> None:
    source = """
        def f(x):
            @decorated(
                x.any(),
            )
            def g(): pass
        """
    source = textwrap.dedent(source)
    path = tmp_path / "module.py"
    path.write_text(source, encoding="utf-8")
    code = _functions(compile(source, str(path), "exec"))[0]
    found = statement_at(code, 4)
    assert found is not None
    assert ast.unparse(found.tree[0]).startswith("decorated")


@pytest.mark.parametrize("indent", ["\t", "  ", "        "])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_any_indentation(tmp_path: Path, indent: str, newline: str) -> None:
    lines = ["class C:", f"{indent}def f(x):", f"{indent * 2}while x:", f"{indent * 3}if x.any():"]
    lines += [f"{indent * 4}continue", f"{indent * 3}x = 1"]
    source = newline.join(lines)
    path = tmp_path / "module.py"
    path.write_bytes(source.encode())
    (code,) = (code for code in _functions(compile(source, str(path), "exec")) if code.co_name == "f")
    found = statement_at(code, 4)
    assert found is not None
    assert (found.loop, type(found.last)) == ("while", ast.Continue)


def test_a_file_that_changed_tells_nothing(tmp_path: Path) -> None:
    code = _last_function("def f(x):\n    if x.any():\n        return 1\n", tmp_path / "module.py")
    (tmp_path / "module.py").write_text("'''", encoding="utf-8")
    assert statement_at(code, 2) is None
    (tmp_path / "module.py").unlink()
    assert statement_at(code, 2) is None

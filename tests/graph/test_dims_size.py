"""Sizes are integer polynomials: arithmetic, substitution and division agree with evaluation."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tclint.graph.dims.size import ONE, ZERO, Size, concatenation, product
from tclint.graph.dims.solver import Evaluator, Solver

ATOMS = 4
values = st.lists(st.integers(1, 50), min_size=ATOMS, max_size=ATOMS)
monomials = st.lists(st.integers(0, ATOMS - 1), max_size=3).map(lambda atoms: tuple(sorted(atoms)))
sizes = st.dictionaries(monomials, st.integers(-6, 6), max_size=4).map(Size)


@given(sizes, sizes, values)
def test_arithmetic_is_that_of_the_values(left: Size, right: Size, at: list[int]) -> None:
    assert (left + right).evaluate(at) == left.evaluate(at) + right.evaluate(at)
    assert (left - right).evaluate(at) == left.evaluate(at) - right.evaluate(at)
    assert (left * right).evaluate(at) == left.evaluate(at) * right.evaluate(at)


@given(sizes, sizes, st.integers(0, ATOMS - 1), values)
def test_substitution_commutes_with_evaluation(size: Size, by: Size, atom: int, at: list[int]) -> None:
    replaced = list(at)
    replaced[atom] = by.evaluate(at)
    assert size.substitute({atom: by}).evaluate(at) == size.evaluate(replaced)


@given(sizes, sizes)
def test_equal_sizes_hash_alike_however_they_were_made(left: Size, right: Size) -> None:
    again = (left + right) - right
    assert again == left
    assert hash(again) == hash(left)


@given(sizes, monomials, st.integers(1, 6))
def test_division_undoes_multiplication(size: Size, monomial: tuple[int, ...], factor: int) -> None:
    divisor = Size({monomial: factor})
    assert (size * divisor).divided_by(divisor) == size


@given(sizes, sizes, values)
def test_a_quotient_is_exact(size: Size, divisor: Size, at: list[int]) -> None:
    quotient = size.divided_by(divisor)
    if quotient is not None:
        assert quotient * divisor == size


@given(sizes, st.integers(0, ATOMS - 1), values)
def test_linear_split(size: Size, atom: int, at: list[int]) -> None:
    parts = size.split_linear(atom)
    if parts is None:
        assert any(monomial.count(atom) > 1 for monomial, _ in size.terms)
    else:
        slope, rest = parts
        assert atom not in slope.atoms | rest.atoms
        assert slope.evaluate(at) * at[atom] + rest.evaluate(at) == size.evaluate(at)


@given(sizes, values)
def test_without_common_factor_is_zero_at_the_same_values(size: Size, at: list[int]) -> None:
    assert (size.without_common_factor().evaluate(at) == 0) == (size.evaluate(at) == 0)


def test_products_and_sums_remember_their_order() -> None:
    heads, head_dim = Size.atom(3), Size.atom(1)
    flat = product((heads, head_dim))
    assert flat == product((head_dim, heads))
    assert flat.structure == ("*", (heads, head_dim))
    assert product((Size.atom(0), flat)).structure == ("*", (Size.atom(0), heads, head_dim))
    assert product((ONE, heads)) == heads
    assert concatenation((heads, head_dim)).structure == ("+", (heads, head_dim))
    assert (heads - heads) == ZERO


def test_text_reads_as_an_expression() -> None:
    size = product((Size.constant(3), Size.atom(2), Size.atom(7))) + Size.constant(64)
    assert size.text() == "3*d2*d7 + 64"
    assert size.text({2: "heads", 7: "head_dim"}) == "3*heads*head_dim + 64"
    assert ZERO.text() == "0"


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=12), st.data())
def test_unified_sizes_stay_equal_whatever_is_resized(
    pairs: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Eight dims of size 12, some found equal: a new value of any reaches exactly its class."""
    solver = Solver()
    dims = [solver.free(12, "parameter") for _ in range(8)]
    for left, right in pairs:
        solver.unify(dims[left], dims[right], op_index=0)
    chosen = data.draw(st.integers(0, 7))
    root = solver.resolve(dims[chosen]).only_atom
    assert root is not None
    new: Evaluator = solver.evaluator({root: 16})

    coupled = {chosen}
    for _ in dims:
        for left, right in pairs:
            if left in coupled or right in coupled:
                coupled |= {left, right}
    assert [new.value(dim) for dim in dims] == [16 if i in coupled else 12 for i in range(8)]

"""Finds attention written out as softmax(q k^T) v whose scores and weights nothing else reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tclint.source.questions.flow import Flow
from tclint.source.run.values import Constant, Event, Thing, Value, constant_of, options_of

_PRODUCTS = frozenset({"@", "torch.matmul", "torch.bmm", ".matmul", ".bmm"})
_EINSUM = "torch.einsum"
_SOFTMAX = frozenset({"torch.softmax", "torch.nn.functional.softmax", ".softmax", "torch.nn.Softmax"})
_DROPOUT = frozenset({"torch.dropout", "torch.nn.functional.dropout", "torch.nn.Dropout"})
_CASTS = frozenset({".to", ".type", ".float", ".half", ".bfloat16", ".contiguous", ".type_as"})
_SCALES = frozenset({"*", "/", "*=", "/=", ".mul", ".mul_", ".div", ".div_"})
_ADDS = frozenset({"+", "+=", ".add", ".add_"})
_MASKS = frozenset({".masked_fill", ".masked_fill_", "torch.masked_fill", "torch.where"})
_LEARNED = frozenset({"parameter", "forward"})
_VIEWS = frozenset({".view", ".reshape"})
_JOINS = frozenset({"torch.cat", "torch.concat", "torch.stack"})
"""Operations whose result has more tokens than each of their operands."""
_KEEP_RANK = frozenset(
    {".transpose", ".contiguous", ".float", ".half", ".to", ".type", "*", "/", "@", ".movedim"}
)
FUSED = ("scaled_dot_product_attention", "flash_attn", "memory_efficient_attention", "flex_attention")


class Attention(NamedTuple):
    """One written-out attention whose scores and weights nothing else reads."""

    softmax: Event
    masked: bool
    dropped: bool


class Attentions:
    """Answers about one program."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.facts = flow.facts

    def written(self) -> Iterator[Attention]:
        """The written-out attentions of the program, in order."""
        for event in self.flow.record.of("op"):
            if event.name in _PRODUCTS or event.name == _EINSUM:
                found = self._from(event)
                if found is not None:
                    yield found

    def fuses(self, event: Event) -> bool:
        """Whether the file of an event also calls a fused kernel, so that the program chooses between the
        two."""
        return any(
            other.place.file is event.place.file and any(part in other.name for part in FUSED)
            for other in self.flow.record.of("op", "call")
        )

    def _from(self, product: Event) -> Attention | None:
        """The attention whose scores a product computes; None if it computes none."""
        if not self._makes_scores(product) or self._is_of_one_token(product.inputs[0]):
            return None
        scores = self._through(product.result, self._changes_scores, _SOFTMAX)
        if scores is None or (scores.last.inputs[0] is scores.last.subject and scores.last.kind == "call"):
            return None
        softmax = scores.last
        if not self._is_over_keys(softmax, product):
            return None
        weights = self._through(softmax.result, self._changes_weights, _PRODUCTS | {_EINSUM})
        if weights is None or not self._weighs(weights.last, weights.values):
            return None
        masked = any(event.name in _MASKS | _ADDS for event in scores.steps)
        return Attention(softmax, masked, any(self.flow.runs(event) in _DROPOUT for event in weights.steps))

    # -- products

    def _makes_scores(self, product: Event) -> bool:
        """Whether a product may multiply queries by keys, that is, sum over one index of both."""
        if product.name == _EINSUM:
            axes = self._axes(product)
            if axes is None:
                return False
            first, second, output = axes
            summed = (set(first) & set(second)) - set(output)
            return (
                len(summed) == 1 and len(output) > 1 and output[-2] not in second and output[-1] not in first
            )
        ranks = {self._rank(operand) for operand in product.inputs[:2]} - {None}
        if product.name.endswith("bmm"):
            return not ranks or any(self._is_folded(operand) for operand in product.inputs[:2])
        return ranks <= {4}

    def _is_folded(self, operand: Value) -> bool:
        """Whether an operand's heads are folded into the batch: `view(batch * heads, ...)`,
        `flatten(0, 1)`."""
        for event in self.flow.computed_with(operand):
            if event.name == ".flatten":
                return True
            first = event.first if event.name in _VIEWS else None
            if isinstance(first, Thing) and first.operation is not None and first.operation[0] == "*":
                return True
        return False

    def _axes(self, product: Event) -> tuple[str, str, str] | None:
        """The axes of the two operands of an einsum and of its result."""
        equation = constant_of(product.first)
        inputs, arrow, output = str(equation).replace(" ", "").partition("->")
        first, comma, second = inputs.partition(",")
        known = isinstance(equation, str) and arrow and comma and "," not in second
        return (first, second, output) if known else None

    def _operands(self, product: Event) -> list[Value]:
        values = list(product.inputs)
        if product.name == _EINSUM:
            values = values[1:]
            held = values[0] if len(values) == 1 else None
            if isinstance(held, Thing) and held.kind in ("list", "tuple"):
                values = [held.fields[key] for key in (("item", 0), ("item", 1)) if key in held.fields]
        return values

    def _weighs(self, product: Event, weights: frozenset[Thing]) -> bool:
        """Whether a product has the attention weights as its first operand and sums values with them."""
        operands = self._operands(product)
        if len(operands) != 2 or not set(self.facts.things(operands[0])) <= weights:
            return False
        if set(self.facts.things(operands[1])) & weights:
            return False
        if product.name == _EINSUM:
            axes = self._axes(product)
            return axes is not None and (set(axes[0]) & set(axes[1])) - set(axes[2]) == {axes[0][-1]}
        return True

    def _is_over_keys(self, softmax: Event, product: Event) -> bool:
        """Whether a softmax is over the last dim, given as -1 or by its number."""
        arguments = softmax.arguments
        dim = arguments.get(
            "dim", arguments.get("1" if softmax.kind == "op" and softmax.name[:1] != "." else "0")
        )
        if softmax.kind == "forward" and isinstance(softmax.subject, Thing):
            dim = self.flow.argument(softmax.subject, "dim")
        axes = self._axes(product) if product.name == _EINSUM else None
        last = len(axes[2]) - 1 if axes is not None else (2 if product.name.endswith("bmm") else 3)
        return constant_of(dim) in (-1, last)

    # -- what happens to scores and weights

    class _Passage(NamedTuple):
        steps: list[Event]
        values: frozenset[Thing]
        last: Event

    def _through(self, start: Value | None, changes: object, ends: frozenset[str]) -> _Passage | None:
        """The operations that a value passes through up to the one event that ends its way; None if anything
        else reads it."""
        assert callable(changes)
        steps: list[Event] = []
        values = set(self.facts.things(start))
        pending: list[Value] = list(values)
        last: Event | None = None
        while pending:
            for event in self.flow.readers(pending.pop()):
                if event in steps or event is last:
                    continue
                if self.flow.runs(event) in ends and event not in steps and last is None:
                    last = event
                elif changes(event, values):
                    steps.append(event)
                    new = [item for item in self.facts.things(event.result) if item not in values]
                    values.update(new)
                    pending.extend(new)
                else:
                    return None
        return self._Passage(steps, frozenset(values), last) if last is not None else None

    def _changes_scores(self, event: Event, scores: set[Thing]) -> bool:
        """Whether an operation scales, masks or casts scores, whose result still counts as scores."""
        if event.name in _CASTS or event.name in _MASKS:
            return True
        if event.name in _SCALES | _ADDS and set(self.facts.things(event.inputs[0])) <= scores:
            others = event.inputs[1:]
        elif event.name in ("*", "+") and set(self.facts.things(event.inputs[-1])) <= scores:
            others = event.inputs[:1]
        else:
            return False
        return not any(self._is_learned(other, is_added=event.name in _ADDS) for other in others)

    def _changes_weights(self, event: Event, _: set[Thing]) -> bool:
        return event.name in _CASTS or self.flow.runs(event) in _DROPOUT

    def _is_learned(self, value: Value, *, is_added: bool) -> bool:
        """Whether a value may be a parameter or computed by layers. An unknown attribute of a module may be a
        parameter if it is added."""
        for thing in self.flow.parts(value):
            if "@parameter of" in thing.fields:
                return True
            if thing.kind == "tensor" and any(
                event.kind in _LEARNED for event in self.flow.computed_with(thing)
            ):
                return True
            operator, operands = thing.operation or ("", ())
            if is_added and operator == "." and self.facts.kinds(operands[0], "module"):
                return True
        return False

    # -- shapes

    def _rank(self, value: Value | None, depth: int = 8) -> int | None:
        """The number of dims of a tensor, as far as the operations that reshape it tell."""
        for option, _ in options_of(value) if value is not None else ():
            if not isinstance(option, Thing) or depth <= 0:
                return None
            if option.operation is not None and option.operation[0] == "[]":
                whole, key = option.operation[1]
                return self._part_rank(whole, key, depth)
            event = option.made
            if event is None:
                return None
            given = [item for key, item in event.arguments.items() if key.isdigit()]
            if event.name in _VIEWS | {".permute"} and not any(
                isinstance(item, Thing) and item.kind in ("star", "tuple", "list") for item in given
            ):
                return len(given) if len(given) > 1 else None
            if event.name == "[]":
                return self._part_rank(event.subject, event.first, depth)
            if event.name in _KEEP_RANK:
                return self._rank(event.subject, depth - 1)
            return None
        return None

    def _part_rank(self, whole: Value | None, key: Value | None, depth: int) -> int | None:
        rank = self._rank(whole, depth - 1)
        return rank - 1 if rank is not None and isinstance(constant_of(key), int) else None

    def _is_of_one_token(self, query: Value) -> bool:
        """Whether the query is a single token (a class token), whose scores are one row."""
        seen: set[Event] = set()
        pending = [query]
        while pending:
            for thing in self.facts.things(pending.pop()):
                event = thing.made
                if event is None or event in seen or event.name in _JOINS:
                    continue
                seen.add(event)
                if event.name in _VIEWS and Constant(1) in list(event.arguments.values())[1:]:
                    return True
                if event.name == ".unsqueeze" or any(map(self._is_first_of, event.inputs)):
                    return True
                # A layer, a sum and a norm have as many tokens as what they get first.
                given = event.first if event.kind == "forward" else (event.subject or event.first)
                pending += [given] if given is not None else []
        return False

    def _is_first_of(self, value: Value) -> bool:
        """Whether a value is, or an index holds, the slice `0:1`."""
        return any(
            part.operation is not None
            and part.operation[0] == "slice"
            and [constant_of(item) for item in part.operation[1][:2]] == [0, 1]
            for part in self.flow.parts(value)
        )

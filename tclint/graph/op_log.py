"""The operators of a trace in little memory: those that repeat others are kept as that.

The layers of a model are mostly the same block again, and loops the same step: 18,119 operators of a state
space model are 259 different ones, if the op that made an input is told by its distance, and a weight by its
name within the module. What differs beyond that is kept once, and eight bytes for each operator.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, fields
from typing import Any, Generic, NamedTuple, TypeVar, overload

from tclint.graph.op import OP_KINDS, Cast, Checkpoint, Op, OpKind
from tclint.graph.op_rows import OpRows
from tclint.graph.spec import Site, TensorSpec

_RUNNING = 0
"""Number of the pattern that stands for operators that have not ended."""
_TensorPattern = tuple[Any, ...]
_Value = TypeVar("_Value")


class _Call(NamedTuple):
    """What an operator does, by the names that Op has for it; attributes are a number in the log's list."""

    name: str
    operator: str
    kind: OpKind
    input_names: tuple[str, ...]
    attributes: int
    in_place: bool
    differentiable: bool
    has_own_backward: bool
    checkpoint: Checkpoint | None
    autocast_disabled: bool
    casts: tuple[Cast, ...]


class _Place(NamedTuple):
    """Where in the sources an operator is; sites are numbers in the log's list."""

    module_type: str
    construct_site: int
    construct_library_site: int
    call_site: int
    call_library_site: int


class _Pattern(NamedTuple):
    """What operators that repeat each other have in common: numbers in the log's lists.

    The parent is told by its distance.
    """

    call: int
    place: int
    parent: int | None
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class _Numbered(Generic[_Value]):
    """Different values in the order in which they came."""

    __slots__ = ("_numbers", "values")

    def __init__(self, values: Iterable[_Value] = ()) -> None:
        self.values = list(values)
        self._numbers = {value: number for number, value in enumerate(self.values)}

    def number(self, value: _Value) -> int:
        """The value's place in `values`, where it is put if no equal one stands there."""
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = len(self.values)
            self.values.append(value)
        return number


class OpLog(Sequence[Op]):
    """Operators in the order in which they started; as a sequence, those that have ended.

    Reading it as a sequence makes all of them, and keeps them; `each` passes over them without.
    """

    def __init__(self) -> None:
        self._rows = OpRows()
        """For each operator the numbers of its pattern and its module's path."""
        self._patterns: _Numbered[_Pattern | None] = _Numbered([None])
        self._calls: _Numbered[_Call] = _Numbered()
        self._places: _Numbered[_Place] = _Numbered()
        self._paths: list[str] = []
        """Of modules, as they were entered: the same again where a module was entered again."""
        self._tensors: _Numbered[_TensorPattern] = _Numbered()
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}
        """Of sites and attributes, by id: to compare those takes long, and equal ones are mostly the same."""
        self._ops: tuple[Op, ...] | None = None

    @classmethod
    def of(cls, ops: Sequence[Op]) -> OpLog:
        """A log of operators.

        Raises:
            ValueError: not for all of them `ops[i].index == i`.
        """
        if isinstance(ops, OpLog):
            return ops
        log = cls()
        names = [field.name for field in fields(Op) if field.name not in ("index", "direction")]
        for op in ops:
            if log.start() != op.index:
                raise ValueError(f"op {op.index} stands at place {log.started - 1} of its graph")
            log.put(op.index, **{name: getattr(op, name) for name in names})
        return log

    # ------------------------------------------------------------------ writing

    @property
    def started(self) -> int:
        """Operators started so far."""
        return self._rows.count

    def start(self) -> int:
        """The index of an operator that starts; `put` has to follow when it ends."""
        index = self._rows.count
        self._rows.append(_RUNNING, 0)
        return index

    def take_back(self, index: int) -> None:
        """Forget the operator of that index, which failed, and all that started since."""
        self._rows.truncate(index)
        self._ops = None

    def put(
        self,
        index: int,
        *,
        name: str,
        operator: str,
        kind: OpKind,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        input_names: tuple[str, ...],
        attributes: Mapping[str, Any],
        module_path: str,
        module_type: str,
        construct_site: Site | None,
        construct_library_site: Site | None,
        call_site: Site | None,
        call_library_site: Site | None,
        parent: int | None,
        in_place: bool,
        differentiable: bool,
        has_own_backward: bool,
        checkpoint: Checkpoint | None,
        autocast_disabled: bool,
        casts: tuple[Cast, ...],
    ) -> None:
        """Write down an operator that was started; what it is, is said as in Op.

        Attributes and sites are compared by identity: those that may be equal should be the same.
        """
        tensor, number_of = self._tensor, self._number
        call = _Call(
            name,
            operator,
            kind,
            input_names,
            number_of(attributes),
            in_place,
            differentiable,
            has_own_backward,
            checkpoint,
            autocast_disabled,
            casts,
        )
        place = _Place(
            module_type,
            number_of(construct_site),
            number_of(construct_library_site),
            number_of(call_site),
            number_of(call_library_site),
        )
        pattern = _Pattern(
            self._calls.number(call),
            self._places.number(place),
            None if parent is None else index - parent,
            tuple([tensor(index, module_path, spec) for spec in inputs]),
            tuple([tensor(index, module_path, spec) for spec in outputs]),
        )
        if not self._paths or self._paths[-1] != module_path:
            self._paths.append(module_path)
        self._rows[index] = self._patterns.number(pattern), len(self._paths) - 1
        self._ops = None

    def _number(self, value: Any) -> int:
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self._objects)
            self._objects.append(value)
        return number

    def _tensor(self, index: int, path: str, spec: TensorSpec) -> int:
        parameter, producer = spec.parameter, spec.producer
        is_within = parameter is not None and path != "" and parameter.startswith(path + ".")
        return self._tensors.number(
            (
                spec.shape,
                spec.dtype,
                spec.strides,
                parameter[len(path) :] if is_within and parameter is not None else parameter,
                is_within,
                None if producer is None else index - producer,
                spec.output_index,
                spec.input_name,
                spec.is_derived,
            )
        )

    # ------------------------------------------------------------------ reading

    def get(self, index: int) -> Op | None:
        """The operator of that index; None while it runs."""
        number, path_number = self._rows[index]
        pattern = self._patterns.values[number]
        if pattern is None:
            return None
        objects, tensors = self._objects, self._tensors.values
        call, place = self._calls.values[pattern.call], self._places.values[pattern.place]
        path = self._paths[path_number]
        return Op(
            index=index,
            name=call.name,
            kind=call.kind,
            inputs=tuple([_spec(tensors[number], index, path) for number in pattern.inputs]),
            outputs=tuple([_spec(tensors[number], index, path) for number in pattern.outputs]),
            input_names=call.input_names,
            attributes=objects[call.attributes],
            module_path=path,
            module_type=place.module_type,
            construct_site=objects[place.construct_site],
            construct_library_site=objects[place.construct_library_site],
            call_site=objects[place.call_site],
            call_library_site=objects[place.call_library_site],
            parent=None if pattern.parent is None else index - pattern.parent,
            in_place=call.in_place,
            differentiable=call.differentiable,
            has_own_backward=call.has_own_backward,
            checkpoint=call.checkpoint,
            autocast_disabled=call.autocast_disabled,
            operator=call.operator,
            casts=call.casts,
        )

    def each(self) -> Iterator[Op]:
        """All operators that have ended, made as they are asked for."""
        if self._ops is not None:
            yield from self._ops
            return
        for index in range(self.started):
            op = self.get(index)
            if op is not None:
                yield op

    def parents(self) -> frozenset[int]:
        """Indices of the operators that others are parts of."""
        distances = [None if pattern is None else pattern.parent for pattern in self._patterns.values]
        if not any(distances):
            return frozenset()
        numbers = itertools.islice(self._rows.numbers(), 0, None, 2)
        return frozenset(
            index - distance
            for index, number in zip(range(self.started), numbers, strict=False)
            if (distance := distances[number]) is not None
        )

    def _all(self) -> tuple[Op, ...]:
        if self._ops is None:
            self._ops = tuple(self.each())
        return self._ops

    def __iter__(self) -> Iterator[Op]:
        return iter(self._all())

    def __len__(self) -> int:
        return self.started if self._ops is None else len(self._ops)

    @overload
    def __getitem__(self, index: int) -> Op: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Op, ...]: ...

    def __getitem__(self, index: int | slice) -> Op | tuple[Op, ...]:
        return self._all()[index]

    def __repr__(self) -> str:
        return f"<{len(self)} operators>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (OpLog, tuple)) and self._all() == tuple(other)

    __hash__ = None  # type: ignore[assignment]  # no more than its operators' attributes

    # ------------------------------------------------------------------ JSON

    def to_json(self) -> dict[str, Any]:
        """JSON values, of which `from_json` makes an equal log."""
        rows = list(self._rows.numbers())
        paths: dict[str, int] = {}
        for at in range(1, len(rows), 2):
            if rows[at - 1] != _RUNNING:
                rows[at] = paths.setdefault(self._paths[rows[at]], len(paths))
        return {
            "rows": rows,
            "calls": [[*call[:-1], [astuple(cast) for cast in call.casts]] for call in self._calls.values],
            "places": self._places.values,
            "patterns": self._patterns.values[_RUNNING + 1 :],
            "tensors": self._tensors.values,
            "objects": [value.to_json() if isinstance(value, Site) else value for value in self._objects],
            "paths": list(paths),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> OpLog:
        """The log that `to_json` was called on; it can be read, not written to.

        Raises:
            ValueError: it names a kind of operators that there is not.
        """
        log = cls()
        log._rows = OpRows.of(data["rows"])
        log._calls.values = [_call(values) for values in data["calls"]]
        log._places.values = [_Place(*values) for values in data["places"]]
        log._patterns.values += [
            _Pattern(call, place, parent, tuple(inputs), tuple(outputs))
            for call, place, parent, inputs, outputs in data["patterns"]
        ]
        log._tensors.values = [
            (tuple(shape), dtype, None if strides is None else tuple(strides), *rest)
            for shape, dtype, strides, *rest in data["tensors"]
        ]
        log._objects = [
            Site.from_json(value) if isinstance(value, list) else value for value in data["objects"]
        ]
        log._paths = [sys.intern(path) for path in data["paths"]]
        return log


def _call(values: list[Any]) -> _Call:
    """A call that was written as JSON, of which tuples come back as lists."""
    call: Any = _Call(*values)
    if call.kind not in OP_KINDS:
        raise ValueError(f"unknown op kind {call.kind!r}")
    made: _Call = call._replace(
        name=sys.intern(call.name),
        operator=sys.intern(call.operator),
        input_names=tuple(call.input_names),
        checkpoint=None if call.checkpoint is None else Checkpoint(*call.checkpoint),
        casts=tuple(Cast(tuple(shape), *dtypes) for shape, *dtypes in call.casts),
    )
    return made


def _spec(pattern: _TensorPattern, index: int, path: str) -> TensorSpec:
    shape, dtype, strides, parameter, is_within, distance, output_index, input_name, is_derived = pattern
    if is_within:
        parameter = sys.intern(path + parameter)
    return TensorSpec(
        shape,
        dtype,
        strides,
        parameter,
        None if distance is None else index - distance,
        output_index,
        input_name,
        is_derived,
    )

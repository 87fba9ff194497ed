"""The operators of a trace in little memory: those that repeat others are kept as that.

The layers of a model are mostly the same block again, and loops the same step: 18,119 operators of a state
space model are 259 different ones, if the op that made an input is told by its distance, and a weight by its
name within the module. What differs beyond that is kept once, and eight bytes for each operator.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, fields
from typing import Any, overload

from tclint.graph.ops.numbered import Numbered
from tclint.graph.ops.op import OP_KINDS, Cast, Checkpoint, Op, OpKind
from tclint.graph.ops.op_attributes import Packed, unpack
from tclint.graph.ops.op_patterns import Common, OpPatterns, Pattern
from tclint.graph.ops.op_rows import OpRows
from tclint.graph.ops.spec import Site, TensorSpec

_RUNNING = 0
"""In the place of a pattern's number, for operators that have not ended."""
_UNPACKED_PATTERNS = 64
"""Kept while operators are read one after the other: those of a layer, as a rule."""
_TensorPattern = tuple[Any, ...]


class OpLog(Sequence[Op]):
    """Operators in the order in which they started; as a sequence, those that have ended.

    Reading it as a sequence makes all of them, and keeps them; `each` passes over them without.
    """

    def __init__(self) -> None:
        self._rows = OpRows()
        """For each operator the numbers of its pattern and its module's path."""
        self._patterns = OpPatterns()
        self._paths: list[str] = []
        """Of modules, as they were entered: the same again where a module was entered again."""
        self._tensors: Numbered[_TensorPattern] = Numbered()
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}
        """Of sites and attributes, by id: to compare those takes long, and equal ones are mostly the same."""
        self._unpacked: dict[int, Mapping[str, Any]] = {}
        """Attributes that were read, by number."""
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
        attributes: Packed | Mapping[str, Any],
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
        """Write down an operator that was started; what it is, is said as in Op, its attributes maybe packed.

        Attributes and sites are compared by identity: those that may be equal should be the same.
        """
        tensor, number_of = self._tensor, self._number
        number = self._patterns.number_of(
            Common(
                name,
                operator,
                kind,
                input_names,
                module_type,
                None if parent is None else index - parent,
                in_place,
                differentiable,
                has_own_backward,
                checkpoint,
                autocast_disabled,
                casts,
            ),
            number_of(attributes),
            (
                number_of(construct_site),
                number_of(construct_library_site),
                number_of(call_site),
                number_of(call_library_site),
            ),
            [tensor(index, module_path, spec) for spec in inputs],
            [tensor(index, module_path, spec) for spec in outputs],
        )
        if not self._paths or self._paths[-1] != module_path:
            self._paths.append(module_path)
        self._rows[index] = number, len(self._paths) - 1
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
        return None if number == _RUNNING else self._made(index, self._patterns.get(number), path_number)

    def _made(self, index: int, pattern: Pattern, path_number: int) -> Op:
        common, attributes, sites, inputs, outputs = pattern
        objects, tensors = self._objects, self._tensors.values
        construct_site, construct_library_site, call_site, call_library_site = sites
        path = self._paths[path_number]
        return Op(
            index=index,
            name=common.name,
            kind=common.kind,
            inputs=tuple([_spec(tensors[number], index, path) for number in inputs]),
            outputs=tuple([_spec(tensors[number], index, path) for number in outputs]),
            input_names=common.input_names,
            attributes=self._attributes(attributes),
            module_path=path,
            module_type=common.module_type,
            construct_site=objects[construct_site],
            construct_library_site=objects[construct_library_site],
            call_site=objects[call_site],
            call_library_site=objects[call_library_site],
            parent=None if common.parent is None else index - common.parent,
            in_place=common.in_place,
            differentiable=common.differentiable,
            has_own_backward=common.has_own_backward,
            checkpoint=common.checkpoint,
            autocast_disabled=common.autocast_disabled,
            operator=common.operator,
            casts=common.casts,
        )

    def _attributes(self, number: int) -> Mapping[str, Any]:
        known = self._unpacked.get(number)
        if known is None:
            attributes = self._objects[number]
            known = unpack(attributes) if type(attributes) is tuple else attributes
            self._unpacked[number] = known
        return known

    def each(self) -> Iterator[Op]:
        """All operators that have ended, made as they are asked for."""
        if self._ops is not None:
            yield from self._ops
            return
        known: dict[int, Pattern] = {}
        numbers = self._rows.numbers()
        for index, (number, path_number) in enumerate(zip(numbers, numbers, strict=True)):  # row by row
            if number == _RUNNING:
                continue
            pattern = known.get(number)
            if pattern is None:
                if len(known) == _UNPACKED_PATTERNS:
                    known.clear()
                pattern = known[number] = self._patterns.get(number)
            yield self._made(index, pattern, path_number)

    def parents(self) -> frozenset[int]:
        """Indices of the operators that others are parts of."""
        distances = [None, *(pattern.common.parent for pattern in self._patterns)]
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
            "patterns": [
                [[*common[:-1], [astuple(cast) for cast in common.casts]], *numbers]  # casts are last
                for common, *numbers in self._patterns
            ],
            "tensors": self._tensors.values,
            "objects": [_to_json(value) for value in self._objects],
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
        log._tensors.values = [
            (tuple(shape), dtype, None if strides is None else tuple(strides), *rest)
            for shape, dtype, strides, *rest in data["tensors"]
        ]
        log._objects = [
            Site.from_json(value) if isinstance(value, list) else value for value in data["objects"]
        ]
        log._paths = [sys.intern(path) for path in data["paths"]]
        for values, *numbers in data["patterns"]:
            common: Any = Common(*values)  # with JSON's lists
            if common.kind not in OP_KINDS:
                raise ValueError(f"unknown op kind {common.kind!r}")
            common = common._replace(
                name=sys.intern(common.name),
                operator=sys.intern(common.operator),
                input_names=tuple(common.input_names),
                checkpoint=None if common.checkpoint is None else Checkpoint(*common.checkpoint),
                casts=tuple(Cast(tuple(shape), *dtypes) for shape, *dtypes in common.casts),
            )
            log._patterns.number_of(common, *numbers)
        return log


def _to_json(value: Any) -> Any:
    if isinstance(value, Site):
        return value.to_json()
    return unpack(value) if type(value) is tuple else value


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

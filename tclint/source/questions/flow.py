"""The data flow of a program: which operations read the results of which others."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from tclint.source.run.conditions import exclude
from tclint.source.run.facts import Facts
from tclint.source.run.values import Constant, Event, Place, Symbol, Thing, Value, modules_in, options_of

_DESCRIBES = frozenset(
    {
        "shape",
        "ndim",
        "dtype",
        "device",
        "requires_grad",
        "is_cuda",
        "layout",
        "names",
        "itemsize",
        "training",
    }
)
_ASKS = frozenset(
    {".size", ".dim", ".numel", ".nelement", ".element_size", ".stride", ".get_device", ".is_contiguous"}
    | {".new_zeros", ".new_ones", ".new_empty", ".new_full", ".new_tensor", ".new", ".data_ptr"}
    | {"torch.zeros_like", "torch.ones_like", "torch.rand_like", "torch.randn_like", "torch.empty_like"}
    | {"torch.full_like", "torch.is_tensor"}
)
"""Methods that read the shape, layout or device of a tensor and not its contents."""
_LIKE = frozenset({".type_as", ".view_as", ".reshape_as", ".expand_as", ".to"})
"""Methods that read only the shape, dtype or device of their arguments."""
KEEPS = frozenset(
    {".squeeze", ".unsqueeze", ".view", ".reshape", ".flatten", ".contiguous", ".float", ".to", ".cuda", "[]"}
    | {".double", ".cpu", ".clone", ".type", ".view_as", ".reshape_as", ".permute", ".transpose", ".t"}
)
"""Methods whose result has the values of their tensor."""
_KEEPS_FIRST = frozenset({"torch.squeeze", "torch.unsqueeze", "torch.flatten", "torch.reshape"})
_HOLDS = frozenset({"list", "tuple", "dict", "set"})


class Flow:
    """The data flow of one program: its layers, and which operations read the results of which others."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.record = facts.record

    # -- layers

    def layer(self, module: Value | None) -> str:
        """The library's layer that a module is, such as 'torch.nn.Conv2d'; '' for anything else."""
        if not isinstance(module, Thing) or module.kind != "module":
            return ""
        if module.cls is None:
            return module.name
        names = [base.name for base in module.cls.library_bases()]
        return next((name for name in names if name != "torch.nn.Module"), "")

    def kind(self, module: Value | None) -> str:
        """The class of a layer of torch.nn, such as 'Conv2d'; '' for anything else."""
        name = self.layer(module)
        return name.rpartition(".")[2] if name.startswith("torch.nn.") else ""

    def argument(self, module: Thing, name: str) -> Value | None:
        """An argument that a layer was made with, or its default."""
        given = module.fields.get(name)
        if given is None:
            spec = self.facts.library.call(self.layer(module))
            if spec is not None and name in spec.defaults:
                return Constant(spec.defaults[name])
        return given

    def size(self, module: Thing, name: str) -> int | None:
        """The size that an argument of a layer is, or is by default; None if there is not exactly one."""
        value = self.argument(module, name)
        options = [option for option, _ in options_of(value)] if value is not None else []
        sizes = {option.value for option in options if isinstance(option, Constant)}
        others = [option for option in options if not isinstance(option, Constant)]
        size = sizes.pop() if len(sizes) == 1 else None
        is_default = all(isinstance(option, Thing) and option.is_unknown for option in others)
        return size if type(size) is int and is_default else None

    @staticmethod
    def keeps(event: Event) -> bool:
        """Whether an event gives the numbers of its tensor unchanged: a view, a copy, another dtype."""
        return event.name in KEEPS

    @cached_property
    def forwards(self) -> dict[Thing, list[Event]]:
        """The calls of each module."""
        found: dict[Thing, list[Event]] = {}
        for event in self.record.of("forward"):
            for module in self.facts.things(event.subject):
                found.setdefault(module, []).append(event)
        return found

    @cached_property
    def made(self) -> dict[Place, list[Thing]]:
        """Place in the program -> the modules that are made there."""
        found: dict[Place, list[Thing]] = {}
        for event in self.record.of("make"):
            for module in self.facts.kinds(event.result, "module"):
                found.setdefault(event.place, []).append(module)
        return found

    @cached_property
    def followed(self) -> frozenset[Event]:
        """The forwards whose operations are recorded; these operations, not the forward, read the inputs."""
        return frozenset(event.inside for event in self.record.events if event.inside is not None)

    # -- values

    def parts(self, value: Value | None) -> Iterator[Thing]:
        """The things that a value can be, hold, or be computed from without an event."""
        seen: set[Value] = set()
        pending: list[Value] = [value] if value is not None else []
        while pending:
            for item, _ in options_of(pending.pop()):
                if not isinstance(item, Thing) or item in seen:
                    continue
                seen.add(item)
                yield item
                if item.kind in _HOLDS:
                    pending.extend(
                        inner for key, inner in item.fields.items() if isinstance(key, tuple) or key == "[*]"
                    )
                elif item.kind == "star":
                    pending.append(item.fields["over"])
                elif item.operation is not None and not self._describes(item):
                    pending.extend(item.operation[1])

    def _describes(self, item: Thing) -> bool:
        operator, operands = item.operation or ("", ())
        return operator in (".", "getattr") and any(
            isinstance(operand, Constant) and operand.value in _DESCRIBES for operand in operands
        )

    @cached_property
    def _readers(self) -> dict[Thing, list[Event]]:
        found: dict[Thing, list[Event]] = {}
        for event in self.record.events:
            if event.kind == "enter" or event.name in _ASKS or event in self.followed:
                continue
            read = event.inputs[:1] if event.name in _LIKE else event.inputs
            for item in dict.fromkeys(part for value in read for part in self.parts(value)):
                found.setdefault(item, []).append(event)
        return found

    def readers(self, value: Value | None) -> list[Event]:
        """The events that read a value; the caller of an entry point counts as reading its result."""
        return [event for thing in self.facts.things(value) for event in self._readers.get(thing, ())]

    def runs(self, event: Event) -> str:
        """The library's layer or function that an event runs: 'torch.nn.Sigmoid', '.sigmoid'."""
        if event.kind == "forward":
            module = next(self.facts.things(event.subject), None)
            return self.layer(module) or event.name
        return event.name

    def is_bce(self, event: Event) -> bool:
        """Whether an event computes binary cross entropy of probabilities, which raises under autocast."""
        if event.kind == "forward":
            layers = {self.layer(module) for module in self.facts.things(event.subject)}
            return layers == {"torch.nn.BCELoss"} and event not in self.followed
        return event.name == "torch.nn.functional.binary_cross_entropy"

    def origins(self, value: Value | None, through: frozenset[str] = KEEPS) -> list[Event]:
        """The events that made a value; empty if one of them is unknown.

        Args:
            through: methods of tensors that do not count as origins; the origins of their tensor count.
        """
        found: dict[Event, None] = {}
        pending: list[Value] = [value] if value is not None else []
        seen: set[Value] = set()
        while pending:
            item = pending.pop()
            for option, _ in options_of(item):
                if option in seen:
                    continue
                seen.add(option)
                event = option.made if isinstance(option, Thing) else None
                if event is not None and event.subject is not None and event.name in through:
                    pending.append(event.subject)
                elif event is not None and event.name in _KEEPS_FIRST and event.first is not None:
                    pending.append(event.first)
                elif (
                    isinstance(option, Thing)
                    and option.operation
                    and option.operation[0] == "[]"
                    and "[]" in through
                ):
                    pending.append(option.operation[1][0])
                elif event is None:
                    return []
                else:
                    found[event] = None
        return list(found)

    def is_data(self, value: Value | None) -> bool:
        """Whether a value is a tensor: it is made as one, or it is part of a loop's item, is passed to a call
        and never called itself."""
        for thing in self.facts.things(value):
            if thing.kind == "tensor":
                return True
            operator, operands = thing.operation or ("", ())
            whole = operands[0] if operator == "[]" else None
            if isinstance(whole, Thing) and whole.operation is not None and whole.operation[0] == "each":
                uses = [event for event in self._readers.get(thing, ()) if event.kind in ("call", "forward")]
                fed = any(thing in self.parts(item) for event in uses for item in event.arguments.values())
                called = any(event.subject is thing and event.name[:1] != "." for event in uses)
                return fed and not called
        return False

    def outermost(self, event: Event, seen_from: Event) -> Event | None:
        """The outermost forward around an event that is not around `seen_from` as well."""
        around = list(seen_from.around)
        found = None
        for forward in event.around:
            if forward in around:
                break
            found = forward
        return found

    def computed_with(self, value: Value | None) -> Iterator[Event]:
        """The events whose results a value is computed from, except those that only read shapes and the
        like."""
        seen: set[Value] = set()
        pending: list[Value] = [value] if value is not None else []
        while pending:
            for part in self.parts(pending.pop()):
                if part not in seen and part.made is not None and part.made.name not in _ASKS:
                    yield part.made
                    pending.extend(part.made.inputs[:1] if part.made.name in _LIKE else part.made.inputs)
                seen.add(part)

    def readers_of_parts(self, value: Value | None) -> list[Event]:
        """The events that read a value or something that it holds."""
        return [event for part in self.parts(value) for event in self.readers(part)]

    def together(self, *events: Event) -> bool:
        """Whether one run can do all of these events."""
        return not any(
            exclude(one.path, other.path)
            for position, one in enumerate(events)
            for other in events[:position]
        )

    def only_readers(self, module: Thing) -> list[Thing] | None:
        """The modules that read the results of a module, over all of its calls; None if anything else may
        read them, run the module or use its parameters."""
        forwards = self.forwards.get(module, ())
        readers = [self.readers(event.result) for event in forwards]
        if not all(readers) or self.is_used_otherwise(module):
            return None
        found: dict[Thing, None] = {}
        for event in dict.fromkeys(event for events in readers for event in events):
            if event.kind != "forward":
                return None
            found.update(dict.fromkeys(self.facts.things(event.subject)))
        return list(found)

    def is_used_otherwise(self, module: Thing) -> bool:
        """Whether unknown code gets a module, which it may run or change, or a forward reads its
        parameters."""
        used = {"make", "forward", "duplicate", "initialise", "set", "return"}
        for event in self._readers.get(module, ()):
            if event.kind not in used and event.subject is not module:
                return True
        if module in self._given_away or module in self._trained_by_others:
            return True
        parameters = [module.fields[key] for key in ("@weight", "@bias") if key in module.fields]
        return any(event.inside is not None for item in parameters for event in self.readers(item))

    @cached_property
    def _given_away(self) -> frozenset[Thing]:
        """The modules that a forward passes to unknown code, directly or in a container."""
        return frozenset(
            module
            for event in self.record.of("call", "escape", "checkpoint")
            if event.inside is not None
            for value in event.arguments.values()
            for holder in self.facts.kinds(value, "module")
            for module in modules_in(holder)
        )

    @cached_property
    def _trained_by_others(self) -> frozenset[Thing]:
        """The modules whose parameters go to unknown code, which may treat each matrix by itself."""
        return frozenset(
            module
            for event in self.record.of("call", "escape")
            for value in event.arguments.values()
            for parameters in self.facts.kinds(value, "parameters")
            for owner in self.facts.kinds(parameters.fields.get("over"), "module")
            for module in modules_in(owner)
        )

    def symbol(self, value: Value | None) -> str:
        """The library name that a value is; '' for anything else."""
        return value.name if isinstance(value, Symbol) else ""

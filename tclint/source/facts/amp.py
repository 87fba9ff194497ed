"""Mixed precision in one file: gradient modes, scalers by name, frameworks, optimizers."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from tclint.source.facts.autocasts import Autocasts
from tclint.source.facts.manual_loss_scaling import computes_with_scale, rescales_gradients
from tclint.source.names.frameworks import names
from tclint.source.names.resolve import Resolver
from tclint.source.syntax.tables import (
    Attribute,
    Call,
    Choice,
    Expression,
    Function,
    Tables,
    dotted,
    method_of,
    render,
)

STEPS = frozenset(("step", "first_step", "second_step"))
"""Methods of optimizers that update parameters; the last two are those of sharpness-aware minimization."""


@dataclass
class Amp:
    """Answers about mixed precision in one file."""

    resolver: Resolver
    _of_classes: dict[tuple[int, str], bool] = field(default_factory=dict, repr=False)
    _of_torch_optim: dict[tuple[int, str], bool] = field(default_factory=dict, repr=False)

    @property
    def tables(self) -> Tables:
        return self.resolver.tables

    @cached_property
    def autocasts(self) -> Autocasts:
        """Autocast regions."""
        return Autocasts(self.resolver)

    # -- gradients

    def gradients_on(self, function: Function, block: int) -> bool:
        """False inside `torch.no_grad()` and its like, as a with block or a decorator."""
        for enclosing in function.enclosing(block):
            for item in function.blocks[enclosing].items:
                mode = self._gradient_mode(function, item.value)
                if mode is not None:
                    return mode
        outer = self.tables.functions[function.parent] if function.parent >= 0 else function
        for decorator in function.decorators:
            mode = self._gradient_mode(outer, decorator)
            if mode is not None:
                return mode
        return True

    def _gradient_mode(self, function: Function, expression: Expression) -> bool | None:
        name = dotted(expression.function if isinstance(expression, Call) else expression)
        if not name:
            return None
        qualified = self.resolver.qualified(function, name)
        if any(candidate in names().gradients_off for candidate in qualified):
            return False
        if any(candidate in names().gradients_on for candidate in qualified):
            return True
        if "torch.set_grad_enabled" in qualified and isinstance(expression, Call) and expression.arguments:
            possible = self.resolver.evaluate(function, expression.arguments[0].value)
            if possible.certain:
                return bool(possible.values[0])
        return None

    # -- scalers, frameworks, optimizers

    @cached_property
    def scaler_name(self) -> str | None:
        """An identifier of the file that speaks of scaling losses or gradients; None when there is none."""
        known = names()
        data_scalers = {
            target
            for function, event in self.tables.assignments
            if isinstance(event.value, Call)
            for target in event.targets
            if dotted(event.value.function).rpartition(".")[2] in known.not_loss_scalers
        }
        ignored = known.not_loss_scalers | {target.rpartition(".")[2] for target in data_scalers}
        for identifier in sorted(self.tables.identifiers - ignored):
            squeezed = identifier.lower().replace("_", "")
            if any(word in squeezed for word in known.scaler_words):
                return identifier
        return None

    @cached_property
    def framework(self) -> str | None:
        """A framework that the file imports and that may scale losses itself."""
        for function in self.tables.functions:
            for item in function.imports:
                found = names().framework_of(item.qualified)
                if found is not None:
                    return found
        return None

    @cached_property
    def rescales_gradients(self) -> bool:
        """The file multiplies or divides `.grad`: scaling by hand."""
        return rescales_gradients(self.tables)

    @cached_property
    def computes_with_scale(self) -> bool:
        """The file multiplies or divides by a scaler's scale: unscaling by hand."""
        return computes_with_scale(self.tables)

    @cached_property
    def steps_optimizer(self) -> bool:
        """The file calls `step` on something that looks like an optimizer: it trains."""
        for function, event in self.tables.calls:
            receiver, method = method_of(event.call)
            if method in STEPS and receiver is not None and self.is_optimizer(function, receiver):
                return True
        return False

    def is_optimizer(self, function: Function, receiver: Expression) -> bool:
        """Whether it looks like an optimizer: by its name, or because torch.optim made it."""
        last = render(receiver).lower()
        if "sched" in last.rpartition(".")[2]:
            return False
        if "opt" in last or "adam" in last or "sgd" in last:
            return True
        name = dotted(receiver)
        return bool(name) and self.is_of_torch_optim(function, name)

    def is_of_torch_optim(self, function: Function, name: str) -> bool:
        """A class of torch.optim makes it, `optimizer = SGD(...) if weights else None` included."""
        key = function.index, name
        if key not in self._of_torch_optim:
            self._of_torch_optim[key] = self._made_by_torch_optim(function, name)
        return self._of_torch_optim[key]

    def _made_by_torch_optim(self, function: Function, name: str) -> bool:
        for scope, item in self.resolver.definitions(function, name)[0]:
            made = (item.value.first, item.value.second) if isinstance(item.value, Choice) else (item.value,)
            for value in made:
                called = self.resolver.called(scope, value) if isinstance(value, Call) else ()
                if any(candidate.startswith("torch.optim.") for candidate in called):
                    return True
        return False

    def is_tensor_backward(self, function: Function, call: Call) -> bool:
        """Whether `x.backward(...)` is Tensor.backward, not a method of an engine, a model or a trainer."""
        receiver, method = method_of(call)
        if receiver is None or method != "backward":
            return False
        positional = [argument for argument in call.arguments if not argument.keyword]
        text = render(receiver)
        if positional and "loss" not in text.lower():
            return False
        if isinstance(receiver, Call):
            last = method_of(receiver)[1]
            return last != "super" and not last[:1].isupper()
        name = dotted(receiver) or (receiver.name if isinstance(receiver, Attribute) else "")
        last = name.rpartition(".")[2]
        if last.lower() in names().not_tensors or last[:1].isupper():
            return last[:1].isupper() and "loss" in last.lower()
        return not (name and self._made_by_class(function, name))

    def _made_by_class(self, function: Function, name: str) -> bool:
        """A class of the file makes it."""
        key = function.index, name
        if key not in self._of_classes:
            self._of_classes[key] = any(
                maker.kind == "class"
                for scope, item in self.resolver.definitions(function, name)[0]
                if isinstance(item.value, Call)
                for maker in self.resolver.local_functions(scope, item.value.function)
            )
        return self._of_classes[key]

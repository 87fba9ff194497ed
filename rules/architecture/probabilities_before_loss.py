"""A rule on losses that are handed probabilities instead of logits."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.names.queries import is_test_path, keyword, names_in, unplaced
from tclint.source.syntax.tables import (
    Call,
    CallEvent,
    Expression,
    Function,
    Name,
    Return,
    Subscript,
    dotted,
    method_of,
    render,
)
from tclint.source.training.across_files import functions_run_by

_SIGMOID = ("torch.sigmoid", "torch.nn.functional.sigmoid", "torch.special.expit")
_SOFTMAX = ("torch.softmax", "torch.nn.functional.softmax")
_BCE = ("torch.nn.functional.binary_cross_entropy",)
_NLL = ("torch.nn.functional.nll_loss",)


class ProbabilitiesBeforeLoss(SourceRule):
    """Sigmoid before binary cross-entropy, or log of a softmax before NLL.

    What it does
    Finds `binary_cross_entropy(torch.sigmoid(x), y)` and `nll_loss(torch.log(torch.softmax(x)), y)`, as
    functions and as `nn.BCELoss` and `nn.NLLLoss`, where the probabilities come from the same function, or
    from a model of the project whose forward ends in a sigmoid.

    Why it costs
    Probabilities close to 0 or 1 round to 0 or 1, in float16 already from 1 - 2^-12 on, and their
    logarithm is lost or infinite. The versions that take logits use the log-sum-exp form, which is
    stable, with one kernel fewer; and autocast refuses `binary_cross_entropy` on CUDA.

    Example
        loss = F.binary_cross_entropy(torch.sigmoid(logits), labels)

    Use instead
        loss = F.binary_cross_entropy_with_logits(logits, labels)

    When it does not apply
    Metrics under `torch.no_grad()`, probabilities that are clamped on purpose, `log_softmax` before
    `nll_loss`, which is stable.
    """

    code = "ARC012"
    name = "sigmoid-bceloss"
    level = "warning"
    confidence = "high"
    sources = (
        "PyTorch Automatic Mixed Precision package, Prefer binary_cross_entropy_with_logits over "
        "binary_cross_entropy: autocast raises an error for the latter",
        "PyTorch torch.nn.BCEWithLogitsLoss: more stable by the log-sum-exp trick",
    )
    triggers = ("binary_cross_entropy(", "BCELoss", "nll_loss", "NLLLoss")
    requires = (".",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        if is_test_path(context.path):
            return
        models: set[str] = set()
        for function, event in context.tables.calls:
            if not event.call.arguments:
                continue
            loss = _loss_kind(context, function, event.call)
            if not loss or not context.amp.gradients_on(function, event.block):
                continue
            first = keyword(event.call, "input", 0)
            made = _origin(context, function, first, event) if first is not None else None
            if made is None:
                continue
            where = "the sigmoid"
            if loss == "bce" and _is_sigmoid(context, function, made):
                better, what = "binary_cross_entropy_with_logits", "sigmoid"
            elif loss == "bce" and isinstance(made, Call) and _ends_in(context, function, made):
                better, what = "binary_cross_entropy_with_logits", "sigmoid"
                where = f"the forward of `{render(made.function)}` ends in it"
                if where in models:
                    continue
                models.add(where)
            elif loss == "nll" and _is_log_softmax(context, function, made):
                better, what, where = "cross_entropy", "log of a softmax", "the log of a softmax"
            else:
                continue
            yield self.finding(
                context.location(event.call.node_id),
                f"`{context.excerpt(event.call.node_id)}` takes the {what} of logits: probabilities "
                "near 0 "
                "and 1 lose their logarithm.",
                related=(context.related(made.node_id, where),) if isinstance(made, Call) else (),
                evidence={"loss": loss, "instead": better, "function": function.qualified_name},
                fix=Fix(f"Use torch.nn.functional.{better} on the logits (or its module)."),
                identity=f"{function.qualified_name}:{render(event.call)}",
            )


_KEEP = ("squeeze", "view", "reshape", "flatten", "unsqueeze", "float", "to", "cuda", "contiguous")


def _loss_kind(context: SourceContext, function: Function, call: Call) -> str:
    """'bce' or 'nll' for a call of such a loss, as a function or as a module."""
    called = context.resolver.called(function, call)
    if any(name in _BCE for name in called):
        return "bce"
    if any(name in _NLL for name in called):
        return "nll"
    if called:
        return ""
    made = call.function
    values: list[Expression] = [made] if isinstance(made, Call) else []
    scopes = [function] * len(values)
    if isinstance(made, Name):
        for scope, item in context.resolver.definitions(function, made.dotted)[0]:
            values.append(unplaced(item.value))
            scopes.append(scope)
    kinds = set()
    for scope, value in zip(scopes, values, strict=True):
        names = context.resolver.called(scope, value) if isinstance(value, Call) else ()
        kinds.add("bce" if "torch.nn.BCELoss" in names else "nll" if "torch.nn.NLLLoss" in names else "")
    return kinds.pop() if len(kinds) == 1 else ""


def _origin(
    context: SourceContext, function: Function, expression: Expression, at: CallEvent | Return
) -> Expression | None:
    """What a value is before reshaping; names are followed to their last assignment before the call."""
    for _ in range(6):
        if isinstance(expression, Name):
            earlier = [
                item
                for item in context.resolver.assignments(function, expression.dotted)
                if item.node_id < (at.call if isinstance(at, CallEvent) else at).node_id
            ]
            if not earlier:
                return None
            last = earlier[-1]
            visible = last.block in function.enclosing(at.block)
            if (
                last.operator
                or last.unpacked
                or not visible
                or (expression.dotted in names_in(last.value) and (isinstance(last.value, Name)))
            ):
                return None
            expression = last.value
            continue
        if isinstance(expression, Call):
            receiver, method = method_of(expression)
            if receiver is not None and method in _KEEP and not context.resolver.called(function, expression):
                expression = receiver
                continue
        if isinstance(expression, Subscript):
            expression = expression.value
            continue
        return expression
    return None


def _is_sigmoid(context: SourceContext, function: Function, value: Expression) -> bool:
    return _is_call(context, function, value, _SIGMOID, "sigmoid", "torch.nn.Sigmoid")


def _ends_in(context: SourceContext, function: Function, value: Expression) -> bool:
    """`model(x)` of a model of the project whose forward ends in a sigmoid on every way out."""
    if not isinstance(value, Call) or context.resolver.called(function, value):
        return False
    forwards = list(functions_run_by(context, function, value, (b"sigmoid", b"Sigmoid")))
    return bool(forwards) and all(
        bool(returned := [event for event in forward.events if isinstance(event, Return)])
        and all(_gives_probabilities(where, forward, event) for event in returned)
        for where, forward in forwards
    )


def _gives_probabilities(context: SourceContext, forward: Function, event: Return) -> bool:
    made = _origin(context, forward, event.value, event)
    if made is None or event.is_yield:
        return False
    if _is_sigmoid(context, forward, made):
        return True
    name = dotted(made.function) if isinstance(made, Call) else ""
    written = context.resolver.definitions(forward, name)[0] if name.startswith("self.") else []
    # `self.main = nn.Sequential(..., nn.Sigmoid())`
    return bool(written) and all(
        isinstance(item.value, Call)
        and "torch.nn.Sequential" in context.resolver.called(scope, item.value)
        and bool(item.value.arguments)
        and isinstance(last := item.value.arguments[-1].value, Call)
        and "torch.nn.Sigmoid" in context.resolver.called(scope, last)
        for scope, item in written
    )


def _is_call(
    context: SourceContext,
    function: Function,
    expression: Expression,
    functions: tuple[str, ...],
    method: str,
    module: str,
) -> bool:
    """A call of one of the functions, of the method on a tensor, or of a module of that class."""
    if not isinstance(expression, Call):
        return False
    called = context.resolver.called(function, expression)
    if called:
        return any(name in functions for name in called)
    receiver, last = method_of(expression)
    if last == method and receiver is not None and not expression.arguments:
        return True
    if isinstance(expression.function, Call):
        return module in context.resolver.called(function, expression.function)
    name = dotted(expression.function)
    made = context.resolver.definitions(function, name)[0] if name else []
    return bool(made) and all(
        isinstance(item.value, Call) and module in context.resolver.called(scope, item.value)
        for scope, item in made
    )


def _is_log_softmax(context: SourceContext, function: Function, expression: Expression) -> bool:
    if not isinstance(expression, Call):
        return False
    inner: Expression | None = None
    receiver, method = method_of(expression)
    if "torch.log" in context.resolver.called(function, expression) and expression.arguments:
        inner = expression.arguments[0].value
    elif method == "log" and receiver is not None and not expression.arguments:
        inner = receiver
    if inner is None:
        return False
    if isinstance(inner, Name):
        made = context.resolver.assignments(function, inner.dotted)
        inner = made[-1].value if len(made) == 1 else None
    if not isinstance(inner, Call):
        return False
    named = context.resolver.called(function, inner)
    return any(name in _SOFTMAX for name in named) or (not named and method_of(inner)[1] == "softmax")

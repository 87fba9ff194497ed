"""Rules on calls that cost accuracy or speed for no benefit: probabilities before a loss, unused attention
weights, padding to the longest sequence, feed-forward widths that no multiple divides."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tclint.finding import Finding, Fix
from tclint.rule import Example, Rule, SourceRule
from tclint.source.program import contains, has_star, is_test_path, keyword, names_in, words
from tclint.source.tables import (
    Assignment,
    Call,
    CallEvent,
    Expression,
    Function,
    Literal,
    Name,
    Operation,
    Subscript,
    dotted,
    method_of,
    render,
)

if TYPE_CHECKING:
    from tclint.source.context import SourceContext

_SIGMOID = ("torch.sigmoid", "torch.nn.functional.sigmoid", "torch.special.expit")
_SOFTMAX = ("torch.softmax", "torch.nn.functional.softmax")
_BCE = ("torch.nn.functional.binary_cross_entropy",)
_NLL = ("torch.nn.functional.nll_loss",)
_COLLATORS = tuple(
    f"transformers.{name}"
    for name in (
        "DataCollatorWithPadding",
        "DataCollatorForSeq2Seq",
        "DataCollatorForTokenClassification",
        "DataCollatorForLanguageModeling",
    )
)
_ARGUMENTS = (
    "transformers.TrainingArguments",
    "transformers.Seq2SeqTrainingArguments",
    "accelerate.Accelerator",
)
_ROUNDING = words("multiple multiples divisible round ceil floor align pad next")


class ProbabilitiesBeforeLoss(SourceRule):
    """Sigmoid before binary cross-entropy, or log of a softmax before NLL.

    What it does
    Finds `binary_cross_entropy(torch.sigmoid(x), y)` and `nll_loss(torch.log(torch.softmax(x)), y)`, as
    functions and as `nn.BCELoss` and `nn.NLLLoss`, where the probabilities come from the same function.

    Why it costs
    Probabilities close to 0 or 1 round to 0 or 1, in float16 already from 1 - 2^-12 on, and their logarithm
    is lost or infinite. The versions on logits use the log-sum-exp form, which is exact there, in one kernel
    less; and autocast refuses `binary_cross_entropy` on CUDA.

    Example
        loss = F.binary_cross_entropy(torch.sigmoid(logits), labels)

    Use instead
        loss = F.binary_cross_entropy_with_logits(logits, labels)

    When it does not apply
    Metrics under `torch.no_grad()`, probabilities that are clamped on purpose, `log_softmax` before
    `nll_loss`, which is stable.

    References
    PyTorch, Automatic Mixed Precision package, "Prefer binary_cross_entropy_with_logits over
    binary_cross_entropy".
    PyTorch, torch.nn.BCEWithLogitsLoss.
    """

    code = "ARC012"
    name = "sigmoid-bceloss"
    since = "0.1.0"
    level = "warning"
    confidence = "high"
    sources = (
        "PyTorch docs, Automatic Mixed Precision package: Prefer binary_cross_entropy_with_logits",
        "PyTorch docs, torch.nn.BCEWithLogitsLoss",
    )
    triggers = ("binary_cross_entropy(", "BCELoss", "nll_loss", "NLLLoss")
    requires = (".",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        if is_test_path(context.path):
            return
        for function in context.tables.functions:
            for event in function.events:
                if not isinstance(event, CallEvent) or not event.call.arguments:
                    continue
                loss = _loss_kind(context, function, event.call)
                if not loss or not context.amp.gradients_on(function, event.block):
                    continue
                first = keyword(event.call, "input", 0)
                made = _origin(context, function, first, event) if first is not None else None
                if made is None:
                    continue
                if loss == "bce" and _is_call(
                    context, function, made, _SIGMOID, "sigmoid", "torch.nn.Sigmoid"
                ):
                    better, what = "binary_cross_entropy_with_logits", "sigmoid"
                elif loss == "nll" and _is_log_softmax(context, function, made):
                    better, what = "cross_entropy", "log of a softmax"
                else:
                    continue
                yield self.finding(
                    context.location(event.call.site),
                    f"`{context.excerpt(event.call.site)}` takes the {what} of logits: probabilities near 0 "
                    "and 1 lose their logarithm.",
                    related=(context.related(made.site, f"the {what}"),) if isinstance(made, Call) else (),
                    evidence={"loss": loss, "instead": better, "function": function.qualified_name},
                    fix=Fix(f"Use torch.nn.functional.{better} on the logits (or its module)."),
                    identity=f"{function.qualified_name}:{render(event.call)}",
                )

    valid = (
        Example(
            source="""\
import torch.nn.functional as F

loss = F.binary_cross_entropy_with_logits(logits, labels)
other = F.nll_loss(F.log_softmax(logits, -1), labels)
""",
            note="on logits; log_softmax is stable",
        ),
        Example(
            source="""\
import torch
import torch.nn.functional as F

with torch.no_grad():
    metric = F.binary_cross_entropy(torch.sigmoid(logits), labels)
""",
            note="a metric",
        ),
        Example(
            source="""\
import torch
import torch.nn.functional as F

p = torch.sigmoid(logits).clamp(1e-4, 1 - 1e-4)
loss = F.binary_cross_entropy(p, labels)
other = F.binary_cross_entropy(probabilities, labels)
""",
            note="clamped on purpose; and from elsewhere",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch
import torch.nn.functional as F

loss = F.binary_cross_entropy(torch.sigmoid(logits), labels)
""",
            note="in the call",
        ),
        Example(
            source="""\
import torch
from torch import nn

criterion = nn.BCELoss()

def step(model, x, y):
    p = torch.sigmoid(model(x)).squeeze(1)
    return criterion(p, y)
""",
            note="through a variable",
        ),
        Example(
            source="""\
import torch
import torch.nn.functional as F

def loss(logits, labels):
    return F.nll_loss(torch.log(F.softmax(logits, dim=1)), labels)
""",
            note="cross_entropy is the same in one stable kernel",
        ),
    )


class MhaNeedWeights(SourceRule):
    """MultiheadAttention computes weights that nobody uses.

    What it does
    Finds calls of an `nn.MultiheadAttention` whose second result is thrown away (`out, _ = attn(...)`,
    `attn(...)[0]`) without `need_weights=False`.

    Why it costs
    `need_weights` is True by default. The layer then computes softmax(QK^T) in memory and averages it over
    the heads, instead of calling scaled_dot_product_attention, whose fused kernels never write the matrix.

    Example
        out, _ = self.attn(x, x, x)

    Use instead
        out, _ = self.attn(x, x, x, need_weights=False)

    When it does not apply
    Weights that are used; arguments through `**kwargs`.

    References
    PyTorch, torch.nn.MultiheadAttention: need_weights, and torch/nn/functional.py,
    multi_head_attention_forward.
    """

    code = "ARC017"
    name = "mha-need-weights"
    since = "0.1.0"
    level = "info"
    confidence = "high"
    sources = ("PyTorch docs, torch.nn.MultiheadAttention: need_weights",)
    triggers = ("MultiheadAttention",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        if is_test_path(context.path):
            return
        for function in context.tables.functions:
            for event in function.events:
                value = getattr(event, "value", None)
                call = _thrown_weights(function, event)
                if call is None or value is None or has_star(call):
                    continue
                if keyword(call, "need_weights", 4) is not None or not _is_attention(context, function, call):
                    continue
                name = render(call.function)
                yield self.finding(
                    context.location(call.site),
                    f"`{name}` computes attention weights that are thrown away, and so misses the fused "
                    "attention kernels.",
                    evidence={"layer": name, "need_weights": True, "function": function.qualified_name},
                    fix=Fix("Pass need_weights=False."),
                    identity=f"{function.qualified_name}:{name}",
                )

    valid = (
        Example(
            source="""\
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = nn.MultiheadAttention(512, 8)

    def forward(self, x):
        out, _ = self.attn(x, x, x, need_weights=False)
        return out
""",
            note="not computed",
        ),
        Example(
            source="""\
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = nn.MultiheadAttention(512, 8)

    def forward(self, x):
        out, weights = self.attn(x, x, x)
        return out, weights
""",
            note="used",
        ),
        Example(
            source="""\
from mylib import MultiheadAttention

class Block:
    def __init__(self):
        self.attn = MultiheadAttention(512, 8)

    def forward(self, x):
        return self.attn(x, x, x)[0]
""",
            note="another library's layer",
        ),
    )
    invalid = (
        Example(
            source="""\
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = nn.MultiheadAttention(512, 8, batch_first=True)

    def forward(self, x):
        out, _ = self.attn(x, x, x)
        return x + out
""",
            note="the second result goes to _",
        ),
        Example(
            source="""\
import torch.nn as nn

class Layer(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(d_model, 8)

    def forward(self, x, mask=None):
        x = x + self.self_attn(x, x, x, attn_mask=mask)[0]
        return x
""",
            note="only the first result is taken",
        ),
        Example(
            source="""\
import torch

attention = torch.nn.MultiheadAttention(512, 8)
context, _unused = attention(query, key, value)
""",
            note="a name that says so",
        ),
    )


class SequencePad(SourceRule):
    """Batches padded to the longest sequence under mixed precision.

    What it does
    Finds Hugging Face padding collators without `pad_to_multiple_of` in files that train with fp16 or bf16.

    Why it costs
    Every batch is as long as its longest sequence, so that batch times length, the M of every linear layer,
    and the sides of the attention matrices are rarely multiples of 8.

    Example
        collator = DataCollatorWithPadding(tokenizer)

    Use instead
        collator = DataCollatorWithPadding(tokenizer, pad_to_multiple_of=8)

    When it does not apply
    Sequences of one length (padding="max_length", packing, grouped texts); variable-length attention
    kernels; float32 training.

    References
    NVIDIA, Train With Mixed Precision, "Satisfying Tensor Core Shape Constraints": sequences in multiples
    of 8.
    """

    code = "DIM008"
    name = "sequence-pad"
    since = "0.1.0"
    level = "info"
    confidence = "high"
    sources = ("NVIDIA, Train With Mixed Precision: Satisfying Tensor Core Shape Constraints",)
    triggers = ("DataCollator",)
    requires = ("transformers",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        if is_test_path(context.path) or _fixed_length(context):
            return
        precision = _half_training(context)
        if not precision:
            return
        for called in program.calls(*_COLLATORS):
            if has_star(called.call) or keyword(called.call, "pad_to_multiple_of") is not None:
                continue
            last = called.qualified.rpartition(".")[2]
            yield self.finding(
                context.location(called.call.site),
                f"{last} pads to the longest sequence of each batch, rarely a multiple of 8, in {precision} "
                "training.",
                evidence={"collator": last, "pad_to_multiple_of": None, "precision": precision},
                fix=Fix("Pass pad_to_multiple_of=8 (64 for A100 and newer)."),
                identity=f"{called.function.qualified_name}:{last}",
            )

    valid = (
        Example(
            source="""\
from transformers import DataCollatorWithPadding, TrainingArguments

arguments = TrainingArguments("out", fp16=True)
collator = DataCollatorWithPadding(tokenizer, pad_to_multiple_of=8)
""",
            note="a multiple of 8",
        ),
        Example(
            source="""\
from transformers import DataCollatorWithPadding, TrainingArguments

arguments = TrainingArguments("out")
collator = DataCollatorWithPadding(tokenizer)
""",
            note="float32",
        ),
        Example(
            source="""\
from transformers import DataCollatorWithPadding, TrainingArguments

arguments = TrainingArguments("out", bf16=True)
encoded = tokenizer(texts, padding="max_length", max_length=512, truncation=True)
collator = DataCollatorWithPadding(tokenizer)
""",
            note="all sequences have one length",
        ),
    )
    invalid = (
        Example(
            source="""\
from transformers import DataCollatorWithPadding, TrainingArguments

arguments = TrainingArguments("out", fp16=True)
collator = DataCollatorWithPadding(tokenizer)
""",
            note="fp16",
        ),
        Example(
            source="""\
from accelerate import Accelerator
from transformers import DataCollatorForSeq2Seq

accelerator = Accelerator(mixed_precision="bf16")
collator = DataCollatorForSeq2Seq(tokenizer, model=model)
""",
            note="through Accelerate",
        ),
        Example(
            source="""\
import transformers

def main():
    args = transformers.Seq2SeqTrainingArguments(output_dir="out", bf16=True)
    data_collator = transformers.DataCollatorForTokenClassification(tokenizer)
""",
            note="in a function",
        ),
    )


class SwigluTwoThirds(SourceRule):
    """A gated feed-forward layer of 8/3 of the width, unrounded.

    What it does
    Finds hidden sizes computed as `int(2 * x / 3)` or `int(8 / 3 * x)` that are given to `nn.Linear` as they
    are.

    Why it costs
    Two thirds of a power of two is never a multiple of 8: 4096 becomes 10922. On an H100 the product ran at
    272 TFLOP/s, with 10944 at 398.

    Example
        hidden = int(8 * dim / 3)
        self.w1 = nn.Linear(dim, hidden)

    Use instead
        hidden = 256 * ((int(8 * dim / 3) + 255) // 256)

    When it does not apply
    Sizes that are rounded to a multiple afterwards, or known to be one.

    References
    Anthony et al., The Case for Co-Designing Model Architectures with Hardware (arXiv 2401.14489), "SwiGLU".
    Bekman, Machine Learning Engineering, "SwiGLU-based MLP".
    """

    code = "DIM014"
    name = "swiglu-two-thirds"
    since = "0.1.0"
    level = "warning"
    confidence = "high"
    sources = (
        "Anthony et al., The Case for Co-Designing Model Architectures with Hardware (arXiv 2401.14489)",
    )
    triggers = ("int(",)
    requires = ("Linear",)
    pattern = re.compile(rb"/\s*3\b(?!\.\d)|/\s*3\.0*\b")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        for function in context.tables.functions:
            for event in function.events:
                if not isinstance(event, Assignment) or event.operator or len(event.targets) != 1:
                    continue
                if not _two_thirds(event.value) or _rounded(function, event):
                    continue
                name = event.targets[0]
                used = [
                    called
                    for called in program.calls("torch.nn.Linear")
                    if called.function.index == function.index
                    and any(dotted(argument.value) == name for argument in called.call.arguments)
                ]
                if not used or _known_multiple(context, function, event.value):
                    continue
                yield self.finding(
                    context.location(event.site),
                    f"`{render(event.value)}` is rarely a multiple of 8, and it is a side of "
                    f"{len(used)} linear layer{'s' if len(used) > 1 else ''}.",
                    related=(context.related(used[0].call.site, "used here"),),
                    evidence={"size": render(event.value), "layers": len(used)},
                    fix=Fix(f"Round it up to a multiple of 256: `{name} = 256 * (({name} + 255) // 256)`."),
                    identity=f"{function.qualified_name}:{name}",
                )

    valid = (
        Example(
            source="""\
from torch import nn

class FeedForward(nn.Module):
    def __init__(self, dim, multiple_of=256):
        super().__init__()
        hidden = int(2 * (4 * dim) / 3)
        hidden = multiple_of * ((hidden + multiple_of - 1) // multiple_of)
        self.w1 = nn.Linear(dim, hidden)
""",
            note="rounded afterwards",
        ),
        Example(
            source="""\
from torch import nn

class FeedForward(nn.Module):
    def __init__(self, dim):
        super().__init__()
        hidden = int(8 * dim / 3) // 64 * 64
        self.w1 = nn.Linear(dim, hidden)
""",
            note="rounded at once",
        ),
        Example(
            source="""\
from torch import nn

def head(dim):
    third = int(dim / 3)
    return nn.Linear(dim, third)
""",
            note="not two thirds of a gated layer",
        ),
    )
    invalid = (
        Example(
            source="""\
from torch import nn

class FeedForward(nn.Module):
    def __init__(self, dim):
        super().__init__()
        hidden = int(2 * (4 * dim) / 3)
        self.w1 = nn.Linear(dim, hidden, bias=False)
        self.w2 = nn.Linear(hidden, dim, bias=False)
        self.w3 = nn.Linear(dim, hidden, bias=False)
""",
            note="as in LLaMA, without its rounding",
        ),
        Example(
            source="""\
import torch.nn as nn

class SwiGLU(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        d_ff = int(8 / 3 * d_model)
        self.gate = nn.Linear(d_model, d_ff)
""",
            note="8/3 of the width",
        ),
        Example(
            source="""\
from torch import nn

class GLU(nn.Module):
    def __init__(self, dim, mult=4):
        super().__init__()
        inner = int(dim * mult * 2 / 3)
        self.proj = nn.Linear(dim, inner * 2)
        self.out = nn.Linear(inner, dim)
""",
            note="two thirds of a multiple",
        ),
    )


RULES: tuple[type[Rule], ...] = (ProbabilitiesBeforeLoss, MhaNeedWeights, SequencePad, SwigluTwoThirds)

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
            values.append(_unplaced(item.value))
            scopes.append(scope)
    kinds = set()
    for scope, value in zip(scopes, values, strict=True):
        names = context.resolver.called(scope, value) if isinstance(value, Call) else ()
        kinds.add("bce" if "torch.nn.BCELoss" in names else "nll" if "torch.nn.NLLLoss" in names else "")
    return kinds.pop() if len(kinds) == 1 else ""


def _unplaced(value: Expression) -> Expression:
    """`nn.BCELoss()` of `nn.BCELoss().cuda()`."""
    while isinstance(value, Call):
        receiver, method = method_of(value)
        if method not in ("cuda", "to") or receiver is None:
            return value
        value = receiver
    return value


def _origin(
    context: SourceContext, function: Function, expression: Expression, at: CallEvent
) -> Expression | None:
    """What a value is before reshaping; names are followed to their last assignment before the call."""
    for _ in range(6):
        if isinstance(expression, Name):
            earlier = [
                item
                for item in context.resolver.assignments(function, expression.dotted)
                if item.site < at.call.site
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


def _thrown_weights(function: Function, event: object) -> Call | None:
    """The call in `out, _ = call(...)` or `call(...)[0]`."""
    value = getattr(event, "value", None)
    if isinstance(event, Assignment) and event.unpacked and len(event.targets) == 2:
        second = event.targets[1]
        if isinstance(value, Call) and second.startswith("_") and not _read_later(function, second):
            return value
        return None
    found: list[Call] = []

    def look(part: Expression) -> bool:
        if isinstance(part, Subscript) and part.key == Literal(0) and isinstance(part.value, Call):
            found.append(part.value)
        return False

    if value is not None and not isinstance(event, CallEvent):
        contains(value, look)
    return found[0] if found else None


def _read_later(function: Function, name: str) -> bool:
    return name != "_" and any(
        name in names_in(event.value) for event in function.events if isinstance(event, Assignment)
    )


def _is_attention(context: SourceContext, function: Function, call: Call) -> bool:
    name = dotted(call.function)
    made = context.resolver.definitions(function, name)[0] if name else []
    return bool(made) and all(
        isinstance(item.value, Call)
        and "torch.nn.MultiheadAttention" in context.resolver.called(scope, _unplaced(item.value))  # type: ignore[arg-type]
        for scope, item in made
    )


def _half_training(context: SourceContext) -> str:
    """'fp16' or 'bf16' where the file asks for it."""
    for called in context.program.calls(*_ARGUMENTS):
        for precision in ("fp16", "bf16"):
            if keyword(called.call, precision) == Literal(True):
                return precision
            if keyword(called.call, "mixed_precision") == Literal(precision):
                return precision
    return ""


def _fixed_length(context: SourceContext) -> bool:
    identifiers = context.tables.identifiers
    if identifiers & {
        "max_length_padding",
        "group_texts",
        "packing",
        "flash_attention_2",
        "pad_to_multiple_of",
    }:
        return True
    for function, event, _ in context.program.methods(
        "tokenizer", "__call__", "encode_plus", "batch_encode_plus"
    ):
        del function
        if keyword(event.call, "padding") == Literal("max_length"):
            return True
    return "max_length" in identifiers and any(
        keyword(event.call, "padding") == Literal("max_length")
        for function in context.tables.functions
        for event in function.events
        if isinstance(event, CallEvent)
    )


def _two_thirds(value: Expression) -> bool:
    """`int(...)` around `2 * x / 3` or `8 / 3 * x`, in any order."""
    if not isinstance(value, Call) or dotted(value.function) != "int" or len(value.arguments) != 1:
        return False
    factors, divisors = _factors(value.arguments[0].value)
    numbers = [factor.value for factor in factors if isinstance(factor, Literal)]
    symbols = [factor for factor in factors if not isinstance(factor, Literal)]
    return divisors == [3] and any(number in (2, 4, 8, 16) for number in numbers) and bool(symbols)


def _factors(expression: Expression) -> tuple[list[Expression], list[object]]:
    """The factors and the constant divisors of a product."""
    if isinstance(expression, Operation) and expression.operator == "*":
        left, right = (_factors(operand) for operand in expression.operands)
        return left[0] + right[0], left[1] + right[1]
    if isinstance(expression, Operation) and expression.operator == "/":
        top, bottom = expression.operands
        factors, divisors = _factors(top)
        return factors, [*divisors, bottom.value if isinstance(bottom, Literal) else None]
    return [expression], []


def _rounded(function: Function, made: Assignment) -> bool:
    """The size is changed again later, or handed to something that rounds."""
    name = made.targets[0]
    for event in function.events:
        if isinstance(event, Assignment) and event.site != made.site:
            if name in event.targets or (name in names_in(event.value) and "//" in render(event.value)):
                return True
        elif isinstance(event, CallEvent):
            last = method_of(event.call)[1].lower()
            if any(word in last for word in _ROUNDING) and any(
                name in names_in(argument.value) for argument in event.call.arguments
            ):
                return True
    return False


def _known_multiple(context: SourceContext, function: Function, value: Expression) -> bool:
    inner = value.arguments[0].value if isinstance(value, Call) else value
    possible = context.resolver.evaluate(function, inner)
    number = possible.values[0] if possible.certain else None
    return isinstance(number, int | float) and int(number) % 64 == 0

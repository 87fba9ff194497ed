"""Rules on the switches that decide in which precision float32 work runs: TF32, its two APIs, float64."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from tclint.finding import Finding, Fix, Related
from tclint.rule import Example, Rule, SourceRule
from tclint.source.program import Switch, has_star, is_test_path, keyword, names_in, words
from tclint.source.tables import Assignment, CallEvent, Function, Name, method_of

if TYPE_CHECKING:
    from tclint.source.context import SourceContext
    from tclint.source.program import Training
    from tclint.source.resolve import Resolver

_MATMUL = "torch.backends.cuda.matmul"
_CUDNN = "torch.backends.cudnn"
_SETTER = "torch.set_float32_matmul_precision"
_TF32_WORDS = (
    "allow_tf32",
    "set_float32_matmul_precision",
    "fp32_precision",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "NVIDIA_TF32_OVERRIDE",
)
_OTHER_PRECISIONS = words(
    "autocast bfloat16 float16 half fp16 bf16 mixed gradscaler amp float64 double tf32 quantize quantization"
)
"""Words of identifiers that say that float32 is not, or not always, what the program computes in."""
_SCIENCE = words(
    "gym gymnasium scipy torchdiffeq torchsde gpytorch deepxde sympy control mujoco mujoco_py pybullet jax "
    "torch_geometric dgl stable_baselines3 openai qiskit pennylane e3nn ase openmm pyro"
)
"""Programs whose matrices are tiny, or whose accuracy is the result."""
_ATTENTION = (
    "torch.nn.MultiheadAttention",
    "torch.nn.Transformer",
    "torch.nn.TransformerEncoder",
    "torch.nn.TransformerEncoderLayer",
    "torch.nn.TransformerDecoder",
    "torch.nn.TransformerDecoderLayer",
    "torch.nn.functional.scaled_dot_product_attention",
    "torch.nn.functional.multi_head_attention_forward",
)
_SMALL_FEATURES = 256
"""A matrix product whose sides are all smaller runs in a few microseconds whatever its precision."""


class Tf32MatmulOff(SourceRule):
    """Float32 training of linear or attention layers without TF32.

    What it does
    Finds training loops on CUDA that run in float32, whose model consists of linear and attention layers,
    in a program that never touches a TF32 switch. PyTorch's default is `highest`: matrix products then run
    on the float32 pipes, not on Tensor Cores.

    Why it costs
    On an A100 TF32 Tensor Cores have 156 TFLOP/s, the float32 pipes 19.5; PyTorch measured about 7 times
    the speed on a large product, with a relative error of 2e-3 instead of 4e-5, which training of neural
    networks rarely notices: the accumulation stays float32.

    Example
        for x, y in loader:
            loss = criterion(model(x.cuda()), y.cuda())
            loss.backward()
            optimizer.step()

    Use instead
        torch.set_float32_matmul_precision("high")   # once, before the loop

    When it does not apply
    Compute capability below 8.0; programs under autocast or in another dtype; convolutions, for which cuDNN
    uses TF32 by default; numerical work that needs float32. The rule is silent as soon as this file or one
    that runs with it names a TF32 switch or a precision, when a training framework is imported, when the
    layers are narrower than 256, and when it does not see what the model consists of.

    References
    PyTorch, CUDA semantics, "TensorFloat-32 (TF32) on Ampere (and later) devices".
    PyTorch, Performance Tuning Guide, "Enable TF32".
    PyTorch, torch.set_float32_matmul_precision.
    """

    code = "PRC001"
    name = "tf32-matmul-off"
    since = "0.1.0"
    level = "info"
    confidence = "medium"
    sources = (
        "PyTorch docs, CUDA semantics: TensorFloat-32 (TF32) on Ampere (and later) devices",
        "PyTorch recipes, Performance Tuning Guide: Enable TF32",
        "NVIDIA A100 Tensor Core GPU Architecture: peak rates",
    )
    triggers = (".backward(",)
    requires = ("cuda", ".step(")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        if is_test_path(context.path) or not program.trainings or not program.on_cuda:
            return
        if (
            program.words & _OTHER_PRECISIONS
            or "fp32_precision" in context.tables.identifiers
            or "set_float32_matmul_precision" in context.tables.identifiers
            or context.amp.framework
            or context.amp.scaler_name
        ):
            return
        if _imports(context) & _SCIENCE:
            return
        layers = _matmul_layers(context)
        if not layers:
            return
        if context.neighbours.mention((*_TF32_WORDS, "autocast", "bfloat16", "torch.float16", ".half()")):
            return
        training = program.trainings[0]
        where = training.function.qualified_name or "the module"
        yield self.finding(
            context.location(training.backward.call.site),
            f"This loop trains {layers} in float32 and no TF32 switch is set: matrix products run without "
            "Tensor Cores.",
            related=_loop(context, training),
            evidence={"function": where, "layers": layers, "float32_matmul_precision": "highest (default)"},
            fix=Fix(
                'Call `torch.set_float32_matmul_precision("high")` once before training, on GPUs of compute '
                "capability 8.0 and newer."
            ),
            identity=f"{training.function.qualified_name}",
        )

    valid = (
        Example(
            source="""\
import torch
from torch import nn

torch.set_float32_matmul_precision("high")
model = nn.TransformerEncoder(nn.TransformerEncoderLayer(512, 8), 6).cuda()
for x, y in loader:
    loss = criterion(model(x.cuda()), y.cuda())
    loss.backward()
    optimizer.step()
""",
            note="the switch is set",
        ),
        Example(
            source="""\
import torch
from torch import nn

model = nn.TransformerEncoder(nn.TransformerEncoderLayer(512, 8), 6).cuda()
for x, y in loader:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = criterion(model(x.cuda()), y.cuda())
    loss.backward()
    optimizer.step()
""",
            note="autocast covers the matrix products",
        ),
        Example(
            source="""\
import torch
from torch import nn

model = nn.Sequential(nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.Flatten()).cuda()
for x, y in loader:
    loss = criterion(model(x.cuda()), y.cuda())
    loss.backward()
    optimizer.step()
""",
            note="convolutions use TF32 by default",
        ),
        Example(
            source="""\
import torch
from torch import nn
from scipy.integrate import odeint

model = nn.Sequential(nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 512)).cuda()
for x, y in loader:
    loss = criterion(model(x.cuda()), y.cuda())
    loss.backward()
    optimizer.step()
""",
            note="numerical work may need float32",
        ),
        Example(
            source="""\
import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2)).to("cuda")
for x, y in loader:
    loss = criterion(model(x.cuda()), y.cuda())
    loss.backward()
    optimizer.step()
""",
            note="too narrow for the precision to matter",
        ),
        Example(
            source="""\
import torch
from models import build

model = build().cuda()
for x, y in loader:
    loss = criterion(model(x.cuda()), y.cuda())
    loss.backward()
    optimizer.step()
""",
            note="what the model consists of is not seen",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch
from torch import nn

model = nn.TransformerEncoder(nn.TransformerEncoderLayer(512, 8), 6).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for x, y in loader:
    loss = criterion(model(x.cuda()), y.cuda())
    loss.backward()
    optimizer.step()
""",
            note="attention and linear layers in float32",
        ),
        Example(
            source="""\
import torch
import torch.nn as nn

class MLP(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(width, 4 * width)
        self.second = nn.Linear(4 * width, width)

    def forward(self, x):
        return self.second(self.first(x).relu())

def train(model, loader, optimizer, device=torch.device("cuda")):
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()

train(MLP(1024), loader, optimizer)
""",
            note="wide linear layers",
        ),
        Example(
            source="""\
import torch
from transformers import AutoModelForSequenceClassification

model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased").to("cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
for batch in loader:
    loss = model(**{name: value.to("cuda") for name, value in batch.items()}).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
""",
            note="a transformer from a library",
        ),
    )


class Tf32Disabled(SourceRule):
    """TF32 switched off explicitly.

    What it does
    Finds `torch.backends.cuda.matmul.allow_tf32 = False`, `torch.backends.cudnn.allow_tf32 = False`,
    `fp32_precision = "ieee"` and `torch.set_float32_matmul_precision("highest")` that always run.

    Why it costs
    Float32 matrix products and convolutions then avoid Tensor Cores: 19.5 instead of 156 TFLOP/s on an A100.
    For cuDNN this takes away what PyTorch has switched on by default.

    Example
        torch.backends.cudnn.allow_tf32 = False

    Use instead
        torch.backends.cudnn.allow_tf32 = True
        torch.set_float32_matmul_precision("high")

    When it does not apply
    Code that needs float32 accuracy or bitwise reproducibility. The rule is silent about switches under a
    condition, in tests, in functions about determinism or seeds, and where the old value is restored.

    References
    PyTorch, CUDA semantics, "TensorFloat-32 (TF32) on Ampere (and later) devices".
    """

    code = "PRC002"
    name = "tf32-disabled"
    since = "0.1.0"
    level = "info"
    confidence = "high"
    sources = ("PyTorch docs, CUDA semantics: TensorFloat-32 (TF32) on Ampere (and later) devices",)
    triggers = ("allow_tf32", "fp32_precision", "set_float32_matmul_precision")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        if is_test_path(context.path):
            return
        for switch in program.switches:
            off = _tf32_off(switch)
            if not off or not program.unconditional(switch.function, switch.block):
                continue
            if program.in_with(switch.function, switch.block, "") or _about_determinism(context, switch):
                continue
            if _set_again(context, switch):
                continue
            yield self.finding(
                context.location(switch.site),
                f"`{context.excerpt(switch.site)}` keeps {off} off TF32 Tensor Cores.",
                evidence={"switch": switch.name, "value": switch.value.values[0]},
                fix=Fix(
                    "Remove the line, or set TF32 on where the accuracy allows it "
                    '(`torch.set_float32_matmul_precision("high")`); if float32 is needed, say so with '
                    "`# tclint: ignore[tf32-disabled]`."
                ),
                identity=f"{switch.function.qualified_name}:{switch.name}",
            )

    valid = (
        Example(
            source="""\
import torch

torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True
""",
            note="on",
        ),
        Example(
            source="""\
import torch

def make_deterministic(seed):
    torch.manual_seed(seed)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.allow_tf32 = False
""",
            note="a helper for reproducible runs",
        ),
        Example(
            source="""\
import torch

def compare(model, reference, x):
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    expected = reference(x)
    torch.backends.cuda.matmul.allow_tf32 = before
    return (model(x) - expected).abs().max()
""",
            note="restored afterwards",
        ),
        Example(
            source="""\
import torch

def set_up(args):
    allow_tf32 = False
    if args.exact:
        torch.backends.cuda.matmul.allow_tf32 = False
    torch.set_float32_matmul_precision(args.precision)
    return allow_tf32
""",
            note="a local variable, a branch of the configuration, a value read at run time",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch

torch.backends.cuda.matmul.allow_tf32 = False
model = build().cuda()
""",
            note="always off",
        ),
        Example(
            source="""\
from torch.backends import cudnn

def main():
    cudnn.benchmark = True
    cudnn.allow_tf32 = False
    train()
""",
            note="takes away cuDNN's default",
        ),
        Example(
            source="""\
import torch

if __name__ == "__main__":
    torch.set_float32_matmul_precision("highest")
    train()
""",
            note="the slowest of the three",
        ),
        Example(
            source="""\
import torch

torch.backends.cudnn.conv.fp32_precision = "ieee"
""",
            note="the newer API",
        ),
    )


class Tf32LegacyApi(SourceRule):
    """TF32 controlled through allow_tf32 instead of fp32_precision.

    What it does
    Finds assignments to `allow_tf32`, the older of the two APIs for TF32.

    Why it costs
    Nothing today. PyTorch 2.9 brought `fp32_precision`, which also knows bf16 and single operators, and
    announced that the older switches will be deprecated. Mixing both raises (tf32-mixed-api), so a program
    has to move in one go.

    Example
        torch.backends.cuda.matmul.allow_tf32 = True

    Use instead
        torch.backends.cuda.matmul.fp32_precision = "tf32"

    When it does not apply
    Programs that must run on PyTorch before 2.9, and code that reads the older switches elsewhere: the rule
    is off unless selected.

    References
    PyTorch, CUDA semantics, "TensorFloat-32 (TF32) on Ampere (and later) devices".
    """

    code = "PRC003"
    name = "tf32-legacy-api"
    since = "0.1.0"
    level = "info"
    confidence = "low"
    enabled_by_default = False
    sources = ("PyTorch docs, CUDA semantics: TensorFloat-32 (TF32) on Ampere (and later) devices",)
    triggers = ("allow_tf32",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        if "fp32_precision" in context.tables.identifiers:
            return  # a program on its way, or one that serves both; tf32-mixed-api looks at it
        for switch in context.program.switches:
            head, _, last = switch.name.rpartition(".")
            if last != "allow_tf32" or not switch.value.certain:
                continue
            value = "tf32" if switch.value.values[0] else "ieee"
            operators = (f"{head}.conv", f"{head}.rnn") if head == _CUDNN else (head,)
            newer = " and ".join(f'`{name}.fp32_precision = "{value}"`' for name in operators)
            yield self.finding(
                context.location(switch.site),
                f"`{head.removeprefix('torch.backends.')}.allow_tf32` is the older TF32 switch.",
                evidence={"switch": switch.name, "value": value},
                fix=Fix(
                    f"From PyTorch 2.9 on: {newer}, together with every other TF32 switch of the program."
                ),
                identity=f"{switch.function.qualified_name}:{switch.name}",
            )

    valid = (
        Example(
            source="""\
import torch

torch.backends.cuda.matmul.fp32_precision = "tf32"
print("allow_tf32 is not used")
""",
            note="the newer API",
        ),
        Example(
            source="""\
import torch

if hasattr(torch.backends.cuda.matmul, "fp32_precision"):
    torch.backends.cuda.matmul.fp32_precision = "tf32"
else:
    torch.backends.cuda.matmul.allow_tf32 = True
""",
            note="serves older versions as well",
        ),
        Example(
            source="""\
allow_tf32 = True
config.allow_tf32 = allow_tf32
""",
            note="not PyTorch's switch",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch

torch.backends.cuda.matmul.allow_tf32 = True
""",
            note="older API",
        ),
        Example(
            source="""\
import torch.backends.cudnn as cudnn

cudnn.allow_tf32 = False
""",
            note="through an alias",
        ),
        Example(
            source="""\
import torch

def main(args):
    if args.fast:
        torch.backends.cuda.matmul.allow_tf32 = True
""",
            note="under a condition as well",
        ),
    )


class _State(NamedTuple):
    """What the two APIs say of one operator."""

    legacy: str
    """'tf32' or 'ieee' as allow_tf32 and set_float32_matmul_precision left it."""
    newer: str


class Tf32MixedApi(SourceRule):
    """Both TF32 APIs used with different values.

    What it does
    Follows `allow_tf32`, `torch.set_float32_matmul_precision` and `fp32_precision` in the order in which a
    file sets them, and reports the `fp32_precision` after which the two APIs disagree.

    Why it costs
    It raises. Since PyTorch 2.9 reading an older switch (`allow_tf32`, `get_float32_matmul_precision`, and
    with them `torch.backends.cudnn.flags` and some library code) is a RuntimeError while it contradicts the
    newer one. Setting an older switch sets the newer with it, but not the other way round.

    Example
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cuda.matmul.fp32_precision = "ieee"

    Use instead
        torch.backends.cuda.matmul.fp32_precision = "ieee"

    When it does not apply
    One API only; equal values; branches of which only one runs (older and newer PyTorch); an older switch
    that is set after the newer one.

    References
    PyTorch, CUDA semantics, "TensorFloat-32 (TF32) on Ampere (and later) devices": do not mix the APIs.
    PyTorch, aten/src/ATen/Context.cpp; behaviour measured on PyTorch 2.13.
    """

    code = "PRC004"
    name = "tf32-mixed-api"
    since = "0.1.0"
    level = "error"
    confidence = "high"
    sources = (
        "PyTorch docs, CUDA semantics: TensorFloat-32 (TF32) on Ampere (and later) devices",
        "PyTorch 2.13, aten/src/ATen/Context.cpp: checks of the legacy getters",
    )
    triggers = ("fp32_precision",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        if is_test_path(context.path):
            return
        program = context.program
        functions = {switch.function.index for switch in program.switches}
        for index in sorted(functions):
            # A function's own switches, after those that the module sets when it is imported.
            ordered = [switch for switch in program.switches if switch.function.index == index]
            if index and any(f.index == 0 for f in program.outer_functions(ordered[0].function)):
                ordered = [switch for switch in program.switches if switch.function.index == 0] + ordered
            yield from self._follow(context, index, ordered)

    def _follow(self, context: SourceContext, index: int, ordered: list[Switch]) -> Iterator[Finding]:
        legacy: dict[str, tuple[str, Switch]] = {}
        newer: dict[str, tuple[str, Switch]] = {}
        for switch in ordered:
            value = _tf32_value(switch)
            if value is None:
                return
            is_newer = switch.name.endswith(".fp32_precision")
            for operator in _operators(switch.name):
                if not is_newer:
                    # The older setters write the newer setting of the same operator as well.
                    legacy[operator] = (value, switch)
                    newer.pop(operator, None)
                else:
                    newer[operator] = (value, switch)
        for operator, (value, switch) in newer.items():
            if operator not in legacy or switch.function.index != index:
                continue
            older, other = legacy[operator]
            same_function = other.function.index == switch.function.index
            if older == value or (
                same_function and context.program.apart(switch.function, switch.block, other.block)
            ):
                continue
            if other.site > switch.site:
                continue
            yield self.finding(
                context.location(switch.site),
                f"`{context.excerpt(switch.site)}` contradicts `{context.excerpt(other.site)}` on line "
                f"{context.location(other.site).line}: reading the older switch raises RuntimeError.",
                related=(context.related(other.site, f"the older API says {older}"),),
                evidence={"operator": operator, "legacy": older, "fp32_precision": value},
                fix=Fix("Set TF32 through one API only: remove one of the two lines."),
                identity=f"{switch.function.qualified_name}:{operator}",
            )
            return

    valid = (
        Example(
            source="""\
import torch

torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = False
print(torch.get_float32_matmul_precision(), "not fp32_precision")
""",
            note="only the older API",
        ),
        Example(
            source="""\
import torch

torch.set_float32_matmul_precision("high")
torch.backends.cuda.matmul.fp32_precision = "tf32"
""",
            note="equal values",
        ),
        Example(
            source="""\
import torch

try:
    torch.backends.cuda.matmul.fp32_precision = "ieee"
except AttributeError:
    torch.backends.cuda.matmul.allow_tf32 = True
""",
            note="only one of them runs",
        ),
        Example(
            source="""\
import torch

torch.backends.cuda.matmul.fp32_precision = "ieee"
torch.backends.cuda.matmul.allow_tf32 = True
""",
            note="the older setter sets the newer switch with it",
        ),
        Example(
            source="""\
import torch

torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.conv.fp32_precision = "tf32"
""",
            note="different operators",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch

torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cuda.matmul.fp32_precision = "ieee"
""",
            note="they disagree",
        ),
        Example(
            source="""\
import torch

torch.set_float32_matmul_precision("high")

def main():
    torch.backends.fp32_precision = "ieee"
    print(torch.get_float32_matmul_precision())
""",
            note="the generic switch covers matrix products; the read raises",
        ),
        Example(
            source="""\
import torch
from torch.backends import cudnn

cudnn.allow_tf32 = True
cudnn.conv.fp32_precision = "ieee"
""",
            note="convolutions",
        ),
    )


_MATMUL_PRECISIONS = ("highest", "high", "medium")
_PRECISIONS = ("ieee", "tf32", "bf16", "none")
_CUDA_PRECISIONS = ("ieee", "tf32", "none")
_MEANT = {
    _SETTER: {"tf32": "high", "ieee": "highest", "fp32": "highest", "float32": "highest", "bf16": "medium",
              "bfloat16": "medium", "default": "highest", "low": "medium"},
    "": {"fp32": "ieee", "float32": "ieee", "highest": "ieee", "high": "tf32", "medium": "bf16",
         "bfloat16": "bf16", "tensorfloat32": "tf32", "default": "none"},
}  # fmt: skip


class PrecisionBadValue(SourceRule):
    """A precision switch set to a value it does not have.

    What it does
    Finds values other than 'ieee', 'tf32', 'bf16' (not for CUDA and cuDNN) and 'none' for `fp32_precision`,
    and other than 'highest', 'high' and 'medium' for `torch.set_float32_matmul_precision`.

    Why it costs
    `fp32_precision = "fp32"` raises RuntimeError. `set_float32_matmul_precision("High")` only warns and
    changes nothing: matrix products stay in float32 and nobody notices.

    Example
        torch.set_float32_matmul_precision("High")

    Use instead
        torch.set_float32_matmul_precision("high")

    When it does not apply
    Values read at run time, and tests of the error itself.

    References
    PyTorch, torch.set_float32_matmul_precision; torch.backends. Behaviour measured on PyTorch 2.13.
    """

    code = "PRC005"
    name = "precision-bad-value"
    since = "0.1.0"
    level = "error"
    confidence = "high"
    sources = (
        "PyTorch docs, torch.set_float32_matmul_precision",
        "PyTorch docs, torch.backends: fp32_precision",
    )
    triggers = ("fp32_precision", "set_float32_matmul_precision")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        for switch in program.switches:
            allowed = _allowed(switch.name)
            if not allowed or not switch.value.complete or not switch.value.values:
                continue
            bad = [value for value in switch.value.values if value not in allowed]
            if not bad or any(not isinstance(value, str | bool | int | None) for value in bad):
                continue
            if program.in_with(switch.function, switch.block, "raises", "warns", "assertRaises"):
                continue
            raises = switch.name != _SETTER or not isinstance(bad[0], str)
            what = "raises" if raises else "is ignored with a warning"
            meant = _meant(switch.name, bad[0], allowed)
            instead = f'Write "{meant}".' if meant else "Choose one of them."
            yield self.finding(
                context.location(switch.site),
                f"{bad[0]!r} is not a value of `{switch.name.removeprefix('torch.')}` and {what}; "
                f"it takes {', '.join(map(repr, allowed))}.",
                evidence={
                    "switch": switch.name,
                    "value": bad[0],
                    "allowed": list(allowed),
                    "replacement": meant,
                },
                fix=Fix(instead),
                identity=f"{switch.function.qualified_name}:{switch.name}:{bad[0]}",
            )

    valid = (
        Example(
            source="""\
import torch

torch.set_float32_matmul_precision("medium")
torch.backends.fp32_precision = "bf16"
torch.backends.cudnn.rnn.fp32_precision = "none"
""",
            note="known values",
        ),
        Example(
            source="""\
import torch

torch.set_float32_matmul_precision(args.precision)
torch.backends.fp32_precision = config["precision"]
""",
            note="read at run time",
        ),
        Example(
            source="""\
import pytest
import torch

def test_unknown_precision():
    with pytest.raises(RuntimeError):
        torch.backends.fp32_precision = "fp32"
""",
            note="a test of the error",
        ),
        Example(
            source="""\
class Trainer:
    def __init__(self):
        self.fp32_precision = "fp32"
""",
            note="another attribute of the same name",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch

torch.set_float32_matmul_precision("High")
""",
            note="the case matters; this call changes nothing",
        ),
        Example(
            source="""\
import torch

torch.backends.cuda.matmul.fp32_precision = "fp32"
""",
            note="raises; full precision is called 'ieee'",
        ),
        Example(
            source="""\
import torch

PRECISION = "tf32"
torch.set_float32_matmul_precision(PRECISION)
""",
            note="a value of the other API",
        ),
        Example(
            source="""\
from torch.backends import cudnn

cudnn.conv.fp32_precision = "bf16"
""",
            note="CUDA has no bf16 mode",
        ),
    )


class ReducedPrecisionReduction(SourceRule):
    """Reduced-precision reductions in 16-bit matrix products switched off.

    What it does
    Finds `allow_fp16_reduced_precision_reduction = False` and its bf16 twin that always run.

    Why it costs
    cuBLAS may then not reduce partial sums of split-K products in 16 bits, which excludes some of its faster
    kernels for products with a large K and small M and N.

    Example
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False

    Use instead
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = True   # the default

    When it does not apply
    Programs whose accuracy suffers, which is why somebody switched it off: the rule is off unless selected.

    References
    PyTorch, CUDA semantics, "Reduced Precision Reduction in FP16 GEMMs" and "... in BF16 GEMMs".
    """

    code = "PRC006"
    name = "reduced-precision-reduction"
    since = "0.1.0"
    level = "info"
    confidence = "low"
    enabled_by_default = False
    sources = ("PyTorch docs, CUDA semantics: Reduced Precision Reduction in FP16 GEMMs",)
    triggers = ("reduced_precision_reduction",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        if is_test_path(context.path):
            return
        for switch in program.switches:
            if not switch.name.endswith("reduced_precision_reduction") or switch.value.values != (False,):
                continue
            if not switch.value.certain or not program.unconditional(switch.function, switch.block):
                continue
            if _about_determinism(context, switch) or _set_again(context, switch):
                continue
            yield self.finding(
                context.location(switch.site),
                f"`{context.excerpt(switch.site)}` excludes split-K kernels that reduce in 16 bits.",
                evidence={"switch": switch.name, "value": False},
                fix=Fix("Remove the line where the accuracy of the default suffices."),
                identity=f"{switch.function.qualified_name}:{switch.name}",
            )

    valid = (
        Example(
            source="""\
import torch

torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = True
""",
            note="the default",
        ),
        Example(
            source="""\
import torch

def main(args):
    if args.exact:
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
""",
            note="under a condition",
        ),
        Example(
            source="""\
import torch

def seed_everything(seed):
    torch.manual_seed(seed)
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
""",
            note="for reproducible runs",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch

torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
""",
            note="always off",
        ),
        Example(
            source="""\
import torch

torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
""",
            note="bfloat16",
        ),
        Example(
            source="""\
import torch

def main():
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    train()
""",
            note="in a function",
        ),
    )


class Float64Model(SourceRule):
    """A classifier trained in float64 on a GPU.

    What it does
    Finds `model.double()` (or `.to(torch.float64)`) on a module in a file that trains on CUDA with a
    classification loss.

    Why it costs
    Only A100, H100 and their successors have float64 Tensor Cores, at 19.5 TFLOP/s on an A100 against 156
    for TF32 and 312 for 16-bit; other GPUs run float64 at 1/32 or 1/64 of their float32 rate. Every tensor
    takes twice the memory of float32.

    Example
        model = Classifier().double().cuda()

    Use instead
        model = Classifier().cuda()

    When it does not apply
    Numerical work: solvers, physics, gradient checks. The rule speaks only about files with a
    cross-entropy or a binary cross-entropy loss, and is silent in tests.

    References
    NVIDIA, Matrix Multiplication Background, Table 1 (float64 in multiples of 2, of 16 on A100).
    NVIDIA A100 Tensor Core GPU Architecture, peak rates.
    """

    code = "PRC007"
    name = "float64-model"
    since = "0.1.0"
    level = "info"
    confidence = "medium"
    sources = (
        "NVIDIA, Matrix Multiplication Background User's Guide: Table 1",
        "NVIDIA A100 Tensor Core GPU Architecture: peak rates",
    )
    triggers = (".double()", "float64")
    requires = ("cuda", ".backward(", "ntropy")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        if is_test_path(context.path) or not program.trainings or _imports(context) & _SCIENCE:
            return
        if "gradcheck" in context.tables.identifiers or not program.calls(*_CLASSIFICATION):
            return
        for function, event, _ in program.methods("double", "to"):
            receiver, method = method_of(event.call)
            if receiver is None or not program.unconditional(function, event.block):
                continue
            if method == "to":
                given = keyword(event.call, "dtype", 0)
                named = isinstance(given, Name) and program.resolver.qualified(function, given.dotted)
                if not named or not set(named) & {"torch.float64", "torch.double"}:
                    continue
            elif event.call.arguments:
                continue
            if program.kind_of(function, receiver) != "module":
                continue
            yield self.finding(
                context.location(event.call.site),
                f"`{context.excerpt(event.call.site)}` trains the model in float64, at most 1/8 of the TF32 "
                "rate.",
                related=_loop(context, program.trainings[0]),
                evidence={"function": function.qualified_name, "dtype": "float64"},
                fix=Fix("Train in float32 with TF32 or in 16 bits under autocast; keep float64 for metrics."),
                identity=f"{function.qualified_name}:double",
            )

    valid = (
        Example(
            source="""\
import torch
from torch import nn

model = nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
    loss.backward()
    optimizer.step()
    total += loss.detach().double()
""",
            note="only a metric is float64",
        ),
        Example(
            source="""\
import torch
from torch import nn

model = PhysicsNet().double().cuda()
for x in loader:
    loss = residual(model(x.cuda())).square().mean()  # no entropy
    loss.backward()
    optimizer.step()
""",
            note="numerical work",
        ),
        Example(
            source="""\
import torch
from torch import nn

model = nn.Linear(8, 8)
if args.exact:
    model = model.double()
model.cuda()
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
    loss.backward()
    optimizer.step()
""",
            note="an option",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch
from torch import nn

model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10)).double().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x.double().cuda()), y.cuda())
    loss.backward()
    optimizer.step()
""",
            note="a classifier",
        ),
        Example(
            source="""\
import torch
import torchvision
from torch import nn

model = torchvision.models.resnet18()
model.to(torch.float64)
model.cuda()
criterion = nn.CrossEntropyLoss()
for x, y in loader:
    loss = criterion(model(x.cuda()), y.cuda())
    loss.backward()
    optimizer.step()
""",
            note="through its dtype",
        ),
        Example(
            source="""\
import torch
from torch import nn

class Net(nn.Module):
    pass

def main():
    net = Net().to("cuda")
    net = net.double()
    criterion = nn.BCEWithLogitsLoss()  # binary cross entropy
    for x, y in loader:
        loss = criterion(net(x), y)
        loss.backward()
        optimizer.step()
""",
            note="a class of the file",
        ),
    )


_CLASSIFICATION = (
    "torch.nn.CrossEntropyLoss",
    "torch.nn.BCEWithLogitsLoss",
    "torch.nn.BCELoss",
    "torch.nn.functional.cross_entropy",
    "torch.nn.functional.binary_cross_entropy_with_logits",
    "torch.nn.functional.binary_cross_entropy",
)

RULES: tuple[type[Rule], ...] = (
    Tf32MatmulOff,
    Tf32Disabled,
    Tf32LegacyApi,
    Tf32MixedApi,
    PrecisionBadValue,
    ReducedPrecisionReduction,
    Float64Model,
)


def _loop(context: SourceContext, training: Training) -> tuple[Related, ...]:
    site = training.step.call.site
    return (context.related(site, "the optimizer steps here: this file trains"),)


def _imports(context: SourceContext) -> set[str]:
    return {
        item.qualified.split(".", 1)[0] for function in context.tables.functions for item in function.imports
    }


def _matmul_layers(context: SourceContext) -> str:
    """What of linear and attention layers the program trains; '' when little or nothing is seen."""
    program = context.program
    for name in _imported_models(context):
        return f"`{name}`"
    attention = program.calls(*_ATTENTION)
    if attention:
        return f"`{attention[0].qualified.rpartition('.')[2]}`"
    layers = program.all_layers()
    if any("Conv" in layer.qualified for layer in layers):
        return ""
    linears = [layer for layer in layers if layer.qualified == "torch.nn.Linear"]
    if len(linears) >= 2:
        sizes = [
            program.resolver.evaluate(layer.function, size)
            for layer in linears
            for size in (keyword(layer.call, "in_features", 0), keyword(layer.call, "out_features", 1))
            if size is not None and not has_star(layer.call)
        ]
        known = [value for size in sizes for value in size.values if isinstance(value, int)]
        if not known or max(known) >= _SMALL_FEATURES:
            return f"{len(linears)} linear layers"
        return ""
    neighbours = context.neighbours
    if not neighbours.imported() or linears or layers:
        return ""
    if neighbours.count(("nn.Conv", "Conv2d(", "Conv1d(")):
        return ""
    for word in ("MultiheadAttention(", "scaled_dot_product_attention(", "TransformerEncoder("):
        if neighbours.count((word,)):
            return f"`{word[:-1]}`"
    return ""


def _imported_models(context: SourceContext) -> Iterator[str]:
    for function, event, _ in context.program.methods("from_pretrained", "from_config"):
        for name in context.resolver.called(function, event.call):
            owner = name.split(".")[-2]
            if name.startswith("transformers.") and ("Model" in owner or "For" in owner):
                yield owner


def _tf32_off(switch: Switch) -> str:
    """What a switch keeps off TF32; '' when it does not."""
    if not switch.value.certain:
        return ""
    value = switch.value.values[0]
    if switch.name == _SETTER:
        return "float32 matrix products" if value == "highest" else ""
    head, _, last = switch.name.rpartition(".")
    if last == "allow_tf32" and value is False:
        return {"torch.backends.cuda.matmul": "float32 matrix products", _CUDNN: "convolutions"}.get(head, "")
    if last == "fp32_precision" and value == "ieee" and "mkldnn" not in head:
        if head == _MATMUL:
            return "float32 matrix products"
        return "convolutions and recurrent layers" if _CUDNN in head else "float32 work"
    return ""


def _tf32_value(switch: Switch) -> str | None:
    """'tf32' or 'ieee' for a TF32 switch, '' for other switches, None when unknown."""
    tf32 = switch.name == _SETTER or switch.name.rpartition(".")[2] in ("allow_tf32", "fp32_precision")
    if not tf32:
        return ""
    if not switch.value.certain:
        return None
    value = switch.value.values[0]
    if switch.name == _SETTER:
        return "ieee" if value == "highest" else "tf32"
    if isinstance(value, bool):
        return "tf32" if value else "ieee"
    return str(value) if value in ("tf32", "ieee") else None


def _operators(name: str) -> tuple[str, ...]:
    """What a switch is for: 'matmul', 'conv', 'rnn'."""
    return {
        _SETTER: ("matmul",),
        f"{_MATMUL}.allow_tf32": ("matmul",),
        f"{_CUDNN}.allow_tf32": ("conv", "rnn"),
        f"{_MATMUL}.fp32_precision": ("matmul",),
        f"{_CUDNN}.fp32_precision": ("conv", "rnn"),
        f"{_CUDNN}.conv.fp32_precision": ("conv",),
        f"{_CUDNN}.rnn.fp32_precision": ("rnn",),
        "torch.backends.fp32_precision": ("matmul", "conv", "rnn"),
    }.get(name, ())


def _allowed(name: str) -> tuple[str, ...]:
    if name == _SETTER:
        return _MATMUL_PRECISIONS
    if not name.endswith(".fp32_precision"):
        return ()
    cuda = name.startswith((_MATMUL, _CUDNN))
    return _CUDA_PRECISIONS if cuda else _PRECISIONS


def _meant(name: str, value: object, allowed: tuple[str, ...]) -> str | None:
    if not isinstance(value, str):
        return None
    lowered = value.lower().strip()
    if lowered in allowed:
        return lowered
    known = _MEANT[_SETTER if name == _SETTER else ""].get(lowered)
    if known in allowed:
        return known
    close = difflib.get_close_matches(lowered, allowed, 1, 0.6)
    return close[0] if close else None


_DETERMINISM = (
    "determin",
    "seed",
    "reprod",
    "invarian",
    "test",
    "restore",
    "debug",
    "verify",
    "exact",
    "bench",
    "compare",
    "parity",
    "check",
    "accura",
)


def _about_determinism(context: SourceContext, switch: Switch) -> bool:
    """The switch belongs to a helper for reproducible or exact runs."""
    for function in context.program.outer_functions(switch.function):
        if function.kind == "class" and not function.index:
            continue
        if any(word in function.name.lower() for word in _DETERMINISM) or function.name in (
            "__enter__",
            "__exit__",
        ):
            return True
    return any(
        other.value.values == (True,)
        and other.name.rpartition(".")[2] in ("deterministic", "use_deterministic_algorithms")
        for other in context.program.switches
    )


def _set_again(context: SourceContext, switch: Switch) -> bool:
    """The same switch is read or set elsewhere in the file: somebody manages it."""
    program = context.program
    if len(program.switches_of(switch.name)) > 1:
        return True
    getter = "get_float32_matmul_precision"
    if switch.name == _SETTER and getter in context.tables.identifiers:
        return True
    return any(_reads(program.resolver, function, switch.name) for function in context.tables.functions)


def _reads(resolver: Resolver, function: Function, name: str) -> bool:
    last = name.rpartition(".")[2]
    for event in function.events:
        if isinstance(event, Assignment):
            read = names_in(event.value)
        elif isinstance(event, CallEvent):
            read = {found for argument in event.call.arguments for found in names_in(argument.value)}
        else:
            continue
        for found in read:
            if found.endswith("." + last) and name in resolver.qualified(function, found):
                if isinstance(event, CallEvent) and method_of(event.call)[1] in ("print", "info", "debug"):
                    continue
                return True
    return False

"""Rules on how autocast regions are opened and what runs inside them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tclint.finding import Finding, Fix
from tclint.rule import Example, Rule, SourceRule
from tclint.source.tables import (
    Assignment,
    Call,
    CallEvent,
    Function,
    Literal,
    Name,
    dotted,
    method_of,
    render,
)

if TYPE_CHECKING:
    from tclint.source.context import SourceContext

_PACKAGE = "PyTorch docs, Automatic Mixed Precision package (torch.amp)"
_EXAMPLES = "PyTorch docs, Automatic Mixed Precision examples"
_GENERIC = ("torch.autocast", "torch.amp.autocast", "torch.amp.autocast_mode.autocast")
_IN_PLACE = frozenset(("addmm_", "addmv_", "addbmm_", "baddbmm_", "addr_"))
_OUT = frozenset(("mm", "matmul", "bmm", "addmm", "addmv", "addbmm", "baddbmm", "mv", "einsum", "linear"))
_BACK_TO_FLOAT32 = frozenset(("float", "double"))


class AutocastDeviceMismatch(SourceRule):
    """Autocast without a device type, with an object that is none, or for the CPU around GPU code.

    What it does
    Finds `torch.autocast()` without `device_type`; with a `torch.device`, a bool or a dtype in its place;
    and `torch.autocast("cpu")` around code that moves its data to a GPU.

    Why it costs
    Without device_type torch raises TypeError, for anything but a string ValueError. A CPU region leaves
    ops on a GPU in float32: no Tensor Cores in 16 bits, and no warning.

    Example
        device = torch.device("cuda")
        with torch.autocast(device):
            loss = model(batch)

    Use instead
        with torch.autocast(device.type):
            loss = model(batch)

    When it does not apply
    `device.type`, a string chosen at run time, torch.cuda.amp.autocast (whose first parameter is
    `enabled`).

    References
    PyTorch, Automatic Mixed Precision package (torch.amp), torch.autocast, parameters.
    """

    code = "AMP022"
    name = "autocast-device-mismatch"
    since = "0.1.0"
    level = "warning"
    confidence = "high"
    sources = (f"{_PACKAGE}: torch.autocast",)
    triggers = ("autocast",)
    requires = ()

    def check(self, context: SourceContext) -> Iterator[Finding]:
        for function in context.tables.functions:
            for event in function.events:
                if isinstance(event, CallEvent) and _is_generic(context, function, event.call):
                    problem = self._argument(context, function, event.call)
                    if problem is not None:
                        yield self._report(context, function, event.call.site, *problem)
            for region in context.amp.regions(function):
                if (
                    region.autocast.devices != ("cpu",)
                    or region.autocast.enabled is False
                    or region.block == 0
                ):
                    continue
                moved = self._moved(context, function, region.block)
                if moved is not None:
                    yield self._report(
                        context,
                        function,
                        region.autocast.site,
                        "is for the CPU, but the code in it runs on a GPU "
                        f"(`{context.excerpt(moved.site, 40)}`): it stays in float32 there",
                        "warning",
                    )

    def _argument(self, context: SourceContext, function: Function, call: Call) -> tuple[str, str] | None:
        if any(argument.star for argument in call.arguments):
            return None
        given = next((a.value for a in call.arguments if a.keyword == "device_type"), None)
        if given is None:
            given = next((a.value for a in call.arguments if not a.keyword), None)
        if given is None:
            return "has no device_type: TypeError", "error"
        if isinstance(given, Literal):
            return (
                None
                if isinstance(given.value, str)
                else ("needs a string as device_type: ValueError", "error")
            )
        if isinstance(given, Call) and "torch.device" in context.resolver.called(function, given):
            return "needs a string as device_type, not a torch.device: ValueError", "error"
        name = dotted(given)
        values = list(context.origins_of(function, name)) if name else []
        complete = context.resolver.definitions(function, name)[1] if name else False
        if (
            values
            and complete
            and all(
                isinstance(value, Call) and "torch.device" in context.resolver.called(scope, value)
                for scope, value in values
            )
        ):
            return f"needs a string as device_type; `{name}` is a torch.device: ValueError", "error"
        return None

    def _moved(self, context: SourceContext, function: Function, block: int) -> Call | None:
        for event in function.events:
            if isinstance(event, CallEvent) and block in function.enclosing(event.block):
                receiver, method = method_of(event.call)
                if method == "cuda" and receiver is not None and dotted(receiver) != "torch":
                    return event.call
                if method == "to" and event.call.arguments:
                    possible = context.resolver.evaluate(function, event.call.arguments[0].value)
                    if possible.certain and str(possible.values[0]).startswith("cuda"):
                        return event.call
        return None

    def _report(
        self, context: SourceContext, function: Function, site: int, problem: str, level: str
    ) -> Finding:
        return self.finding(
            context.location(site),
            f"`{context.excerpt(site, 60)}` {problem}.",
            related=(context.related(site, "autocast"),),
            evidence={"call": context.excerpt(site), "function": function.qualified_name},
            fix=Fix('Pass the device\'s type as a string: "cuda", or `device.type`.'),
            level="error" if level == "error" else "warning",
            identity=f"{function.qualified_name}:{context.excerpt(site)}",
        )

    valid = (
        Example(source='import torch\n\nwith torch.autocast("cuda"):\n    model(x)\n', note="a string"),
        Example(
            source="""\
import torch

device = torch.device("cuda")
with torch.autocast(device_type=device.type):
    model(x)
""",
            note="the device's type",
        ),
        Example(
            source="from torch.cuda.amp import autocast\n\nwith autocast(True):\n    model(x)\n",
            note="its first parameter is `enabled`",
        ),
        Example(
            source="import torch\n\nwith torch.autocast(**options):\n    model(x)\n",
            note="the options may name the device",
        ),
        Example(
            source="import torch\n\ndef run(device):\n    with torch.autocast(device):\n        model(x)\n",
            note="may be a string",
        ),
        Example(
            source='import torch\n\nwith torch.autocast("cpu"):\n    model(x.cpu())\n',
            note="on the CPU",
        ),
    )
    invalid = (
        Example(
            source="import torch\n\nwith torch.autocast(dtype=torch.float16):\n    model(x)\n",
            note="TypeError: no device_type",
        ),
        Example(
            source="""\
import torch

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
with torch.amp.autocast(device, dtype=torch.float16):
    model(x)
""",
            note="ValueError: a torch.device",
        ),
        Example(
            source="from torch.amp import autocast\n\nwith autocast(True):\n    model(x)\n",
            note="ValueError: a bool, as torch.cuda.amp.autocast takes it",
        ),
        Example(
            source='import torch\n\nwith torch.autocast("cpu", dtype=torch.bfloat16):\n    model(x.cuda())\n',
            note="a CPU region around GPU code",
        ),
    )


class AutocastFp32Dtype(SourceRule):
    """Autocast with dtype=torch.float32, which switches it off.

    What it does
    Finds autocast calls whose dtype is float32 (or float64).

    Why it costs
    Autocast supports float16 and bfloat16; with any other dtype it warns once and runs disabled. The code
    reads as mixed precision and computes in float32.

    Example
        with torch.autocast("cuda", dtype=torch.float32):
            loss = model(batch)

    Use instead
        with torch.autocast("cuda", enabled=False):
            loss = model(batch)

    or a 16-bit dtype.

    When it does not apply
    Regions that are disabled anyway, dtypes chosen at run time, other devices with other dtypes.

    References
    PyTorch 2.13, torch/amp/autocast_mode.py ("the target dtype is not supported. Disabling autocast").
    """

    code = "AMP023"
    name = "autocast-fp32-dtype"
    since = "0.1.0"
    level = "warning"
    confidence = "high"
    sources = ("PyTorch 2.13, torch.amp.autocast_mode: supported dtypes",)
    triggers = ("autocast",)
    requires = ("torch",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        for function in context.tables.functions:
            for event in function.events:
                if not isinstance(event, CallEvent):
                    continue
                for qualified in context.resolver.called(function, event.call):
                    if qualified not in context.names.autocast:
                        continue
                    autocast = context.amp.autocast(function, qualified, event.call)
                    if autocast.dtype not in ("float32", "float64") or autocast.enabled is False:
                        continue
                    yield self.finding(
                        context.location(event.call.site),
                        f"Autocast to {autocast.dtype} is not supported: torch warns and leaves it off.",
                        related=(context.related(event.call.site, "autocast"),),
                        evidence={"autocast": context.excerpt(event.call.site), "dtype": autocast.dtype},
                        fix=Fix("Write enabled=False where float32 is meant, else float16 or bfloat16."),
                        identity=f"{function.qualified_name}:{context.excerpt(event.call.site)}",
                    )
                    break

    valid = (
        Example(source='import torch\n\nwith torch.autocast("cuda"):\n    model(x)\n', note="float16"),
        Example(
            source='import torch\n\ncontext = torch.autocast("cuda", torch.float32, enabled=False)\n',
            note="off anyway",
        ),
        Example(
            source="""\
import torch

dtype = torch.float16 if args.fp16 else torch.float32
with torch.autocast("cuda", dtype=dtype):
    model(x)
""",
            note="chosen at run time",
        ),
    )
    invalid = (
        Example(
            source='import torch\n\nwith torch.autocast("cuda", dtype=torch.float32):\n    model(x)\n',
            note="off",
        ),
        Example(
            source='from torch import autocast, float32\n\n@autocast("cpu", float32)\ndef f(x):\n    pass\n',
            note="a decorator",
        ),
        Example(
            source="""\
import torch

DTYPE = torch.float
context = torch.cuda.amp.autocast(dtype=DTYPE)
""",
            note="a constant; torch.float is float32",
        ),
    )


class CompileBackwardAutocast(SourceRule):
    """A compiled model under autocast whose backward runs outside, with the default backward setting.

    What it does
    Finds `torch.compile` of a model that runs under autocast and goes backward outside of the region,
    where nothing sets `torch._functorch.config.backward_pass_autocast`. Off by default: the pattern is
    what the documentation recommends but for this setting, and most programs see no difference.

    Why it costs
    torch.compile traces the backward pass together with the forward pass, by default under the same
    autocast. Eager mode runs it without: results differ wherever the backward pass has ops of its own.

    Example
        model = torch.compile(model)
        with torch.autocast("cuda"):
            loss = model(batch)
        loss.backward()

    Use instead
        torch._functorch.config.backward_pass_autocast = "off"
        model = torch.compile(model)

    When it does not apply
    Backward inside the region, models that are not compiled, the setting given anywhere in the file.

    References
    PyTorch, Automatic Mixed Precision package (torch.amp), the warning on torch.compile.
    """

    code = "AMP024"
    name = "compile-backward-autocast"
    since = "0.1.0"
    level = "warning"
    confidence = "low"
    enabled_by_default = False
    sources = (f"{_PACKAGE}: warning on torch.compile", "PyTorch 2.13, torch/_functorch/config.py")
    triggers = ("compile",)
    requires = ("autocast", ".backward(", "torch")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        if "backward_pass_autocast" in context.tables.identifiers:
            return
        compiled: dict[str, int] = {}
        for function in context.tables.functions:
            for event in function.events:
                if not isinstance(event, Assignment) or not isinstance(event.value, Call):
                    continue
                if "torch.compile" in context.resolver.called(function, event.value):
                    compiled.update((target, event.value.site) for target in event.targets)
        for flow in context.flows:
            for backward in (*flow.scaled, *flow.backwards):
                regions = sorted(backward.origin.regions)[:1] if backward.origin.regions else []
                if not regions or context.amp.effective(flow.function, backward.block) is not None:
                    continue
                region = regions[0]
                inside = self._compiled_inside(context, region.function, region.block, compiled)
                if inside is None:
                    continue
                yield self.finding(
                    context.location(compiled[inside]),
                    f"`{inside}` is compiled and runs under autocast, its backward pass outside: compiled "
                    "code runs the backward pass under the forward's autocast all the same.",
                    related=(
                        context.related(region.site, "autocast"),
                        context.related(backward.call.site, "backward outside"),
                    ),
                    evidence={"model": inside, "compile": context.excerpt(compiled[inside])},
                    fix=Fix('Set `torch._functorch.config.backward_pass_autocast = "off"` before compiling.'),
                    identity=inside,
                )
                return

    def _compiled_inside(
        self, context: SourceContext, index: int, block: int, compiled: dict[str, int]
    ) -> str | None:
        function = context.tables.functions[index]
        for event in function.events:
            if isinstance(event, CallEvent) and block in function.enclosing(event.block):
                name = dotted(event.call.function)
                if name in compiled:
                    return name
        return None

    valid = (
        Example(
            source="""\
import torch

torch._functorch.config.backward_pass_autocast = "off"
model = torch.compile(model)
with torch.autocast("cuda"):
    loss = model(x)
scaler.scale(loss).backward()
""",
            note="set",
        ),
        Example(
            source="""\
import torch

with torch.autocast("cuda"):
    loss = model(x)
loss.backward()
pattern = re.compile("x")
""",
            note="not compiled",
        ),
        Example(
            source="""\
import torch

model = torch.compile(model)
with torch.autocast("cuda"):
    loss = model(x)
    loss.backward()
""",
            note="backward inside",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch

model = torch.compile(model)
with torch.autocast("cuda"):
    loss = model(x)
loss.backward()
""",
            note="backward outside",
        ),
        Example(
            source="""\
import torch

net = torch.compile(Net().cuda(), mode="max-autotune")
for x in loader:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = net(x).mean()
    loss.backward()
    optimizer.step()
""",
            note="in a loop",
        ),
        Example(
            source="""\
import torch

class Trainer:
    def __init__(self, model):
        self.model = torch.compile(model)

    def step(self, x):
        with torch.autocast("cuda"):
            loss = self.model(x)
        self.scaler.scale(loss).backward()
""",
            note="scaled",
        ),
    )


class CustomFunctionNoCustomFwd(SourceRule):
    """A custom autograd function with compiled code inside, used under autocast without custom_fwd.

    What it does
    Finds a `torch.autograd.Function` whose forward calls an imported module that is not torch, without
    `custom_fwd`, and whose `apply` runs in an autocast region of the same file.

    Why it costs
    Under autocast its inputs may be float16 where the extension expects float32 (or the other way
    round): it raises or reads garbage. `torch.amp.custom_fwd` says what the function wants, `custom_bwd`
    runs its backward in the same state.

    Example
        class Pool(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return pool_cuda.forward(x)

    Use instead
        class Pool(torch.autograd.Function):
            @staticmethod
            @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
            def forward(ctx, x):
                return pool_cuda.forward(x)

    When it does not apply
    Functions made of torch ops only, casts in the forward itself, regions with autocast disabled.

    References
    PyTorch, Automatic Mixed Precision examples, "Autocast and Custom Autograd Functions".
    """

    code = "AMP025"
    name = "custom-function-no-custom-fwd"
    since = "0.1.0"
    level = "warning"
    confidence = "high"
    sources = (f"{_EXAMPLES}: Autocast and Custom Autograd Functions",)
    triggers = ("Function)",)
    requires = ("autocast", ".apply(", "forward")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        for owner in context.tables.functions:
            if owner.kind != "class":
                continue
            outer = context.tables.functions[owner.parent]
            bases = [name for base in owner.bases for name in context.resolver.qualified(outer, dotted(base))]
            if not any(
                name in ("torch.autograd.Function", "torch.autograd.function.Function") for name in bases
            ):
                continue
            forwards = context.tables.children.get(owner.index, {}).get("forward", ())
            if len(forwards) != 1:
                continue
            forward = context.tables.functions[forwards[0]]
            if any("custom_fwd" in render(decorator) for decorator in forward.decorators):
                continue
            foreign = self._foreign(context, forward)
            used = self._used(context, owner)
            if foreign is None or used is None:
                continue
            call, line = used
            yield self.finding(
                context.location(owner.site),
                f"`{owner.name}.forward` calls `{render(foreign.function)}` and runs under the autocast of "
                f"line {line} without custom_fwd: its inputs may be float16.",
                related=(context.related(call.site, "it runs under autocast here"),),
                evidence={"function": owner.qualified_name, "calls": render(foreign.function)},
                fix=Fix(
                    "Decorate forward with torch.amp.custom_fwd(device_type=..., cast_inputs=...) and "
                    "backward with torch.amp.custom_bwd."
                ),
                identity=owner.qualified_name,
            )

    def _foreign(self, context: SourceContext, forward: Function) -> Call | None:
        casts = {"float", "half", "to", "type", "type_as"}
        found = None
        for event in forward.events:
            if isinstance(event, CallEvent):
                _, method = method_of(event.call)
                if method in casts:
                    return None
                called = context.resolver.called(forward, event.call)
                roots = {name.lstrip(".").partition(".")[0] for name in called}
                if called and not roots & {"torch", "math", "numpy", "typing", "functools"}:
                    found = found or event.call
        return found

    def _used(self, context: SourceContext, owner: Function) -> tuple[Call, int] | None:
        for function in context.tables.functions:
            for event in function.events:
                if isinstance(event, CallEvent) and dotted(event.call.function).endswith(
                    f"{owner.name}.apply"
                ):
                    region = context.amp.effective(function, event.block)
                    if region is not None:
                        return event.call, context.location(region.site).line
        return None

    valid = (
        Example(
            source="""\
import torch
import pool_cuda

class Pool(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
    def forward(ctx, x):
        return pool_cuda.forward(x)

with torch.autocast("cuda"):
    y = Pool.apply(model(x))
""",
            note="decorated",
        ),
        Example(
            source="""\
import torch

class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.square(x)

with torch.autocast("cuda"):
    y = Square.apply(model(x))
""",
            note="torch ops only",
        ),
        Example(
            source="""\
import torch
import pool_cuda

class Pool(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return pool_cuda.forward(x)

with torch.autocast("cuda"):
    features = model(x)
y = Pool.apply(features.float())
""",
            note="outside the region",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch
import pool_cuda

class Pool(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return pool_cuda.forward(x)

with torch.autocast("cuda"):
    y = Pool.apply(model(x))
""",
            note="an extension under autocast",
        ),
        Example(
            source="""\
import torch
from torch.autograd import Function
from . import _ext

class Sample(Function):
    @staticmethod
    def forward(ctx, x, grid):
        ctx.save_for_backward(x, grid)
        return _ext.sample(x, grid)

def step(model, x, grid):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        return Sample.apply(model(x), grid)
""",
            note="from the package itself",
        ),
        Example(
            source="""\
import torch
from kernels import fused

class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return fused(x)

@torch.autocast("cuda")
def layer(x):
    return Norm.apply(x)
""",
            note="in a decorated function",
        ),
    )


class InPlaceUnderAutocast(SourceRule):
    """An in-place or `out=` matrix product, which autocast does not touch.

    What it does
    Finds `addmm_`, `addmv_`, `addbmm_`, `baddbmm_`, `addr_` and matrix products with `out=` under
    autocast.

    Why it costs
    Autocast casts only out-of-place ops: these run in the dtype of their tensors, usually float32 and
    without the 16-bit Tensor Core rate, or raise when the dtypes differ.

    Example
        with torch.autocast("cuda"):
            torch.mm(a, b, out=c)

    Use instead
        with torch.autocast("cuda"):
            c = torch.mm(a, b)

    When it does not apply
    In-place ops that are no matrix products, regions that are disabled.

    References
    PyTorch, Automatic Mixed Precision package (torch.amp), "Op Eligibility".
    """

    code = "AMP026"
    name = "inplace-or-out-under-autocast"
    since = "0.1.0"
    level = "info"
    confidence = "high"
    sources = (f"{_PACKAGE}: Op Eligibility",)
    triggers = ("out=", "out =", *sorted(_IN_PLACE))
    requires = ("autocast",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        for function in context.tables.functions:
            if not context.amp.regions(function):
                continue
            for event in function.events:
                if not isinstance(event, CallEvent):
                    continue
                receiver, method = method_of(event.call)
                given = any(
                    argument.keyword == "out" and argument.value != Literal(None)
                    for argument in event.call.arguments
                )
                called = context.resolver.called(function, event.call)
                by_out = given and method in _OUT and any(name == f"torch.{method}" for name in called)
                if not by_out and not (method in _IN_PLACE and receiver is not None):
                    continue
                region = context.amp.effective(function, event.block)
                if region is None:
                    continue
                what = "out=" if by_out else "in-place"
                yield self.finding(
                    context.location(event.call.site),
                    f"Autocast does not touch {what} ops: `{context.excerpt(event.call.site, 60)}` runs in "
                    "the dtype of its tensors.",
                    related=(context.related(region.site, "autocast is on from here"),),
                    evidence={"call": context.excerpt(event.call.site), "kind": what},
                    fix=Fix("Use the op that returns a new tensor."),
                    identity=f"{function.qualified_name}:{context.excerpt(event.call.site)}",
                )

    valid = (
        Example(
            source='import torch\n\nwith torch.autocast("cuda"):\n    c = torch.mm(a, b)\n',
            note="out of place",
        ),
        Example(
            source='import torch\n\nwith torch.autocast("cuda"):\n    torch.add(a, b, out=d).mul_(2)\n',
            note="no matrix products",
        ),
        Example(
            source='import torch\n\nwith torch.autocast("cuda", enabled=False):\n    torch.mm(a, b, out=c)\n',
            note="autocast is off",
        ),
    )
    invalid = (
        Example(
            source='import torch\n\nwith torch.autocast("cuda"):\n    torch.mm(a, b, out=c)\n', note="out="
        ),
        Example(source='import torch\n\nwith torch.autocast("cuda"):\n    c.addmm_(a, b)\n', note="in place"),
        Example(
            source="""\
import torch

@torch.autocast("cuda", dtype=torch.bfloat16)
def scores(q, k, buffer):
    return torch.baddbmm(buffer, q, k, beta=0, out=buffer)
""",
            note="in a decorated function",
        ),
    )


class Fp32IslandMissingFloat(SourceRule):
    """A region with autocast disabled that gets float16 tensors as they are.

    What it does
    Finds `autocast(enabled=False)` inside an enabled region where tensors of the outer region go into a
    call without `.float()` or any other cast.

    Why it costs
    Disabling autocast does not cast anything back: the tensors are still float16, ops between them run in
    float16, and layers with float32 weights raise ("expected scalar type Float but found Half").

    Example
        with torch.autocast("cuda"):
            features = model(x)
            with torch.autocast("cuda", enabled=False):
                loss = head(features)

    Use instead
        with torch.autocast("cuda"):
            features = model(x)
            with torch.autocast("cuda", enabled=False):
                loss = head(features.float())

    When it does not apply
    Any cast in or before the inner region, tensors from elsewhere, inner regions that are enabled.

    References
    PyTorch, Automatic Mixed Precision package (torch.amp), torch.autocast, nested disabled regions.
    """

    code = "AMP027"
    name = "fp32-island-missing-float"
    since = "0.1.0"
    level = "warning"
    confidence = "medium"
    sources = (f"{_PACKAGE}: torch.autocast, nested disabled regions",)
    triggers = ("enabled=False", "enabled = False", "False")
    requires = ("autocast",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        for function in context.tables.functions:
            for region in context.amp.regions(function):
                block = region.block
                if region.autocast.enabled is not False or block == 0:
                    continue
                parent = function.blocks[block].parent
                outer = context.amp.effective(function, parent)
                if outer is None or outer.block == 0 or outer.autocast.enabled is not True:
                    continue
                if outer.autocast.dtype not in ("float16", "bfloat16"):
                    continue
                found = self._fed(context, function, block, outer.block)
                if found is None:
                    continue
                call, name = found
                yield self.finding(
                    context.location(call.site),
                    f"`{name}` comes from {outer.autocast.dtype} autocast and goes into "
                    f"`{render(call.function)}` where autocast is off: it is still {outer.autocast.dtype}.",
                    related=(
                        context.related(outer.site, "autocast is on from here"),
                        context.related(region.site, "and off from here"),
                    ),
                    evidence={"tensor": name, "call": context.excerpt(call.site)},
                    fix=Fix(f"Pass `{name}.float()`."),
                    identity=f"{function.qualified_name}:{name}",
                )

    def _fed(
        self, context: SourceContext, function: Function, block: int, outer: int
    ) -> tuple[Call, str] | None:
        computed: dict[str, bool] = {}
        candidate: tuple[Call, str] | None = None
        for event in function.events:
            if block in function.enclosing(event.block):
                if isinstance(event, CallEvent):
                    _, method = method_of(event.call)
                    if method in (*_BACK_TO_FLOAT32, "to", "type", "type_as"):
                        return None
                    names = [dotted(a.value) for a in event.call.arguments if isinstance(a.value, Name)]
                    fed = [name for name in names if computed.get(name)]
                    calls_model = dotted(event.call.function) in context.casts.models
                    if fed and candidate is None and calls_model:
                        candidate = (event.call, fed[0])
            elif isinstance(event, Assignment) and outer in function.enclosing(event.block):
                value = event.value
                runs_model = isinstance(value, Call) and dotted(value.function) in context.casts.models
                for target in event.targets:
                    computed[target] = runs_model and not event.unpacked and not event.operator
        return candidate

    valid = (
        Example(
            source="""\
import torch

model.train()
head.train()
with torch.autocast("cuda"):
    features = model(x)
    with torch.autocast("cuda", enabled=False):
        loss = head(features.float())
""",
            note="cast back",
        ),
        Example(
            source="""\
import torch

head.train()
with torch.autocast("cuda", enabled=False):
    loss = head(features)
""",
            note="no outer region",
        ),
        Example(
            source="""\
import torch

model.train()
head.train()
with torch.autocast("cuda"):
    features = model(x)
    with torch.autocast("cuda", enabled=False):
        features = features.to(torch.float32)
        loss = head(features)
""",
            note="cast on the line before",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch

model.train()
head.train()
with torch.autocast("cuda"):
    features = model(x)
    with torch.autocast("cuda", enabled=False):
        loss = head(features)
""",
            note="still float16",
        ),
        Example(
            source="""\
import torch

def step(self, x):
    self.encoder.train()
    self.decoder.train()
    with torch.cuda.amp.autocast():
        code = self.encoder(x)
        with torch.cuda.amp.autocast(enabled=False):
            return self.decoder(code)
""",
            note="attributes",
        ),
        Example(
            source="""\
import torch

optimizer = torch.optim.Adam([*net.parameters(), *criterion.parameters()])
for x, y in loader:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        logits = net(x)
        with torch.autocast("cuda", enabled=False):
            loss = criterion(logits, y)
""",
            note="bfloat16",
        ),
    )


class NoMixedPrecision(SourceRule):
    """A CUDA training loop in float32 throughout. Off by default.

    What it does
    Finds a loop that goes backward and steps an optimizer of torch.optim on a GPU in a file that, like
    the files around it, mentions neither autocast nor a 16-bit dtype nor a framework.

    Why it costs
    Matrix products and convolutions run up to 16 times as fast in float16 as in float32 on the same GPU;
    whole networks gain up to three times. How much this one gains needs its shapes: give tclint the model
    as `file.py:callable`.

    Example
        for images, labels in loader:
            loss = criterion(model(images.cuda()), labels.cuda())
            loss.backward()
            optimizer.step()

    Use instead
        with torch.autocast("cuda"):
            loss = criterion(model(images.cuda()), labels.cuda())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    When it does not apply
    CPU programs, small models (reinforcement learning, tabular data), float64, precision flags of
    frameworks: this file cannot tell, hence low confidence.

    References
    PyTorch, Performance Tuning Guide, "Use mixed precision and AMP".
    """

    code = "AMP016"
    name = "no-mixed-precision"
    since = "0.1.0"
    level = "info"
    confidence = "low"
    enabled_by_default = False
    sources = ("PyTorch recipes, Performance Tuning Guide: Use mixed precision and AMP",)
    triggers = ("cuda",)
    requires = (".backward(", ".step(", "torch.optim")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        words = (
            "autocast",
            "float16",
            "bfloat16",
            "half",
            "fp16",
            "bf16",
            "amp",
            "float64",
            "double",
            "precision",
        )
        if context.amp.framework or any(word in context.tables.identifiers for word in words):
            return
        if not context.casts.trained or context.neighbours.mention(("autocast", "float16", "fp16", "gym")):
            return
        if not any(
            isinstance(event, CallEvent)
            and method_of(event.call)[1] in ("Conv2d", "Conv3d", "Linear", "to", "cuda")
            for function in context.tables.functions
            for event in function.events
        ):
            return
        for view in context.scaling.views:
            for backward in view.of("backward"):
                steps = view.after(backward, "step")
                if steps and view.loops(backward):
                    yield self.finding(
                        context.location(backward.site),
                        "This loop trains in float32 on a GPU: nothing here uses mixed precision.",
                        related=(context.related(steps[0].site, "the optimizer's step"),),
                        evidence={"backward": context.excerpt(backward.site), "autocast": None},
                        fix=Fix(
                            "Compute the loss under torch.autocast and scale it with torch.amp.GradScaler; "
                            "lint the model itself to see what it gains."
                        ),
                        identity=view.function.qualified_name,
                    )
                    return

    valid = (
        Example(
            source="""\
import torch

model = Net().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in loader:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(x.cuda())
    loss.backward()
    optimizer.step()
""",
            note="mixed precision",
        ),
        Example(
            source="""\
import torch
from accelerate import Accelerator

model = Net().to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in loader:
    model(x).backward()
    optimizer.step()
""",
            note="a framework decides",
        ),
        Example(
            source="""\
import torch

# cuda is not used
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model.double()
for x in loader:
    model(x).backward()
    optimizer.step()
""",
            note="float64",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch

model = Net().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in loader:
    loss = model(x.cuda())
    loss.backward()
    optimizer.step()
""",
            note="float32",
        ),
        Example(
            source="""\
import torch

def train(loader, device="cuda"):
    model = Net().to(device)
    optimizer = torch.optim.Adam(model.parameters())
    for x in loader:
        optimizer.zero_grad()
        model(x.to(device)).mean().backward()
        optimizer.step()
""",
            note="in a function",
        ),
        Example(
            source="""\
import torch

class Trainer:
    def __init__(self, model):
        self.model = model.cuda()
        self.optimizer = torch.optim.Adam(self.model.parameters())

    def fit(self, loader):
        for x in loader:
            loss = self.model(x)
            loss.backward()
            self.optimizer.step()
""",
            note="in a class",
        ),
    )


RULES: tuple[type[Rule], ...] = (
    NoMixedPrecision,
    AutocastDeviceMismatch,
    AutocastFp32Dtype,
    CompileBackwardAutocast,
    CustomFunctionNoCustomFwd,
    InPlaceUnderAutocast,
    Fp32IslandMissingFloat,
)


def _is_generic(context: SourceContext, function: Function, call: Call) -> bool:
    called = context.resolver.called(function, call)
    return bool(called) and all(name in _GENERIC for name in called)

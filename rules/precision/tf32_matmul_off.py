"""A rule on float32 training whose matrix products leave TF32 unused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tclint.plugin import Finding, Fix, SourceContext, SourceRule

_MOST_RELATED = 8


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
    Compute capability below 8.0; programs under autocast or in another dtype; convolutions, for which
    cuDNN uses TF32 by default; transformers' `torch_compile`, which switches TF32 on; numerical work that
    needs float32. The rule is silent if the program sets a TF32 switch or chooses a precision, if a framework
    runs the training and float32 is not known to be its default there, if the layers are narrower than 256,
    and if the layers of the model are unknown.
    """

    code = "PRC001"
    name = "tf32-matmul-off"
    level = "info"
    confidence = "medium"
    sources = (
        "PyTorch CUDA semantics, TensorFloat-32 (TF32) on Ampere (and later) devices: about 7 times the "
        "speed, relative error 2e-3",
        "PyTorch Performance Tuning Guide, Enable TF32: the switch",
        "PyTorch torch.set_float32_matmul_precision: the default is `highest`",
        "NVIDIA A100 Tensor Core GPU Architecture: 156 TFLOP/s in TF32 and 19.5 in float32",
    )
    triggers = (".backward(", "TrainingArguments(", "Trainer(", "Fabric(")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        switches = context.switches
        variables = ("os.environ['TORCH_ALLOW_TF32_CUBLAS_OVERRIDE']", "os.environ['NVIDIA_TF32_OVERRIDE']")
        if any(switch.operators for switch in switches.all) or any(map(switches.environment.get, variables)):
            return
        trainings = [item for item in context.float32.trainings if item.products]
        for found in trainings[:1]:
            if not context.concerns(found.event):
                return
            others = {item.event.place: item.event for item in trainings if context.concerns(item.event)}
            others.pop(found.event.place)
            argument = "tf32=True" if found.name.endswith("TrainingArguments") else None
            switch = 'Call `torch.set_float32_matmul_precision("high")` once before training'
            yield self.finding(
                context.at(found.event),
                f"This {found.name} trains {found.products} in float32 and no TF32 switch is set: matrix "
                "products run without Tensor Cores.",
                related=(
                    context.also(*found.shown),
                    *(
                        context.also(other, "the same here")
                        for other in list(others.values())[:_MOST_RELATED]
                    ),
                ),
                evidence={
                    "function": found.event.place.function.qualified_name or "the module",
                    "layers": found.products,
                    "float32_matmul_precision": "highest (default)",
                    "argument": argument,
                },
                fix=Fix(
                    f"{f'Pass {argument}' if argument else switch}, on GPUs of compute capability 8.0 and "
                    "newer."
                ),
                identity=found.event.place.function.qualified_name,
            )

    def change(self, finding: Finding, context: Any) -> Any:  # noqa: ARG002
        from tclint.plugin.graph import tf32

        return context.once(tf32)

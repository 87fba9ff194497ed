"""A profiler trace as kernels and the operators that launched them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

Activity = Literal["kernel", "copy", "memset"]
Shape = tuple[int, ...]


@dataclass(eq=False, slots=True)
class Operator:
    """A call on the CPU: an operator of torch, or a region that the program named."""

    name: str
    """'aten::addmm', 'autograd::engine::evaluate_function: MmBackward0', 'Optimizer.step#Adam.step'."""
    start_us: float
    end_us: float
    dims: tuple[Shape | tuple[Shape, ...], ...] = ()
    """The shape of every argument: () for what is no tensor, one shape each for a list of tensors. Empty
    where the trace was recorded without record_shapes."""
    dtypes: tuple[str, ...] = ()
    """As the profiler names them: 'float', 'c10::BFloat16', 'Scalar', ''."""
    strides: tuple[Shape | tuple[Shape, ...], ...] = ()
    """In elements; empty in traces of versions of torch that did not record them."""
    concrete: tuple[str, ...] = ()
    """Values of arguments that are numbers; empty in older traces."""
    sequence: int | None = None
    """What ties a backward operator to the forward one that it differentiates."""
    forward_thread: int = 0
    """Not 0 in operators of a backward pass; -1 where the trace does not say which."""
    is_region: bool = False
    """Named by the program (record_function, an optimizer's step); no operator."""
    module: str = ""
    """The nn.Modules around it, outermost first: 'Model_0/Block_3/Linear_12'; empty where the trace was
    recorded without with_stack or with_modules."""
    line: str = ""
    """Innermost function of the program around it: 'model.py(12): forward'."""
    parent: Operator | None = None
    forward: Operator | None = None
    """For a backward operator: the one that it differentiates, where the trace holds it."""

    def chain(self) -> Iterator[Operator]:
        """This operator and those around it, from the inside out."""
        at: Operator | None = self
        while at is not None:
            yield at
            at = at.parent

    @property
    def origin(self) -> Operator:
        """The forward operator that this one belongs to; itself where it is one."""
        return next((one.forward for one in self.chain() if one.forward is not None), self)

    @property
    def is_backward(self) -> bool:
        return any(one.forward_thread for one in self.chain())

    @property
    def is_of_optimizer(self) -> bool:
        return any(one.name.startswith(("Optimizer.step", "Optimizer.zero_grad")) for one in self.chain())


@dataclass(eq=False, slots=True)
class Kernel:
    """One activity of a GPU."""

    name: str
    activity: Activity
    start_us: float
    time_us: float
    device: int
    stream: int
    size_bytes: int = 0
    """The bytes of a copy or a memset."""
    launch_us: float | None = None
    """When the host began to launch it; None where the trace has no such call."""
    operator: Operator | None = None
    """The innermost one around the launch."""
    step: int | None = None
    """Number that the profiler gave the step that launched it."""

    @property
    def end_us(self) -> float:
        return self.start_us + self.time_us


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU as the trace describes it."""

    name: str
    """As CUDA has it: 'NVIDIA A100-SXM4-80GB'; empty where the trace does not say."""
    compute_capability: tuple[int, int] | None = None


@dataclass(slots=True)
class Trace:
    """One rank's trace."""

    path: str
    device: Device
    kernels: list[Kernel]
    """In the order in which they ran."""
    operators: list[Operator]
    """In the order in which they began."""
    steps: dict[int, tuple[float, float]] = field(default_factory=dict)
    """Begin and end of every step of the profiler's schedule, in microseconds, by its number."""
    rank: int | None = None
    event_count: int = 0
    has_shapes: bool = False
    has_modules: bool = False

    @property
    def kernel_time_us(self) -> float:
        """The time of kernels alone, without copies between host and device and memsets."""
        return sum(kernel.time_us for kernel in self.kernels if kernel.activity == "kernel")

"""The tools that tclint is compared with, each called as its README says.

Every adapter takes a built model and its call, and returns FLOPs at 2 per multiply-add, or None where the
tool counts none. fvcore, thop, ptflops, torchinfo, calflops and deepspeed count multiply-adds: doubled here.
All of them run under no_grad, which only saves them memory, and print nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


@dataclass(frozen=True)
class Tool:
    """One way to look at a model."""

    name: str
    run: Callable[[Any, Args, Kwargs], int | None]
    device: Literal["cpu", "meta"] = "cpu"
    package: str = "torch"


def flop_counter(model: Any, args: Args, kwargs: Kwargs) -> int:
    """torch.utils.flop_counter.FlopCounterMode."""
    from torch.utils.flop_counter import FlopCounterMode

    counter = FlopCounterMode(display=False)
    with counter:
        model(*args, **kwargs)
    return int(counter.get_total_flops())


def fvcore(model: Any, args: Args, kwargs: Kwargs) -> int:
    """FlopCountAnalysis; it takes positional inputs alone, so others go through a module that names them."""
    from fvcore.nn import FlopCountAnalysis

    model, args = _positional(model, args, kwargs)
    analysis = FlopCountAnalysis(model, args)
    analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False)
    return 2 * int(analysis.total())


def thop(model: Any, args: Args, kwargs: Kwargs) -> int:
    """thop.profile; positional inputs alone, as above."""
    from thop import profile

    model, args = _positional(model, args, kwargs)
    multiply_adds, _ = profile(model, inputs=args, verbose=False)
    return 2 * int(multiply_adds)


def ptflops(model: Any, args: Args, kwargs: Kwargs) -> int | None:
    """get_model_complexity_info with a constructor of the inputs."""
    from ptflops import get_model_complexity_info

    if args:
        model, args = _positional(model, args, kwargs)
        kwargs = {f"argument{position}": value for position, value in enumerate(args)}
        model = _Named(model)
    multiply_adds, _ = get_model_complexity_info(
        model,
        (1,),
        input_constructor=lambda _: kwargs,
        as_strings=False,
        print_per_layer_stat=False,
        verbose=False,
    )
    if multiply_adds is None:
        raise RuntimeError("returned no count (it prints the model's error and goes on)")
    return 2 * int(multiply_adds)


def calflops(model: Any, args: Args, kwargs: Kwargs) -> int:
    """calculate_flops without its printed report."""
    from calflops import calculate_flops

    _, multiply_adds, _ = calculate_flops(
        model,
        args=list(args),
        kwargs=dict(kwargs),
        print_results=False,
        print_detailed=False,
        output_as_string=False,
    )
    return 2 * int(multiply_adds)


def torchinfo(model: Any, args: Args, kwargs: Kwargs) -> int:
    """torchinfo.summary, silent."""
    from torchinfo import summary

    result = summary(model, input_data=list(args) if args else kwargs, verbose=0)
    return 2 * int(result.total_mult_adds)


def deepspeed(model: Any, args: Args, kwargs: Kwargs) -> int:
    """DeepSpeed's get_model_profile, without the warm-up runs that it offers."""
    from deepspeed.profiling.flops_profiler import get_model_profile

    _, multiply_adds, _ = get_model_profile(
        model,
        args=list(args),
        kwargs=dict(kwargs),
        print_profile=False,
        detailed=False,
        warm_up=0,
        as_string=False,
    )
    return 2 * int(multiply_adds)


def torch_export(model: Any, args: Args, kwargs: Kwargs) -> None:
    """torch.export.export: a graph, no count."""
    import torch

    torch.export.export(model, args, kwargs)


TOOLS: Mapping[str, Tool] = {
    tool.name: tool
    for tool in (
        Tool("flop_counter on CPU", flop_counter),
        Tool("flop_counter on meta", flop_counter, "meta"),
        Tool("fvcore", fvcore, package="fvcore"),
        Tool("thop", thop, package="thop"),
        Tool("ptflops", ptflops, package="ptflops"),
        Tool("calflops", calflops, package="calflops"),
        Tool("torchinfo", torchinfo, package="torchinfo"),
        Tool("deepspeed", deepspeed, package="deepspeed"),
        Tool("torch.export", torch_export),
    )
}


def _positional(model: Any, args: Args, kwargs: Kwargs) -> tuple[Any, Args]:
    if not kwargs:
        return model, args
    import torch

    names = tuple(kwargs)

    class ByPosition(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *values: Any) -> Any:
            return self.model(*args, **dict(zip(names, values, strict=True)))

    return ByPosition().train(model.training), (*args, *kwargs.values())


def _Named(model: Any) -> Any:
    """A module that takes `argument0`, `argument1`, ... and hands them on by position."""
    import torch

    class ByName(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, **values: Any) -> Any:
            return self.model(*values.values())

    return ByName().train(model.training)

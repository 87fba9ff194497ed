"""PyTorch machinery around ordinary layers: scripting, compiling, hooks, parametrizations, wrappers."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune
from torch.utils.checkpoint import checkpoint, checkpoint_sequential


def mlp(*sizes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inner, outer in pairwise(sizes):
        layers += [nn.Linear(inner, outer), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def build_lazy_modules() -> tuple[nn.Module, Tensor]:
    model = nn.Sequential(
        nn.LazyConv2d(32, 3, stride=2), nn.LazyBatchNorm2d(), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10)
    )
    return model, torch.zeros(4, 3, 32, 32)


@torch.jit.script
def scripted_gelu(x: Tensor) -> Tensor:
    return x * 0.5 * (1.0 + torch.erf(x / 1.41421))


class ScriptedParts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.jit.script(nn.Sequential(nn.Linear(32, 64), nn.Tanh()))
        self.out = nn.Linear(64, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(scripted_gelu(self.inner(x)))


def build_scripted_parts() -> tuple[nn.Module, Tensor]:
    return ScriptedParts(), torch.zeros(4, 32)


@torch.compile
def compiled_norm(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class CompiledParts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = torch.compile(mlp(32, 128, 32), mode="max-autotune")

    def forward(self, x: Tensor) -> Tensor:
        return compiled_norm(self.block(x))


def build_compiled_parts() -> tuple[nn.Module, Tensor]:
    return torch.compile(CompiledParts(), dynamic=True), torch.zeros(4, 32)


class SquaredRelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.clamp(min=0).square()

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 2 * gradient * x.clamp(min=0)


class RoundStraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.round()

    @staticmethod
    def setup_context(
        ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor], output: Tensor
    ) -> None:
        ctx.shape = (inputs[0].shape, output.shape)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, gradient: Tensor) -> Tensor:
        return gradient.reshape(ctx.shape[0])


class CustomFunctions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(24, 48), nn.Linear(48, 24)

    def forward(self, x: Tensor) -> Tensor:
        return RoundStraightThrough.apply(self.second(SquaredRelu.apply(self.first(x))))


def build_custom_autograd_functions() -> tuple[nn.Module, Tensor]:
    return CustomFunctions(), torch.zeros(4, 24)


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(mlp(64, 256, 64) for _ in range(3))
        self.tail = nn.Sequential(*(nn.Linear(64, 64) for _ in range(4)))

    def forward(self, x: Tensor) -> Tensor:
        x.requires_grad_()
        x = checkpoint(self.blocks[0], x, use_reentrant=True)
        x = checkpoint(self.blocks[1], x, use_reentrant=False)
        x = self.blocks[2](x)
        return checkpoint_sequential(self.tail, 2, x, use_reentrant=False)


def build_checkpointed_blocks() -> tuple[nn.Module, Tensor]:
    return Checkpointed(), torch.zeros(4, 64)


def build_reparametrized_weights() -> tuple[nn.Module, Tensor]:
    return nn.Sequential(
        nn.utils.weight_norm(nn.Conv1d(16, 32, 3, padding=1)),
        parametrizations.weight_norm(nn.Conv1d(32, 32, 3, padding=1)),
        parametrizations.spectral_norm(nn.Conv1d(32, 32, 1)),
        nn.Flatten(),
        parametrizations.orthogonal(nn.Linear(320, 32)),
    ), torch.zeros(4, 16, 10)


def build_pruned_layers() -> tuple[nn.Module, Tensor]:
    model = mlp(64, 128, 128, 10)
    prune.random_unstructured(model[0], "weight", amount=0.3)
    prune.l1_unstructured(model[2], "weight", amount=0.5)
    prune.ln_structured(model[4], "weight", amount=0.5, n=2, dim=1)
    prune.remove(model[4], "weight")
    return model, torch.zeros(8, 64)


def build_data_parallel() -> tuple[nn.Module, Tensor]:
    return nn.DataParallel(mlp(32, 64, 8)), torch.zeros(8, 32)


def build_quantization_stubs() -> tuple[nn.Module, Tensor]:
    quantization = torch.ao.quantization
    model = nn.Sequential(
        quantization.QuantStub(),
        nn.Conv2d(3, 16, 3),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        quantization.DeQuantStub(),
    )
    model.train()
    model.qconfig = quantization.get_default_qat_qconfig("fbgemm")
    quantization.prepare_qat(model, inplace=True)
    return model, torch.zeros(4, 3, 16, 16)


class DeviceCalls(nn.Module):
    """Written for one GPU: `.cuda()` everywhere, a device string, and a CUDA tensor type."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16).cuda()
        self.table = torch.arange(16.0).cuda()

    def forward(self, x: Tensor) -> Tensor:
        x = x.to("cuda:0", non_blocking=True)
        mask = torch.cuda.FloatTensor(x.shape[0], 16).fill_(1.0)
        torch.cuda.synchronize()
        noise = torch.randn(x.shape, device="cuda")
        return self.layer(x * mask + noise) + self.table + torch.tensor([1.0], device=x.device).cuda()


def build_cuda_calls() -> tuple[nn.Module, Tensor]:
    return DeviceCalls().cuda(), torch.zeros(4, 16)


class NumpyCalls(nn.Module):
    """Post-processing in NumPy in the middle of a forward."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x)
        order = hidden.detach().cpu().numpy().argsort(axis=1)[:, ::-1].copy()
        return self.second(hidden.gather(1, torch.from_numpy(order).to(hidden.device)))


def build_numpy_calls() -> tuple[nn.Module, Tensor]:
    return NumpyCalls(), torch.zeros(4, 16)


class AutocastRegions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.Linear(32, 10)

    @torch.autocast("cuda", dtype=torch.float16)
    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.conv(x))).mean((2, 3))
        with torch.autocast("cuda", enabled=False):
            return F.log_softmax(self.head(x.float()), dim=-1)


def build_autocast_regions() -> tuple[nn.Module, Tensor]:
    return AutocastRegions(), torch.zeros(4, 3, 16, 16)


def build_hooks() -> tuple[nn.Module, Tensor]:
    model = mlp(16, 32, 8)
    seen: dict[str, Tensor] = {}
    model[0].register_forward_hook(lambda _module, _args, output: seen.update(hidden=output))
    model[2].register_forward_pre_hook(lambda _module, args: (args[0] + seen["hidden"].mean(),))
    return model, torch.zeros(4, 16)


class Ensemble(nn.Module):
    """Several models stacked by torch.func and run by vmap."""

    def __init__(self, count: int = 3) -> None:
        super().__init__()
        self.models = nn.ModuleList(mlp(16, 32, 4) for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        parameters, buffers = torch.func.stack_module_state(list(self.models))
        base = self.models[0]

        def run(state: tuple[dict[str, Tensor], dict[str, Tensor]], batch: Tensor) -> Tensor:
            return torch.func.functional_call(base, state, (batch,))

        return torch.vmap(run, in_dims=(0, None))((parameters, buffers), x).mean(dim=0)


def build_vmap_ensemble() -> tuple[nn.Module, Tensor]:
    return Ensemble(), torch.zeros(4, 16)


class EnergyForces(nn.Module):
    """Forces as the gradient of an energy: autograd runs inside the forward."""

    def __init__(self) -> None:
        super().__init__()
        self.energy = mlp(3, 64, 64, 1)

    def forward(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            positions = positions.detach().requires_grad_(True)
            energy = self.energy(positions).sum()
            (gradient,) = torch.autograd.grad(energy, positions, create_graph=True)
        return energy, -gradient


def build_gradient_in_forward() -> tuple[nn.Module, Tensor]:
    return EnergyForces(), torch.zeros(20, 3)


def scaled(factor: float) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    def decorate(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        @functools.wraps(function)
        def wrapper(self: nn.Module, *args: Tensor) -> Tensor:
            return function(self, *args) * factor

        return wrapper

    return decorate


class HyperNetwork(nn.Module):
    """Weights made by another network and used functionally; copies by deepcopy; a decorated forward."""

    def __init__(self) -> None:
        super().__init__()
        self.maker = mlp(8, 32, 16 * 16 + 16)
        block = mlp(16, 16)
        self.blocks = nn.ModuleList(copy.deepcopy(block) for _ in range(3))
        self.scales = nn.ParameterList(nn.Parameter(torch.ones(16)) for _ in range(3))
        self.offsets = nn.ParameterDict({"a": nn.Parameter(torch.zeros(16))})

    @scaled(0.5)
    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        weight, bias = self.maker(condition).split([256, 16], dim=-1)
        x = F.linear(x, weight.view(16, 16), bias)
        for block, scale in zip(self.blocks, self.scales, strict=True):
            x = block(x) * scale + self.offsets["a"]
        return x


def build_hyper_network() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    return HyperNetwork(), (torch.zeros(4, 16), torch.zeros(8))


def build_bfloat16_model() -> tuple[nn.Module, Tensor]:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.GELU()).bfloat16(), torch.zeros(
        2, 3, 8, 8, dtype=torch.bfloat16
    )


def build_channels_last_model() -> tuple[nn.Module, Tensor]:
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)).to(
        memory_format=torch.channels_last
    )
    return model, torch.zeros(2, 3, 16, 16).to(memory_format=torch.channels_last)

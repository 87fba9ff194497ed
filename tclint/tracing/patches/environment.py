"""All patches that hold while a model is built or run, so that it runs as plain torch and needs no GPU."""

from __future__ import annotations

import contextlib
import functools
import importlib.machinery
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from tclint.tracing.patches.autocast import autocast_without_gpu
from tclint.tracing.patches.compilers import without_compilation, without_exporting, without_scripting
from tclint.tracing.patches.custom_functions import patched_apply, visible_checkpoints
from tclint.tracing.patches.distributed import MODULES, plain_wrappers
from tclint.tracing.patches.higher_order import SCANS, generic_scans
from tclint.tracing.patches.patch import itself, nothing, patch, patched
from tclint.tracing.patches.stored_weights import LIBRARIES, lazy_parameters, library_loaders
from tclint.tracing.patches.triton_kernels import LIBRARY, idle_kernels


@patch(
    replaces="`torch.backends.mha.get_fastpath_enabled`",
    why="nn.MultiheadAttention and nn.TransformerEncoderLayer would run in inference as one fused operator",
)
def without_attention_fast_path() -> Iterator[None]:
    mha: Any = getattr(torch.backends, "mha", None)
    with patched([(mha, "get_fastpath_enabled", lambda: False)]):
        yield


@patch(replaces="`torch.nn.attention.flex_attention._validate_device`", why="it refuses tensors on meta")
def flex_attention_on_meta() -> Iterator[None]:
    flex = sys.modules.get("torch.nn.attention.flex_attention")
    with patched([(flex, "_validate_device", nothing)]):
        yield


@patch(
    replaces="`grad_increment_nesting` and `jvp_increment_nesting` of `torch._functorch.eager_transforms`",
    why="in inference mode older versions (2.6) take the derivatives of torch.func for zero; an error makes "
    "the trace start again with autograd",
)
def derivatives_need_autograd() -> Iterator[None]:
    transforms = sys.modules.get("torch._functorch.eager_transforms")
    names = ("grad_increment_nesting", "jvp_increment_nesting")
    found = [name for name in names if hasattr(transforms, name)]
    with patched([(transforms, name, _or_refuse(getattr(transforms, name))) for name in found]):
        yield


def _or_refuse(enter: Callable[..., Any]) -> Callable[..., Any]:
    def enter_or_refuse(*args: Any, **kwargs: Any) -> Any:
        if torch.is_inference_mode_enabled():
            raise RuntimeError("torch.func needs autograd")  # and gets it in the next attempt
        return enter(*args, **kwargs)

    return enter_or_refuse


_LATE_MODULES = frozenset({*MODULES, SCANS, *LIBRARIES, LIBRARY})


@patch(
    replaces="`DistributedDataParallel`, `FullyShardedDataParallel` (`__init__`, `forward`), `fully_shard`, "
    "`init_device_mesh`, `parallelize_module`, `associative_scan`, and of `torch.distributed` what starts a "
    "process group, asks for it (`get_rank`, `is_initialized`, ...) or sends in it (`all_reduce`, ...); of "
    "safetensors `load_file`, of timm `load_pretrained`, of transformers `PreTrainedModel.from_pretrained`, "
    "of triton `jit`, `autotune` and `heuristics`",
    why="they need other processes, a GPU or stored weights; a finder in `sys.meta_path` patches what is "
    "imported later",
)
def single_process() -> Iterator[None]:
    done = _replacements()
    with patched(done), contextlib.ExitStack() as undo:
        finder = _PatchingFinder(done, undo)
        sys.meta_path.insert(0, finder)
        undo.callback(sys.meta_path.remove, finder)
        yield


def _replacements() -> list[tuple[Any, str, Any]]:
    """The replacements in modules that are imported already."""
    return [*plain_wrappers(), *generic_scans(), *library_loaders(), *idle_kernels()]


class _PatchingFinder:
    """Patches modules that are imported while it stands in sys.meta_path.

    Args:
        done: the replacements of those that were imported before.
        undo: takes back the others.
    """

    def __init__(self, done: list[tuple[Any, str, Any]], undo: contextlib.ExitStack) -> None:
        self._done = done
        self._undo = undo

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in _LATE_MODULES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        loader = spec.loader if spec is not None else None
        if spec is None or loader is None:
            return None
        run = loader.exec_module

        def run_and_patch(module: Any) -> None:
            run(module)
            known = {(id(owner), attribute) for owner, attribute, _ in self._done}
            new = [item for item in _replacements() if (id(item[0]), item[1]) not in known]
            self._done.extend(new)
            self._undo.enter_context(patched(new))

        loader.exec_module = run_and_patch  # type: ignore[method-assign]
        return spec


@contextlib.contextmanager
def without_gpu() -> Iterator[None]:
    """Let code that asks for CUDA, compiles or scripts itself, or takes shortcuts run as plain torch."""
    with (
        without_compilation(),
        without_scripting(),
        without_exporting(),
        autocast_without_gpu(),
        without_cuda(),
        lazy_parameters(),
        single_process(),
        visible_checkpoints(),
        patched_apply(),
        flex_attention_on_meta(),
        without_attention_fast_path(),
        derivatives_need_autograd(),
    ):
        yield


_CUDA = "12.8"
"""The version of CUDA that torch's wheels for GPUs are built with."""
_VALUES: dict[str, Any] = {
    "current_device": 0,
    "empty_cache": None,
    "get_device_capability": (9, 0),
    "get_device_name": "assumed by tclint",
    "is_bf16_supported": True,
    "manual_seed": None,
    "manual_seed_all": None,
    "set_device": None,
    "synchronize": None,
}
_TENSORS = {
    "BFloat16Tensor": torch.bfloat16,
    "BoolTensor": torch.bool,
    "ByteTensor": torch.uint8,
    "DoubleTensor": torch.float64,
    "FloatTensor": torch.float32,
    "HalfTensor": torch.float16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
}


@patch(
    replaces="`nn.Module.cuda`, `nn.Module.to`, functions of `torch.cuda` such as `current_device`, "
    "`torch.cuda.FloatTensor` and its kin, `torch.version.cuda`",
    why="models move themselves to a GPU and ask what it can do; left alone where there is a GPU",
)
def without_cuda() -> Iterator[None]:
    if torch.cuda.is_available():
        yield
        return
    modules = [(nn.Module, "cuda", itself), (nn.Module, "to", _to_device_by_number(nn.Module.to))]
    version = [(torch.version, "cuda", torch.version.cuda or _CUDA)]
    with patched([*modules, *version, *_fake_cuda()]):
        yield


@functools.cache
def _fake_cuda() -> tuple[tuple[Any, str, Any], ...]:
    """Made once in a worker, and not for every trace; a function each, as torch._dynamo wants it."""
    return (
        *((torch.cuda, name, _returns(value)) for name, value in _VALUES.items()),
        *((torch.cuda, name, _typed(dtype)) for name, dtype in _TENSORS.items()),
    )


def _to_device_by_number(to: Callable[..., Any]) -> Callable[..., Any]:
    """`model.to(rank)` as `model.to("cuda")`, which needs no GPU to be understood."""

    def to_named(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if args and type(args[0]) is int:
            args = ("cuda", *args[1:])
        elif type(kwargs.get("device")) is int:
            kwargs["device"] = "cuda"
        return to(self, *args, **kwargs)

    return to_named


def _returns(value: Any) -> Callable[..., Any]:
    return lambda *_args, **_kwargs: value


def _typed(dtype: torch.dtype) -> Callable[..., torch.Tensor]:
    def make(*args: Any, **_kwargs: Any) -> torch.Tensor:
        if len(args) == 1 and isinstance(args[0], (list, tuple)):
            return torch.tensor(args[0], dtype=dtype)
        return torch.empty(*args, dtype=dtype)

    return make

"""Builds a model without its memory, and lists its weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import nn

from tclint.graph.ops import Assumption, Parameter
from tclint.tracing.patches.devices import DeviceRewriter
from tclint.tracing.patches.environment import without_gpu
from tclint.tracing.patches.modules import construct_site_of, remembered_construction
from tclint.tracing.patches.stored_weights import (
    AbsentWeights,
    random_weights,
    taken_notes,
    without_initialisation,
)
from tclint.tracing.record.recorder import Recorder
from tclint.tracing.session.weights import is_lazy, named_tensors
from tclint.tracing.values.assumptions import MAX_ATTEMPTS, Instruction
from tclint.tracing.values.formats import dtype_name
from tclint.tracing.values.sites import SiteFinder, entrance


@entrance
def on_meta(build: Callable[[], Any], sites: SiteFinder) -> tuple[Any, tuple[Assumption, ...]]:
    """What `build()` returns, with large tensors on meta and weight initialisation skipped.

    It is called again, with the last guess turned round, where it fails after a guess.

    Returns:
        that, and what was assumed where it asked for values of such tensors.

    Raises:
        Exception: the first attempt's error.
    """
    flipped: dict[Instruction, bool] = {}
    first: Exception | None = None
    for _ in range(MAX_ATTEMPTS):
        recorder = Recorder(sites, flipped=flipped)
        try:
            built = _build_once(build, sites, recorder)
        except (MemoryError, RecursionError):
            raise
        except Exception as error:
            first = first or error
            if recorder.assumptions.flip_last_branch() is None:
                break
        else:
            if isinstance(built, AbsentWeights):
                raise built.error  # the file held the model itself
            return built, (*recorder.assumptions.listed_of_build(), *taken_notes())
    assert first is not None
    raise first from None


def _build_once(build: Callable[[], Any], sites: SiteFinder, recorder: Recorder) -> Any:
    with (
        remembered_construction(sites),
        without_gpu(),
        without_initialisation(),
        random_weights(sites),
        recorder,
        DeviceRewriter(recorder.assumptions.add),
    ):
        return build()


def list_parameters(model: nn.Module) -> tuple[Parameter, ...]:
    """Parameters, then buffers, by first name; further names of a tensor are its aliases."""
    listed: dict[int, Parameter] = {}
    for named, is_buffer in zip(named_tensors(model), (False, True), strict=True):
        for name, owner, tensor in named:
            if is_lazy(tensor):
                continue
            known = listed.get(id(tensor))
            if known is None:
                listed[id(tensor)] = Parameter(
                    name=name,
                    shape=tuple(tensor.shape),
                    dtype=dtype_name(tensor.dtype),
                    trainable=not is_buffer and tensor.requires_grad,
                    is_buffer=is_buffer,
                    construct_site=construct_site_of(owner).site if owner is not None else None,
                    is_persistent=not is_buffer or _is_persistent(owner, name),
                    values_per_element=getattr(tensor, "values_per_element", 1),
                )
            else:
                listed[id(tensor)] = replace(known, aliases=(*known.aliases, name))
    return tuple(listed.values())


def _is_persistent(owner: nn.Module | None, name: str) -> bool:
    """Whether a state dict holds the buffer."""
    return owner is None or name.rpartition(".")[2] not in owner._non_persistent_buffers_set

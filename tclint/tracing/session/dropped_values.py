"""Frees what a built model's weights hold and no run asks for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from tclint.tracing.patches.modules import construct_site_of, named_modules
from tclint.tracing.record.stand_ins import is_large, meta_buffer, meta_parameter
from tclint.tracing.session.weight_names import is_lazy
from tclint.tracing.values.module_class import is_module
from tclint.tracing.values.sites import SiteFinder

_NORMS = nn.modules.batchnorm._NormBase
_STATISTICS = ("running_mean", "running_var")


def drop_values(built: Any, sites: SiteFinder) -> None:
    """Put on meta, for good, what no run asks for: weights, and statistics of norms, that have values.

    Args:
        built: what a build returned. Of modules that were there before, nothing is touched.
        sites: found where the build's modules were constructed.
    """
    model = built[0] if isinstance(built, tuple) and built else built
    if not is_module(model):
        return
    known = sites.ids()
    modules = list({id(module): module for _, module in named_modules(model)}.values())
    made_here = [module for module in modules if id(construct_site_of(module).site) in known]
    places = Counter(id(tensor) for module in modules for _, _, tensor in _with_values(module))
    own = Counter(id(tensor) for module in made_here for _, _, tensor in _with_values(module))
    swapped: dict[int, Any] = {}
    for wants_buffers in (False, True):  # parameters first: a tied one stays one
        for module in made_here:
            for slots, name, tensor in _with_values(module):
                is_buffer = slots is module._buffers
                if is_buffer is not wants_buffers or places[id(tensor)] > own[id(tensor)]:
                    continue
                made = swapped.get(id(tensor))
                if made is None and is_buffer and not _is_unread(module, name, tensor):
                    continue
                if made is None:
                    made = meta_buffer(tensor) if is_buffer else meta_parameter(tensor)
                    if own[id(tensor)] > 1:  # still somewhere, so that its id is not another's
                        swapped[id(tensor)] = made
                slots[name] = made


def _with_values(module: nn.Module) -> Iterator[tuple[dict[str, Any], str, torch.Tensor]]:
    """The module's dense weights that are not on meta, with their places."""
    for slots in (module._parameters, module._buffers):
        for name, tensor in list(slots.items()):
            if tensor is None or is_lazy(tensor) or tensor.is_meta or tensor.layout != torch.strided:
                continue
            yield slots, name, tensor


def _is_unread(module: nn.Module, name: str, buffer: torch.Tensor) -> bool:
    return is_large(buffer) or (name in _STATISTICS and isinstance(module, _NORMS))

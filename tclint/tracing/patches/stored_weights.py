"""Weights without their values, which matter to nobody: neither made, nor read from what is stored."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.utils import _python_dispatch

from tclint.core.target import WEIGHT_FILES
from tclint.graph.ops import Assumption
from tclint.tracing.patches.patch import itself, patch, patched
from tclint.tracing.values.sites import SiteFinder

_DESCRIBES = re.compile(r"arg|conf|cfg|hparam|hyper|opt(ion)?s?$|class|vocab|version", re.IGNORECASE)
"""Keys of a file under which an architecture is described: that cannot be made up."""
_OF_WEIGHTS = re.compile(rf"({'|'.join(map(re.escape, sorted(WEIGHT_FILES)))})\b", re.IGNORECASE)


class AbsentWeights(dict[Any, Any]):
    """What a file of weights holds that is not there: nothing, and the same under every key.

    Asked for what describes an architecture, or used as an object, it raises the error that reading gave.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.__dict__["error"] = error

    def __missing__(self, key: Any) -> Any:
        if isinstance(key, str) and _DESCRIBES.search(key):
            raise self.error
        return self

    def get(self, key: Any, default: Any = None) -> Any:
        return self[key] if default is None else default

    def pop(self, key: Any, default: Any = None) -> Any:
        return self.get(key, default)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self.error


class _Watched:
    sites: SiteFinder | None = None
    """Finds the user's line, while a model is built."""
    notes: dict[tuple[str, Any], Assumption]
    handed_out = False
    """Whether a file was missing: what is made of its contents is incomplete as well."""


_watched = _Watched()
_watched.notes = {}


def taken_notes() -> tuple[Assumption, ...]:
    """Which weights were not loaded since this was asked last, with the lines."""
    notes = tuple(_watched.notes.values())
    _watched.notes = {}
    _watched.handed_out = False
    return notes


@patch(
    replaces="`torch.load`, `torch.hub.download_url_to_file`, `nn.Module.load_state_dict`",
    why="a file of weights that is missing, or on a GPU, must not stop a build: random ones cost as much",
)
def random_weights(sites: SiteFinder) -> Iterator[None]:
    load, fetch, fill = torch.load, torch.hub.download_url_to_file, nn.Module.load_state_dict

    def loaded(f: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return load(f, *args, **kwargs)
        except FileNotFoundError as error:
            if not isinstance(f, (str, os.PathLike)):
                raise
            return _absent(error, f)
        except RuntimeError as error:
            if "deserialize object on" not in str(error):
                raise
            if hasattr(f, "seek"):
                f.seek(0)
            return load(f, "cpu", *args[1:], **{k: v for k, v in kwargs.items() if k != "map_location"})

    def fetched(url: str, dst: str, *args: Any, **kwargs: Any) -> None:
        if _watched.sites is None or not _OF_WEIGHTS.search(f"{url} {dst}"):
            fetch(url, dst, *args, **kwargs)

    def filled(self: nn.Module, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(state_dict, AbsentWeights):
            try:
                return fill(self, state_dict, *args, **kwargs)
            except RuntimeError:
                if not _watched.handed_out:
                    raise
        result = fill(self, {}, strict=False)
        result.missing_keys.clear()
        return result

    with patched(
        [
            (_watched, "sites", sites),
            (torch, "load", loaded),
            (torch.hub, "download_url_to_file", fetched),
            (nn.Module, "load_state_dict", filled),
        ]
    ):
        yield


def _absent(error: Exception, path: Any) -> AbsentWeights:
    if _watched.sites is None:
        raise error  # imported by name while a model was built, and called later
    _note(os.path.basename(os.fspath(path)))
    _watched.handed_out = True
    return AbsentWeights(error)


def _note(name: str) -> None:
    site = None if _watched.sites is None else _watched.sites.find(sys._getframe(1)).site
    note = Assumption(f"the weights of {name} were not loaded; random ones are used", site)
    _watched.notes[note.what, site] = note


# --- libraries that are imported later

LIBRARIES = ("safetensors.torch", "timm.models._builder", "transformers.modeling_utils")


def library_loaders() -> list[tuple[Any, str, Any]]:
    """Replacements in those of them that are imported."""
    found: list[tuple[Any, str, Any]] = []
    safetensors, timm, transformers = (sys.modules.get(name) for name in LIBRARIES)
    if safetensors is not None and hasattr(safetensors, "load_file"):
        found.append((safetensors, "load_file", _stored_tensors(safetensors.load_file)))
    if timm is not None and hasattr(timm, "load_pretrained"):  # else it is being imported
        found.append((timm, "load_pretrained", _without_pretraining(timm.load_pretrained)))
    model_class = getattr(transformers, "PreTrainedModel", None)
    if model_class is not None:
        found.append((model_class, "from_pretrained", classmethod(_from_configuration)))
    return found


def _stored_tensors(load: Any) -> Any:
    def load_file(filename: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return load(filename, *args, **kwargs)
        except FileNotFoundError as error:
            return _absent(error, filename)

    return load_file


def _without_pretraining(load: Any) -> Any:
    def load_pretrained(model: nn.Module, *args: Any, **kwargs: Any) -> None:
        if _watched.sites is None:
            load(model, *args, **kwargs)
            return
        configuration = args[0] if args else kwargs.get("pretrained_cfg")
        fields = configuration if isinstance(configuration, dict) else getattr(configuration, "__dict__", {})
        _note(str(fields.get("architecture") or "the pretrained model"))

    return load_pretrained


def _from_configuration(cls: Any, /, name: Any = None, *args: Any, config: Any = None, **kwargs: Any) -> Any:
    """`from_pretrained` up to the weights: the configuration decides about the architecture."""
    if config is None or isinstance(config, (str, os.PathLike)):
        config, kwargs = cls.config_class.from_pretrained(
            name if config is None else config, return_unused_kwargs=True, **kwargs
        )
    model = cls(config, *args)
    dtype = kwargs.get("dtype", kwargs.get("torch_dtype"))
    _note(str(name))
    model = model.to(dtype) if isinstance(dtype, torch.dtype) else model
    return (model.eval(), {}) if kwargs.get("output_loading_info") else model.eval()


@patch(
    replaces="`torch.nn.init._no_grad_uniform_`, `_no_grad_normal_`, `_no_grad_trunc_normal_`",
    why="random values of weights matter to nobody and take time; all public initialisers end in these, "
    "also those that were imported by name",
)
def without_initialisation() -> Iterator[None]:
    names = ("_no_grad_uniform_", "_no_grad_normal_", "_no_grad_trunc_normal_")
    with patched([(nn.init, name, itself) for name in names]):
        yield


@patch(
    replaces="`torch.nn.parameter.UninitializedTensorMixin.materialize`",
    why="lazy parameters take their shape outside the recorder, which cannot swap a tensor's storage",
)
def lazy_parameters() -> Iterator[None]:
    mixin = getattr(nn.parameter, "UninitializedTensorMixin", None)
    materialize: Any = getattr(mixin, "materialize", None)
    # Without these two a lazy parameter is made under the recorder, which most models survive.
    without_modes = getattr(_python_dispatch, "_disable_current_modes", contextlib.nullcontext)
    without_functions = getattr(torch._C, "DisableTorchFunction", contextlib.nullcontext)

    def plain(self: Any, shape: Any, device: Any = None, dtype: Any = None) -> None:
        # Stays on the CPU, where it was made: its memory is reserved and never touched.
        with without_modes(), without_functions():
            materialize(self, shape, device=device, dtype=dtype)

    with patched([(mixin, "materialize", plain)]):
        yield

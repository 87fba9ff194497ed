"""What a user typed: a model to build and trace, or source to read."""

from __future__ import annotations

import os
import re

_FILE_TARGET = re.compile(r".+\.py:[^\W\d]\w*(\.[^\W\d]\w*)*", re.DOTALL)
_MODULE_TARGET = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")

LIBRARIES = ("timm", "hf")
"""Prefixes of models that are named, as in 'timm:resnet50' (tclint/tracing/worker/libraries.py)."""
_LIBRARY_TARGET = re.compile(rf"({'|'.join(LIBRARIES)}):[\w./\\~-]+")


def is_model_target(text: str) -> bool:
    """True for 'path/model.py:build_model', 'package.module:Class' and 'timm:resnet50'; False for paths.

    Only such an explicit target ever runs user code, so a path that exists under exactly this name is
    read, not run.
    """
    if os.path.exists(text):
        return False
    patterns = (_FILE_TARGET, _MODULE_TARGET, _LIBRARY_TARGET)
    return any(pattern.fullmatch(text) for pattern in patterns)

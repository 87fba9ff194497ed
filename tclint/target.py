"""What a user typed: a model to build and trace, or source to read."""

from __future__ import annotations

import os
import re

_FILE_TARGET = re.compile(r".+\.py:[^\W\d]\w*(\.[^\W\d]\w*)*", re.DOTALL)
_MODULE_TARGET = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def is_model_target(text: str) -> bool:
    """True for 'path/model.py:build_model' and 'package.module:Class'; False for files and folders.

    Only such an explicit target ever runs user code, so a path that exists under exactly this name is
    read, not run.
    """
    if os.path.exists(text):
        return False
    return bool(_FILE_TARGET.fullmatch(text) or _MODULE_TARGET.fullmatch(text))

"""Codemods by topic; importing this package registers all of them."""

import importlib
import pkgutil

from tclint.edits.codemod import CODEMODS

__all__ = ["CODEMODS"]

for _module in pkgutil.iter_modules(__path__, f"{__name__}."):
    importlib.import_module(_module.name)

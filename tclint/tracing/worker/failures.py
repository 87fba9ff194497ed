"""What the user is told when the model's forward fails."""

from __future__ import annotations

import re

from torch import nn

from tclint.core.errors import TargetError
from tclint.tracing.inputs.given import CallInputs
from tclint.tracing.inputs.specs import SYNTAX
from tclint.tracing.record.call_recorder import TooManyOps
from tclint.tracing.values.sites import SiteFinder
from tclint.tracing.worker.targets import describe, is_out_of_memory, traceback_of, where_in_user_code
from tclint.tracing.worker.torch_errors import in_plain_words

# Words of torch's and Python's messages about inputs that do not fit a model.
_SHAPE_PROBLEM = re.compile(
    r"shape|size|dim|channel|expected|mat1|broadcast|unpack|argument|divisible|dtype|index",
    re.IGNORECASE,
)


def forward_error(
    error: BaseException, model: nn.Module, inputs: CallInputs, sites: SiteFinder, name: str, option: str
) -> BaseException:
    """One sentence on what failed, where, and whether other inputs may help.

    Args:
        name: of the target.
        option: how the user gives other inputs.
    """
    if is_out_of_memory(error):
        return error
    line = where_in_user_code(error, sites.is_user_file)
    details = traceback_of(error)
    if isinstance(error, TooManyOps):
        return TargetError(f"{name} was not traced: {error}; trace fewer steps of its loop.", details=details)
    if isinstance(error, SystemExit):
        return TargetError(f"The forward of {name} called sys.exit({error.code!r}){line}.", details=details)
    if isinstance(error, RecursionError):
        return TargetError(f"The forward of {name} recursed without an end{line}.", details=details)
    where = _failed_module(error, model)
    message = f"The forward of {name} raised {describe(error)}{where}{line}"
    described = inputs.describe()
    if in_plain_words(str(error)) is not None:
        return TargetError(message + ".", details=details)
    if inputs.source == "inferred":
        message += (
            f"; its inputs were inferred ({described}), so give the right ones with {option}: {SYNTAX}"
            if option == "--input"
            else f"; its inputs were inferred ({described}), so give the right ones with {option}"
        )
    elif inputs.source == "--phase":
        message += f"; --phase called it with {described}"
    elif _SHAPE_PROBLEM.search(str(error)) and described:
        message += f"; it was called with {described}, which {option} can change"
    return TargetError(message + ".", details=details)


def _failed_module(error: BaseException, model: nn.Module) -> str:
    """' in encoder.layers.0 (Block)': the innermost module on the error's stack."""
    names = {id(module): name for name, module in model.named_modules()}
    found = ""
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if code.co_argcount and code.co_name not in ("__call__", "_call_impl"):
            owner = traceback.tb_frame.f_locals.get(code.co_varnames[0])
            if isinstance(owner, nn.Module) and names.get(id(owner)):
                found = f" in {names[id(owner)]} ({type(owner).__name__})"
        traceback = traceback.tb_next
    return found

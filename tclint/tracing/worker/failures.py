"""What the user is told when the model's forward fails."""

from __future__ import annotations

import re

from torch import nn

from tclint.core.errors import TargetError
from tclint.tracing.inputs.forward import parameters_of
from tclint.tracing.inputs.given import CallInputs
from tclint.tracing.inputs.specs import SYNTAX
from tclint.tracing.record.call_recorder import TooManyOps
from tclint.tracing.values.sites import SiteFinder
from tclint.tracing.worker.hints import in_plain_words
from tclint.tracing.worker.targets import describe, is_out_of_memory, traceback_of, where_in_user_code

# Words of torch's and Python's messages about inputs that do not fit a model.
_SHAPE_PROBLEM = re.compile(
    r"shape|size|dim|channel|expected|mat1|broadcast|unpack|argument|divisible|dtype|index",
    re.IGNORECASE,
)

_TARGETS = re.compile(r"(gt_?\w*|\w*targets?|\w*labels?|ground_truth\w*|y_true|annotations)")
# Errors of attributes whose owner came from the inputs, not from a class of the model's.
_OF_VALUES = re.compile(r"'(Tensor|NoneType|tuple|list|dict|int|float|bool|str)' object has no attribute")


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
    method = getattr(model.forward, "__name__", "forward")  # or training_step, in its place
    method = method if method == "training_step" else "forward"
    message = f"The {method} of {name} raised {describe(error)}{where}{line}"
    described = inputs.describe()
    if in_plain_words(str(error)) is not None:
        return TargetError(message + ".", details=details)
    missing = _missing_targets(error, model, inputs)
    if missing:
        message += (
            f"; a forward that trains may need {missing}, which was not given: give it with {option}, or "
            "price inference (mode infer)"
        )
    elif inputs.source == "inferred" and _may_be_of_inputs(error):
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


def _missing_targets(error: BaseException, model: nn.Module, inputs: CallInputs) -> str:
    """What the forward calls the targets that it was not given, where it may have failed for want of them."""
    if not any(module.training for module in model.modules()):
        return ""
    parameters = parameters_of(model)
    given = {*list(parameters)[: len(inputs.args)], *inputs.kwargs}
    names = [name for name in parameters if name not in given and _TARGETS.fullmatch(name)]
    message = str(error)
    if not (isinstance(error, AssertionError) or "None" in message):
        names = [name for name in names if name in message]
    return " and ".join(map(repr, names))


def _may_be_of_inputs(error: BaseException) -> bool:
    """Whether other inputs may help: not where a name, a file, an operator or a device is missing."""
    message = str(error)
    if isinstance(error, (ImportError, NameError, NotImplementedError, OSError)) or "device" in message:
        return isinstance(error, UnboundLocalError)
    if isinstance(error, AttributeError):
        return _OF_VALUES.search(message) is not None
    return not isinstance(error, RuntimeError) or _SHAPE_PROBLEM.search(message) is not None


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

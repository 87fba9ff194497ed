"""torch's own FLOP counter on the same model, on meta tensors, to check tclint's figure against."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode
from zoo_case import split_inputs


def count_on_meta(model: Any, inputs: Any) -> tuple[int | None, str]:
    """FLOPs of one forward by torch.utils.flop_counter, or None and the reason it cannot run there.

    Plain meta tensors: a model that looks at a value, or mixes constants with weights, does not run.
    """
    from tclint.tracing.patches.environment import without_gpu

    try:
        model = model.to("meta")
        for module in model.modules():
            for name, value in list(vars(module).items()):
                if isinstance(value, torch.Tensor):
                    setattr(module, name, value.to("meta"))
        args, kwargs = split_inputs(inputs)
        counter = FlopCounterMode(display=False)
        with without_gpu(), torch.no_grad(), torch.device("meta"), counter:
            returned = model(*args, **kwargs)
            if isinstance(returned, Generator):
                deque(returned, maxlen=0)  # a forward that yields runs only now
    except BaseException as error:
        lines = str(error).strip().splitlines()
        return None, f"{type(error).__name__}: {lines[0][:120] if lines else ''}"
    return counter.get_total_flops(), ""

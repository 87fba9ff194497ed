"""Runs graphs of other tracers (torch.fx.symbolic_trace, make_fx, Dynamo) so that their metadata is kept."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from torch.fx import GraphModule, Interpreter, Node

from tclint.tracing.record.call_recorder import CallRecorder


def run_graph_module(
    recorder: CallRecorder, module: GraphModule, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    """What the module returns; its operators are recorded with the modules and lines of its nodes."""
    if kwargs:
        bound = inspect.signature(module.forward).bind(*args, **kwargs)
        bound.apply_defaults()
        args = (*bound.args, *bound.kwargs.values())
    return _Carrying(recorder, module).run(*args)


class _Carrying(Interpreter):
    def __init__(self, recorder: CallRecorder, module: GraphModule) -> None:
        super().__init__(module)
        self._recorder = recorder

    def run_node(self, n: Node) -> Any:
        before = self._recorder.carried
        self._recorder.carried = n, len(self._recorder.modules)
        try:
            return super().run_node(n)
        finally:
            self._recorder.carried = before

"""The stand-ins of slow imports give way to the real modules when those are really wanted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from versions import since_2_5

SETUP = """
import sys
import torch
from tclint.tracing.worker.light_imports import LightModule, install
install()
"""

USES = {
    "sympy": "import sympy\nassert str(sympy.Symbol('x') + 1) == 'x + 1'",
    "sympy name": "from sympy import Symbol\nassert Symbol('x').name == 'x'",
    "dynamo option": "import torch._dynamo\ntorch._dynamo.config.suppress_errors = True\n"
    "assert torch._dynamo.config.suppress_errors",
    "dynamo submodule": "import torch._dynamo.config\nassert torch._dynamo.config.cache_size_limit",
    "shapes": "from torch.fx.experimental.symbolic_shapes import ShapeEnv\nassert ShapeEnv()",
    "export": "import torch.export\n"
    "program = torch.export.export(torch.nn.Linear(2, 3), (torch.ones(4, 2),))\n"
    "assert program.graph",
}


def test_real_uses_get_the_real_module() -> None:
    _run("\n".join([SETUP, *(USES[use] for use in ("sympy", "dynamo option", "export"))]))


@since_2_5
def test_meta_kernels_and_optimizers_load_none_of_them() -> None:
    _run(
        SETUP
        + "x = torch.empty(4, 3, 9, 9, device='meta')\n"
        + "torch.nn.functional.conv2d(x, torch.empty(5, 3, 3, 3, device='meta'))\n"
        + "torch.rsub(x, 1.0)\n"
        + "torch.nn.functional.dropout(x, 0.5)\n"
        + "x.log_softmax(1)\n"
        + "layer = torch.nn.Linear(2, 2)\n"
        + "layer(torch.ones(1, 2)).sum().backward()\n"
        + "torch.optim.AdamW(layer.parameters()).step()\n"
        + "for name in ('sympy', 'torch._dynamo', 'torch.fx.experimental.symbolic_shapes'):\n"
        + "    assert isinstance(sys.modules[name], LightModule), name\n"
        + "    assert sys.modules[name]._light_real is None, name\n"
    )


def _run(code: str) -> None:
    root = str(Path(__file__).parents[2])
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

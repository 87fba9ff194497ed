"""The precision that fixes choose: what the GPUs of the run compute in."""

from __future__ import annotations

from pathlib import Path

import pytest

from tclint.config.settings import Settings
from tclint.engine.check import check

LOOP = """\
import torch

net = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.Linear(1024, 1024)).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(net(x.cuda()), y.cuda())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
FABRIC = (
    LOOP.replace("import torch\n", "import torch\nfrom lightning import Fabric\n\nfabric = Fabric()\n")
    .replace("for x, y", "net, optimizer = fabric.setup(net, optimizer)\nfor x, y")
    .replace("loss.backward()", "fabric.backward(loss)")
)


@pytest.mark.parametrize(
    ("text", "gpu", "written"),
    [
        (LOOP, "a100", "bfloat16"),
        (LOOP, "v100", ""),
        (FABRIC, "a100", 'precision="bf16-mixed"'),
        (FABRIC, "v100", 'precision="16-mixed"'),
    ],
)
def test_no_edit_chooses_what_the_gpu_lacks(tmp_path: Path, text: str, gpu: str, written: str) -> None:
    file = tmp_path / "train.py"
    file.write_text(text)
    settings = Settings(select=("AMP016",), gpus=(gpu,), explicit=frozenset({"gpus"}), cache=False)
    (found,) = check(str(file), settings).findings
    edits = "".join(edit.replacement for edit in found.fix.edits) if found.fix is not None else ""
    assert written in edits
    assert bool(edits) is bool(written)

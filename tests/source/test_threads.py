"""Advice for networks that compute in threads, where autocast has its default dtype."""

from __future__ import annotations

import pytest

from tclint.config.settings import Settings
from tclint.engine.sources.program import lint_text
from tclint_rules.amp.no_mixed_precision import NoMixedPrecision

TRAIN = """\
import torch

net = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.Linear(1024, 1024)).cuda()
{wrapped}
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(net(x.cuda()), y.cuda())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("wrapped", "advice"),
    [
        ("net = torch.nn.DataParallel(net)", "Autocast inside the network's forward, in bfloat16"),
        (
            "net = torch.nn.parallel.DistributedDataParallel(net)",
            "Compute the loss under torch.autocast, in",
        ),
    ],
)
def test_autocast_around_threads_is_not_advised(wrapped: str, advice: str) -> None:
    (found,) = lint_text(TRAIN.format(wrapped=wrapped), [NoMixedPrecision()], Settings())
    assert found.fix is not None
    assert found.fix.advice.startswith(advice)

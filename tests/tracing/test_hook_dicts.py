"""A worker's modules without empty dicts of hooks do all that others do."""

from __future__ import annotations

import subprocess
import sys

_USES = """
import copy, io, sys
import torch
from torch import nn
from tclint.tracing.hook_dicts import make_hook_dicts_when_asked
from tclint.tracing.modules import remembered_construction, wrap_modules
from tclint.tracing.sites import SiteFinder

if sys.argv[1] == "lean":
    wrap_modules()
    make_hook_dicts_when_asked()
    make_hook_dicts_when_asked()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(2, 2)
        self.norm = nn.BatchNorm1d(2)
        self.register_buffer("kept", torch.ones(1))
        self.register_buffer("dropped", torch.ones(1), persistent=False)
        self.rest = nn.Sequential(nn.ReLU(), nn.Dropout(0.5))
    def forward(self, x, *, scale=1.0):
        return self.rest(self.norm(self.first(x))) * scale

class Forgetful(nn.Module):
    def __init__(self):
        pass

said = []
with remembered_construction(SiteFinder(roots=["."])):
    torch.manual_seed(0)
    net = Net().eval()
    count = sum("hooks" in name for name in vars(net.rest[0]))
    lazy = nn.LazyLinear(3)
print("dicts", count, file=sys.stderr)
net.first.weight.data.fill_(1.0)
net.first.bias.data.fill_(0.0)
x = torch.ones(2, 2)
said.append(net(x).shape)
handles = [
    net.register_forward_hook(lambda m, a, out: said.append("after") or out + 1),
    net.register_forward_pre_hook(lambda m, a, k: (a, {"scale": 2.0}), with_kwargs=True),
    net.register_forward_pre_hook(lambda m, a: said.append("before"), prepend=True),
    net.first.register_forward_hook(lambda *a: said.append("always"), always_call=True),
    net.register_full_backward_hook(lambda m, i, o: said.append("backward")),
    net.register_full_backward_pre_hook(lambda m, o: said.append("before backward")),
]
out = net(x)
out.sum().backward()
said.append(out.tolist())
for handle in handles:
    handle.remove()
said.append(net(x).tolist())
net.register_state_dict_pre_hook(lambda *a: said.append("state"))
net._register_state_dict_hook(lambda m, state, prefix, meta: state.pop("kept", None) and None)
said.append(sorted(net.state_dict()))
net.register_load_state_dict_pre_hook(lambda *a: said.append("load"))
net.register_load_state_dict_post_hook(lambda *a: said.append("loaded"))
net.load_state_dict(net.state_dict(), strict=False)
for other in (copy.deepcopy(net), copy.copy(net)):
    other.register_forward_hook(lambda *a: said.append("copy's"))
    other(x)
net.rest[0].register_forward_hook(lambda *a: said.append("later"))
buffer = io.BytesIO()
torch.save(nn.Linear(2, 2), buffer)
buffer.seek(0)
said.append(torch.load(buffer, weights_only=False)(x).shape)
said.append(lazy(x).shape)
said.append(type(lazy).__name__)
net.half().float().apply(lambda module: said.append(type(module).__name__))
said.append(net(x).shape)
said.append(len(net.rest[1]._forward_hooks))
said.append([hasattr(nn.Module, "_forward_hooks") and "class", hasattr(Forgetful(), "_forward_hooks")])
uses = lambda: Forgetful()(x), lambda: setattr(Forgetful(), "child", net), lambda: Forgetful()._forward_hooks
for use in uses:
    try:
        use()
    except Exception as error:
        said.append((type(error).__name__, str(error)))
shared = nn.Linear(2, 2)
shared.__dict__.update(net.first.__dict__)
said.append(shared(x).tolist())
print(said)
"""


def _run(how: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-c", _USES, how], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done


def test_what_modules_do() -> None:
    plain, lean = _run("plain"), _run("lean")
    assert lean.stdout == plain.stdout
    assert "dicts 0" in lean.stderr
    assert "dicts 11" in plain.stderr

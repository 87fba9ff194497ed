"""A worker's modules without empty dicts of hooks do all that others do."""

from __future__ import annotations

import subprocess
import sys

_USES = """
import copy, io, sys
import torch
from torch import nn
from tclint.tracing.patches.hook_dicts import make_hook_dicts_when_asked
from tclint.tracing.patches.modules import remembered_construction, wrap_modules
from tclint.tracing.values.sites import SiteFinder

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
        for name in vars(self):
            if name == "_buffers":
                self.register_buffer("more", torch.ones(1))
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
names = nn.Linear(2, 2)
seen = names._non_persistent_buffers_set
names.register_buffer("a", x, persistent=False)
seen.add("b")
said.append((sorted(names._non_persistent_buffers_set), sorted(names.state_dict())))
said.append(sorted(copy.deepcopy(nn.ReLU())._non_persistent_buffers_set | {"c"}))
class Never(nn.Module):
    def __init__(self):
        self.k = 2
    def forward(self, x):
        return x * self.k
class Property(nn.Linear):
    @property
    def _forward_hooks(self):
        return {1: lambda m, a, out: out * 0 + 5}
    @_forward_hooks.setter
    def _forward_hooks(self, value):
        pass
with remembered_construction(SiteFinder(roots=["."])):
    special = Property(2, 2)
    own = nn.ReLU()
    own._call_impl = lambda x: x + 7
said.append(special._forward_hooks.keys())
for use in (lambda: Never()(x), lambda: own._call_impl(x).tolist()):
    try:
        said.append(use())
    except Exception as error:
        said.append((type(error).__name__, str(error)))
shared = nn.Linear(2, 2)
shared.__dict__.update(net.first.__dict__)
said.append(shared(x).tolist())
print(said)
"""


def _run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done


def test_what_modules_do() -> None:
    plain, lean = _run(_USES, "plain"), _run(_USES, "lean")
    assert lean.stdout == plain.stdout
    assert "dicts 0" in lean.stderr
    assert "dicts 11" in plain.stderr


_TRACED = """
import torch, tclint
from torch import nn
from tclint.tracing.worker.warm import warm_up

warm_up()

class Never(nn.Module):
    def __init__(self):
        self.k = 2
    def forward(self, x):
        return x * self.k

class Calls(nn.Linear):
    def __init__(self):
        super().__init__(4, 4)
        self.own = nn.ReLU()
        self.own._call_impl = lambda x: x * 3
        self.inner = nn.ReLU()
        self.inner.register_forward_hook(lambda module, args, out: out.exp())
    def forward(self, x):
        return self.own(self.inner(super().forward(x)))

class Forgot(nn.Linear):
    def forward(self, x):
        return Never()(super().forward(x))

class Sparse(nn.Linear):
    def __init__(self):
        super().__init__(4, 4)
        places = torch.tensor([[0, 1, 2], [1, 2, 0]])
        self.register_buffer("adj", torch.sparse_coo_tensor(places, torch.ones(3), (1000, 1000)) * 0.5)
    def forward(self, x):
        return torch.sparse.mm(self.adj, super().forward(x))

print([op.name for op in tclint.trace(Calls, inputs=(torch.ones(2, 4),)).ops])
print([op.name for op in tclint.trace(lambda: Sparse(), inputs=(torch.ones(1000, 4),)).ops])
try:
    tclint.trace(lambda: Forgot(4, 4), inputs=(torch.ones(2, 4),))
except Exception as error:
    print(error)
"""


def test_what_a_worker_traces() -> None:
    lines = _run(_TRACED).stdout.splitlines()
    assert lines[:2] == ["['linear', 'relu', 'exp', 'mul']", "['linear', '_sparse_mm']"]
    assert "'Never' object has no attribute '_backward_hooks'" in lines[2]

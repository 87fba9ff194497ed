"""Which layer follows which, seen through the rule that asks it."""

from __future__ import annotations

import pytest

from tclint.config.settings import Settings
from tclint.engine.rules.registry import find_rule
from tclint.engine.sources.program import lint_text
from tclint.source.source_rule import SourceRule
from tclint.source.syntax.prefilter import applicable

BLOCK = """\
from torch import nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self, wide=False):
        super().__init__()
        self.conv = nn.Conv2d(8, 8, 3)
        self.bn = nn.BatchNorm2d(8)

    def forward(self, x):
{forward}
{more}
"""


def block(forward: str, more: str = "") -> str:
    lines = "\n".join(f"        {line}" for line in forward.splitlines())
    return BLOCK.format(forward=lines, more=more)


LISTS = """\
from torch import nn

class Points(nn.Module):
    def __init__(self, widths):
        super().__init__()
        self.convs = nn.ModuleList()
        self.norms = nn.ModuleList()
        for width in widths:
            self.convs.append(nn.Conv1d(8, width, 1))
            self.norms.append(nn.BatchNorm1d(width))

    def forward(self, x):
"""

NESTED = """\
from torch import nn

class Points(nn.Module):
    def __init__(self, widths):
        super().__init__()
        self.convs = nn.ModuleList()
        self.norms = nn.ModuleList()
        for each in widths:
            convs = nn.ModuleList()
            norms = nn.ModuleList()
            for width in each:
                convs.append(nn.Conv1d(8, width, 1))
                norms.append(nn.BatchNorm1d(width))
            self.convs.append(convs)
            self.norms.append(norms)

    def forward(self, x):
"""

FOLLOWED = {
    "lists, a statement for each": LISTS
    + """\
        for i in range(3):
            y = self.convs[i](x)
            y = self.norms[i](y)
            x = x + y
        return x
""",
    "lists of lists by number": NESTED
    + """\
        for i in range(len(self.convs)):
            for j in range(len(self.convs[i])):
                conv = self.convs[i][j]
                x = self.norms[i][j](conv(x)).relu()
        return x
""",
    "lists of lists side by side": NESTED
    + """\
        for convs, norms in zip(self.convs, self.norms):
            for conv, norm in zip(convs, norms):
                x = conv(x)
                x = norm(x).relu()
        return x
""",
    "weights of lists set up": LISTS
    + """\
        for conv, norm in zip(self.convs, self.norms):
            x = norm(conv(x))
        return x

    def init_weights(self):
        for conv in self.convs:
            nn.init.normal_(conv.weight)
""",
    "lists by number": LISTS
    + """\
        for i, conv in enumerate(self.convs):
            norm = self.norms[i]
            x = norm(conv(x)).relu()
        return x
""",
    "lists side by side": LISTS
    + """\
        for conv, norm in zip(self.convs, self.norms):
            x = norm(conv(x))
        return x
""",
    "nested": block("return self.bn(self.conv(x))"),
    "next statement": block("y = self.conv(x)\nprint(y.shape)\ny = self.bn(y)\nreturn y + x"),
    "assigned anew": block("y = self.conv(x)\nz = self.bn(y)\ny = z + 1\nreturn y"),
    "every time": block("for _ in range(3):\n    x = self.bn(self.conv(x))\nreturn self.bn(self.conv(x))"),
    "weights set up": block(
        "return self.bn(self.conv(x))", "    def init_weights(self):\n        self.conv.bias.data.zero_()"
    ),
    "another class's own norm": block(
        "return self.bn(self.conv(x))",
        "class Head(nn.Module):\n    def __init__(self):\n        self.bn = nn.Identity()",
    ),
    "annotated": (
        "from torch import nn\nnet: nn.Module = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8))\n"
    ),
    "subclass of Sequential": (
        "from torch import nn\nclass A(nn.Sequential):\n    def __init__(self):\n"
        "        super().__init__(nn.Conv2d(1, 8, 3), nn.SyncBatchNorm(8))\n"
    ),
    "list of a helper": (
        "from torch import nn\ndef make():\n    made = []\n    made.append(nn.Conv2d(1, 8, 3))\n"
        "    made.append(nn.BatchNorm2d(8))\n    return made\nnet = nn.Sequential(*make())\n"
    ),
    "dict in order": (
        "from collections import OrderedDict\nfrom torch import nn\n"
        "net = nn.Sequential(OrderedDict({'a': nn.Conv1d(1, 8, 3), 'b': nn.BatchNorm1d(8)}))\n"
    ),
    "list display": (
        "from torch import nn\nnet = nn.Sequential(*[nn.Conv3d(1, 8, 3), nn.BatchNorm3d(8), nn.ReLU()])\n"
    ),
    "sum of lists": (
        "from torch import nn\nmade = [nn.ReLU()]\nmade = made + [nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8)]\n"
        "net = nn.Sequential(*made)\n"
    ),
}

NOT_FOLLOWED = {
    "lists of lists, one level short": NESTED
    + """\
        for conv, norm in zip(self.convs, self.norms):
            x = norm(conv(x))
        return x
""",
    "a list in a list that is also used alone": NESTED.replace(
        "            self.norms.append(norms)",
        "            self.norms.append(norms)\n            self.last = convs",
    )
    + "        return self.last[0](self.norms[0][0](self.convs[0][0](x)))\n",
    "an item of a list that is handed on": LISTS
    + """\
        for conv, norm in zip(self.convs, self.norms):
            x = norm(conv(x)) + checkpoint(conv, x)
        return x
""",
    "a norm only in some rounds": LISTS
    + """\
        for i in range(3):
            x = self.convs[i](x)
            if i < 2:
                x = self.norms[i](x)
        return x
""",
    "read between the statements": LISTS
    + """\
        for i in range(3):
            y = self.convs[i](x)
            x = x + y
            y = self.norms[i](y)
        return x
""",
    "an item whose bias is read": LISTS
    + """\
        for conv, norm in zip(self.convs, self.norms):
            x = norm(conv(x)) + conv.bias
        return x
""",
    "the last of a list without": LISTS
    + """\
        for conv, norm in zip(self.convs[:-1], self.norms):
            x = norm(conv(x))
        return self.convs[-1](x)
""",
    "a part of a list": LISTS
    + """\
        for i in range(3):
            x = self.norms[i](self.convs[i](x))
        return run(x, self.convs)
""",
    "lists with an activation in between": LISTS
    + """\
        for i in range(len(self.convs)):
            x = self.norms[i](self.convs[i](x).relu())
        return x
""",
    "a list with one more": LISTS.replace(
        "        for width", "        self.norms.extend(more())\n        for width"
    )
    + "        return self.norms[0](self.convs[0](x))\n",
    "read twice": block("y = self.conv(x)\nreturn self.bn(y) + y"),
    "changed in place": block("y = self.conv(x)\ny += x\nreturn self.bn(y)"),
    "read in the next round": block(
        "y = x\nfor _ in range(3):\n    x = x + y.mean()\n    y = self.conv(x)\n    z = self.bn(y)\nreturn z"
    ),
    "only sometimes": block("y = self.conv(x)\nif self.training:\n    y = self.bn(y)\nreturn y"),
    "chosen": block("y = self.conv(x)\ny = self.bn(y) if self.training else y\nreturn y"),
    "run without": block("if self.training:\n    return self.bn(self.conv(x))\nreturn self.conv(x)"),
    "handed on": block("x = self.bn(self.conv(x))\nreturn checkpoint(self.conv, x)"),
    "its bias is read": block("return self.bn(self.conv(x)) + self.conv.bias.sum()"),
    "folded": block(
        "return self.bn(self.conv(x))", "    def fuse(self):\n        self.conv = fused(self.conv, self.bn)"
    ),
    "replaced": block("return self.bn(self.conv(x))", "net = Block()\nnet.bn = nn.Identity()"),
    "norm of two kinds": block("return self.bn(self.conv(x))").replace(
        "self.bn = nn.BatchNorm2d(8)", "self.bn = nn.BatchNorm2d(8)\n        if wide: self.bn = nn.Identity()"
    ),
    "another forward": block(
        "return self.bn(self.conv(x))",
        "class Plain(Block):\n    def forward(self, x):\n        return self.conv(x)",
    ),
    "its own order": (
        "from torch import nn\nclass A(nn.Sequential):\n    def __init__(self):\n"
        "        super().__init__(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8))\n"
        "    def forward(self, x):\n        return self[0](x)\n"
    ),
    "list put in another order": (
        "from torch import nn\nmade = [nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8)]\nmade.insert(1, nn.ReLU())\n"
        "net = nn.Sequential(*made)\n"
    ),
    "item replaced": (
        "from torch import nn\nmade = [nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8)]\nmade[1] = nn.ReLU()\n"
        "net = nn.Sequential(*made)\n"
    ),
    "something in between": (
        "from torch import nn\ndef make(act):\n    made = [nn.Conv2d(1, 8, 3)]\n"
        "    if act:\n        made.append(nn.ReLU())\n"
        "    made.append(nn.BatchNorm2d(8))\n    return nn.Sequential(*made)\n"
    ),
    "between by a helper": (
        "from torch import nn\ndef make():\n    made = [nn.Conv2d(1, 8, 3)]\n    grow(made)\n"
        "    made.append(nn.BatchNorm2d(8))\n    return nn.Sequential(*made)\n"
    ),
    "not run in order": (
        "from torch import nn\nnet = nn.ModuleList([nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8)])\n"
    ),
    "used twice": (
        "from torch import nn\nconv = nn.Conv2d(1, 8, 3)\nnet = nn.Sequential(conv, nn.BatchNorm2d(8))\n"
        "plain = nn.Sequential(conv, nn.ReLU())\n"
    ),
    "unknown layers between": (
        "from torch import nn\ndef make(more):\n"
        "    return nn.Sequential(nn.Conv2d(1, 8, 3), *more, nn.BatchNorm2d(8))\n"
    ),
    "class chosen at run time": (
        "from torch import nn\nnn.Conv2d(1, 8, 3)\n"
        "def make(three):\n    conv = nn.Conv3d if three else nn.Conv2d\n"
        "    return nn.Sequential(conv(1, 8, 3), nn.BatchNorm2d(8))\n"
    ),
}


@pytest.fixture(scope="module")
def rule() -> SourceRule:
    (side,) = (side for side in find_rule("ARC001") if issubclass(side, SourceRule))
    return side()


@pytest.mark.parametrize("source", FOLLOWED.values(), ids=FOLLOWED)
def test_a_certain_order_is_seen(rule: SourceRule, source: str) -> None:
    assert applicable([rule], source.encode()) == [rule]
    (finding,) = lint_text(source, [rule], Settings(), "model.py")
    assert "Conv" in source.splitlines()[finding.location.line - 1]


@pytest.mark.parametrize("source", NOT_FOLLOWED.values(), ids=NOT_FOLLOWED)
def test_an_order_in_doubt_is_not(rule: SourceRule, source: str) -> None:
    assert applicable([rule], source.encode()) == [rule], "the rule has to look at it"
    assert lint_text(source, [rule], Settings(), "model.py") == []


def test_layers_alike_are_told_apart(rule: SourceRule) -> None:
    pair = "nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8)"
    found = lint_text(
        f"from torch import nn\nnet = nn.Sequential({pair}, {pair})\n", [rule], Settings(), "m.py"
    )
    assert len({finding.fingerprint for finding in found}) == 2

"""Sizes at layers, cuts of padded outputs, and what code that no trace ran reads."""

from __future__ import annotations

import pytest

from tclint.edits.sizes.candidates import rounded_up
from tclint.edits.sizes.cuts import Head, NoCut, cut_back, head_name
from tclint.edits.sizes.layers import layer_arguments, sets_of
from tclint.edits.sizes.unrun import UnrunCode
from tclint.edits.sizes.written import Written
from tclint.edits.texts import apply_edits

NET = """\
class Net(nn.Module):
    def __init__(self, width, classes{parameters}):
        super().__init__()
        {before}
        self.head = nn.Linear(width, {size})

    def forward(self, x):
        return self.head(x)

    def sample(self, x):
        return self.head(x).argmax(-1)
"""


def cut(size: str, before: str = "self.width = width", top: str = "", parameters: str = "") -> str:
    """The class with its head's outputs cut back."""
    text = top + NET.format(size=size, before=before, parameters=parameters)
    lines = text.split("\n")
    made = next(number for number, line in enumerate(lines, 1) if "self.head = nn" in line)
    called = next(number for number, line in enumerate(lines, 1) if "return self.head(x)" in line)
    edits = cut_back(Head("head", "net.py", made, called, -1, size), text, contiguous=False)
    edited, made_edits = apply_edits(text, [edits])
    assert made_edits
    return edited


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        (("1003",), "1003"),
        (("CLASSES", "self.width = width", "CLASSES = 1003\n"), "CLASSES"),
        (("classes", "self.classes = classes"), "self.classes"),
        (("config.classes", "self.config = config", "", ", config"), "self.config.classes"),
        (("self.classes", "self.classes = 2 * classes"), "self.classes"),
        (("classes",), "self.unpadded_classes"),
        (("2 * classes",), "self.unpadded_head_outputs"),
        # A constant that a function changes, or that stands for a parameter, is none.
        (("classes", "classes = classes or 7", "classes = 1003\n"), "self.unpadded_classes"),
        (("CLASSES", "global CLASSES", "CLASSES = 1003\n"), "self.unpadded_CLASSES"),
    ],
)
def test_outputs_are_cut_back_to_what_the_layer_was_given(arguments: tuple[str, ...], kept: str) -> None:
    text = cut(*arguments)
    assert text.count(f"self.head(x)[..., :{kept}]") == 2  # what the trace did not run is cut as well
    added = f"        {kept} = {arguments[0]}\n        self.head = nn.Linear(width, "
    assert (added in text) or not kept.startswith("self.unpadded")
    assert ("self.unpadded" in text) is kept.startswith("self.unpadded")


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        ("self.head = None", r"head is assigned at net\.py:\d+, \d+"),
        ("self.unpadded_classes = 3", r"can be put before net\.py:\d+"),
    ],
)
def test_outputs_of_layers_that_may_be_others_are_not_cut(before: str, reason: str) -> None:
    with pytest.raises(NoCut, match=reason):
        cut("classes", before)


def test_a_layer_in_a_sequence_is_called_by_its_name() -> None:
    assert head_name("decoder.classifier.3") == "classifier"
    assert head_name("0") == ""


def test_arguments_of_layers_are_rounded_up_and_names_stay() -> None:
    text = "emb = nn.Embedding(vocab, 8)\nhead = nn.Linear(8, vocab, bias=False)\nlast = nn.Linear(8, 1003)\n"
    places = {("net.py", line) for line in (1, 2, 3)}
    candidates = layer_arguments({"net.py": text}, places, {(1003, 1008)})
    assert {(item.written.text, item.new) for item in candidates} == {
        ("vocab", "(vocab + 7) // 8 * 8"),
        ("1003", "1008"),
    }
    assert [item.written.start[0] for item in sets_of(candidates)[0]] == [1, 2]


def test_what_is_rounded_up_is_bracketed_where_it_binds_less() -> None:
    assert rounded_up("a * b", 8) == "(a * b + 7) // 8 * 8"
    assert rounded_up("1 << n", 8) == "((1 << n) + 7) // 8 * 8"
    assert rounded_up("a or b", 8) == "((a or b) + 7) // 8 * 8"


MODEL = """\
from torch import nn

WIDTH = 500


class Net(nn.Module):
    def __init__(self, width=500):
        super().__init__()
        self.fc = nn.Linear(width, 10)

    def forward(self, x):
        return self.fc(x)


class Other(nn.Module):
    def forward(self, x):
        return self.fc(x)


class Heir(Net):
    def twice(self, x):
        return self.fc(x) + 1


def build():
    return Net(WIDTH)
"""
CONSTANT = Written("/p/model.py", (3, 9), (3, 12), "500", "number", "WIDTH", 500)
DEFAULT = Written("/p/model.py", (7, 30), (7, 33), "500", "number", "width", 500)


def unrun(script: str, model: str = MODEL) -> UnrunCode:
    texts = {"/p/model.py": model, "/p/train.py": script, "/p/else.py": "x = nn.Linear(500, 3)\nfc.weight\n"}
    return UnrunCode(
        texts, {"/p/model.py"}, {("/p/model.py", 9), ("/p/model.py", 12)}, {"build", "Net", "model"}
    )


def test_readers_of_a_constant_are_told() -> None:
    found = unrun(
        "from model import WIDTH, build\nx = torch.zeros(2, WIDTH)\ny = x.view(-1, WIDTH // 4, 4)\n"
    )
    readers = found.readers(CONSTANT, {"width"})
    assert readers == {("/p/train.py", 2): False, ("/p/train.py", 3): True}  # build() leads to the layers
    assert unrun("import model\nWIDTH = 3\nprint(WIDTH)\n").readers(CONSTANT, {"width"}) == {}
    assert unrun("import model\nprint(model.WIDTH)\n").readers(CONSTANT, set()).keys() >= {("/p/train.py", 2)}


def test_readers_of_fields_and_options_are_told() -> None:
    model = MODEL.replace("WIDTH = 500\n", "class C:\n    hidden: int = 500\n", 1)
    field = Written("/p/model.py", (4, 19), (4, 22), "500", "number", "hidden", 500)
    found = unrun("from model import C, build\nh = torch.zeros(1, C().hidden)\nprint(C()['hidden'])\n", model)
    assert found.readers(field, set()) == {("/p/train.py", 2): False, ("/p/train.py", 3): False}


def test_a_size_that_a_script_says_itself_is_found() -> None:
    script = "from model import build\nN = 500\nh = torch.zeros(1, N)\nm = nn.Linear(500, 3)\nlr = f(500)\n"
    assert unrun(script).said_again({500}, lambda _: False) == [("/p/train.py", 3), ("/p/train.py", 4)]
    assert unrun("import other\nm = nn.Linear(500, 3)\n").said_again({500}, lambda _: False) == []


def test_calls_that_override_a_default_are_found() -> None:
    found = unrun("from model import Net\nNet(width=3)\nNet(7)\nNet()\nNet(cfg.width)\n")
    assert found.given_again(DEFAULT) == [("/p/model.py", 26), ("/p/train.py", 2), ("/p/train.py", 3)]


USES = """\
from model import build
m = build()
m.fc = None
m.fc.out_features
m.fc(x)
nn.init.zeros_(m.fc.weight)
m.fc.weight.data.normal_()
loss(m.fc)
m.tok.weight = m.fc.weight
m.fc.weight.data.copy_(v)
w = m.fc.weight
"""


def test_uses_of_a_layer_are_found() -> None:
    found = unrun(USES).uses_of("fc", "Net", calls=True)
    assert ("/p/model.py", 22) in found  # of an heir, not of another class
    assert [line for path, line in found if path == "/p/train.py"] == [3, 4, 5, 8, 10, 11]
    assert ("/p/train.py", 5) not in unrun(USES).uses_of("fc", "Net", calls=False)
    assert unrun(USES + "m.fc.weight.data = v\n").overwritten({"fc"}) == [
        ("/p/train.py", 10),
        ("/p/train.py", 12),
    ]


TABLE = """\
import pandas
from model import build

def show(network):
    return network.fc.weight

def made():
    return build()

table = pandas.read_csv("a.csv")
table.fc.plot(table.fc)
show(network=made())
for one in [made()]:
    one.fc(x)
"""


def test_attributes_of_other_things_are_no_layers() -> None:
    found = unrun(TABLE).uses_of("fc", "Net", calls=True)
    assert [line for path, line in found if path == "/p/train.py"] == [5, 14]  # not those of the table


OUTPUTS = """\
from model import build
m = build()
out = m(x)
out.view(-1)
y.view(-1)
out.view(2, -1)
out.view(-1, 3)
m.load_state_dict(s)
opt.load_state_dict(s)
"""


def test_views_of_outputs_and_loaded_weights_are_found() -> None:
    assert unrun(OUTPUTS).flattened() == [("/p/train.py", 4), ("/p/train.py", 6)]
    assert unrun(OUTPUTS).loads() == [("/p/train.py", 8)]


CALLEES = """\
from functools import partial
import torch
from other import Net as Foreign
from model import Net as Mine, build


class Deep(Mine):
    def __init__(self):
        super().__init__(1)
        self.fc = Mine.__init__(self, 2)


class Head:
    def __init__(self, width):
        self.Net(width=3)


def build_net(Net):
    Net(4)
    torch.Net(5)
    Foreign(6)
    return partial(Mine, width=7)
"""


def test_only_calls_of_what_has_the_default_override_it() -> None:
    texts = {
        "/p/model.py": MODEL,
        "/p/other.py": "from model import build\nclass Net:\n    pass\nNet(8)\n",
        "/p/train.py": CALLEES,
        "/p/again.py": "from model import Heir\nHeir(9)\nfrom .unknown import Net\nNet(10)\n",
    }
    found = UnrunCode(texts, {"/p/model.py"}, {("/p/model.py", 9)}, {"model"}).given_again(DEFAULT)
    lines = [(path.removeprefix("/p/"), line) for path, line in found]
    # By super(), the class, a parameter that may be it, through partial; an heir, one of nobody knows where.
    assert [line for path, line in lines if path == "train.py"] == [9, 10, 19, 22]
    assert [line for path, line in lines if path == "again.py"] == [2, 4]
    assert not [path for path, _ in lines if path == "other.py"]


def test_numbers_that_are_no_default_are_overridden_by_no_call() -> None:
    literal = "def make():\n    return Net(width=500)\n"
    written = Written("/p/model.py", (29, 22), (29, 25), "500", "number", "width", 500)
    assert unrun("from model import Net\nNet(width=3)\n", MODEL + literal).given_again(written) == []
    keyword_only = MODEL.replace("self, width=500", "self, *, width=500")
    written = Written("/p/model.py", (7, 33), (7, 36), "500", "number", "width", 500)
    assert unrun("from model import Net\nNet(width=3)\n", keyword_only).given_again(written) == [
        ("/p/train.py", 2)
    ]


SAME_NAMES = """\


class Stranger:
    def __init__(self, width):
        self.width, self.fc = 3, nn.Linear(width // 2, 4)
        self.fc.weight.data.copy_(width)

    def forward(self, x, WIDTH):
        return x.view(-1, self.width // 4, WIDTH // 2), self.fc.weight.t()
"""


def test_names_of_another_class_are_other_names() -> None:
    found = unrun("from model import build\n", MODEL + SAME_NAMES)
    assert found.owners_of("fc") == ["Net"]
    assert [path for path, _ in found.uses_of("fc", "Net", calls=False)] == []
    assert found.overwritten({"fc"}) == []
    assert found.readers(CONSTANT, {"width"}) == {}
    assert found.readers(DEFAULT, set()) == {}
    base = "class Base:\n    def tie(self):\n        return self.fc.weight.t()\n\n\n"
    above = unrun("", base + MODEL.replace("class Net(nn.Module)", "class Net(Base)"))
    assert ("/p/model.py", 3) in above.uses_of("fc", "Net", calls=False)


def test_an_older_copy_of_the_class_is_another_class() -> None:
    net = MODEL.partition("class Other")[0]
    copy = net.replace("return self.fc(x)", "return self.fc.weight.copy_(x)")
    assert copy != net
    found = unrun(f"import model\n{copy}")
    assert [path for path, _ in found.uses_of("fc", "Net", calls=True) if path == "/p/train.py"] == []
    assert found.overwritten({"fc"}) == []

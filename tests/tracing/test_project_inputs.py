"""Inputs that a model's own file or the scripts beside it state, and guesses that no model is used with."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from click.testing import CliRunner
from torch import nn

import tclint
from tclint.cli.main import cli
from tclint.core.errors import TargetError

_MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3)

    def forward(self, x):
        return self.stem(x)

"""
_WORDS = _MODEL.replace("Conv2d(3, 8, 3)", "Embedding(32, 8)")


@pytest.fixture(autouse=True)
def _in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _inputs(target: str = "net.py:Net") -> tuple[dict[str, list[int]], list[dict[str, object]]]:
    result = CliRunner().invoke(cli, [target, "--mode", "infer", "--format", "json", "--fail-on", "never"])
    entry = json.loads(result.stdout)["entries"][0]
    return {given["name"]: given["shape"] for given in entry["inputs"]}, entry["assumptions"]


@pytest.mark.parametrize(
    ("call", "shape"),
    [
        ("x = torch.randn(2, 3, 320, 256).cuda()\nnet = Net().cuda()\nnet(x)", [8, 3, 320, 256]),
        ("size = (3, 48, 64)\nNet()(Variable(torch.rand(1, *size)))", [8, 3, 48, 64]),
        ("side = 16\nNet()(torch.zeros((1, 3, 2 * side, side + 4)))", [8, 3, 32, 20]),
        ("net = Other()\nnet(torch.randn(1, 3, 56, 56))", [8, 3, 224, 224]),
        ("net = Net()\nnet(torch.randn(1, 3, side, side))", [8, 3, 224, 224]),
        ("net = Net()\nnet = Other()\nnet(torch.randn(1, 3, 56, 56))", [8, 3, 224, 224]),
        ("net = Net()\nx = torch.randn(1, 3, 56, 56)\nx = load()\nnet(x)", [8, 3, 224, 224]),
    ],
)
def test_a_file_that_calls_its_model_states_the_inputs(call: str, shape: list[int]) -> None:
    body = textwrap.indent(call, "    ")
    Path("net.py").write_text(f"{_MODEL}\nif __name__ == '__main__':\n{body}\n", encoding="utf-8")
    inputs, assumptions = _inputs()
    assert inputs == {"x": shape}
    told = [assumption for assumption in assumptions if "as its own file calls it" in str(assumption["what"])]
    assert bool(told) == (shape != [8, 3, 224, 224])
    for assumption in told:
        assert assumption["path"] == "net.py"
        assert "--input 'x=float32[8," in str(assumption["what"])
        # Nobody says that it trains at that size.
        assert assumption["doubtful"]
        assert "nothing states the height and width that it trains on: the step" in str(assumption["what"])


def test_what_a_file_calls_and_a_script_crops_is_no_guess() -> None:
    call = "if __name__ == '__main__':\n    Net()(torch.randn(1, 3, 320, 320))\n"
    Path("net.py").write_text(f"{_MODEL}\n{call}", encoding="utf-8")
    Path("train.py").write_text("from net import Net\n\nSIDE = 320\nRandomCrop(SIDE)\n", encoding="utf-8")
    inputs, assumptions = _inputs()
    assert inputs == {"x": [8, 3, 320, 320]}
    [told] = [one for one in assumptions if "as its own file calls it" in str(one["what"])]
    assert not told["doubtful"]


_CLIPS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv3d(3, 8, (2, 16, 16), (2, 16, 16))
        self.level = nn.Linear(1, 8)

    def forward(self, x, {name}):
        if not str(list(x.shape)).endswith("64, 64]"):
            raise ValueError("not of the size that it was made for")
        y = self.stem(x).flatten(2).transpose(1, 2)
        return {made}
"""


@pytest.mark.parametrize(
    ("name", "made", "is_guess"),
    [
        ("mask", "y[:, mask[0]]", True),  # of three values in each clip, for which nothing speaks
        ("t", "y + self.level(t[:, None])[:, None]", False),
    ],
)
def test_what_is_made_up_beside_a_stated_size_is_a_guess(name: str, made: str, is_guess: bool) -> None:
    Path("net.py").write_text(_CLIPS.format(name=name, made=made), encoding="utf-8")
    Path("train.py").write_text(
        "from net import Net\n\nparser.add_argument('--input_size', default=64)\n", encoding="utf-8"
    )
    inputs, assumptions = _inputs()
    assert inputs["x"][3:] == [64, 64]
    [told] = [one for one in assumptions if "train.py:3 (--input_size) says" in str(one["what"])]
    assert told["doubtful"] == is_guess
    assert ("nothing states int64[8,3]" in str(told["what"])) == is_guess


def test_what_is_made_up_beside_a_size_that_the_model_states_is_a_guess() -> None:
    class Paints(nn.Module):
        img_size = 64

        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 3, 3, padding=1)

        def forward(self, img: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            if "8, 1, 64" in str(list(mask.shape)):
                raise ValueError("not the mask that it was made for")
            return self.stem(img) * mask

    graph = tclint.trace(Paints())
    assert [tensor.shape for tensor in graph.inputs] == [(8, 3, 64, 64)] * 2
    assert graph.assumptions[-1].is_doubtful


_OF_THE_CLASS = """class Net(nn.Module):
    '''Cuts pictures up.

    Usage::

        net = Net()
        masks = net(torch.randn(1, 3, 72, 104))

    Slow on large ones.
    '''

"""
_OF_THE_FILE = """'''A stem.

>>> net = Net()
>>> x = torch.randn(2, 3, 72, 104)
>>> net(x).shape
'''
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (_MODEL.replace("class Net(nn.Module):\n", _OF_THE_CLASS), 11),
        (_OF_THE_FILE + _MODEL, 5),
        (_MODEL.replace("class Net(nn.Module):\n", _OF_THE_CLASS.replace("net(", "other(")), None),
    ],
    ids=["class", "file", "another model"],
)
def test_an_example_in_a_docstring_states_the_inputs(text: str, line: int | None) -> None:
    Path("net.py").write_text(text, encoding="utf-8")
    inputs, assumptions = _inputs()
    assert inputs == {"x": [8, 3, 72, 104] if line else [8, 3, 224, 224]}
    told = [item["line"] for item in assumptions if "as a docstring calls it" in str(item["what"])]
    assert told == ([line] if line else [])


def test_calls_in_functions_count_and_are_repaired_where_they_do_not_run() -> None:
    Path("net.py").write_text(
        f"{_MODEL}\ndef demo():\n    net = Net()\n    net(torch.randn(1, 4, 32, 32))\n", encoding="utf-8"
    )
    inputs, assumptions = _inputs()
    assert inputs == {"x": [8, 3, 32, 32]}
    assert any(assumption["doubtful"] for assumption in assumptions)


@pytest.mark.parametrize(
    ("model", "options", "shape", "told"),
    [
        (_MODEL, "'--crop-size', type=int, default=160", [8, 3, 160, 160], "train.py:4 (--crop_size)"),
        (_MODEL, "'--image_size', nargs=2, default=[64, 96]", [8, 3, 64, 96], "train.py:4 (--image_size)"),
        (_WORDS, "'--seq_len', type=int, default=640", [8, 640], "train.py:4 (--seq_len)"),
        (_MODEL, "'--crop_size', type=int, default=None", [8, 3, 224, 224], ""),
        (_MODEL, "'--crop_size', type=int", [8, 3, 224, 224], ""),
    ],
)
def test_scripts_state_sizes(model: str, options: str, shape: list[int], told: str) -> None:
    Path("net.py").write_text(model, encoding="utf-8")
    head = "import argparse\nfrom net import Net\nparser = argparse.ArgumentParser()\n"
    Path("train.py").write_text(f"{head}parser.add_argument({options})\n", encoding="utf-8")
    inputs, assumptions = _inputs()
    assert inputs == {"x": shape}
    assert any(told in str(assumption["what"]) for assumption in assumptions)


def test_a_stated_length_is_of_the_dim_that_the_layers_take_for_time() -> None:
    recurrent = "        self.rnn = nn.LSTM(8, 8)\n"
    model = _WORDS.replace("    def forward", f"{recurrent}\n    def forward")
    model = model.replace("return self.stem(x)", "return self.rnn(self.stem(x))[0]")
    Path("net.py").write_text(model, encoding="utf-8")
    head = "import argparse\nfrom net import Net\nparser = argparse.ArgumentParser()\n"
    Path("train.py").write_text(f"{head}parser.add_argument('--bptt', default=35)\n", encoding="utf-8")
    inputs, assumptions = _inputs()
    assert inputs == {"x": [35, 8]}
    assert any(item["doubtful"] for item in assumptions)


_TWO_TABLES = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.kinds = nn.Embedding(50, 16), nn.Embedding(3, 16)
        self.register_buffer("places", torch.zeros(1, 300, 16))

    def forward(self, x, info):
        return self.words(x) + self.places[:, :x.size(1)] + self.kinds(info)
"""


def test_a_stated_length_goes_before_one_that_is_made_up() -> None:
    Path("net.py").write_text(_TWO_TABLES, encoding="utf-8")
    head = "import argparse\nfrom net import Net\nparser = argparse.ArgumentParser()\n"
    Path("train.py").write_text(f"{head}parser.add_argument('--seq_len', default=20)\n", encoding="utf-8")
    inputs, assumptions = _inputs()
    assert inputs == {"x": [8, 20], "info": [8, 20]}
    assert not any(item["doubtful"] for item in assumptions)


def test_height_and_width_are_one_size() -> None:
    Path("net.py").write_text(_MODEL, encoding="utf-8")
    options = (
        "parser.add_argument('--img_height', default=48)\nparser.add_argument('--img_width', default=200)\n"
    )
    Path("train.py").write_text(f"import net\n{options}", encoding="utf-8")
    assert _inputs()[0] == {"x": [8, 3, 48, 200]}


def test_scripts_that_disagree_or_name_another_model_state_nothing() -> None:
    Path("net.py").write_text(_MODEL, encoding="utf-8")
    for name, size in (("train.py", 96), ("finetune.py", 128)):
        script = f"import net\nparser.add_argument('--image_size', default={size})\n"
        Path(name).write_text(script, encoding="utf-8")
    Path("other.py").write_text("parser.add_argument('--img_size', default=48)\n", encoding="utf-8")
    assert _inputs()[0] == {"x": [8, 3, 224, 224]}


@pytest.mark.parametrize("name", ["test.py", "run_inference.py", "visualize_attention.py"])
def test_scripts_that_do_not_train_state_nothing(name: str) -> None:
    Path("net.py").write_text(_MODEL, encoding="utf-8")
    Path(name).write_text("import net\nparser.add_argument('--image_size', default=96)\n", encoding="utf-8")
    assert _inputs()[0] == {"x": [8, 3, 224, 224]}


def test_what_the_model_states_goes_before_what_the_script_says() -> None:
    stating = _MODEL.replace("self.stem =", "self.image_size = 64\n        self.stem =")
    Path("net.py").write_text(stating, encoding="utf-8")
    Path("train.py").write_text(
        "import net\nparser.add_argument('--image_size', default=96)\n", encoding="utf-8"
    )
    assert _inputs()[0] == {"x": [8, 3, 64, 64]}


class _Fixed(nn.Module):
    """Needs one size of image, which it does not state."""

    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        self.size = height, width
        self.stem = nn.Conv2d(3, 8, 4, stride=4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert x.shape[2:] == self.size
        return self.stem(x)


class _OnNodes(nn.Module):
    """Mixes the nodes of a fixed graph, and asks for steps of its own number."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 12
        self.stem = nn.Conv2d(2, 8, 1)
        self.places = nn.Parameter(torch.empty(207, 16))

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        assert series.size(3) == self.steps, "other steps"
        graph = torch.softmax(self.places @ self.places.T, dim=1)
        return torch.einsum("ncwl,vw->ncvl", self.stem(series), graph)


def test_an_equation_tells_which_size_is_wanted() -> None:
    assert [spec.shape for spec in tclint.trace(_OnNodes()).inputs] == [(8, 2, 207, 12)]


class _Joined(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(23, 8)

    def forward(self, state: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return self.layer(torch.cat([state, action], 1))


def test_what_is_joined_has_the_width_of_the_layer_together() -> None:
    assert [spec.shape for spec in tclint.trace(_Joined()).inputs] == [(8, 12), (8, 11)]


class _WithSteps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(32, 32)

    def forward(self, x: torch.Tensor, cond: torch.Tensor) -> torch.Tensor:
        assert len(cond.shape) == 1
        return self.stem(x) * cond[:, None]


def test_the_length_of_a_shape_is_a_number_of_dims() -> None:
    assert [spec.shape for spec in tclint.trace(_WithSteps()).inputs] == [(8, 32), (8,)]


def test_a_report_opens_with_inputs_that_were_tried() -> None:
    graph = tclint.trace(_Fixed(96, 96))
    assert [spec.shape for spec in graph.inputs] == [(8, 3, 96, 96)]
    assert [assumption.is_doubtful for assumption in graph.assumptions] == [True]
    assert not any(assumption.is_doubtful for assumption in tclint.trace(nn.Conv2d(3, 8, 3)).assumptions)


def test_text_and_markdown_open_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("net.py").write_text(
        _MODEL.replace("self.stem(x)", "self.stem(x).flatten(1) @ torch.zeros(8 * 94 * 94, 4)"),
        encoding="utf-8",
    )
    said = "net.py:Net: every figure rests on a guess: input x = float32[1024,3,96,96]"
    text = CliRunner().invoke(cli, ["net.py:Net", "--fail-on", "never"]).stdout
    assert " ".join(text.split()).startswith(said)
    assert " ".join(text.split()).count("by trying until the forward ran") == 1
    markdown = CliRunner().invoke(cli, ["net.py:Net", "--format", "markdown", "--fail-on", "never"]).stdout
    assert "every figure rests on a guess" in markdown.split("### Models")[0]
    page = CliRunner().invoke(cli, ["net.py:Net", "--format", "html", "--fail-on", "never"]).stdout
    assert page.count("by trying until the forward ran") == 1


def test_absurd_inputs_are_unknown() -> None:
    with pytest.raises(
        TargetError, match=r"inputs of .* are unknown: .*x of 16x512 is too long for a picture"
    ):
        tclint.trace(_Fixed(16, 512))


@pytest.mark.parametrize(
    ("classes", "labels"), [({"num_classes": 10}, (8,)), ({"label_dim": 10}, (8, 10)), ({}, None)]
)
def test_models_that_generate_by_class_get_classes(
    classes: dict[str, int], labels: tuple[int, ...] | None
) -> None:
    class Denoiser(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 8, 3)
            vars(self).update(classes)

        def forward(self, x: torch.Tensor, class_labels: torch.Tensor | None = None) -> torch.Tensor:
            return self.stem(x)

    shapes = {spec.input_name: spec.shape for spec in tclint.trace(Denoiser()).inputs}
    assert shapes.get("class_labels") == labels


def test_scans_are_cubes_and_films_are_clips() -> None:
    assert tclint.trace(nn.Conv3d(1, 8, 3)).inputs[0].shape == (8, 1, 96, 96, 96)
    assert tclint.trace(nn.Conv3d(3, 8, 3)).inputs[0].shape == (8, 3, 16, 112, 112)


@pytest.mark.parametrize(
    ("name", "side"), [("TinyYOLO", 640), ("AttentionUNet", 512), ("EDSR", 48), ("Classifier", 224)]
)
def test_families_have_customary_sizes_where_nothing_states_one(name: str, side: int) -> None:
    model = type(name, (_Plain,), {})()
    graph = tclint.trace(model)
    assert graph.inputs[0].shape == (8, 3, side, side)
    assert any("customary" in assumption.what for assumption in graph.assumptions) == (side != 224)


def test_the_u_net_of_a_diffusion_model_is_no_segmentation_model() -> None:
    class UNet(_Plain):
        def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
            return self.stem(x) + t[:, None, None, None]

    assert tclint.trace(UNet()).inputs[0].shape == (8, 3, 224, 224)


class _Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.stem(x)


def test_latents_are_smaller_than_the_pictures_that_a_decoder_makes() -> None:
    class Decoder(nn.Module):
        resolution = 256

        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(4, 8, 3)

        def forward(self, z: torch.Tensor) -> torch.Tensor:
            return self.stem(z)

    assert tclint.trace(Decoder()).inputs[0].shape == (8, 4, 32, 32)


def test_a_vocoder_states_its_frames_in_samples() -> None:
    class Vocoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.h = SimpleNamespace(segment_size=65536, hop_size=256)
            self.stem = nn.Conv1d(100, 8, 3)
            self.grow = nn.ConvTranspose1d(8, 1, 4, stride=4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.grow(self.stem(x))

    assert tclint.trace(Vocoder()).inputs[0].shape == (8, 100, 256)


def test_demonstrations_with_a_handful_of_elements_state_nothing() -> None:
    call = "net = Net()\n    net(torch.randint(0, 32, (2, 12)))"
    Path("net.py").write_text(f"{_WORDS}\nif __name__ == '__main__':\n    {call}\n", encoding="utf-8")
    assert _inputs()[0] == {"x": [8, 128]}


class _Denoiser(nn.Module):
    """Has the arguments and the configuration that denoisers of diffusers have."""

    def __init__(self, **config: object) -> None:
        super().__init__()
        self.config = SimpleNamespace(**config)
        self.stem = nn.Conv2d(int(str(config["in_channels"])), 8, 1)

    def forward(
        self,
        hidden_states: torch.Tensor,
        encoder_hidden_states: torch.Tensor,
        timestep: torch.Tensor,
        pooled_projections: torch.Tensor | None = None,
        added_cond_kwargs: dict[str, torch.Tensor] | None = None,
    ) -> object:
        frames = hidden_states.flatten(0, 1) if hidden_states.dim() == 5 else hidden_states
        parts = (encoder_hidden_states, timestep, pooled_projections, *(added_cond_kwargs or {}).values())
        return self.stem(frames), [part + 1 for part in parts if part is not None]


_Denoiser.__module__ = "diffusers.models.denoiser"


@pytest.mark.parametrize(
    ("config", "shapes"),
    [
        (
            {
                "in_channels": 16,
                "sample_size": 32,
                "joint_attention_dim": 4096,
                "pooled_projection_dim": 2048,
            },
            {
                "hidden_states": (8, 16, 32, 32),
                "encoder_hidden_states": (8, 512, 4096),
                "timestep": (8,),
                "pooled_projections": (8, 2048),
            },
        ),
        (
            {
                "in_channels": 4,
                "sample_size": None,
                "cross_attention_dim": 2048,
                "addition_embed_type": "text_time",
                "addition_time_embed_dim": 256,
                "projection_class_embeddings_input_dim": 2816,
            },
            {
                "hidden_states": (8, 4, 64, 64),
                "encoder_hidden_states": (8, 77, 2048),
                "timestep": (8,),
                "added_cond_kwargs['text_embeds']": (8, 1280),
                "added_cond_kwargs['time_ids']": (8, 6),
            },
        ),
        (
            {
                "in_channels": 4,
                "sample_frames": 49,
                "sample_height": 60,
                "sample_width": 90,
                "temporal_compression_ratio": 4,
                "max_text_seq_length": 226,
                "text_embed_dim": 64,
            },
            {
                "hidden_states": (8, 13, 4, 60, 90),
                "encoder_hidden_states": (8, 226, 64),
                "timestep": (8,),
            },
        ),
    ],
)
def test_components_of_diffusers_get_all_that_they_are_called_with(
    config: dict[str, object], shapes: dict[str, tuple[int, ...]]
) -> None:
    graph = tclint.trace(_Denoiser(**config))
    assert {spec.input_name: spec.shape for spec in graph.inputs} == shapes
    assert any("by diffusers' names and config" in assumption.what for assumption in graph.assumptions)


def test_networks_of_graphs_get_a_graph() -> None:
    class Convolution(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(1433, 16)

        def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
            return self.lin(x)[edge_index[0]]

    assert [spec.shape for spec in tclint.trace(Convolution()).inputs] == [(2708, 1433), (2, 10556)]


def test_a_language_model_that_states_no_context_has_a_customary_one() -> None:
    class StateSpaceForCausalLM(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(64, 8)

        def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
            return self.embed(input_ids)

    assert tclint.trace(StateSpaceForCausalLM()).inputs[0].shape == (8, 2048)


def test_a_model_of_a_list_of_dicts_is_given_its_parts() -> None:
    Path("net.py").write_text(
        _MODEL.replace(
            "self.stem(x)", "[self.stem(part['image'][None])[..., : part['size'][0]] for part in x]"
        ),
        encoding="utf-8",
    )
    shown = ("--format", "json", "--fail-on", "never")
    given = ("--input", "x[0]['image']=3,64,64", "--input", "x[0]['size']:=(64, 64)")
    result = CliRunner().invoke(cli, ["net.py:Net", *shown, *given])
    (entry,) = json.loads(result.stdout)["entries"]
    assert entry["inputs"] == [{"name": "x[0]['image']", "dtype": "float32", "shape": [3, 64, 64]}]


def test_both_encoders_of_a_model_of_pictures_and_texts_run() -> None:
    class Pair(_Plain):
        context_length = 77

        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(32, 8)

        def forward(self, image: torch.Tensor | None = None, text: torch.Tensor | None = None) -> object:
            return image is not None and self.stem(image), text is not None and self.words(text)

    shapes = {spec.input_name: spec.shape for spec in tclint.trace(Pair()).inputs}
    assert shapes == {"image": (8, 3, 224, 224), "text": (8, 77)}


def test_the_script_goes_before_what_is_customary() -> None:
    Path("net.py").write_text(_MODEL.replace("class Net", "class UNet"), encoding="utf-8")
    Path("train.py").write_text(
        "import net\nparser.add_argument('--image_size', default=96)\n", encoding="utf-8"
    )
    assert _inputs("net.py:UNet")[0] == {"x": [8, 3, 96, 96]}


def test_scripts_above_count_within_the_project_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "project" / "models"
    folder.mkdir(parents=True)
    (folder / "net.py").write_text(_MODEL, encoding="utf-8")
    (tmp_path / "project" / "train.py").write_text(
        "from models.net import Net\nparser.add_argument('--image_size', default=96)\n", encoding="utf-8"
    )
    monkeypatch.chdir(folder)
    assert _inputs()[0] == {"x": [8, 3, 224, 224]}  # nothing shows where its project ends
    (tmp_path / "project" / "README.md").write_text("", encoding="utf-8")
    assert _inputs()[0] == {"x": [8, 3, 96, 96]}
    (folder / "setup.py").write_text("", encoding="utf-8")
    assert _inputs()[0] == {"x": [8, 3, 224, 224]}  # a project of its own


def test_what_a_loss_compares_with_is_given_in_training_only() -> None:
    class Scored(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.num_classes = 10
            self.stem = nn.Conv2d(3, 8, 3)

        def forward(self, x: torch.Tensor, targets: torch.Tensor | None = None) -> torch.Tensor:
            return self.stem(x)

    names = [spec.input_name for spec in tclint.trace(Scored().train()).inputs]
    assert names == ["x", "targets"]
    assert [spec.input_name for spec in tclint.trace(Scored().eval()).inputs] == ["x"]


def test_what_ran_on_doubtful_inputs_only_is_said_to_be_doubtful() -> None:
    class OfTheMean(nn.Module):
        """Its recurrent layer sees no batch, whatever the input."""

        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.GRU(16, 16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.cell(x.mean(0))[0]

    assumptions = tclint.trace(OfTheMean()).assumptions
    assert any(assumption.is_doubtful for assumption in assumptions)
    assert any("--input" in assumption.what for assumption in assumptions)


def test_an_object_is_told_to_get_its_inputs_by_keyword() -> None:
    with pytest.raises(TargetError, match=r"implausible, because .*; give them with inputs=\.$"):
        tclint.trace(_Fixed(16, 512))


_CONSTRUCTED = """
import torch
from torch import nn

class Base(nn.Module):
    def __init__(self, *args, **kwargs):
        super().__init__()

class Net(Base):
    def __init__(self, img_size=48, in_channels=1, widths=(8, 8)):
        super().__init__("a name")
        img_size = img_size * 2
        self.stem = nn.Conv2d(in_channels, 8, 3)

    def forward(self, x):
        return self.stem(x)

class Wrapped(Net):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)

def small():
    return Net(img_size=40)
"""


@pytest.mark.parametrize(
    ("target", "shape"),
    [
        ("net.py:Net", [8, 1, 48, 48]),
        ("net.py:small", [8, 1, 40, 40]),
        ("net.py:Wrapped", [8, 1, 48, 48]),
    ],
)
def test_sizes_that_the_model_was_constructed_with_are_stated(target: str, shape: list[int]) -> None:
    Path("net.py").write_text(_CONSTRUCTED, encoding="utf-8")
    assert _inputs(target)[0] == {"x": shape}


class _Configured(nn.Module):
    """As models of transformers are: their configuration and the name of their main input."""

    def __init__(self, main: str, **config: object) -> None:
        super().__init__()
        self.main_input_name = main
        self.config = SimpleNamespace(**config)
        self.table = nn.Embedding(32, 8)


def test_t5_is_trained_on_short_answers() -> None:
    class Answering(_Configured):
        def forward(self, input_ids: torch.Tensor, decoder_input_ids: torch.Tensor) -> torch.Tensor:
            return self.table(input_ids).sum() + self.table(decoder_input_ids)

    for model_type, length in (("t5", 114), ("bart", 512)):
        model = Answering("input_ids", model_type=model_type, is_encoder_decoder=True, n_positions=512)
        shapes = [spec.shape for spec in tclint.trace(model).inputs]
        assert shapes == [(8, 512), (8, length)]


def test_what_models_of_clips_call_pixel_values_is_a_clip() -> None:
    class Film(_Configured):
        def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
            return pixel_values.flatten(-3)

    film = Film("pixel_values", image_size=32, num_channels=3, num_frames=4)
    assert tclint.trace(film).inputs[0].shape == (8, 4, 3, 32, 32)
    picture = Film("pixel_values", image_size=32, num_channels=3)
    assert tclint.trace(picture).inputs[0].shape == (8, 3, 32, 32)


def test_forecasters_get_series_of_the_stated_length_and_variables() -> None:
    class Forecaster(nn.Module):
        def __init__(self, configs: SimpleNamespace) -> None:
            super().__init__()
            self.configs = configs
            self.head = nn.Linear(configs.enc_in, 8)

        def forward(
            self, x_enc: torch.Tensor, x_mark_enc: torch.Tensor, x_dec: torch.Tensor, x_mark_dec: torch.Tensor
        ) -> torch.Tensor:
            return self.head(x_enc).sum() + self.head(x_dec) + x_mark_enc.sum() + x_mark_dec.sum()

    class Linear(Forecaster):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(x)

    sizes = SimpleNamespace(seq_len=96, label_len=48, pred_len=24, enc_in=7)
    shapes = [spec.shape for spec in tclint.trace(Forecaster(sizes)).inputs]
    assert shapes == [(8, 96, 7), (8, 96, 4), (8, 72, 7), (8, 72, 4)]
    assert tclint.trace(Linear(sizes)).inputs[0].shape == (8, 96, 7)


def test_a_configuration_that_is_not_kept_states_sizes_too() -> None:
    Path("net.py").write_text(
        _CONSTRUCTED.replace("img_size=48, in_channels=1, widths=(8, 8)", "args")
        .replace("img_size = img_size * 2", "in_channels = args.in_channels")
        .replace("Net(img_size=40)", "Net(SimpleNamespace(img_size=24, in_channels=2))")
        .replace("import torch\n", "import torch\nfrom types import SimpleNamespace\n", 1),
        encoding="utf-8",
    )
    assert _inputs("net.py:small")[0] == {"x": [8, 2, 24, 24]}


def test_networks_with_an_adjacency_matrix_get_a_graph() -> None:
    class Convolution(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Linear(1433, 8)

        def forward(self, x: torch.Tensor, adj: torch.Tensor) -> torch.Tensor:
            return adj @ self.weight(x)

    assert [spec.shape for spec in tclint.trace(Convolution()).inputs] == [(2708, 1433), (2708, 2708)]

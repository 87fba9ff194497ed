"""`tclint sweep`: points resized and traced, what is said of them, and what is refused."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from html_support import Page

from tclint.cli.main import cli

Run = Callable[..., Result]

MODELS = '''
import types

import torch
import torch.nn.functional as F
from torch import nn

class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q @ k.transpose(-2, -1)).softmax(-1)
        return self.out((scores @ v).transpose(1, 2).reshape(batch, length, width))

class GPT(nn.Module):
    def __init__(self, width=128, heads=4, vocabulary=512, layers=2, act="gelu"):
        super().__init__()
        if width == 137:
            raise ValueError("137 is a bad width")
        self.act = getattr(F, act)
        self.embedding = nn.Embedding(vocabulary, width)
        self.attention = nn.ModuleList(Attention(width, heads) for _ in range(layers))
        self.fc = nn.Linear(width, 4 * width)
        self.proj = nn.Linear(4 * width, width)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for attention in self.attention:
            x = x + attention(x)
        return self.head(x + self.proj(self.act(self.fc(x))))

class Plain(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.first = nn.Linear(32, width)

    def forward(self, x):
        return self.first(x)

class Branches(nn.Module):
    """Runs other operators above a width."""
    def __init__(self, width=64):
        super().__init__()
        self.first = nn.Linear(32, width)
        self.second = nn.Linear(width, 32)
        self.twice = width > 200

    def forward(self, x):
        x = self.first(x)
        return self.second(x.relu().relu() if self.twice else x)

class Rounded(nn.Module):
    """Has a width that no formula of the argument gives."""
    def __init__(self, width=64):
        super().__init__()
        self.first = nn.Linear(32, (width * 8 // 3 + 15) // 16 * 16)

    def forward(self, x):
        return self.first(x)

class Patches(nn.Module):
    def __init__(self, width=64, patch=16, image=64):
        super().__init__()
        self.patch = nn.Conv2d(3, width, patch, patch)
        self.position = nn.Parameter(torch.zeros(1, (image // patch) ** 2, width))
        self.out = nn.Linear(width, width)

    def forward(self, x):
        return self.out(self.patch(x).flatten(2).transpose(1, 2) + self.position)

def patches(width=64, patch=16, image=64):
    return Patches(width, patch, image), (torch.zeros(2, 3, image, image),)

def nested(config=types.SimpleNamespace(width=64, bias=True)):
    return nn.Linear(32, config.width, bias=config.bias), (torch.zeros(4, 32),)

def example_inputs():
    return (torch.zeros(4, 64, dtype=torch.long),)
'''


@pytest.fixture(autouse=True)
def _model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(MODELS)


@pytest.fixture
def run() -> Run:
    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(cli, ["sweep", *arguments])

    return invoke


def document(result: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def error_line(result: Result) -> str:
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    return line.removeprefix("error: ")


A100_JSON = ("--gpu", "a100", "--format", "json")
GRID = ("--arg", "width=96:320:32", "--arg", "heads=2,4,8", "--arg", "vocabulary=500,501,512")


def test_resized_points_cost_what_traced_ones_do(run: Run) -> None:
    """Width, heads, vocabulary and batch: every point by resizing equals its own trace."""
    grid = ("--arg", "width=96:320:64", "--arg", "heads=2,4", "--arg", "vocabulary=501,512")
    arguments = ("model.py:GPT", *grid, "--batch", "2,8", *A100_JSON)
    resized = document(run(*arguments))
    traced = document(run(*arguments, "--trace-all"))
    assert (len(resized["points"]), traced["traced"]) == (32, 32)
    assert resized["traced"] <= 12
    assert resized["points"] == traced["points"]


def test_a_point_costs_what_check_says(run: Run) -> None:
    """The same step, readiness, memory, parameters and FLOPs as a report on that point has."""
    options = ("--gpu", "h100,v100", "--loss", "cross_entropy", "--precision")
    swept = document(run("model.py:GPT", *GRID, *options, "bf16", "--format", "json"))
    point = {"width": 224, "heads": 4, "vocabulary": 501}
    (found,) = (item for item in swept["points"] if item["arguments"] == point)
    given = [f"--arg={name}={value}" for name, value in point.items()]
    checked = CliRunner().invoke(
        cli, ["check", "model.py:GPT", *given, *options, "bf16", "--format", "json", "--exit-zero"]
    )
    (entry,) = json.loads(checked.stdout)["entries"]
    assert (found["parameters"], found["flops"]) == (entry["parameters"], entry["flops"])
    assert [price["gpu"] for price in found["prices"]] == list(entry["metrics"])
    for price in found["prices"]:
        metrics = entry["metrics"][price["gpu"]]
        for name in ("step_time_us", "readiness_percent", "memory_bytes"):
            assert price[name] == metrics[name], name


def test_a_point_of_split_layers_is_priced_as_one_gpu_runs_it(run: Run) -> None:
    arguments = ("model.py:GPT", "--arg", "width=128,256", *A100_JSON)
    whole, part = (document(run(*arguments, "--tensor-parallel", parts)) for parts in ("1", "4"))
    (one,), (other,) = (found["points"][0]["prices"] for found in (whole, part))
    assert other["step_time_us"] < one["step_time_us"]
    assert other["memory_bytes"] < one["memory_bytes"]
    assert "tensor parallel over 4 GPUs: step time and memory are of one of them" in part["assumptions"]
    assert whole["assumptions"] == []


def test_every_precision_is_priced(run: Run) -> None:
    found = document(
        run(
            "model.py:GPT",
            "--arg",
            "width=64,96",
            "--precision",
            "fp16,fp32",
            "--gpu",
            "a100",
            "--format",
            "json",
        )
    )
    assert [price["precision"] for price in found["points"][0]["prices"]] == ["fp16", "fp32"]
    fp16, fp32 = found["points"][1]["prices"]
    assert fp16["step_time_us"] != fp32["step_time_us"]


def check_page(document: dict[str, Any], page: Page) -> None:
    """The page has every point and its front as JSON has them, in the chart's data and in the table."""
    (kind,) = page.data["kinds"]
    assert kind["name"] == "a100-sxm4-80gb, fp16"
    drawn = {page.data["points"][str(position)]: values for position, *values in kind["points"]}
    for point in document["points"]:
        name = " ".join(f"{argument}={value}" for argument, value in point["arguments"].items())
        (price,) = point["prices"]
        assert drawn[name] == [
            point["parameters"],
            pytest.approx(price["step_time_us"], rel=1e-4),
            pytest.approx(price["readiness_percent"], abs=0.06),
            int(price["on_front"]),
        ]
        assert name in page.text
    assert len(drawn) == len(document["points"]) == page.source.count("<th scope='row'>")
    assert page.open == []
    assert "vocabulary 50257 -> 50304" in page.text


def test_front_and_neighbours(run: Run) -> None:
    """The front is what no point beats; a misaligned vocabulary's neighbour is the aligned one."""
    result = run("model.py:GPT", "--arg", "width=256,512", "--arg", "vocabulary=50257,50304", "--gpu", "a100",
                 "--format", "csv", "--output", "html=sweep.html", "--output", "json=sweep.json")  # fmt: skip
    check_page(json.loads(Path("sweep.json").read_text()), Page(Path("sweep.html").read_text()))
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    front = [(row["width"], row["vocabulary"]) for row in rows if row["on_front"] == "1"]
    assert front == [("256", "50304"), ("512", "50304")]
    (misaligned,) = (row for row in rows if (row["width"], row["vocabulary"]) == ("512", "50257"))
    assert misaligned["faster_neighbour"].startswith("vocabulary 50257 -> 50304: 0.0")
    text = run("model.py:GPT", "--arg", "width=256,512", "--arg", "vocabulary=50257,50304", "--gpu", "a100")
    assert "* width=512 vocabulary=50304" in text.stdout
    assert "  width=512 vocabulary=50257" in text.stdout
    assert "vocabulary 50257 -> 50304: 0.0" in text.stdout


def test_layers_are_traced_and_sizes_resized(run: Run) -> None:
    """The number of layers changes the operators: each has traces of its own."""
    arguments = ("--arg", "layers=1,2", "--arg", "width=64:448:32", "--gpu", "a100", "--format", "json")
    found = document(run("model.py:GPT", *arguments))
    traced = document(run("model.py:GPT", *arguments, "--trace-all"))
    assert found["points"] == traced["points"]
    assert found["traced"] < 20 < len(found["points"])


def test_processes_price_what_one_does(run: Run) -> None:
    """Enough points for several processes, in the same order."""
    arguments = (
        "model.py:Plain",
        "--arg",
        "width=1:400",
        "--input",
        "8,32",
        "--gpu",
        "a100",
        "--format",
        "csv",
    )
    several = run(*arguments, "--jobs", "2")
    assert several.exit_code == 0, several.stderr
    assert several.stdout == run(*arguments, "--jobs", "1").stdout
    widths = [int(row["width"]) for row in csv.DictReader(io.StringIO(several.stdout))]
    assert widths == list(range(1, 401))


def test_a_process_that_ends_is_one_sentence(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tclint.fleet.processes._SERVE", "import os; os._exit(9)")
    result = run("model.py:Plain", "--arg", "width=1:400", "--input", "8,32", "--jobs", "2")
    assert "A process that priced points was ended from outside" in error_line(result)


def test_words_are_values_too(run: Run) -> None:
    found = document(run("model.py:GPT", "--arg", "act=gelu,relu", "--gpu", "a100", "--format", "json"))
    assert [point["arguments"] for point in found["points"]] == [{"act": "gelu"}, {"act": "relu"}]


@pytest.mark.parametrize("name", ["Branches", "Rounded"])
def test_every_point_is_traced_where_resizing_misleads(run: Run, name: str) -> None:
    """Python that branches on a size, and sizes that are rounded: equal to fresh traces, and said."""
    arguments = (f"model.py:{name}", "--arg", "width=16:256:24", "--input", "8,32", "--gpu", "a100")
    found = run(*arguments, "--format", "json")
    traced = document(run(*arguments, "--format", "json", "--trace-all"))
    assert document(found)["points"] == traced["points"]
    assert document(found)["traced"] == 11
    assert document(found)["notes"]


def test_a_point_that_fails_costs_only_itself(run: Run) -> None:
    arguments = ("model.py:GPT", "--arg", "width=136:140:1", "--arg", "heads=1", "--gpu", "a100")
    found = run(*arguments, "--format", "json")
    assert found.exit_code == 2
    assert [point["arguments"]["width"] for point in document(found)["points"]] == [136, 138, 139, 140]
    (error,) = document(found)["errors"]
    assert error["arguments"] == {"width": 137}
    assert "137 is a bad width" in error["message"]
    text = run(*arguments)
    assert "1 point failed:\n  width=137: GPT" in text.stdout
    nowhere = run("nowhere.py:GPT", "--arg", "width=136,144")
    assert "2 points failed for the same reason: There is no file 'nowhere.py'.\n" in nowhere.stdout


def test_where_leaves_points_out(run: Run) -> None:
    found = document(
        run("model.py:GPT", "--arg", "width=64:128:16", "--arg", "heads=4,5,6", "--arg", "layers=1", "--gpu",
            "a100", "--where", "width % heads == 0 and not (width / 4 < layers * 20)", "--format", "json")
    )  # fmt: skip
    points = [(item["arguments"]["width"], item["arguments"]["heads"]) for item in found["points"]]
    assert points == [(80, 4), (80, 5), (96, 4), (96, 6), (112, 4), (128, 4)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--arg", "width=64"), "There is nothing to sweep"),
        (("--arg", "width=64:32"), "empty range"),
        (("--arg", "width=1:2000000"), "more than 1,000,000"),
        (("--arg", "width=1:200000", "--arg", "heads=1:10"), "more than 1,000,000"),
        (("--arg", f"width=1:{'9' * 5000}"), "is no range of whole numbers"),
        (("--arg", "width=1.0:4.0:0.5"), "is no range of whole numbers"),
        (("--arg", "width=64,96", "--batch", "2,x"), "--batch takes sizes"),
        (("--arg", "batch=2,4", "--batch", "2,4"), "exclude each other"),
        (("--arg", "width=64,96", "--where", "width > 1e9"), "is true for no point"),
        (("--arg", "width=64,96", "--where", "widht > 1"), "Did you mean 'width'?"),
        (("--arg", "width=64,96", "--where", "width %"), "cannot be read"),
        (("--arg", "width=64,96", "--where", "__import__('os')"), "is not evaluated"),
        (("--arg", "width=64,96", "--where", "width.real"), "no argument of this sweep"),
        (("--arg", "width=64,96", "--where", "2 ** width"), "is not evaluated"),
        (("--arg", "width=64,96", "--where", "'a' * width"), "is not evaluated"),
        (("--arg", "width=64,96", "--where", "width / (width - 64)"), "divides by zero at width=64"),
        (("--arg", "act=gelu,relu", "--where", "act == 1"), "is no number"),
        (("--arg", "width=64,96", "--precision", "fp17"), "--precision expects one of"),
        (("--arg", "width=64,96", "--gpu", "a1000"), "Unknown GPU"),
        (("--arg", "width=64,96", "--format", "xml"), "There is no format 'xml'"),
    ],
)
def test_mistakes_are_one_sentence(run: Run, arguments: tuple[str, ...], said: str) -> None:
    assert said in error_line(run("model.py:GPT", *arguments))


def test_source_is_no_model(run: Run) -> None:
    assert "A sweep builds a model" in error_line(run("model.py", "--arg", "width=1,2"))


GPT2 = str(Path(__file__).parents[2] / "fixtures" / "gpt2.py") + ":build_model"


def times_us(result: Result, argument: str) -> dict[int, float]:
    points = document(result)["points"]
    return {point["arguments"][argument]: point["prices"][0]["step_time_us"] for point in points}


def test_published_heads(run: Run) -> None:
    """At GPT-3 2.7B's width, 20 heads of 128 and 40 of 64 beat its own 32 of 80, and 64 of 40 lose.

    As arXiv 2401.14489 advises: fewer heads, and a width per head that is a multiple of 64.
    """
    sizes = ("--arg", "n_embd=2560", "--arg", "n_layer=2", "--arg", "block_size=2048", "--gpu", "a100")
    result = run(GPT2, *sizes, "--arg", "n_head=20,32,40,64", "--input", "int64[4,2048]", "--format", "json")
    times = times_us(result, "n_head")
    assert sorted(times, key=times.__getitem__) == [20, 40, 32, 64]


def test_published_vocabulary(run: Run) -> None:
    """50257 tokens padded to a multiple of 64 are faster, and more than that again slower."""
    sizes = ("--arg", "vocab_size=50257,50304,51200", "--arg", "n_layer=2", "--gpu", "a100")
    result = run(GPT2, *sizes, "--input", "int64[8,1024]", "--format", "json")
    times = times_us(result, "vocab_size")
    assert sorted(times, key=times.__getitem__) == [50304, 51200, 50257]


def test_a_patch_size_is_traced_per_value_and_the_rest_resized(run: Run) -> None:
    """It is the stride of a convolution too, which resizing leaves as it is."""
    arguments = ("--arg", "patch=8,16", "--arg", "width=32:320:32", "--arg", "image=64,96,128", *A100_JSON)
    found = document(run("model.py:patches", *arguments))
    assert (found["notes"], found["errors"]) == ([], [])
    assert len(found["points"]) == 60
    assert found["traced"] <= 30
    position = {"patch": 8, "width": 224, "image": 96}
    (point,) = (item for item in found["points"] if item["arguments"] == position)
    alone = document(
        run("model.py:patches", *(f"--arg={k}={v},{v + 8}" for k, v in position.items()), *A100_JSON)
    )
    assert alone["points"][0]["prices"][0]["step_time_us"] == point["prices"][0]["step_time_us"]


def test_a_point_that_does_not_fit_the_gpu_is_no_advice(run: Run) -> None:
    """More samples per step are faster per sample, but 16 GiB hold a few only."""
    arguments = ("model.py:Plain", "--arg", "width=64", "--batch", "1000,1000000000", "--input", "8,32")
    found = document(run(*arguments, "--gpu", "v100", "--format", "json"))
    told = [(price["fits"], price["on_front"]) for item in found["points"] for price in item["prices"]]
    assert told == [(True, True), (False, False)]
    shown = run(*arguments, "--gpu", "v100").stdout
    assert shown.count(" GiB !") == 1
    assert "! more memory than the GPU has" in shown


def test_equal_values_of_other_types_are_points_of_their_own(run: Run) -> None:
    found = document(run("model.py:nested", "--arg", "config.bias=True,1,1.0,False", *A100_JSON))
    assert [item["arguments"]["config.bias"] for item in found["points"]] == [True, 1, 1.0, False]


def test_conditions_name_arguments_of_arguments(run: Run) -> None:
    arguments = ("--arg", "config.width=64,96,128", "--where", "config.width % 64 == 0", *A100_JSON)
    found = document(run("model.py:nested", *arguments))
    assert [item["arguments"]["config.width"] for item in found["points"]] == [64, 128]


def test_a_range_of_one_value_is_that_value(run: Run) -> None:
    found = document(
        run("model.py:Plain", "--arg", "width=64:64", "--batch", "2,4", "--input", "8,32", *A100_JSON)
    )
    assert (len(found["points"]), found["errors"]) == (2, [])

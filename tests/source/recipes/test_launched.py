"""Scripts together with the command lines by which a project's shell scripts start them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from programs import probed_in

from tclint.config.settings import Settings
from tclint.core.finding import Finding
from tclint.engine.check import check

TRAINS = "import torch\ntorch.nn.Linear(8, 8)(torch.ones(8, 8)).sum().backward()\n"
OPTIONS = """\
import argparse

def flag(text):
    return text.lower() in ("yes", "true")

parser = argparse.ArgumentParser()
parser.add_argument("--half", action="store_true")
parser.add_argument("-c", "--cast", type=flag, default=False)
parser.add_argument("--batch-size", type=int)
parser.add_argument("--kind", default="single")
parser.add_argument("--sizes", nargs="+", type=int)
probe(parser.parse_args().{name})
"""
ARGUMENTS = """\
import os
import sys
from dataclasses import dataclass
from transformers import HfArgumentParser, TrainingArguments
from trl import SFTConfig, TrlParser

@dataclass
class Model:
    name: str
    depth: int = 3

arguments, model = {parse}
probe(arguments.{name})
"""
CLICK = """\
import click

@click.command()
@click.argument("folder")
@click.option("-h", "--half", is_flag=True)
@click.option("--batch-size", default=8)
@click.option("--kind", type=str, default="single")
def main(folder, half, batch_size, kind):
    probe({name})

if __name__ == "__main__":
    main()
"""
PLAIN = "HfArgumentParser((TrainingArguments, Model)).parse_args_into_dataclasses()"
YAML = "HfArgumentParser((TrainingArguments, Model)).parse_yaml_file(os.path.abspath(sys.argv[1]))"
TRL = "TrlParser((SFTConfig, Model)).parse_args_and_config()"
FILES = {"conf/a.yaml": "output_dir: x\nfp16: true\n", "conf/b.yaml": "output_dir: x\nbf16: true\n"}


def write(folder: Path, files: Mapping[str, str]) -> None:
    for path, text in {"pyproject.toml": "", **files}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


@pytest.mark.parametrize(
    ("name", "shell", "expected"),
    [
        pytest.param("half", "python fit.py --half", "True", id="a flag"),
        pytest.param("kind", "./fit.py --kind x", "'x'", id="a value"),
        pytest.param("batch_size", "python fit.py --batch-size 32", "32", id="of a type"),
        pytest.param("kind", "torchrun --nproc_per_node 8 fit.py --kind=x", "'x'", id="with an equals sign"),
        pytest.param("cast", "python -u fit.py -c yes && echo done", "True", id="by a type of the project"),
        pytest.param("cast", "python fit.py -c yes -c no; echo -c yes", "False", id="the last one"),
        pytest.param("kind", "python fit.py \\\n  --half \\\n  --kind x 2>&1 | tee log", "'x'", id="lines"),
        pytest.param("kind", "K=x\npython src/../fit.py --kind $K", "'x'", id="a variable"),
        pytest.param("half", "A='--seed 1 --half'\npython fit.py $A", "True", id="options in a variable"),
        pytest.param("half", "python -m fit --half", "True", id="as a module"),
        pytest.param("half", 'python fit.py --half "$@"', "True", id="with others"),
        pytest.param("kind", 'python fit.py --half "$@"', "'single' | ?", id="perhaps among others"),
        pytest.param("kind", "for k in a b; do python fit.py --kind $k; done", "'single' | ?", id="a loop"),
        pytest.param("kind", "K=x\nK=y\npython fit.py --kind $K", "'single' | ?", id="two values"),
        pytest.param("kind", "./fit.py --kind x\n./fit.py --kind y", "'x' | 'y' | 'single' | ?", id="two"),
        pytest.param("half", "python fit.py\npython fit.py --half", "False | True | ?", id="one of two"),
        pytest.param("half", "python fit.py --seed 1", "False | ?", id="none passes it"),
        pytest.param("half", "python other/fit.py --half", "False | ?", id="another file of that name"),
        pytest.param("half", "echo fit.py; python other.py --half", "False | ?", id="another command"),
        pytest.param("half", "cp fit.py old.py", "False | ?", id="a command that starts nothing"),
        pytest.param("half", "python fit.py --half 'x", "False | ?", id="a quote that is not closed"),
        pytest.param("sizes", "python fit.py --sizes 1 2", "None | ?", id="several values"),
    ],
)
def test_options_are_what_shell_scripts_pass(tmp_path: Path, name: str, shell: str, expected: str) -> None:
    write(tmp_path, {"scripts/go.sh": f"{shell}\n"})
    (found,) = probed_in(tmp_path, "fit.py", TRAINS + OPTIONS.format(name=name))
    assert set(found.split(" | ")) == set(expected.split(" | "))


@pytest.mark.parametrize(
    ("starter", "shell", "expected"),
    [
        pytest.param("import fit\n\nfit.main()\n", "python go.py --half", ["True"], id="another starts it"),
        pytest.param(
            "import fit\n\nfit.main()\n",
            "python fit.py --seed 1\npython go.py --half",
            ["False | ?"],
            id="commands of its own",
        ),
        pytest.param(
            "import argparse\nimport fit\n\nparser = argparse.ArgumentParser()\n"
            "parser.add_argument('--half')\nargs = parser.parse_args()\nfit.main()\n",
            "python go.py --half x",
            ["False | ?"],
            id="another with options of its own",
        ),
        pytest.param(
            "import sys\nimport fit\n\nsys.argv = ['--seed']\nfit.main()\n",
            "python go.py --half",
            ["False | ?"],
            id="another that writes the command line",
        ),
        pytest.param(
            "import fit\n\ndef run(half):\n    fit.main()\n",
            "python go.py --half",
            ["False | ?"],
            id="another with functions of its own",
        ),
        pytest.param("import torch\n", "python go.py --half", ["False | ?"], id="another that does not"),
    ],
)
def test_a_script_that_only_starts_another_passes_its_options(
    tmp_path: Path, starter: str, shell: str, expected: list[str]
) -> None:
    write(tmp_path, {"go.sh": f"{shell}\n", "go.py": starter})
    text = """\
import argparse
import torch

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--half", action="store_true")
    probe(parser.parse_args().half)
    torch.nn.Linear(8, 8)(torch.ones(8, 8)).sum().backward()

if __name__ == "__main__":
    main()
"""
    assert probed_in(tmp_path, "fit.py", text) == expected


def test_a_module_that_reads_the_command_line_has_that_of_the_program(tmp_path: Path) -> None:
    options = OPTIONS.replace("probe(parser.parse_args().{name})", "args = parser.parse_args()")
    files = {"options.py": options, "other.py": "from options import args\nprint(args.half)\n"}
    shell = "python fit.py --half --kind x\npython other.py --kind y\n"
    write(tmp_path, {"scripts/go.sh": shell, **files})
    assert probed_in(tmp_path, "fit.py", f"{TRAINS}from options import args\nprobe(args.kind)\n") == ["'x'"]


@pytest.mark.parametrize(
    ("name", "shell", "expected"),
    [
        ("half", "python fit.py data --half", "True"),
        ("half", "python fit.py -h data", "True"),
        ("batch_size", "python fit.py data --batch-size 32", "32"),
        ("kind", "python fit.py data --kind 7", "'7'"),
        ("batch_size", "python fit.py data", "8 | ?"),
        ("half", "", "False | ?"),
        ("folder", "python fit.py data", "?"),
    ],
)
def test_options_of_click(tmp_path: Path, name: str, shell: str, expected: str) -> None:
    write(tmp_path, {"go.sh": f"{shell}\n"})
    assert probed_in(tmp_path, "fit.py", TRAINS + CLICK.format(name=name)) == [expected]


@pytest.mark.parametrize(
    ("name", "parse", "shell", "expected"),
    [
        ("fp16", PLAIN, "torchrun fit.py --fp16 True", ["True"]),
        ("fp16", PLAIN, "deepspeed --num_gpus 2 fit.py --fp16 --seed 1", ["True"]),
        ("tf32", PLAIN, 'torchrun fit.py --tf32 False "$@"', ["False"]),
        ("dataloader_num_workers", PLAIN, "torchrun fit.py --fp16 True", ["0 | ?"]),
        ("fp16", YAML, "python fit.py conf/a.yaml", ["True"]),
        ("fp16", YAML, "python fit.py conf/b.yaml", ["None"]),
        ("fp16", YAML, "python fit.py conf/a.yaml\npython fit.py conf/b.yaml", ["None | ?"]),
        ("fp16", YAML, "python fit.py $1", ["None | ?"]),
        ("bf16", TRL, "accelerate launch fit.py --config conf/a.yaml", ["False"]),
        ("dataloader_num_workers", TRL, "accelerate launch fit.py --config conf/a.yaml", ["0"]),
        ("fp16", TRL, "accelerate launch fit.py --config conf/a.yaml --fp16 false", ["False"]),
        ("fp16", TRL, "accelerate launch fit.py --fp16 false --config conf/a.yaml", ["False"]),
        ("fp16", TRL, "accelerate launch fit.py --config conf/none.yaml", ["False | ?"]),
        ("dataloader_num_workers", TRL, 'python fit.py --config conf/a.yaml "$@"', ["0 | ?"]),
    ],
)
def test_arguments_of_transformers(
    tmp_path: Path, name: str, parse: str, shell: str, expected: list[str]
) -> None:
    write(tmp_path, {"go.sh": f"{shell}\n", **FILES})
    assert probed_in(tmp_path, "fit.py", TRAINS + ARGUMENTS.format(name=name, parse=parse)) == expected


@pytest.mark.parametrize(
    ("shell", "expected"),
    [
        ("deepspeed fit.py --deepspeed --deepspeed_config conf/ds.json", ["128.0"]),
        ("deepspeed fit.py --deepspeed", ["?"]),
    ],
)
def test_the_configuration_of_deepspeed(tmp_path: Path, shell: str, expected: list[str]) -> None:
    text = """\
import argparse
import deepspeed

parser = argparse.ArgumentParser()
parser = deepspeed.add_config_arguments(parser)
engine, _, _, _ = deepspeed.initialize(args=parser.parse_args(), model=None)
probe(engine.scaler.init_scale)
"""
    ds = '{"zero_optimization": {"stage": 2},\n "fp16": {"enabled": true, "loss_scale": 128.0}}\n'
    write(tmp_path, {"conf/ds.json": ds, "go.sh": f"{shell}\n"})
    assert probed_in(tmp_path, "fit.py", TRAINS + text) == expected


def test_related_lines_are_those_of_the_command(tmp_path: Path) -> None:
    text = """\
import torch
from transformers import AutoModelForCausalLM, Trainer
from trl import SFTConfig, SFTTrainer, TrlParser

(args,) = TrlParser((SFTConfig,)).parse_args_and_config()
model = AutoModelForCausalLM.from_pretrained("gpt2", torch_dtype=torch.float16)
SFTTrainer(model=model, args=args, train_dataset=None).train()
"""
    shell = "# on two GPUs\ntorchrun fit.py --config conf/b.yaml \\\n  --bf16 no \\\n  --fp16 yes\n"
    write(tmp_path, {"fit.py": text, "go.sh": shell, **FILES})
    (finding,) = found(tmp_path, "AMP009")
    related = [(item.location.path.rpartition("/")[2], item.location.line) for item in finding.related]
    assert ("go.sh", 4) in related


def test_what_a_command_switches_off_is_reported(tmp_path: Path) -> None:
    text = """\
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

(args,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("gpt2")
Trainer(model=model, args=args, train_dataset=None).train()
"""
    write(tmp_path, {"fit.py": text, "scripts/go.sh": "torchrun fit.py --bf16 True --tf32 False\n"})
    (finding,) = found(tmp_path, "PRC002")
    assert finding.location.line == 3
    assert [item.location.path.rpartition("/")[2] for item in finding.related] == ["go.sh"]


def found(folder: Path, code: str) -> list[Finding]:
    report = check(str(folder / "fit.py"), Settings(cache=False, select=(code,)))
    assert not report.errors
    return list(report.findings)


@pytest.mark.parametrize("shell", ["python fit.py --evaluate", "python fit.py --net large"])
def test_commands_under_which_nothing_trains_do_not_count(tmp_path: Path, shell: str) -> None:
    text = """\
import argparse
import torch

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--evaluate", action="store_true")
    parser.add_argument("--net", default="small")
    args = parser.parse_args()
    if args.net != "small":
        raise ValueError("no such network")
    if args.evaluate:
        return
    probe(args.net)
    torch.nn.Linear(8, 8)(torch.ones(8, 8)).sum().backward()

main()
"""
    write(tmp_path, {"go.sh": f"{shell}\n"})
    assert probed_in(tmp_path, "fit.py", text) == ["'small' | ?"]

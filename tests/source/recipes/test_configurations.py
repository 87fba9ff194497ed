"""What is said of configuration files, and of files that are none."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tclint.cli.main import cli
from tclint.config.settings import Settings
from tclint.engine.check import check
from tclint.engine.report import Report

TRAINER = "output_dir: out\nper_device_train_batch_size: 8\ndataloader_num_workers: 4\n"


def linted(folder: Path, name: str, text: str, **settings: object) -> Report:
    path = folder / name
    path.write_text(text, "utf-8")
    return check(str(path), Settings(cache=False, **settings))  # type: ignore[arg-type]


def places(report: Report) -> list[tuple[str, int, int]]:
    return sorted((item.code, item.location.line, item.location.column) for item in report.findings)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        pytest.param(
            "ds.json",
            '{\n\t"zero_optimization": {"stage": 2},\n\t"fp16": {"enabled": true, "loss_scale": 1.0}\n}\n',
            [("AMP019", 3, 28)],
            id="a static loss scale that does nothing",
        ),
        pytest.param(
            "ds.json",
            '{"zero_optimization": {"stage": 2},\n "fp16": {"enabled": false}}\n',
            [("AMP016", 2, 11)],
            id="DeepSpeed in float32",
        ),
        pytest.param(
            "ds.json",
            '{"zero_optimization": {"stage": 2},\n "fp16": {"enabled": "auto", "loss_scale": 0}}\n',
            [],
            id="transformers chooses",
        ),
        pytest.param(
            "accelerate.yaml",
            "compute_environment: LOCAL_MACHINE\nnum_processes: 8\nmixed_precision: 'no'\n",
            [("AMP016", 3, 1)],
            id="Accelerate without mixed precision",
        ),
        pytest.param(
            "accelerate.yaml",
            "compute_environment: LOCAL_MACHINE\nuse_cpu: true\nmixed_precision: 'no'\n",
            [],
            id="Accelerate on a CPU",
        ),
        pytest.param(
            "accelerate.yaml",
            "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nmixed_precision: no\n",
            [],
            id="FSDP in the dtype that the script chooses",
        ),
        pytest.param(
            "args.yaml", TRAINER + "bf16: true\ntf32: false\n", [("PRC002", 5, 1)], id="TF32 off beside bf16"
        ),
        pytest.param(
            "args.json",
            '{"output_dir": "out", "per_device_train_batch_size": 8,\n "optim": "adamw_torch",\n'
            ' "dataloader_num_workers": 0}',
            [("RUN006", 3, 2), ("RUN012", 2, 2)],
            id="arguments of the Trainer as JSON",
        ),
        pytest.param(
            "sft.yaml",
            TRAINER + "model_name_or_path: gpt2\ntorch_dtype: float16\nfp16: true\npacking: true\n",
            [("AMP009", 5, 1)],
            id="float16 weights under a scaler",
        ),
        pytest.param(
            "axolotl.yml",
            "base_model: a/b\nsequence_len: 2048\nmicro_batch_size: 2\nbf16: auto\nadapter: qlora\n"
            "load_in_4bit: true\n",
            [("RUN025", 3, 1)],
            id="axolotl without packing, on a 4-bit base whose dtype axolotl sets",
        ),
        pytest.param(
            "axolotl.yml",
            "base_model: Qwen/Qwen2-7B\nsequence_len: 2048\nmicro_batch_size: 2\nbf16: auto\n"
            "tokens: [<tool>]\nsample_packing: no\npad_to_sequence_len: no\n",
            [("RUN025", 6, 1)],
            id="axolotl with packing off, and a vocabulary that may have room for a token",
        ),
        pytest.param(
            "sft.yaml",
            TRAINER + "torch_dtype: bfloat16\nbf16: true\nlearning_rate: 2.0e-5\npacking: true\n",
            [],
            id="bfloat16 weights, of which a launcher may keep float32 masters",
        ),
        pytest.param(
            "axolotl.yml",
            "base_model: gpt2\nsequence_len: 2048\nmicro_batch_size: 1\nsample_packing: true\n"
            "bf16: true\ntokens:\n  - <tool>\nlora_r: 12\n",
            [("DIM017", 6, 1), ("DIM018", 8, 1)],
            id="axolotl adds a token and adapters",
        ),
        pytest.param(
            "llama.yaml",
            "stage: sft\nfinetuning_type: full\ndo_train: true\ndataloader_num_workers: 4\n"
            "per_device_train_batch_size: 1\nbf16: true\n",
            [("RUN025", 5, 1)],
            id="LLaMA-Factory without packing",
        ),
        pytest.param(
            "tune.yaml",
            "model:\n  _component_: torchtune.models.gemma.gemma_2b\nbatch_size: 2\ncompile: False\n"
            "dataset:\n  packed: False\noptimizer:\n  _component_: torch.optim.AdamW\n",
            [("RUN012", 8, 3), ("RUN025", 6, 3), ("RUN026", 4, 1)],
            id="torchtune without compiling, packing and fused AdamW",
        ),
        pytest.param(
            "titan.toml",
            '[job]\n[model]\n[training]\nseq_len = 8192\n[metrics]\n[compile]\nenable=false  # "yet"\n',
            [("RUN026", 7, 1)],
            id="torchtitan without compiling",
        ),
        pytest.param(
            "fit.yaml",
            "model:\n  class_path: nets.Net\ntrainer:\n  accelerator: gpu\n  devices: 8\n",
            [("AMP016", 4, 3)],
            id="Lightning in its default precision",
        ),
        pytest.param(
            "fit.yaml",
            "trainer:\n  min_epochs: 15\n  max_epochs: 40\nmodel:\n  class_path: nets.Net\n"
            "optimizer:\n  class_path: torch.optim.AdamW\n",
            [("AMP016", 3, 3), ("RUN012", 7, 3)],
            id="Lightning's command line, whose accelerator is auto by default",
        ),
        pytest.param(
            "hydra.yaml",
            "defaults:\n  - base\ntrainer:\n  max_steps: 10\n  precision: bf16-true\nmodel:\n"
            "  _target_: nets.Net\n  optimizer:\n    _target_: torch.optim.AdamW\n    _partial_: true\n",
            [("RUN012", 9, 5)],
            id="Hydra's optimizer of a model",
        ),
        pytest.param(
            "gpu.yaml",
            "_target_: lightning.pytorch.Trainer\naccelerator: gpu\ndevices: 1\nprecision: ${precision}\n",
            [],
            id="another file of Hydra's may choose",
        ),
        pytest.param(
            "pretrain.yaml",
            "variables:\n  bits: fp32\nmax_duration: 10ba\nglobal_train_batch_size: 8\n"
            "device: gpu\ntrain_loader:\n  name: text\nprecision: ${variables.bits}\n",
            [("AMP016", 2, 3)],
            id="Composer in float32, said elsewhere in the file",
        ),
        pytest.param(
            "small-cpu.yaml",
            "max_duration: 10ba\nglobal_train_batch_size: 8\nprecision: fp32\n",
            [],
            id="Composer in float32, perhaps on a CPU",
        ),
    ],
)
def test_findings_stand_at_their_keys(
    tmp_path: Path, name: str, text: str, expected: list[tuple[str, int, int]]
) -> None:
    report = linted(tmp_path, name, text)
    assert places(report) == expected
    assert not report.errors


def test_bfloat16_on_an_older_gpu(tmp_path: Path) -> None:
    report = linted(
        tmp_path, "args.yaml", TRAINER + "bf16: true\n", gpus=("v100",), explicit=frozenset({"gpus"})
    )
    assert places(report) == [("AMP017", 4, 1)]


def test_comments_silence(tmp_path: Path) -> None:
    text = (
        TRAINER
        + "bf16: true\n# tclint: ignore[PRC002]\ntf32: false\noptim: adamw_torch # tclint: ignore[RUN]\n"
    )
    report = linted(tmp_path, "args.yaml", text)
    assert (places(report), len(report.suppressed)) == ([], 2)


def test_other_files_of_a_folder_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "ci.yaml").write_text("on: push\ntrainer: nobody\n")
    (tmp_path / "data.json").write_text('[{"zero_optimization": 1}]')
    (tmp_path / "broken.yaml").write_text("zero_optimization: [1, 2\n")
    report = check(str(tmp_path), Settings(cache=False))
    assert not report.findings
    assert not report.errors
    assert [item.path.rpartition("/")[2] for item in report.skipped] == ["broken.yaml"]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("ci.yaml", "on: push\n", "is not a training configuration that tclint knows"),
        (
            "ds.yaml",
            "zero_optimization:\n  stage: [1, 2\n",
            "ds.yaml:3:1 is not valid YAML: did not find expected",
        ),
        ("own.yaml", "model:\n  width: [1, 2\n", "own.yaml:3:1 is not valid YAML: did not find expected"),
        ("titan.toml", "[job]\n[model]\n[training\n", "titan.toml:3:10 is not valid TOML: Expected"),
        ("words.json", f'["{"word " * 50_000}"]', "is larger than 200 kB; such files are taken for data"),
    ],
)
def test_files_that_are_named_get_a_sentence(tmp_path: Path, name: str, text: str, says: str) -> None:
    (tmp_path / name).write_text(text)
    result = CliRunner().invoke(cli, ["--no-cache", str(tmp_path / name)])
    assert result.exit_code == 2
    assert says in " ".join(result.output.split())
    # Who names all files of a commit means none of them in particular.
    if name == "ci.yaml":
        assert CliRunner().invoke(cli, ["--no-cache", "--force-exclude", str(tmp_path / name)]).exit_code == 0

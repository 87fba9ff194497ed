"""`tclint recipe.yaml` prices the step that the file sets up."""

from __future__ import annotations

from pathlib import Path

import pytest

from tclint.config.settings import Settings
from tclint.engine.caches import TraceCache
from tclint.engine.check import check
from tclint.engine.report import Report

# What is asked of transformers, for a network of two layers.
STAND_IN = {
    "__init__.py": """\
import torch
from torch import nn


class Config:
    model_type = "llama"

    def __init__(self, **stated):
        self.__dict__.update(stated)


class AutoConfig:
    @staticmethod
    def from_pretrained(name, local_files_only, trust_remote_code):
        raise OSError(name)


CONFIG_MAPPING = {"llama": Config}


class Layer(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        return x + self.down_proj(torch.relu(self.up_proj(x)))


class SmallLM(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, self.checkpointed = config.hidden_size, False
        self.embed = nn.Embedding(config.vocab_size, width)
        self.layers = nn.ModuleList(Layer(width, config.intermediate_size) for _ in range(2))
        self.lm_head = nn.Linear(width, config.vocab_size, bias=False)

    def get_output_embeddings(self):
        return self.lm_head

    def gradient_checkpointing_enable(self):
        self.checkpointed = True

    def resize_token_embeddings(self, size, pad_to_multiple_of, mean_resizing):
        if pad_to_multiple_of:
            size = -(-size // pad_to_multiple_of) * pad_to_multiple_of
        self.embed = nn.Embedding(size, self.embed.embedding_dim)
        self.lm_head = nn.Linear(self.embed.embedding_dim, size, bias=False)

    def forward(self, input_ids, labels):
        x = self.embed(input_ids)
        for layer in self.layers:
            if self.checkpointed:
                x = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)
            else:
                x = layer(x)
        logits = self.lm_head(x).float()
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
""",
    "models/__init__.py": "",
    "models/auto/__init__.py": "",
    "models/auto/modeling_auto.py": 'MODEL_FOR_CAUSAL_LM_MAPPING_NAMES = {"llama": "SmallLM"}\n',
}
FULL = """\
model_name_or_path: TinyLlama/TinyLlama-1.1B
output_dir: out
per_device_train_batch_size: 2
gradient_accumulation_steps: 4
max_seq_length: 512
bf16: true
gradient_checkpointing: true
deepspeed: conf/ds.json
"""
QLORA = """\
base_model: TinyLlama/TinyLlama-1.1B
load_in_4bit: true
adapter: qlora
lora_r: 8
lora_target_linear: true
sequence_len: 512
micro_batch_size: 8
optimizer: adamw_bnb_8bit
bf16: true
tokens:
  - <a>
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in STAND_IN.items():
        file = tmp_path / "site" / "transformers" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "project" / "conf").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def priced(*targets: str, **settings: object) -> Report:
    return check(targets, Settings(gpus=("a100",), cache=False, **settings))  # type: ignore[arg-type]


@pytest.mark.usefixtures("library")
def test_settings_of_the_step(folder: Path) -> None:
    (folder / "sft.yaml").write_text(FULL)
    (folder / "conf" / "ds.json").write_text('{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}')
    report = priced("sft.yaml")
    (entry,) = report.entries
    assert (entry.target, entry.mode, entry.precision) == ("sft.yaml", "train", "pure-bf16")
    settings = entry.settings
    assert settings is not None
    assert (settings.batch, settings.accumulation, settings.parallel) == (2, 4, "zero3")
    assert [shape for _, _, shape in entry.inputs] == [(2, 512), (2, 512)]
    said = {item.what: item.site for item in entry.assumptions}
    site = said["parallel zero3: zero_optimization.stage: 3"]
    assert site is not None
    assert site.path.endswith("ds.json")
    assert any("every sequence has 512 tokens" in what for what in said)
    assert any("checkpoint run again" in what for what in said)
    # DeepSpeed converts the weights, and its optimizer has 12 bytes of each, split over 8 GPUs.
    assert settings.optimizer == "adamw-master"
    memory = entry.metrics["a100-sxm4-80gb"].memory
    assert memory.optimizer_bytes == entry.parameters * 12 // 8


@pytest.mark.usefixtures("library")
def test_flags_win(folder: Path) -> None:
    (folder / "sft.yaml").write_text(FULL)
    report = priced("sft.yaml", batch=4, explicit=frozenset({"batch"}))
    assert report.entries[0].inputs[0][2] == (4, 512)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(("degree", "gpus", "replicas"), [(4, 8, 2), (16, 16, 1)])
def test_layers_are_split_as_the_file_says(folder: Path, degree: int, gpus: int, replicas: int) -> None:
    (folder / "t.toml").write_text(
        '[job]\n[model]\nname = "llama3"\nflavor = "8B"\n[training]\nlocal_batch_size = 2\nseq_len = 64\n'
        f"[parallelism]\ntensor_parallel_degree = {degree}\n[metrics]\n"
    )
    (entry,) = priced("t.toml").entries
    assert entry.settings is not None
    assert (entry.settings.tensor_parallel, entry.settings.gpu_count) == (degree, gpus)
    metrics = entry.metrics["a100-sxm4-80gb"]
    assert metrics.memory.optimizer_bytes == pytest.approx(8 * entry.parameters / degree / replicas, rel=0.01)
    assert metrics.tensor_parallel_sums == 2 + 2 + 2  # the layers, and the vocabulary's


@pytest.mark.usefixtures("library")
def test_launcher_beside(folder: Path) -> None:
    (folder / "sft.yaml").write_text(FULL)
    (folder / "fsdp.yaml").write_text(
        "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nnum_processes: 4\n"
    )
    settings = priced("sft.yaml", "fsdp.yaml").entries[0].settings
    assert settings is not None
    assert (settings.parallel, settings.gpu_count, settings.precision) == ("fsdp", 4, "bf16")


@pytest.mark.usefixtures("library")
def test_adapters_on_few_bits(folder: Path) -> None:
    (folder / "qlora.yml").write_text(QLORA)
    report = priced("qlora.yml", min_gain_percent=0.0)
    (entry,) = report.entries
    memory = entry.metrics["a100-sxm4-80gb"].memory
    base = 2 * 2 * 2048 * 5632
    embeddings = 2 * 2048 * 32001
    adapters = 2 * 2 * 8 * (2048 + 5632)
    assert memory.parameters_bytes == pytest.approx(base / 2 + 2 * embeddings + 4 * adapters, rel=0.01)
    assert memory.gradients_bytes == 4 * adapters
    # The vocabulary has its price, at the line that adds the token; the rule on sources has none.
    (vocabulary,) = [item for item in report.findings if item.code in ("DIM003", "DIM017")]
    assert (vocabulary.code, vocabulary.location.path, vocabulary.location.line) == (
        "DIM003",
        "qlora.yml",
        10,
    )
    assert {item.location.path for item in report.findings} == {"qlora.yml"}


@pytest.mark.usefixtures("library")
def test_beside_a_model(folder: Path) -> None:
    (folder / "sft.yaml").write_text(FULL)
    (folder / "model.py").write_text("from torch import nn\n\n\ndef build():\n    return nn.Linear(64, 64)\n")
    report = priced("model.py:build", "sft.yaml")
    assert [entry.target for entry in report.entries] == ["model.py:build", "sft.yaml"]
    assert report.entries[0].precision == "fp16"


@pytest.mark.usefixtures("library")
def test_command_line_on_several_gpus(folder: Path) -> None:
    (folder / "run.sh").write_text(
        "torchrun --nproc_per_node=4 train.py --model_name_or_path TinyLlama/TinyLlama-1.1B \\\n"
        "  --max_seq_length 256 --per_device_train_batch_size 2 --output_dir out\n"
    )
    (entry,) = priced("run.sh").entries
    assert entry.settings is not None
    assert (entry.settings.parallel, entry.settings.gpu_count) == ("ddp", 4)
    assert any("nothing in the file says the precision" in item.what for item in entry.assumptions)


@pytest.mark.usefixtures("library")
def test_a_command_line_names_its_launcher(folder: Path) -> None:
    (folder / "scripts").mkdir()
    (folder / "scripts" / "run.sh").write_text(
        "accelerate launch --config_file conf/zero.yaml train.py \\\n"
        "  --model_name_or_path TinyLlama/TinyLlama-1.1B --max_seq_length 256 \\\n"
        "  --per_device_train_batch_size 2 --output_dir out\n"
    )
    (entry,) = priced("scripts/run.sh").entries
    assert any("conf/zero.yaml is not found" in item.what for item in entry.assumptions)
    (folder / "conf" / "zero.yaml").write_text(
        "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_processes: 4\n"
        "deepspeed_config:\n  deepspeed_config_file: conf/ds.json\n"
    )
    (folder / "conf" / "ds.json").write_text('{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}')
    (entry,) = priced("scripts/run.sh").entries
    assert entry.settings is not None
    assert (entry.settings.parallel, entry.settings.gpu_count) == ("zero2", 4)
    assert entry.precision == "pure-bf16"
    assert not any("is not found" in item.what for item in entry.assumptions)
    for one, other in (("zero", "loop"), ("loop", "zero")):
        (folder / "conf" / f"{one}.yaml").write_text(
            "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_processes: 4\n"
            f"deepspeed_config:\n  deepspeed_config_file: conf/{other}.yaml\n"
        )
    assert priced("scripts/run.sh").entries  # although the files name each other


@pytest.mark.usefixtures("library")
def test_traces_are_kept_until_the_file_says_something_else(folder: Path, tmp_path: Path) -> None:
    said: list[str] = []
    cache = TraceCache("", said.append, folder=tmp_path / "kept")
    settings = Settings(gpus=("a100",), cache=False)
    for text in (QLORA, "# A comment.\n" + QLORA, QLORA, QLORA.replace("lora_r: 8", "lora_r: 16")):
        (folder / "qlora.yml").write_text(text)
        assert check("qlora.yml", settings, cache=cache).entries
    # Other lines are other places of findings.
    assert [line.partition(" is ")[2].partition(":")[0] for line in said] == [
        "traced",
        "traced",
        "unchanged",
        "traced",
    ]


@pytest.mark.usefixtures("library")
def test_nothing_of_the_folder_runs(folder: Path) -> None:
    for name in ("transformers", "torch"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("open('ran', 'w')\n")
    (folder / "sft.yaml").write_text(FULL)
    assert priced("sft.yaml").entries
    assert not (folder / "ran").exists()


@pytest.mark.usefixtures("library")
def test_read_only(folder: Path) -> None:
    (folder / "sft.yaml").write_text(FULL)
    assert not priced(".").entries
    assert not priced("sft.yaml", price_recipes=False).entries
    assert not priced("sft.yaml", force_exclude=True).entries


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            FULL.replace("TinyLlama/TinyLlama-1.1B", "someone/else"),
            "the sizes of someone/else, which line 1 names, are not known",
        ),
        (FULL.replace("max_seq_length: 512\n", ""), "it says no length of sequences"),
        (FULL + "load_in_4bit: true\n", "load_in_4bit: true goes with adapters"),
        (FULL + "num_generations: 8\n", "num_generations: 8 trains on GRPO"),
        (FULL.replace("512", "${data.length}"), "max_seq_length: ${data.length} is no number"),
    ],
)
def test_what_is_not_priced(folder: Path, text: str, reason: str) -> None:
    (folder / "sft.yaml").write_text(text)
    report = priced("sft.yaml")
    assert not report.entries
    assert not report.errors
    assert [item.reason for item in report.skipped if reason in item.reason]
    assert "RUN006" in {item.code for item in report.findings}  # the file is linted all the same


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("value", ["many", "${sizes.batch}"])
def test_a_batch_that_is_no_number(folder: Path, value: str) -> None:
    (folder / "sft.yaml").write_text(FULL.replace("batch_size: 2", f"batch_size: {value}"))
    (entry,) = priced("sft.yaml").entries
    assert entry.inputs[0][2] == (1, 512)
    (said,) = [item for item in entry.assumptions if value in item.what]
    assert said.what.startswith(f"per_device_train_batch_size: {value} is not known to tclint")
    assert said.site is not None
    assert said.site.line == 3


def test_without_transformers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tclint.engine.script.recipes.find_spec", lambda name: None if name == "transformers" else name
    )
    (folder / "sft.yaml").write_text(FULL)
    (skipped,) = priced("sft.yaml").skipped
    assert "takes transformers, which tclint does not find here" in skipped.reason


@pytest.mark.libraries
def test_with_transformers(folder: Path) -> None:
    pytest.importorskip("transformers")
    (folder / "qlora.yml").write_text(QLORA.replace("TinyLlama/TinyLlama-1.1B", "Qwen/Qwen2.5-0.5B"))
    (entry,) = priced("qlora.yml").entries
    assert entry.model == "Qwen2ForCausalLM"
    assert entry.inputs[0][2] == (8, 512)
    assert any("LoRA of rank 8 on down_proj, gate_proj" in item.what for item in entry.assumptions)

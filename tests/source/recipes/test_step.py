"""What configuration files say of the step that they train."""

from __future__ import annotations

import pytest

from tclint.source.recipes.reading import read_recipe
from tclint.source.recipes.step import Step, step_of

AXOLOTL = """\
base_model: NousResearch/Llama-2-7b-hf
load_in_4bit: true
adapter: qlora
sequence_len: 4096
sample_packing: true
lora_r: 32
lora_target_linear: true
micro_batch_size: 2
gradient_accumulation_steps: 4
optimizer: paged_adamw_32bit
bf16: auto
gradient_checkpointing: true
tokens: ["<a>", "<b>"]
datasets: []
"""
LLAMA_FACTORY = """\
model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct
stage: sft
do_train: true
finetuning_type: lora
lora_target: all
cutoff_len: 1024
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
bf16: true
"""
TRL = """\
model_name_or_path: mistralai/Mistral-7B-v0.1
torch_dtype: bfloat16
use_peft: true
load_in_4bit: true
lora_r: 16
lora_target_modules: [q_proj, v_proj]
bf16: true
max_seq_length: 2048
packing: true
per_device_train_batch_size: 4
output_dir: out
deepspeed: ds.json
"""
TORCHTITAN = """\
[job]
dump_folder = "./outputs"
[model]
name = "llama3"
flavor = "8B"
[optimizer]
name = "AdamW"
[training]
local_batch_size = 1
seq_len = 8192
[parallelism]
tensor_parallel_degree = 4
[activation_checkpoint]
mode = "selective"
"""
TORCHTUNE = """\
model:
  _component_: torchtune.models.llama3.lora_llama3_8b
  lora_attn_modules: [q_proj, output_proj]
  apply_lora_to_mlp: true
  lora_rank: 8
tokenizer:
  max_seq_len: 512
batch_size: 2
optimizer:
  _component_: torch.optim.AdamW
  fused: true
dtype: bf16
epochs: 1
tensor_parallel_dim: 2
"""
ACCELERATE = """\
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
deepspeed_config:
  zero_stage: 3
  offload_optimizer_device: cpu
mixed_precision: bf16
num_processes: 8
"""


def step(text: str, name: str = "recipe.yaml") -> Step:
    recipe = read_recipe(name, text.encode())
    assert recipe is not None
    return step_of(recipe)


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        (
            AXOLOTL,
            "a.yml",
            {
                "model": "NousResearch/Llama-2-7b-hf",
                "length": 4096,
                "batch": 2,
                "accumulation": 4,
                "precision": "bf16",
                "weights": "bfloat16",
                "optimizer": "adamw-32bit",
                "checkpointing": True,
                "rank": 32,
                "targets": "all",
                "bits": 4,
                "packed": True,
                "tokens": ["<a>", "<b>"],
            },
        ),
        (
            LLAMA_FACTORY,
            "l.yaml",
            {"length": 1024, "batch": 1, "rank": 8, "targets": "all", "checkpointing": True},
        ),
        (
            TRL,
            "t.yaml",
            {"length": 2048, "weights": "bfloat16", "rank": 16, "bits": 4, "deepspeed": "ds.json"},
        ),
        (
            TORCHTITAN,
            "t.toml",
            {
                "model": "llama3 8B",
                "length": 8192,
                "batch": 1,
                "precision": "bf16",
                "optimizer": "adamw-fused",
                "parallel": "fsdp",
                "tensor_parallel": 4,
            },
        ),
        (
            TORCHTUNE,
            "t.yaml",
            {
                "precision": "pure-bf16",
                "targets": ["q_proj", "o_proj"],
                "also_targets": ["gate_proj", "up_proj", "down_proj"],
                "optimizer": "adamw-fused",
                "adapters": "bfloat16",
                "tensor_parallel": 2,
            },
        ),
        (ACCELERATE, "acc.yaml", {"parallel": "zero3", "gpu_count": 8, "has_master_weights": True}),
        (
            "compute_environment: LOCAL_MACHINE\nparallelism_config:\n  parallelism_config_tp_size: 2\n"
            "mixed_precision: bf16\n",
            "acc.yaml",
            {"tensor_parallel": 2},
        ),
        (
            '{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}',
            "ds.json",
            {"parallel": "zero2", "precision": "bf16"},
        ),
    ],
)
def test_settings_of_each_format(text: str, name: str, expected: dict[str, object]) -> None:
    found = step(text, name)
    assert {key: found.get(key) for key in expected} == expected


def test_lines_and_words() -> None:
    found = step(AXOLOTL).stated
    assert (found["batch"].line, found["batch"].words) == (8, "micro_batch_size: 2")
    assert found["weights"].words == "bf16: auto"


def test_defaults_of_frameworks_are_marked() -> None:
    found = step("base_model: a/b\ndatasets: []\nadapter: lora\nlora_r: 8\n", "a.yml").stated
    assert (found["length"].value, found["length"].words) == (512, "axolotl's default")
    assert found["length"].is_default
    assert not found["rank"].is_default


@pytest.mark.parametrize("adapter", ["", "adapter:\n", "adapter: llama-adapter\n"])
def test_rank_without_an_adapter(adapter: str) -> None:
    assert (
        "rank"
        not in step(
            f"base_model: a/b\ndatasets: []\nmicro_batch_size: 1\nlora_r: 8\n{adapter}", "a.yml"
        ).stated
    )


def test_values_that_no_row_knows() -> None:
    found = step(AXOLOTL.replace("paged_adamw_32bit", "lion_8bit"))
    assert "optimizer" not in found.stated
    assert found.unread["optimizer"].words == "optimizer: lion_8bit"
    assert "checkpointing" in step(TORCHTITAN, "t.toml").unread  # selective is neither full nor none
    assert not step(TRL.replace("load_in_4bit: true", "load_in_4bit: false")).unread
    assert not step(LLAMA_FACTORY).unread


def test_keys_that_are_nearly_right() -> None:
    found = step(AXOLOTL.replace("micro_batch_size", "micro_batch_sise"), "a.yml")
    assert found.stated["batch"].is_default
    assert found.unread["batch"].words == "micro_batch_sise: 2"
    assert not step(AXOLOTL + "eval_batch_size: 4\n", "a.yml").unread


def test_what_has_no_price() -> None:
    assert [said.value for said in step(ACCELERATE).not_priced] == ["offloading to the CPU"]
    assert not step(ACCELERATE.replace("device: cpu", "device: none")).not_priced


@pytest.mark.parametrize(
    ("text", "name", "kinds"),
    [
        (AXOLOTL + "context_parallel_size: 4\nsequence_parallel_degree: 1\n", "a.yml", ["context"]),
        (TRL + "parallelism_config:\n  cp_size: 2\n  tp_size: 2\n", "t.yaml", ["context", "tensor"]),
        (LLAMA_FACTORY + "pipeline_model_parallel_size: 8\nvpp_size: 2\n", "l.yaml", ["pipeline"]),
        (ACCELERATE + "megatron_lm_config:\n  megatron_lm_pp_degree: 2\n", "m.yaml", ["pipeline"]),
        (TORCHTITAN + "expert_parallel_degree = 4\n", "t.toml", ["expert"]),
    ],
)
def test_splits_without_a_price(text: str, name: str, kinds: list[str]) -> None:
    said = [item for item in step(text, name).not_priced if str(item.value).endswith("parallelism")]
    assert [item.value for item in said] == [f"{kind} parallelism" for kind in kinds]
    last = text.splitlines()[said[-1].line - 1]
    assert said[-1].words.rpartition(".")[2].partition(":")[0] in last


def test_a_launcher_checkpoints_and_offloads() -> None:
    text = "fsdp_config:\n  fsdp_activation_checkpointing: true\n  fsdp_offload_params: true\n"
    found = step("compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\n" + text)
    assert found.get("checkpointing") is True
    assert [item.value for item in found.not_priced] == ["offloading to the CPU"]


def test_objectives_that_are_no_next_token() -> None:
    assert step(LLAMA_FACTORY.replace("stage: sft", "stage: dpo")).get("objective") == "preferences"
    assert "objective" not in step(LLAMA_FACTORY).stated


def test_rows_set_what_is_documented() -> None:
    from importlib import resources

    from tclint.source.recipes.formats import formats

    documented = (resources.files("tclint.source.recipes.tables") / "README.md").read_text("utf-8")
    names = {row.sets for item in formats() for row in item.step}
    assert {name for name in names if f"`{name}`" not in documented} == set()

"""Kernel libraries that are not installed: stand-ins where code cannot do without, said in the report."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tclint import check
from tclint.config.settings import Settings
from tclint.engine.report import Entry
from tclint.tracing import trace_targets

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) for name in ("flash_attn", "mamba_ssm", "apex", "xformers")),
    reason="the libraries themselves are installed",
)

HEAD = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n"
QKV = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(256, 768)

    def forward(self, x):
        qkv = self.qkv(x).unflatten(-1, (3, 4, 64))
        return attend(qkv).flatten(2)
"""
NORM = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(256, 256), Norm(256, eps=1e-6)

    def forward(self, x):
        return self.norm(self.linear(x))
"""
CASES = {
    "flash_attn": (
        "from flash_attn import flash_attn_func\n"
        f"def attend(qkv): return flash_attn_func(*qkv.unbind(2), causal=True)\n{QKV}",
        "scaled_dot_product_attention",
    ),
    "flash_attn packed": (
        "from flash_attn.flash_attn_interface import flash_attn_qkvpacked_func as attend\n" + QKV,
        "scaled_dot_product_attention",
    ),
    "flash_attn varlen": (
        "from flash_attn import flash_attn_varlen_qkvpacked_func as varlen\n"
        "def attend(qkv):\n"
        "    ends = torch.arange(0, qkv.shape[0] * qkv.shape[1] + 1, qkv.shape[1], dtype=torch.int32)\n"
        f"    return varlen(qkv.flatten(0, 1), ends, qkv.shape[1]).unflatten(0, qkv.shape[:2])\n{QKV}",
        "scaled_dot_product_attention",
    ),
    "xformers": (
        "import xformers.ops as xops\n"
        f"def attend(qkv): return xops.memory_efficient_attention(*xops.unbind(qkv, 2))\n{QKV}",
        "scaled_dot_product_attention",
    ),
    "apex": (f"from apex.normalization import FusedLayerNorm as Norm\n{NORM}", "layer_norm"),
    "apex rms": (f"import apex\nNorm = apex.normalization.FusedRMSNorm\n{NORM}", "rms_norm"),
    "mamba_ssm": ("from mamba_ssm import Mamba\ndef Net(): return Mamba(256)\n", "selective_scan"),
    "causal_conv1d": (
        "from causal_conv1d import causal_conv1d_fn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.weight = nn.Parameter(torch.empty(64, 4))\n"
        "    def forward(self, x):\n"
        "        return causal_conv1d_fn(x, self.weight, activation='silu')\n",
        "conv1d",
    ),
    "triton": (
        "import triton\nimport triton.language as tl\n"
        "@triton.autotune(configs=[triton.Config({}, num_warps=4)], key=['n'])\n"
        "@triton.jit\n"
        "def scale(x, y, n, BLOCK: tl.constexpr):\n"
        "    tl.store(y, tl.load(x))\n"
        "class Net(nn.Module):\n"
        "    def forward(self, x):\n"
        "        y = torch.empty_like(x)\n"
        "        scale[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)\n"
        "        return F.relu(y)\n",
        "relu",
    ),
}


def linted(folder: Path, source: str) -> Entry:
    path = folder / "model.py"
    path.write_text(HEAD + source)
    report = check([f"{path}:Net"], Settings(inputs=("8,64,256",)))
    assert not report.errors, report.errors
    return report.entries[0]


@pytest.mark.parametrize("name", CASES)
def test_shapes_work_and_report(tmp_path: Path, name: str) -> None:
    source, operator = CASES[name]
    entry = linted(tmp_path, source)
    assert entry.graph is not None
    [op] = [op for op in entry.graph.ops if op.name == operator]
    assert entry.graph.outputs[0].shape[:2] == (8, 64)
    assert entry.not_analysed == ()
    library = name.split(maxsplit=1)[0]
    assert any(
        note.what.startswith((f"{library} is not installed: ", f"{library} needs a GPU"))
        for note in entry.assumptions
    )
    assert all(metrics.step_time_us > 0 for metrics in entry.metrics.values())
    if operator == "selective_scan":
        batch, channels, length = op.inputs[0].shape
        assert (batch, channels, length) == (8, 512, 64)
        assert op.inputs[2].shape == (512, 16)


def test_a_guarded_import_keeps_its_own_way(tmp_path: Path) -> None:
    source = (
        "try:\n    from flash_attn import flash_attn_func\nexcept ImportError:\n    flash_attn_func = None\n"
        "def attend(qkv):\n"
        "    assert flash_attn_func is None\n"
        f"    return qkv.unbind(2)[0].relu()\n{QKV}"
    )
    entry = linted(tmp_path, source)
    assert not any("flash_attn" in note.what for note in entry.assumptions)


GUARDED = """
try:
    from flash_attn import flash_attn_func
    from flash_attn.ops.fused_dense import NAME
except ImportError:
    flash_attn_func = None
def attend(qkv):
    if flash_attn_func is None:
        return qkv.unbind(2)[0].relu()
    return flash_attn_func(*qkv.unbind(2), causal=True)
"""


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("requirements.txt", "torch\nflash-attn>=2.5 --no-build-isolation\n"),
        ("README.md", "## Set up\n```sh\npip install torch flash_attn\n```\n"),
        ("pyproject.toml", '[project]\nname = "net"\ndependencies = ["torch", "flash-attn"]\n'),
    ],
)
def test_a_guarded_import_of_what_the_project_asks_for_is_answered(
    tmp_path: Path, file: str, text: str
) -> None:
    (tmp_path / "setup.py").write_text("")
    (tmp_path / file).write_text(text)
    entry = linted(tmp_path, GUARDED.replace("    from flash_attn.ops.fused_dense import NAME\n", "") + QKV)
    assert "scaled_dot_product_attention" in [op.name for op in entry.graph.ops] if entry.graph else False
    assert any(
        note.what.startswith("flash_attn is not installed, though the project asks for it: ")
        for note in entry.assumptions
    )


def test_a_guarded_import_of_what_has_no_stand_in_keeps_its_own_way(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("flash-attn\n")
    entry = linted(tmp_path, GUARDED + QKV)
    assert "relu" in [op.name for op in entry.graph.ops] if entry.graph else False


def test_a_comment_asks_for_nothing(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch  # no flash-attn here\n")
    (tmp_path / "README.md").write_text("flash-attn is faster.\n")
    entry = linted(tmp_path, GUARDED.replace("    from flash_attn.ops.fused_dense import NAME\n", "") + QKV)
    assert "relu" in [op.name for op in entry.graph.ops] if entry.graph else False


def test_what_has_no_stand_in_says_so_where_it_is_used(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(f"{HEAD}from flash_attn.modules.mha import MHA\ndef Net(): return MHA(64)\n")
    [result] = trace_targets([f"{path}:Net"], Settings(inputs=("8,64",)))
    assert "flash_attn.modules.mha.MHA is not installed here" in str(result.error)


def test_other_missing_packages_are_named_as_before(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    use = "no_such_package_here.build"
    path.write_text(
        f"{HEAD}import flash_attn\nimport no_such_package_here\nclass Net(nn.Linear):\n"
        f"    def __init__(self):\n        super().__init__(64, {use}())\n"
    )
    [result] = trace_targets([f"{path}:Net"], Settings(inputs=("8,64",)))
    assert "imports 'no_such_package_here', which is not installed here" in str(result.error)


def test_kernels_of_an_installed_triton_are_not_launched_without_a_gpu(tmp_path: Path) -> None:
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "language.py").write_text(
        "constexpr = int\ndef load(x): pass\ndef store(y, x): pass\n"
    )
    (tmp_path / "triton" / "__init__.py").write_text(
        "class Config:\n    def __init__(self, *args, **options): pass\n"
        "def cdiv(x, y): return -(-x // y)\n"
        "def jit(function): raise RuntimeError('0 active drivers')\n"
        "autotune = heuristics = jit\n"
    )
    entry = linted(tmp_path, CASES["triton"][0])
    assert [op.name for op in entry.graph.ops] == ["relu"]  # type: ignore[union-attr]
    (note,) = [one.what for one in entry.graph.assumptions if "triton" in one.what]  # type: ignore[union-attr]
    assert note == "triton needs a GPU, and there is none: its kernels do nothing here, and have no price"

"""What rules know of other files: definitions through imports, and the versions of torch that are allowed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tclint.config.settings import Settings
from tclint.core.finding import Finding
from tclint.engine.sources.lint import lint
from tclint.source.project.requirements import allows
from tclint.source.source_rule import SourceRule
from tclint_rules.amp.bce_under_autocast import BceUnderAutocast
from tclint_rules.amp.deprecated_cuda_amp import DeprecatedCudaAmp
from tclint_rules.amp.no_mixed_precision import NoMixedPrecision

EXAMPLES = Path(__file__).parents[2] / "fixtures" / "rules"
LOSS = """\
import torch.nn.functional as F
from torch import nn

class DiceBCE(nn.Module):
    def forward(self, scores, y):
        return F.binary_cross_entropy(scores, y)
"""
SAFE = LOSS.replace("binary_cross_entropy(", "binary_cross_entropy_with_logits(")
TRAIN = """\
import torch
{statement}

criterion = DiceBCE().cuda()
for x, y in loader:
    with torch.autocast("cuda"):
        loss = criterion(model(x), y)
"""


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def found(folder: Path, name: str, rule: SourceRule) -> list[Finding]:
    return lint([str(folder / name)], [rule], Settings()).findings


@pytest.mark.parametrize(
    ("train", "loss", "statement"),
    [
        ("train.py", "losses.py", "from losses import DiceBCE"),
        ("train.py", "lib/losses.py", "from lib.losses import DiceBCE"),
        ("tools/train.py", "lib/losses.py", "from lib.losses import DiceBCE"),
        ("pkg/train.py", "pkg/losses.py", "from .losses import DiceBCE"),
        ("pkg/run/train.py", "pkg/losses.py", "from ..losses import DiceBCE"),
    ],
)
def test_a_loss_of_another_file_is_read(tmp_path: Path, train: str, loss: str, statement: str) -> None:
    write(tmp_path, {train: TRAIN.format(statement=statement), loss: LOSS})
    (finding,) = found(tmp_path, train, BceUnderAutocast())
    assert finding.location.path == str(tmp_path / train)
    assert finding.location.line == 7
    assert [Path(related.location.path).name for related in finding.related] == ["train.py", "losses.py"]
    write(tmp_path, {loss: SAFE})
    assert found(tmp_path, train, BceUnderAutocast()) == []


def test_a_package_may_hand_the_name_on(tmp_path: Path) -> None:
    files = {
        "train.py": TRAIN.format(statement="from lib import DiceBCE"),
        "lib/__init__.py": "from .losses import DiceBCE\n",
        "lib/losses.py": LOSS,
    }
    write(tmp_path, files)
    assert len(found(tmp_path, "train.py", BceUnderAutocast())) == 1


@pytest.mark.parametrize("text", ["def broken(:\n", "\0BCELoss", "BCELoss = 3\n"])
def test_a_strange_file_is_no_evidence(tmp_path: Path, text: str) -> None:
    write(tmp_path, {"train.py": TRAIN.format(statement="from losses import DiceBCE"), "losses.py": text})
    assert found(tmp_path, "train.py", BceUnderAutocast()) == []


@pytest.mark.parametrize(
    ("file", "text", "reported"),
    [
        ("requirements.txt", "numpy\ntorch==1.13.1+cu117\n", False),
        ("requirements.txt", "torch>=1.7,<2.0\n", False),
        ("requirements.txt", "torch>=1.7\ntorchvision==0.8\n", True),
        ("requirements.txt", "torchmetrics<1\n", True),
        ("environment.yml", "dependencies:\n  - pytorch=1.9.0=py3.8\n", False),
        ("setup.py", 'setup(install_requires=["torch>=1.6", "numpy<2"])\n', True),
        ("pyproject.toml", '[project]\ndependencies = ["torch==2.3.*"]\n', False),
        ("requirements.txt", "torch~=2.2\n", True),
        ("requirements.txt", "torch~=2.2.0\n", False),
        ("requirements/base.txt", "torch==1.8.0\n", False),
        ("env_gpu.yml", "dependencies:\n  - pytorch==1.9.0\n", False),
        ("pyproject.toml", '[tool.poetry.dependencies]\ntorch = "^1.13.1"\n', False),
        ("pyproject.toml", '[tool.poetry.dependencies]\ntorch = "^2.1"\n', True),
    ],
)
def test_old_names_are_right_for_old_torch(tmp_path: Path, file: str, text: str, reported: bool) -> None:
    write(tmp_path, {"src/train.py": "import torch\nscaler = torch.cuda.amp.GradScaler()\n", file: text})
    assert bool(found(tmp_path, "src/train.py", DeprecatedCudaAmp())) is reported


@pytest.mark.parametrize(
    ("pins", "reported"), [("torch>=2.4\ntransformers==4.57.1\n", True), ("transformers>=4.40\n", False)]
)
def test_transformers_before_5_loads_float32(tmp_path: Path, pins: str, reported: bool) -> None:
    """A checkpoint of a name that is not known: which dtype it has hangs on the version."""
    example = EXAMPLES / "AMP016" / "source" / "valid_stored_dtype_in_a_loop.py"
    write(tmp_path, {"train.py": example.read_text(), "requirements.txt": pins})
    assert bool(found(tmp_path, "train.py", NoMixedPrecision())) is reported


versions = st.lists(st.integers(0, 30), min_size=1, max_size=3).map(tuple)


@given(versions, versions)
def test_an_exact_pin_allows_what_is_not_newer(pinned: tuple[int, ...], version: tuple[int, ...]) -> None:
    text = ".".join(map(str, pinned))
    width = max(len(pinned), len(version))
    one, other = (item + (0,) * (width - len(item)) for item in (pinned, version))
    if one >= other:
        assert allows(f"=={text}", version)
    if one <= other:
        assert not allows(f"<{text}", version)
    assert allows(f">={text}", version)

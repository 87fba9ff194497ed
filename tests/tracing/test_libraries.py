"""Models of timm and transformers by name, where those are installed."""

from __future__ import annotations

import pytest

from tclint.config.settings import Settings
from tclint.tracing import TraceResult, trace_targets

GPT2 = 12 * 768 * 768 * 12 + 50257 * 768 + 1024 * 768  # without biases and norms


def trace(*targets: str, **settings: object) -> list[TraceResult]:
    return list(trace_targets(targets, Settings(**settings)))  # type: ignore[arg-type]


@pytest.mark.libraries
def test_timm() -> None:
    pytest.importorskip("timm")
    resnet, small, missing = (
        *trace("timm:resnet18"),
        *trace("timm:resnet18", arguments=("num_classes=10", "in_chans=1")),
        *trace("timm:resnet19"),
    )
    assert resnet.graph is not None
    assert resnet.graph.parameter_count == 11_689_512
    assert resnet.graph.inputs[0].shape == (8, 3, 224, 224)
    assert small.graph is not None
    assert small.graph.outputs[0].shape == (8, 10)
    assert "timm has no model 'resnet19'. Did you mean 'resnet18'?" in str(missing.error)


@pytest.mark.libraries
def test_transformers() -> None:
    pytest.importorskip("transformers")
    gpt2, named, missing = trace("hf:gpt2", "hf:GPT2Model", "hf:gtp2")
    assert gpt2.graph is not None
    assert gpt2.graph.metadata["model"] == "GPT2LMHeadModel"
    assert gpt2.graph.parameter_count == pytest.approx(GPT2, rel=0.01)
    assert "the default GPT2Config" in gpt2.graph.assumptions[0].what
    assert named.graph is not None
    assert named.graph.metadata["model"] == "GPT2Model"
    assert "Did you mean 'gpt2'?" in str(missing.error)


@pytest.mark.libraries
def test_transformers_arguments_and_folders(tmp_path: object) -> None:
    transformers = pytest.importorskip("transformers")
    transformers.BertConfig(hidden_size=48, num_attention_heads=4, num_hidden_layers=1).save_pretrained(
        tmp_path
    )
    (stored,) = trace(f"hf:{tmp_path}")
    assert stored.graph is not None
    assert "stored configuration" in stored.graph.assumptions[0].what
    (small,) = trace("hf:gpt2", arguments=("n_layer=2", "n_embd=48", "n_head=4"))
    assert small.graph is not None
    assert any(parameter.shape == (48, 144) for parameter in small.graph.parameters)
    (known,) = trace("hf:HuggingFaceTB/SmolLM2-135M", arguments=("num_hidden_layers=1",))
    assert known.graph is not None
    assert "the sizes in https://huggingface.co/HuggingFaceTB/SmolLM2-135M" in known.graph.assumptions[0].what
    assert any(parameter.shape == (49152, 576) for parameter in known.graph.parameters)

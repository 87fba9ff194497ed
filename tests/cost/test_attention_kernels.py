"""Which fused attention kernel a call runs, and times that people told of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cost_support import price

from tclint.cost.gpu import load_gpu
from tclint.cost.kernels.attention_kernels import kernel_of
from tclint.graph.lowering.work import Attention

PLAIN = Attention(8, 16, 16, 2048, 2048, 64, 64, "bfloat16")


@pytest.mark.parametrize(
    ("gpu", "work", "kernel"),
    [
        ("h100", PLAIN, "cuDNN"),
        ("h100", replace(PLAIN, has_mask=True), "cuDNN"),
        ("h100", replace(PLAIN, head_dim=97, value_head_dim=97), "FlashAttention 2"),
        ("h100", replace(PLAIN, dtype="float32"), "memory-efficient"),
        ("a100", PLAIN, "FlashAttention 2"),
        ("a100", replace(PLAIN, has_mask=True), "memory-efficient"),
        ("rtx-5090", PLAIN, "FlashAttention 2"),
        ("v100", replace(PLAIN, dtype="float16"), "memory-efficient"),
        ("a100", replace(PLAIN, kernel="cuDNN"), "cuDNN"),
        ("h100", replace(PLAIN, disabled=frozenset({"cuDNN"})), "FlashAttention 2"),
        ("h100", replace(PLAIN, has_mask=True, disabled=frozenset({"cuDNN"})), "memory-efficient"),
        ("a100", replace(PLAIN, disabled=frozenset({"FlashAttention 2", "memory-efficient"})), "cuDNN"),
    ],
)
def test_the_kernel_that_runs_is_named(gpu: str, work: Attention, kernel: str) -> None:
    assert kernel_of(work, load_gpu(gpu)) == kernel
    assert price(work, gpu).tensor_core_reason.endswith(f"attention by {kernel}")


@pytest.mark.parametrize(
    ("work", "measured_us"),
    [
        (PLAIN, 293),
        (replace(PLAIN, is_causal=True), 181),
        (replace(PLAIN, has_mask=True), 526),
        (replace(PLAIN, has_dropout=True), 779),
    ],
)
def test_cudnn_on_h100_with_torch_2_11(work: Attention, measured_us: float) -> None:
    assert price(work, "h100", alone=True).time_us == pytest.approx(measured_us, rel=0.1)


def test_flash_attention_2_is_no_faster_on_blackwell_per_sm() -> None:
    """Batch 16 and 2, 32 heads of 64, in threads of its authors and users."""
    flash = replace(PLAIN, batch=16, heads=32, kv_heads=32, kernel="FlashAttention 2")
    hopper = replace(flash, query_length=1024, key_length=1024)
    assert price(hopper, "h100", alone=True).time_us == pytest.approx(466, rel=0.1)
    backward = replace(hopper, is_backward=True)
    assert price(backward, "h100", alone=True).time_us == pytest.approx(1439, rel=0.1)
    blackwell = replace(flash, batch=2, query_length=8192, key_length=8192)
    assert price(blackwell, "b200").time_us == pytest.approx(3205, rel=0.2)


@pytest.mark.parametrize(
    ("batch", "length", "cudnn_us", "flash_us"),
    [
        (32, 1024, 280, 350),
        (16, 2048, 510, 560),
        (8, 4096, 990, 990),
        (4, 8192, 1920, 1860),
        (2, 16384, 3800, 3620),
    ],
)
def test_attention_on_b200_at_five_lengths(batch: int, length: int, cudnn_us: float, flash_us: float) -> None:
    """32 heads of 64, from a thread of FlashAttention's authors; cuDNN is ahead where sequences are short."""
    work = replace(PLAIN, batch=batch, heads=32, kv_heads=32, query_length=length, key_length=length)
    assert price(work, "b200", alone=True).time_us == pytest.approx(cudnn_us, rel=0.07)
    flash = replace(work, kernel="FlashAttention 4")
    assert price(flash, "b200", alone=True).time_us == pytest.approx(flash_us, rel=0.03)


@pytest.mark.parametrize(
    ("batch", "length", "cudnn_us"),
    [(32, 1024, 220), (16, 2048, 330), (8, 4096, 560), (4, 8192, 1030), (2, 16384, 1960)],
)
def test_causal_attention_computes_blocks_on_the_diagonal_whole(
    batch: int, length: int, cudnn_us: float
) -> None:
    """The same thread: causal times of short sequences are well above half of the others."""
    work = replace(
        PLAIN, batch=batch, heads=32, kv_heads=32, query_length=length, key_length=length, is_causal=True
    )
    assert price(work, "b200", alone=True).time_us == pytest.approx(cudnn_us, rel=0.06)


def test_a_mask_takes_flash_attention_away() -> None:
    assert price(replace(PLAIN, has_mask=True), "a100").time_us > 1.4 * price(PLAIN, "a100").time_us

"""Fourier transforms, which wait for memory: one pass over the data for each dim, the least that they take.

A transform of more points than fit on the chip takes several passes, so these times are lower bounds.
"""

from __future__ import annotations

from tclint.graph.lowering.kernels import Lowering, LoweringRule, dense_bytes

_NAMES = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")


def transform(low: Lowering) -> None:
    """`torch.fft`'s transforms of one, two or several dims; the gradient is a transform of the same size."""
    x = low.op.inputs[0]
    for backward in (False, True) if low.any_needed else (False,):
        read, written = x.bytes, dense_bytes(low.output)
        if backward:
            read, written = dense_bytes(low.output), dense_bytes(x)
        spectrum = max(read, written)
        again = _dims(low) - 1
        low.traffic(
            "elementwise",
            read + again * spectrum,
            written + again * spectrum,
            launches=1 + again,
            backward=backward,
        )
        if _is_scaled(low, backward=backward):
            low.traffic("elementwise", written, written, operation="mul", backward=backward)


def short_transforms(low: Lowering) -> None:
    """stft: frames of the signal under its window, and their transforms."""
    spectrum = low.output
    frames = spectrum.numel // max(spectrum.shape[-2], 1) * int(low.op.attributes["n_fft"])
    size = frames * dense_bytes(low.op.inputs[0]) // max(low.op.inputs[0].numel, 1)
    low.traffic("elementwise", size, size, operation="mul")
    low.traffic("elementwise", size, dense_bytes(spectrum), operation="fft_rfft")
    if low.any_needed:
        low.traffic("elementwise", dense_bytes(spectrum), size, operation="fft_irfft", backward=True)
        low.traffic("elementwise", size, size, operation="mul", backward=True)
        low.traffic("scatter", size, dense_bytes(low.op.inputs[0]), backward=True)


def _dims(low: Lowering) -> int:
    if low.op.name[-1] not in "2n":
        return 1
    stated = low.attribute("dim", None) or low.attribute("s", None)
    return len(stated) if isinstance(stated, (list, tuple)) else len(low.op.inputs[0].shape)


def _is_scaled(low: Lowering, *, backward: bool) -> bool:
    """Whether a kernel of its own divides by the size: inverse transforms do by default."""
    norm = low.attribute("norm", None) or "backward"
    is_inverse = low.op.name.startswith(("fft_i", "fft_hfft")) != backward
    return norm == "ortho" or (norm == "backward") == is_inverse


RULES: dict[str, LoweringRule] = {
    **{f"fft_{name}{dims}": transform for name in _NAMES for dims in ("", "2", "n")},
    "stft": short_transforms,
}

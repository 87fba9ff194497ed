"""What older libraries require."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.analysis.layers import indices_of, worth_pricing
from tclint.analysis.share_findings import share_finding
from tclint.analysis.widths.alignment import efficient_multiple
from tclint.graph.lowering.work import Convolution, Gemm, Work
from tclint.plugin import Effect, Finding, GraphContext, GraphRule, Op

_CUDA = (11, 0)
_CUDNN = (7, 6, 3)


class AlignmentRequired(GraphRule):
    """With this CUDA or cuDNN version, misaligned layers do not use Tensor Cores at all.

    What it does
    With --cuda below 11.0 or --cudnn below 7.6.3, finds matrix products in which M, N or K, and
    convolutions in which C or K, is not a multiple of 8 (fp16), and reports them with the share of the
    step that they would take with later versions.

    Why it costs
    Those versions have Tensor Core kernels for aligned dims only and run everything else on CUDA cores,
    several times slower. cuBLAS 11 and cuDNN 7.6.3 use Tensor Cores for any dims.

    Example
        nn.Linear(1024, 1001)      # CUDA 10.2

    Use instead
        nn.Linear(1024, 1008)      # or CUDA 11 and later

    When it does not apply
    Without --cuda and --cudnn, or with later versions. How much slower such layers are is not predicted:
    these versions have not been measured.
    """

    code = "DIM017"
    name = "alignment-required"
    since = "0.1.0"
    level = "warning"
    confidence = "high"
    sources = (
        "NVIDIA Matrix Multiplication Background User's Guide, Table 1: multiples required before cuBLAS "
        "11.0 and cuDNN 7.6.3",
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        settings = context.settings
        multiple = efficient_multiple(settings.precision)
        if multiple is None:
            return
        old: list[tuple[type[Work], str, str]] = []
        if settings.cuda and _version(settings.cuda) < _CUDA:
            old.append((Gemm, "matrix product", f"CUDA {settings.cuda}"))
        if settings.cudnn and _version(settings.cudnn) < _CUDNN:
            old.append((Convolution, "convolution", f"cuDNN {settings.cudnn}"))
        for kind, noun, version in old:
            ops = [op for op in context.graph.ops if self._is_refused(op, context, kind, multiple)]
            if ops and worth_pricing(context, indices_of(ops)):
                yield share_finding(
                    self,
                    context,
                    ops,
                    noun,
                    f" already with later versions; {version} runs dims that are not multiples of {multiple} "
                    "without Tensor Cores",
                    effect=Effect(unknown="versions that old have not been measured"),
                    advice=f"Pad every dim to a multiple of {multiple}, or use CUDA 11 and cuDNN 7.6.3.",
                    evidence={"version": version, "multiple": multiple},
                    identity=noun,
                )

    def _is_refused(self, op: Op, context: GraphContext, kind: type[Work], multiple: int) -> bool:
        first = context.estimate(context.scenarios[0])
        return any(
            isinstance(row.work, kind) and any(size % multiple for size in _sizes(row.work))
            for row in first.rows_of(op.index)
        )


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def _sizes(work: Work) -> tuple[int, ...]:
    if isinstance(work, Gemm):
        return work.m, work.n, work.k
    if isinstance(work, Convolution) and work.groups == 1:
        return work.in_channels, work.out_channels
    return ()

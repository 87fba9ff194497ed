"""Ranks of low-rank adapters."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Effect, Finding, Fix, SourceContext, SourceRule, distinct
from tclint.plugin.source import constant_of

_CONFIGURATIONS = ("peft.LoraConfig", "peft.AdaLoraConfig")


class AdapterRank(SourceRule):
    """Low-rank adapters whose rank is not a multiple of 8.

    What it does
    Finds `LoraConfig(r=...)` of PEFT with a number that is not a multiple of 8, and the same in configuration
    files: `lora_r` of TRL and axolotl, `lora_rank` of LLaMA-Factory and torchtune.

    Why it costs
    The rank is a dim of both products of every adapter, forward and backward, and contiguous in one matrix
    of each. At 16 bits, Tensor Core kernels want multiples of 8; with others the small products of the
    adapters, several for every linear layer, run on kernels that load element by element.

    Example
        config = LoraConfig(r=12, lora_alpha=24)

    Use instead
        config = LoraConfig(r=16, lora_alpha=32)

    When it does not apply
    Ranks of 4 or less, which are chosen for the size of the checkpoint; ranks that are known only at run
    time.
    """

    code = "DIM018"
    name = "adapter-rank"
    level = "info"
    confidence = "medium"
    sources = (
        "NVIDIA Train With Mixed Precision, Satisfying Tensor Core Shape Constraints: dims in multiples of 8",
    )
    triggers = ("LoraConfig(",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        for event in distinct(context.record.of("make", "call")):
            rank = constant_of(event.arguments.get("r", event.arguments.get("0")))
            if event.name not in _CONFIGURATIONS or type(rank) is not int or not context.concerns(event):
                continue
            if rank <= 4 or rank % 8 == 0:
                continue
            yield self.finding(
                context.at(event, option="r"),
                f"The adapters have rank {rank}, not a multiple of 8.",
                evidence={"rank": rank, "multiple": 8},
                effect=Effect(unknown="which layers get adapters is not known from the source"),
                fix=Fix(f"Use {rank - rank % 8 or 8} or {rank - rank % 8 + 8}."),
                identity=str(rank),
            )

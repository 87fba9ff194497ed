"""Rules on the shapes of batches of sequences: whether these are packed, and whether one shape is
compiled."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Effect, Finding, Fix, SourceContext, SourceRule
from tclint.plugin.source import FALSE, constant_of


class UnpackedSequences(SourceRule):
    """Sequences of many lengths that are neither packed nor cut from one stream.

    What it does
    Finds fine-tuning on texts whose samples are padded to the longest of a batch: scripts that do not set
    `packing` of TRL's SFTConfig, which is off by default, and configuration files in which `packing` of TRL
    or LLaMA-Factory, `sample_packing` of axolotl (without `pad_to_sequence_len`) or `packed` of torchtune's
    datasets is off or left out.

    Why it costs
    Instructions and answers are a few hundred tokens long, batches a few samples large: matrix products then
    have few rows, and many of these are padding. Packed samples fill every batch up to its length, without
    padding and with one shape, which torch.compile and CUDA graphs like as well.

    Example
        args = SFTConfig(max_length=4096, per_device_train_batch_size=1)

    Use instead
        args = SFTConfig(max_length=4096, per_device_train_batch_size=1, packing=True)

    When it does not apply
    `packing=False` in a script, which is a choice; configuration files often spell out defaults.
    Samples that are as long as the limit; images; pairs and prompts of preference and reinforcement learning;
    attention that cannot tell packed samples apart (without FlashAttention or position ids). A collate
    function of the program's own, and a packing that is chosen elsewhere, keep the rule silent."""

    code = "RUN025"
    name = "unpacked-sequences"
    level = "info"
    confidence = "medium"
    sources = (
        "TRL documentation, Reducing Memory Usage, Packing: fills sequences up to max_length without padding",
        "torchtune documentation, Sample packing: fewer padded tokens, more tokens per second",
    )
    triggers = ("SFTTrainer", "SFTConfig")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        for loader in context.batches.all:
            packed = loader.fields.get("@packed")
            if packed != FALSE or loader.made is None or not context.concerns(loader.made):
                continue
            option = constant_of(loader.fields.get("@packing"))
            size = constant_of(loader.fields.get("batch_size"))
            how = "Samples are trained on one by one, whatever their length"
            if size != 1:
                many = f"Batches of {size} samples" if isinstance(size, int) else "Batches of samples"
                how = f"{many} are padded to the longest of them"
            yield self.finding(
                context.at(loader.made, loader, "@packed"),
                f"{how}: {option} is off.",
                evidence={"option": option, "batch_size": size},
                effect=Effect(unknown="how long the samples are is not known from the source"),
                fix=Fix(
                    f"Turn {option} on, where attention keeps packed samples apart (FlashAttention does)."
                ),
                identity=str(option),
            )


class CompileOff(SourceRule):
    """torch.compile switched off where a framework offers it for batches of one shape.

    What it does
    Finds `compile` off in torchtune's and torchtitan's configuration files, and `torch_compile=False` beside
    `packing=True` in the arguments of TRL.

    Why it costs
    Norms, activations, rotary embeddings and the loss run kernel by kernel, each reading and writing its
    whole tensor. Compiled, chains of them become one kernel, and where batches have one shape this is
    compiled once.

    Example
        args = SFTConfig(packing=True, torch_compile=False)

    Use instead
        args = SFTConfig(packing=True, torch_compile=True)

    When it does not apply
    Runs of a few minutes, which compiling would lengthen; models with operators that break the graph;
    debugging. Where nothing is said of compiling, the rule is silent."""

    code = "RUN026"
    name = "compile-off"
    level = "info"
    confidence = "medium"
    sources = (
        "torchtune documentation, Performance, torch.compile: faster steps and less memory",
        "PyTorch torch.compile tutorial: pointwise operators are fused",
    )
    triggers = ("torch_compile",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        for loader in context.batches.all:
            if loader.fields.get("@compiled") != FALSE or loader.made is None:
                continue
            if not context.concerns(loader.made):
                continue
            yield self.finding(
                context.at(loader.made, loader, "@compiled"),
                "torch.compile is off for a step that the framework can compile.",
                evidence={"compile": False},
                effect=Effect(
                    unknown="what compiling gains depends on the model, which this file does not show"
                ),
                fix=Fix("Turn it on once the run is longer than a few minutes."),
                identity="compile",
            )

"""A rule on data loaders that read files in the training process."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.questions.defaults import Defaults
from tclint.source.run.values import Constant
from tclint.source.wording import spelled


class NumWorkersZero(SourceRule):
    """A training loader that reads files in the main process.

    What it does
    Finds `DataLoader(...)` without `num_workers`, or with 0, whose batches a program trains on with a GPU,
    where there is work to do for a batch: a torchvision dataset, a Dataset of the project that opens files,
    a `collate_fn` or transform that tokenizes or pads. Of transformers' Trainer it is
    `dataloader_num_workers` of the arguments. A configuration file, which shows no dataset, gets one
    finding where it sets the option to 0, or leaves it out and the framework's default is 0, as that of
    transformers, TRL and LLaMA-Factory is.

    Why it costs
    With `num_workers=0`, the default, the training loop itself reads and decodes every batch while the
    GPU waits. With workers, batches are prepared while the previous one trains.

    Example
        loader = DataLoader(ImageFolder(root, transform), batch_size=64, shuffle=True)

    Use instead
        loader = DataLoader(ImageFolder(root, transform), batch_size=64, shuffle=True, num_workers=8)

    When it does not apply
    Data that lies in memory or on the GPU (TensorDataset), IterableDataset, options that come through
    `**kwargs`, loaders that only evaluate, tests. Configurations of frameworks with another default, or
    one that is not known (axolotl, torchtune, torchtitan, Composer, Lightning).
    """

    code = "RUN006"
    name = "num-workers-zero"
    level = "info"
    confidence = "high"
    sources = (
        "PyTorch Performance Tuning Guide, Enable asynchronous data loading and augmentation: num_workers",
    )
    triggers = ("DataLoader", "TrainingArguments(")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        batches = context.batches
        if not context.devices.program_uses_gpu:
            return
        for loader in batches.trained_on:
            given = loader.fields.get("num_workers")
            # An option counts with its default.
            number = Defaults().constant(given) if given is not None else None
            is_none = number == 0 if given is not None else batches.is_missing(loader, "num_workers")
            work = batches.work_of(loader) if is_none and not batches.is_on_gpu(loader) else ""
            if is_none and context.run.is_configuration:
                work = "collate_fn"  # the script says what it collates
            if not work or loader.made is None or not context.concerns(loader.made):
                continue
            what, option = spelled(context, loader, "num_workers")
            by = "num_workers" if given is not None else "batch_size"
            shown = f"has no {option}" if given is None or what != "DataLoader" else f"has {option}=0"
            shown += "" if given in (None, Constant(0)) else " by default"
            where = "" if batches.is_of_default(loader) else ", where an option chooses it,"
            said = f"`{work}`{where} prepares every batch"
            if context.run.is_configuration:
                shown, said = f"leaves {option} at 0", "every batch is collated"
            yield self.finding(
                context.at(loader.made, loader, by),
                f"This {what} {shown}: {said} in the training process while the GPU waits.",
                evidence={
                    "num_workers": 0,
                    "dataset": work,
                    "function": loader.made.place.function.qualified_name,
                },
                fix=Fix(f"Pass {option}, about as many as CPU cores per GPU."),
                identity=f"{loader.made.place.function.qualified_name}:{work}",
            )

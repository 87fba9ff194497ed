"""Rules on the worker processes of data loaders."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Constant, Event, Finding, Fix, SourceContext, SourceRule, Thing
from tclint.plugin.source import FALSE, Defaults, Loop

_MANY_EPOCHS = 5


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
            is_none = is_none and batches.is_chosen_by_scripts(loader, "num_workers")
            work = batches.work_of(loader) if is_none and not batches.is_on_gpu(loader) else ""
            if is_none and context.run.is_configuration:
                work = "collate_fn"  # the script says what it collates
            if not work or loader.made is None or not context.concerns(loader.made):
                continue
            what, option = context.spelled(loader, "num_workers")
            by = "num_workers" if given is not None else "batch_size"
            settings = context.facts.things(loader.fields.get("@settings"))
            is_stated = what == "DataLoader" or any(
                item.made is not None and option in item.made.arguments for item in settings
            )
            shown = f"has {option}=0" if given is not None and is_stated else f"has no {option}"
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


class WorkersNotKept(SourceRule):
    """A loader whose workers are started anew in every epoch.

    What it does
    Finds `DataLoader(...)` with `num_workers` but without `persistent_workers` that a program iterates over
    in every epoch of training. For transformers' Trainer the option is `dataloader_persistent_workers`.

    Why it costs
    The worker processes end with each pass over the data. The next pass starts them again and waits for
    their first batches. On a busy machine with two cores this added 0.7 s per epoch with four workers and
    1.1 s with eight, for a data set that needs no time to open. The total depends on what the data set opens
    and on how short the epochs are.

    Example
        loader = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=8)
        for epoch in range(100):
            for images, labels in loader:
                ...

    Use instead
        loader = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=8, persistent_workers=True)

    When it does not apply
    Loaders that are made in each epoch or iterated over fewer than five times; an unknown number of workers;
    `persistent_workers=False`; options that come through `**kwargs`; data sets that the program changes
    between epochs, since persistent workers keep their old copies.
    """

    code = "RUN032"
    name = "workers-not-kept"
    level = "info"
    confidence = "medium"
    sources = (
        "PyTorch torch.utils.data, DataLoader: persistent_workers keeps the worker processes and their "
        "copies of the data set after a pass through it",
    )
    triggers = ("DataLoader", "TrainingArguments(")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        for loader in context.batches.trained_on:
            given = loader.fields.get("num_workers")
            workers = Defaults().constant(given) if given is not None else None
            if not isinstance(workers, int) or workers < 1 or loader.made is None:
                continue
            kept = loader.fields.get("persistent_workers")
            is_left = kept == FALSE and "@spelling" in loader.fields
            if not (is_left or context.batches.is_missing(loader, "persistent_workers")):
                continue
            epoch = self._epoch(context, loader)
            if epoch is None or not context.concerns(loader.made):
                continue
            what, option = context.spelled(loader, "persistent_workers")
            yield self.finding(
                context.at(loader.made),
                f"This {what} restarts its {workers} worker{'s' * (workers != 1)} in every epoch.",
                related=(context.also(epoch, "an epoch goes through it here"),),
                evidence={"num_workers": workers},
                fix=Fix(f"Pass {option}=True."),
                identity=f"{loader.made.place.function.qualified_name}:workers",
                group=self.name,
            )

    def _epoch(self, context: SourceContext, loader: Thing) -> Event | None:
        """The event that gives a loader's batches in a loop inside another one that does not make it; None
        if the loader is iterated over once, or if the program changes its data set meanwhile."""
        made = loader.made.loops if loader.made is not None else ()
        outside = {round_.loop for round_ in made}
        for batch in context.record.of("batch"):
            around = [round_.loop for round_ in batch.loops[:-1] if round_.loop not in outside]
            if (
                batch.subject is loader
                and not all(map(self._are_few, around))
                and not self._changes(context, loader, around)
            ):
                return batch
        return None

    def _are_few(self, loop: Loop) -> bool:
        stop = loop.over.fields.get("stop") if isinstance(loop.over, Thing) else None
        count = loop.rounds or Defaults().constant(stop)
        return isinstance(count, int | float) and count < _MANY_EPOCHS

    def _changes(self, context: SourceContext, loader: Thing, loops: list[Loop]) -> bool:
        """Whether a loader's data set gets something new in rounds of some loops."""
        return any(
            (thing.operation is not None and any(thing.operation == ("each", (loop.over,)) for loop in loops))
            or (thing.made is not None and any(round_.loop in loops for round_ in thing.made.loops))
            for data in context.facts.things(loader.fields.get("dataset"))
            for value in data.fields.values()
            for thing in context.facts.within(value)
            if isinstance(thing, Thing)
        )

"""A rule on data sets that copy their samples to the GPU."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Effect, Event, Finding, Fix, SourceContext, SourceRule, distinct
from tclint.plugin.source import TRAINS, Defaults, FunctionValue


class SampleCopies(SourceRule):
    """A data set that copies each sample to the GPU by itself.

    What it does
    Finds copies to the GPU in the `__getitem__` of a Dataset, and in what it calls, whose loader a program
    trains on.

    Why it costs
    A batch of 128 samples takes 128 copies, each of which the CPU starts and waits for, where one copy of
    the collated batch would do. Such a data set also rules out `num_workers`: forked workers cannot use CUDA,
    so that the training loop prepares every batch itself while the GPU waits.

    Example
        def __getitem__(self, index):
            return self.images[index].cuda(), self.labels[index]

    Use instead
        def __getitem__(self, index):
            return self.images[index], self.labels[index]

        loader = DataLoader(dataset, batch_size=128, num_workers=4, pin_memory=True)
        for images, labels in loader:
            images = images.cuda(non_blocking=True)

    When it does not apply
    Data that is on the GPU as a whole before training starts; copies in a `collate_fn`, which are of whole
    batches; batches of one sample.
    """

    code = "RUN034"
    name = "samples-copied-one-by-one"
    level = "info"
    confidence = "high"
    sources = (
        "PyTorch torch.utils.data, Multi-process data loading: returning CUDA tensors from workers is not "
        "recommended; pin memory and copy batches instead",
    )
    triggers = ("DataLoader",)
    program = TRAINS

    def check(self, context: SourceContext) -> Iterator[Finding]:
        for copy in distinct(self._copies(context)):
            function = copy.place.function.qualified_name
            yield self.finding(
                context.at(copy),
                f"`{context.code(copy)}` copies every sample to the GPU by itself, and keeps the loader from "
                "using worker processes.",
                evidence={"function": function},
                effect=Effect(unknown="how large the samples are is not known from the source"),
                fix=Fix(
                    "Return CPU tensors, and copy whole batches in the loop, with pin_memory=True and "
                    "non_blocking=True; then num_workers can prepare them."
                ),
                identity=f"{function}:{context.code(copy)}",
                group=self.name,
            )

    def _copies(self, context: SourceContext) -> Iterator[Event]:
        """The copies that the data sets of training loaders make for each sample of a batch."""
        for loader in context.batches.trained_on:
            if Defaults().constant(loader.fields.get("batch_size")) in (None, 1):
                continue
            datasets = context.facts.things(loader.fields.get("@dataset"))
            getters = [dataset.cls.find("__getitem__") for dataset in datasets if dataset.cls is not None]
            functions = {getter.function for getter in getters if isinstance(getter, FunctionValue)}
            for copy in context.record.of("to", "factory", "convert"):
                is_of_sample = any(place.function in functions for place in copy.places)
                is_to_gpu = "cuda" in context.facts.texts(copy.arguments.get("device"))
                if is_of_sample and is_to_gpu and context.is_shown(copy):
                    yield copy

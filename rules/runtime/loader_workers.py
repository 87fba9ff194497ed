"""A rule on data loaders that read files in the training process."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.names.queries import Called, has_star, is_test_path, keyword, words
from tclint.source.names.readers import NOTHING
from tclint.source.syntax.tables import Call, Collection, Function, Literal, Other, dotted, method_of, render
from tclint.source.training.batch_copies import copies_to_gpu
from tclint.source.training.loaders import datasets_made, feeds_evaluation, loaders_of
from tclint.source.training.trainers import loader_of_lightning, trainers_of_transformers

_FILE_DATASETS = words(
    "ImageFolder DatasetFolder ImageNet CocoDetection CIFAR10 CIFAR100 Places365 STL10 CelebA LSUN "
    "Cityscapes VOCSegmentation VOCDetection Kinetics Food101 MNIST FashionMNIST KMNIST EMNIST SVHN"
)
_OPENS = ("open", "imread", "load", "read_image", "decode_image", "loadmat", "read", "imdecode", "read_video")


class NumWorkersZero(SourceRule):
    """A training loader that reads files in the main process.

    What it does
    Finds `DataLoader(...)` without `num_workers`, or with 0, in a file that trains on CUDA, or that hands it
    to a Trainer of Lightning on a GPU (`train_dataloader`, an argument of `fit`), where there is work to do
    for a batch: a torchvision dataset of images, a Dataset of the project that opens files, or a
    `collate_fn` that tokenizes or, of a library, pads. `TrainingArguments` of transformers without
    `dataloader_num_workers`, where such a Dataset is trained on, or one with `set_transform`.

    Why it costs
    With `num_workers=0`, the default, the training loop itself reads and decodes every batch while the
    GPU waits. With workers, batches are prepared while the previous one trains.

    Example
        loader = DataLoader(ImageFolder(root, transform), batch_size=64, shuffle=True)

    Use instead
        loader = DataLoader(ImageFolder(root, transform), batch_size=64, shuffle=True, num_workers=8)

    When it does not apply
    Data that lies in memory or on the GPU (TensorDataset), IterableDataset, options that come through
    `**kwargs`, evaluation loaders, tests.
    """

    code = "RUN006"
    name = "num-workers-zero"
    level = "info"
    confidence = "high"
    sources = (
        "PyTorch Performance Tuning Guide, Enable asynchronous data loading and augmentation: num_workers",
    )
    triggers = ("DataLoader", "TrainingArguments(")
    pattern = re.compile(rb"\.backward\(|def train_dataloader|\.fit\(|\.train\(")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        if is_test_path(context.path):
            return
        yield from self._by_transformers(context)
        if not context.on_gpu:
            return
        for loader in loaders_of(context):
            if has_star(loader.call) or feeds_evaluation(context, loader):
                continue
            handed = loader_of_lightning(context, loader)
            if not program.trainings and not handed:
                continue
            workers = keyword(loader.call, "num_workers", 5)
            if workers is not None and workers != Literal(0):
                continue
            source = _reads_files(context, loader, bool(handed)) or _collates(context, loader)
            if not source:
                continue
            shown = "has no num_workers" if workers is None else "has num_workers=0"
            yield self.finding(
                context.location(loader.call.node_id),
                f"This DataLoader {shown}: `{source}` prepares every batch in the training process while the "
                "GPU waits.",
                evidence={"num_workers": 0, "dataset": source, "function": loader.function.qualified_name},
                fix=Fix("Pass num_workers, about as many as CPU cores per GPU."),
                identity=f"{loader.function.qualified_name}:{source}",
            )

    def _by_transformers(self, context: SourceContext) -> Iterator[Finding]:
        for trainer, stated, _ in trainers_of_transformers(context):
            dataset = keyword(trainer.call, "train_dataset")
            source = _transformed(context) or _prepares(
                context, datasets_made(context, trainer.function, dataset)
            )
            if not source or keyword(stated.call, "dataloader_num_workers") is not None:
                continue
            yield self.finding(
                context.location(stated.call.node_id),
                f"This {stated.qualified.rpartition('.')[2]} has no dataloader_num_workers: `{source}` "
                "prepares every batch in the training process while the GPU waits.",
                evidence={"num_workers": 0, "dataset": source, "function": stated.function.qualified_name},
                fix=Fix("Pass dataloader_num_workers, about as many as CPU cores per GPU."),
                identity=f"{stated.function.qualified_name}:{source}",
            )


def _transformed(context: SourceContext) -> str:
    """What `dataset.set_transform(function)` runs for every batch of the file's datasets; '' without any."""
    for _, event, _ in context.program.methods("set_transform", "with_transform"):
        name = dotted(keyword(event.call, "transform", 0) or NOTHING)
        if name:
            return name
    return ""


def _collates(context: SourceContext, loader: Called) -> str:
    """The `collate_fn` that tokenizes, or a library's collator that pads; '' where none is seen to."""
    given = keyword(loader.call, "collate_fn", 6)
    dataset = dotted(keyword(loader.call, "dataset", 0) or NOTHING)
    made = [value for _, value in context.resolver.origins_of(loader.function, dataset)] if dataset else []
    if given is None or any(isinstance(value, Collection | Other) for value in made):
        return ""  # a list in memory, perhaps of tensors on the GPU
    for _, value in context.resolver.origins_of(loader.function, dotted(given)) if dotted(given) else ():
        if isinstance(value, Call) and "collator" in render(value.function).lower():
            return render(value.function).rpartition(".")[2]
    for where, function in context.definitions_of(loader.function, given):
        calls = [event.call for event in function.calls]
        if any("tokenizer" in render(call.function).lower() for call in calls):
            return "" if any(copies_to_gpu(where, function, call) for call in calls) else function.name
    return ""


def _reads_files(context: SourceContext, loader: Called, in_parts: bool) -> str:
    """A dataset of torchvision, or of the project, that opens files for every item; '' where none is seen.

    Args:
        in_parts: what `random_split` makes of a dataset counts as well.
    """
    dataset = keyword(loader.call, "dataset", 0)
    return _prepares(context, datasets_made(context, loader.function, dataset, 3 if in_parts else 0))


def _prepares(context: SourceContext, made: list[tuple[Function, Call]]) -> str:
    for scope, call in made:
        for name in context.resolver.called(scope, call):
            if name.startswith("torchvision.datasets.") and name.rpartition(".")[2] in _FILE_DATASETS:
                return name.rpartition(".")[2]
        for where, maker in context.definitions_of(scope, call.function, (b"__getitem__",)):
            if maker.kind != "class" or any("Iterable" in render(base) for base in maker.bases):
                continue
            for member in where.values.members(maker):
                opened = (method_of(event.call)[1] in _OPENS for event in member.calls)
                if member.name == "__getitem__" and any(opened):
                    return maker.name
    return ""

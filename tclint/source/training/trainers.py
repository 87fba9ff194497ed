"""Trainers of frameworks, which run the loop themselves: where one trains on a GPU in float32 by default."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import NamedTuple

from tclint.source.context import SourceContext
from tclint.source.facts.program import Training
from tclint.source.names.frameworks import names
from tclint.source.names.queries import Called, has_star, inner_model, keyword, words
from tclint.source.names.readers import NOTHING
from tclint.source.names.requirements import may_run
from tclint.source.names.resolve import Possible
from tclint.source.syntax.tables import Call, Expression, Function, Name, dotted, method_of, render
from tclint.source.training.loaders import targets_of
from tclint.source.training.trained_layers import Parts, parts_of_model, trained_parts

_TRAINERS = ("transformers.Trainer", "transformers.Seq2SeqTrainer", "trl.SFTTrainer")
_ARGUMENTS = ("transformers.TrainingArguments", "transformers.Seq2SeqTrainingArguments")
"""Not TRL's SFTConfig: it turns bf16 on by itself (trl/trainer/sft_config.py)."""
_PACKAGES = ("lightning", "lightning.pytorch", "pytorch_lightning", "lightning.fabric", "lightning_fabric")
LIGHTNING = tuple(f"{package}.{name}" for package in _PACKAGES for name in ("Trainer", "Fabric"))

_ONLY_BEFORE_5 = words("evaluation_strategy overwrite_output_dir no_cuda tokenizer")
"""Arguments that TrainingArguments and Trainer of transformers 5 refuse. Before it, from_pretrained loads
float32 whatever is stored; since then, what is stored (transformers/modeling_utils.py, `_get_dtype`)."""
_CHOOSES_DTYPE = words("dtype torch_dtype quantization_config load_in_4bit load_in_8bit")
_NOT_ON_GPU = words("use_cpu no_cuda use_mps_device mps xla tpu")
_SHARDED = re.compile(r"deepspeed|fsdp|xla|colossal", re.IGNORECASE)
"""Strategies whose own configuration chooses the precision."""

_NO_FUSED = ("gradient_clip", "clip_gradients", "deepspeed", "fsdp", "FSDP", "DeepSpeed")
"""What clips gradients, or shards the optimizer."""
_FROM_OUTSIDE = ("LightningCLI(", "hydra", "from_argparse_args")
"""What lets a command line or a configuration do so."""

_LAUNCHED = re.compile(
    rb"accelerate(\.commands\.|\s+)launch|mixed_precision|deepspeed|(fabric|lightning) run"
    rb"|--(bf16|fp16|tf32)\b"
)
"""Ways to choose the precision from outside: accelerate sets ACCELERATE_MIXED_PRECISION, Fabric's command
LT_PRECISION."""


class InFloat32(NamedTuple):
    """A training whose precision nobody has chosen, so that it runs in float32."""

    name: str
    """'TrainingArguments', 'Trainer', 'Fabric'; 'loop' of one that no framework runs."""
    call: Call
    """What would choose the precision; of a loop, its backward."""
    function: Function
    shown: tuple[int, str]
    """Node id of what shows that it trains, and what to say of it."""
    parts: Parts

    @classmethod
    def of_loop(cls, training: Training, parts: Parts) -> InFloat32:
        shown = (training.step.call.node_id, "the optimizer steps here: this file trains")
        return cls("loop", training.backward.call, training.function, shown, parts)

    @classmethod
    def stated(cls, made: Called, starts: int, parts: Parts) -> InFloat32:
        name = made.qualified.rpartition(".")[2]
        return cls(name, made.call, made.function, (starts, "it trains here"), parts)


def trainings_in_float32(context: SourceContext) -> list[InFloat32]:
    """Trainings by a framework on a GPU that say nothing of precision, in the order of the file."""
    return context.once(_trainings_in_float32)


def _trainings_in_float32(context: SourceContext) -> list[InFloat32]:
    if _NOT_ON_GPU & context.tables.identifiers:
        return []
    found = [*_of_transformers(context), *_of_lightning(context), *_of_fabric(context)]
    return found if found and not context.neighbours.scripts_match(_LAUNCHED) else []


def on_gpu_by_lightning(context: SourceContext) -> bool:
    """A Trainer or Fabric of Lightning that may run on a GPU, in this file or in one that runs with it."""
    if any(_on_gpu(context, made) for made in context.program.calls(*LIGHTNING)):
        return True
    if not context.neighbours.known:
        return False
    quoted = (f"{quote}{name}{quote}" for name in ("gpu", "cuda", "auto") for quote in "'\"")
    return context.neighbours.mention((*(f"accelerator={name}" for name in quoted), "gpus=")) is not None


# -- transformers


def trainers_of_transformers(context: SourceContext) -> Iterator[tuple[Called, Called, int]]:
    """Trainers that the file starts, the call that makes their arguments, all of which it writes, and the
    node id of `trainer.train()`."""
    for trainer, starts in _started(context, _trainers_of_transformers(context), "train"):
        made = _made_by(context, trainer.function, keyword(trainer.call, "args", 1))
        for scope, written in made if len(made) == 1 else ():
            stated = context.resolver.spread(scope, written)
            named = [name for name in context.resolver.called(scope, stated) if name in _ARGUMENTS]
            if named and not has_star(stated):
                yield trainer, Called(named[0], stated, scope, 0, 0), starts


def _of_transformers(context: SourceContext) -> Iterator[InFloat32]:
    for trainer, stated, starts in trainers_of_transformers(context):
        model = _made_by(context, trainer.function, keyword(trainer.call, "model", 0))
        trained = parts_of_model(context, *model[0]) if len(model) == 1 else None
        given = {argument.keyword for argument in (*trainer.call.arguments, *stated.call.arguments)}
        if trained and trained.layers and loads_float32(trained, bool(given & _ONLY_BEFORE_5)):
            yield InFloat32.stated(stated, starts, trained)


def _trainers_of_transformers(context: SourceContext) -> Iterator[Called]:
    """Calls of a Trainer, or of a class of the file that derives from one."""
    yield from context.program.calls(*_TRAINERS)
    for owner in context.tables.functions:
        bases = (dotted(base) for base in owner.bases)
        names = (name for base in bases if base for name in context.resolver.qualified(owner, base))
        if owner.kind == "class" and any(name in _TRAINERS for name in names):
            for function, event in context.resolver.callers.get(owner.index, ()):
                yield Called(owner.name, event.call, function, event.block, 0)


def loads_float32(trained: Parts, before_5: bool = False) -> bool:
    """Every checkpoint that the model is loaded from becomes float32 parameters.

    Args:
        before_5: the file does not run with transformers 5.
    """
    return all(_becomes_float32(*loaded, before_5) for loaded in trained.checkpoints)


def _becomes_float32(context: SourceContext, function: Function, call: Call, before_5: bool) -> bool:
    given = {argument.keyword for argument in call.arguments}
    if given & _CHOOSES_DTYPE or has_star(call) or render(call.function).endswith("from_config"):
        return False
    name = keyword(call, "pretrained_model_name_or_path", 0)
    possible = context.resolver.evaluate(function, name) if name is not None else Possible((), False)
    stored = possible.complete and all(
        isinstance(value, str) and any(fnmatchcase(value, pattern) for pattern in names().float32_checkpoints)
        for value in possible.values
    )
    # transformers had an AdamW of its own until 4.
    return (
        before_5
        or stored
        or not may_run(context.path, (5,), "transformers")
        or any(item.qualified == "transformers.AdamW" for item in context.tables.module.imports)
    )


# -- Lightning


def _of_lightning(context: SourceContext) -> Iterator[InFloat32]:
    made = [call for call in context.program.calls(*LIGHTNING) if call.qualified.endswith(".Trainer")]
    for trainer, starts in _started(context, made, "fit"):
        if not _is_default(context, trainer) or not _on_gpu(context, trainer):
            continue
        models = [parts_of_model(context, *made) for made in _fitted(context, starts)]
        if models and all(trained.layers and loads_float32(trained) for trained in models):
            yield InFloat32.stated(trainer, starts, models[0])


def _of_fabric(context: SourceContext) -> Iterator[InFloat32]:
    """Loops of the file's own, in which Fabric goes backward."""
    training = next(iter(context.program.trainings), None)
    for made in context.program.calls(*LIGHTNING) if training is not None else ():
        assert training is not None
        if not made.qualified.endswith(".Fabric") or not _is_default(context, made, 4):
            continue
        trained = trained_parts(context)
        if _on_gpu(context, made) and trained.layers and loads_float32(trained):
            yield InFloat32.stated(made, training.backward.call.node_id, trained)


def _is_default(context: SourceContext, made: Called, position: int = -1) -> bool:
    """The call chooses no precision: neither itself, nor by a plugin, nor by a strategy's configuration."""
    call = context.resolver.spread(made.function, made.call)
    if has_star(call) or keyword(call, "plugins") is not None or keyword(call, "amp_backend") is not None:
        return False
    strategy = keyword(call, "strategy")
    if strategy is not None and not isinstance(strategy, Call):
        values = context.resolver.evaluate(made.function, strategy).values
        if not values or any(_SHARDED.search(str(value)) for value in values):
            return False
    elif strategy is not None and _SHARDED.search(render(strategy)):
        return False
    return keyword(call, "precision", position) is None


def _on_gpu(context: SourceContext, made: Called) -> bool:
    """By its own arguments; without any, Lightning 2, whose default is "auto", is taken for granted only of
    the package that came with it."""
    gpus, accelerator = keyword(made.call, "gpus"), keyword(made.call, "accelerator")
    if gpus is not None:
        return any(context.resolver.evaluate(made.function, gpus).values)
    if accelerator is None:
        return made.qualified.startswith("lightning.")
    return not {"gpu", "cuda", "auto"}.isdisjoint(
        str(value) for value in context.resolver.evaluate(made.function, accelerator).values
    )


# -- what they have in common


def _started(context: SourceContext, trainers: Iterable[Called], method: str) -> Iterator[tuple[Called, int]]:
    """The trainers of which the file calls a method, and the node id of its first call."""
    wanted = list(trainers)
    calls = [
        (event.call.node_id, made.node_id)
        for function, event, _ in (context.program.methods(method) if wanted else ())
        for _, made in _made_by(context, function, method_of(event.call)[0])
    ]
    for trainer in wanted:
        started = [call for call, made in calls if made == trainer.call.node_id]
        if started:
            yield trainer, started[0]


def _fitted(context: SourceContext, starts: int) -> list[tuple[Function, Call]]:
    """The calls that make the model of `trainer.fit(model)`, but for those that load what was trained."""
    for function, event, _ in context.program.methods("fit"):
        if event.call.node_id == starts:
            made = _made_by(context, function, keyword(event.call, "model", 0))
            return [item for item in made if method_of(item[1])[1] != "load_from_checkpoint"]
    return []


def _made_by(
    context: SourceContext, function: Function, value: Expression | None
) -> list[tuple[Function, Call]]:
    """The calls that make a value, all of them; nothing where it can be something else."""
    if isinstance(value, Call):
        return [(function, value)]
    origins = list(context.resolver.origins_of(function, dotted(value))) if value is not None else []
    made = [(scope, origin) for scope, origin in origins if isinstance(origin, Call)]
    if len(made) < len(origins):
        return []
    # `model = model.to(device)` is the same model.
    return [item for item in made if not isinstance(inner_model(item[1]), Name)]


# -- what Lightning runs of a program


def optimizer_of_lightning(context: SourceContext, called: Called) -> bool:
    """An optimizer that `configure_optimizers` makes for a GPU, where nothing clips gradients or shards them:
    Lightning refuses to clip those of a fused optimizer in float16 (plugins/precision/amp.py)."""
    if not any(
        owner.name == "configure_optimizers" for owner in context.program.outer_functions(called.function)
    ):
        return False
    if context.program.speaks_of("deepspeed", "fsdp") or not on_gpu_by_lightning(context):
        return False
    trainers = context.program.calls(*LIGHTNING)
    no_scaler = trainers and all(_is_default(context, made) for made in trainers)
    if not no_scaler and context.program.speaks_of("gradient_clip", "clip_gradients"):
        return False
    return context.neighbours.mention((*_NO_FUSED, *_FROM_OUTSIDE)) is None


def loader_of_lightning(context: SourceContext, loader: Called) -> str:
    """What hands a loader to a Trainer on a GPU, which copies its batches there: 'train_dataloader' or 'fit';
    '' where nothing is seen to."""
    function, name = loader.function, ""
    owner = context.tables.class_of(function)
    if owner is not None and any("Lightning" in render(base) for base in owner.bases):
        name = function.name if function.name == "train_dataloader" else ""
    for event in function.calls if not name else ():
        receiver, method = method_of(event.call)
        given = dotted(keyword(event.call, "train_dataloaders", 1) or NOTHING)
        if method == "fit" and given in targets_of(loader):
            made = _made_by(context, function, receiver)
            if any(set(context.resolver.called(scope, call)) & set(LIGHTNING) for scope, call in made):
                name = "fit"
    return name if name and on_gpu_by_lightning(context) else ""

"""Finds trainings on a GPU that compute in float32 because nobody chose another precision."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from typing import NamedTuple

from tclint.source.project.launchers import CHOOSE_PRECISION, command_with, launcher_with
from tclint.source.project.requirements import may_run
from tclint.source.questions.defaults import Defaults, constants_in
from tclint.source.questions.devices import Devices
from tclint.source.questions.networks import Networks
from tclint.source.questions.precision.autocasts import Autocasts
from tclint.source.questions.steps import Steps
from tclint.source.run.facts import Facts
from tclint.source.run.files import File
from tclint.source.run.values import (
    FALSE,
    NONE,
    Constant,
    Event,
    Region,
    Symbol,
    Thing,
    Value,
    constants_of,
    modules_in,
    options_of,
)
from tclint.source.syntax.tables import CallEvent, dotted

_SMALL_FEATURES = 256
"""A matrix product whose sides are all smaller runs in a few microseconds whatever its precision."""
_SMALL_FEATURES_WITH_CASTS = 512
"""The same limit under autocast, which launches a kernel for every cast. This project predicts, for three
layers and 256 samples on an A100: with 256 features a step takes 125 us instead of 96, with 512 as long as
before, with 1024 two thirds."""
_SMALL_CHANNELS = 64
_LINEAR_PER_CONVOLUTION = 4
"""From this many linear layers per convolution on, they are most of the work, as in vision transformers; the
few at the end of a convolutional network are little of it (a choice of this project)."""
_CONVOLVES = "torch.nn.functional.conv"
_ATTENTION = ("MultiheadAttention", "Transformer")
_CONVOLUTIONAL = re.compile(r"ResNet|ConvN|RegNet|EfficientNet|MobileNet|PoolFormer|MobileViT|Bit(Model|For)")
"""Names of convolutional models in transformers, whose convolutions cuDNN runs in TF32 by default."""
_SIXTEEN_BITS = frozenset({Symbol("torch.float16"), Symbol("torch.bfloat16")})
_MIXED = frozenset({"autocast", "GradScaler"})
"""Names of torch that show mixed precision even in code that a setting keeps from running."""
_ONLY_BEFORE_5 = frozenset({"evaluation_strategy", "overwrite_output_dir", "no_cuda", "tokenizer"})
"""Arguments that TrainingArguments and Trainer of transformers 5 reject. Before version 5, from_pretrained
loads float32 whatever dtype is stored; since then it keeps the stored dtype (transformers/modeling_utils.py,
`_get_dtype`)."""
_OF_4 = frozenset({"transformers.AdamW", "transformers.optimization.AdamW"})

_OTHER_WAYS = ("deepspeed", "mixed_precision")
"""What commands say that choose a precision otherwise than by an option of the program. `accelerate launch`
does, by the machine's configuration, where the program names none."""
_NAMES = (False, 32, "no", "32", "32-true", "32-full", "fp32", "float32")
"""The values with which frameworks denote float32."""


class Training(NamedTuple):
    """A training in float32."""

    backward: Event
    step: Event
    """The step of an optimizer."""
    scaler: Thing | None
    """The disabled scaler of the framework that runs the training; its fields hold the framework's
    settings."""
    settings: Thing | None
    layers: str
    """The layers that mixed precision speeds up; '' if there are none."""
    products: str
    """The layers that need TF32 switched on; '' if there are none."""

    @property
    def name(self) -> str:
        """'TrainingArguments', 'Trainer', 'Fabric'; 'loop' if no framework runs the training."""
        cls = self.settings.cls if self.settings is not None else None
        return cls.function.name if cls is not None else "loop"

    @property
    def shown(self) -> tuple[Event, str]:
        """The event that shows that it trains, and a sentence about it."""
        if self.settings is None:
            return self.step, "the optimizer steps here: this file trains"
        return self.backward, "it trains here"

    @property
    def event(self) -> Event:
        """The event that would choose the precision; for a loop of the program's own its backward pass."""
        made = self.settings.made if self.settings is not None else None
        return made or self.backward


class Doubt(NamedTuple):
    """Why a training may not compute in float32, or gains nothing by another precision."""

    why: str
    """The end of a sentence: 'it ...'."""
    shown: Event | None = None
    """The event that shows it."""


class Float32:
    """Answers about one program."""

    def __init__(
        self,
        autocasts: Autocasts,
        devices: Devices,
        networks: Networks,
        steps: Steps,
        files: Sequence[File],
        is_configuration: bool = False,
        defaults: Defaults | None = None,
    ) -> None:
        self.facts: Facts = autocasts.facts
        self.record = self.facts.record
        self.autocasts = autocasts
        self.devices = devices
        self.networks = networks
        self.steps = steps
        self.files = files
        self.is_configuration = is_configuration
        self.defaults = defaults
        """Given: options count with their defaults."""

    @cached_property
    def trainings(self) -> list[Training]:
        """The trainings whose layers are large enough to gain by another precision, in order."""
        return [training for training in self._all if not _launcher_of(training)]

    @cached_property
    def launched(self) -> list[tuple[Training, str]]:
        """Those of frameworks whose precision something beside the program may choose when it starts it, and
        the path of that."""
        return [(training, path) for training in self._all if (path := _launcher_of(training))]

    @cached_property
    def optional(self) -> list[tuple[Training, str]]:
        """The trainings that are in float32 by default, each with the option of the command line that turns
        mixed precision on and that no command beside the program passes."""
        found = []
        for training in self._all:
            flags = [name for name in self._deciding(training) if name.startswith("-")]
            path = training.event.places[0].file.path
            ways = _OTHER_WAYS if self._names_precision(training) else (*_OTHER_WAYS, "accelerate launch")
            if flags and not command_with(path, (*flags, *ways)):
                found.append((training, flags[0]))
        return found

    def _names_precision(self, training: Training) -> bool:
        """Whether the default is a name, such as 'no', which launchers do not replace."""
        chosen = training.scaler.fields.get("@precision") if training.scaler is not None else None
        return isinstance(Defaults().constant(chosen), str)

    def _deciding(self, training: Training) -> list[str]:
        """The options whose defaults keep mixed precision off."""
        defaults = Defaults()
        for event in self.record.of("make"):
            for kind in ("autocast", "scaler"):
                for made in self.facts.kinds(event.result, kind):
                    defaults.truth(made.fields.get("enabled"))
                    for atom in event.path:
                        if Defaults().holds(atom) is False:
                            defaults.holds(atom)
        if training.scaler is not None:
            defaults.value(training.scaler.fields.get("@precision"))
        return list(defaults.named)

    def _may_be_on(self, made: Thing) -> bool:
        """Whether an autocast or a scaler may be enabled."""
        if self.facts.is_on(made) is False:
            return False
        if self.defaults is None:
            return True
        is_made = made.made is None or self.defaults.follows(made.made.path) is not False
        return is_made and self.defaults.truth(made.fields.get("enabled")) is not False

    def _happens(self, event: Event) -> bool:
        return self.defaults is None or self.defaults.follows(event.path) is not False

    @cached_property
    def _all(self) -> list[Training]:
        if self.is_configuration:
            return []
        return [training for _, training in self._judged if isinstance(training, Training)]

    @cached_property
    def _judged(self) -> list[tuple[Event, Training | Doubt]]:
        """Each backward pass with its training, or with why that is not known to be one in float32."""
        alone = Doubt("belongs to no step of an optimizer that tclint knows of")
        return [
            (backward, self._chosen or (self._training(backward, step.steps[0]) if step.steps else alone))
            for step in self.steps.all
            for backward in step.backwards
        ] + [
            (backward, self._chosen or Doubt("runs once, or on the same data in every round"))
            for backward in self.steps.unrepeated
        ]

    @property
    def doubtful(self) -> Iterator[tuple[Event, Doubt]]:
        """The backward passes, and the events that give a framework its settings, of trainings that are not
        known to be in float32, each with the reason."""
        for backward, doubt in self._judged:
            if isinstance(doubt, Doubt):
                yield backward, doubt
                for scaler in self.facts.scalers_of(self.facts.loss_of(backward)):
                    for settings in self.facts.things(scaler.fields.get("@settings")):
                        if settings.made is not None:
                            yield settings.made, doubt

    @cached_property
    def stated(self) -> list[tuple[Event, Thing]]:
        """The frameworks' scalers that a configuration file leaves off together with autocast, because it
        names float32 or the framework's default is float32."""
        if not self.is_configuration:
            return []
        found = [
            (event, scaler)
            for event in self.record.of("make")
            for scaler in self.facts.kinds(event.result, "scaler")
            if "@precision" in scaler.fields
        ]
        contexts = [
            made
            for event in self.record.of("make")
            for kind in ("autocast", "scaler")
            for made in self.facts.kinds(event.result, kind)
        ]
        modules = [
            made for event in self.record.of("make") for made in self.facts.kinds(event.result, "module")
        ]
        if any(self.facts.is_on(made) is not False for made in contexts):
            return []
        return [
            (event, scaler)
            for event, scaler in found
            if self._names_float32(scaler, modules) and not _is_on_cpu(scaler, self.facts)
        ]

    def _names_float32(self, scaler: Thing, modules: list[Thing]) -> bool:
        """Whether a scaler's framework is sure to compute in float32; without a choice, transformers computes
        in the dtype that a checkpoint stores."""
        named = scaler.fields["@precision"]
        is_named = isinstance(named, Constant) and any(named == Constant(name) for name in _NAMES)
        if "@stored" in scaler.fields:
            return (is_named or named == NONE) and all(
                module.fields.get("@dtype") == Symbol("torch.float32") for module in modules
            )
        return is_named or named == NONE

    @cached_property
    def _chosen(self) -> Doubt | None:
        """What chooses another precision anywhere in the program, or could by a setting that is off."""
        for event in self.record.events:
            kinds = ("autocast", "scaler") if event.kind == "make" else ()
            contexts = [made for kind in kinds for made in self.facts.kinds(event.result, kind)]
            if any(map(self._may_be_on, contexts)):
                return Doubt("is in a program that uses mixed precision", event)
            if self.defaults is not None and contexts:
                continue  # the dtype of an autocast that is off
            if event.place.file.is_library or not self._happens(event):
                continue
            if not _SIXTEEN_BITS.isdisjoint(event.arguments.values()):
                return Doubt("is in a program that computes in 16 bits", event)
            is_float64 = Symbol("torch.float64") in event.arguments.values()
            if is_float64 and (event.kind == "default_dtype" or self.facts.kinds(event.subject, "module")):
                return Doubt("is in a program that computes in float64", event)
        named = next((file for file in self.files if not _MIXED.isdisjoint(file.tables.identifiers)), None)
        if named is not None and not self._is_off and self.defaults is None:
            file = os.path.basename(named.path)
            return Doubt(f"is in a program that names autocast or GradScaler, in {file}")
        return None

    @cached_property
    def _is_off(self) -> bool:
        """Whether all that the files say of mixed precision is calls that run and switch it off for good."""
        off = {
            (event.place.file, event.place.node_id)
            for event in self.record.of("make")
            for kind in ("autocast", "scaler")
            for made in self.facts.kinds(event.result, kind)
            if made.fields.get("enabled") == FALSE
        }
        named = [
            (file, item.node_id)
            for file in self.files
            for function in file.tables.functions
            for event in function.events
            if isinstance(event, CallEvent)
            for item in [event.call]
            if dotted(item.function).rpartition(".")[2] in _MIXED
        ]
        return bool(named) and off.issuperset(named)

    def _training(self, backward: Event, step: Event) -> Training | Doubt:
        loss = self.facts.loss_of(backward)
        scalers = [
            scaler
            for scaler in self.facts.scalers_of(loss)
            if "@settings" in scaler.fields or self._may_be_on(scaler)
        ]
        settings: Thing | None = None
        for scaler in scalers:
            settings = next(self.facts.things(scaler.fields.get("@settings")), None)
            if settings is None or not self._is_left(scaler.fields.get("@precision")):
                return Doubt("is given a precision, or may be", scaler.made)
        if not self.devices.is_in_program_for_gpus(loss):
            return Doubt("is not known to run on a GPU")
        if settings is not None and settings.made is None:
            return Doubt("gets settings that are made where tclint cannot see it")
        if self._is_numerical(backward):
            return Doubt("is in a file that imports a package for numerical work or tiny networks")
        forwards: dict[Thing, Event] = {}
        regions: set[Region] = set()
        for made in filter(self._happens, self.autocasts.differentiated(loss)):
            for event in (made, *made.around):
                regions.update(event.regions)
                for part in self.facts.kinds(event.subject, "module") if event.kind == "forward" else ():
                    forwards.setdefault(part, event)
        if choosing := next(filter(self._may_choose, regions), None):
            return Doubt("runs in a context that may choose a precision", choosing.entered)
        trained = (part for part, event in forwards.items() if self.networks.is_trained(part, event))
        modules = dict.fromkeys(item for part in trained for item in modules_in(part))
        if other := next((item for item in modules if not self.is_float32(item)), None):
            return Doubt("trains weights that are not known to be float32", other.made)
        products = self._products(list(modules), _SMALL_FEATURES)
        layers = self._products(list(modules), _SMALL_FEATURES_WITH_CASTS) or self._others(
            list(modules), loss
        )
        if not products and not layers:
            return Doubt(
                "trains no layers that are known to be large enough to gain"
                if modules
                else "leads to no network whose layers tclint knows"
            )
        managed = scalers[0] if scalers else None
        return Training(backward, step, managed, settings, layers, products)

    def _is_left(self, precision: Value | None) -> bool:
        """Whether nobody chose a framework's precision, or an option whose default is float32 does."""
        if precision == NONE or self.defaults is None:
            return precision == NONE
        chosen = self.defaults.value(precision)
        return isinstance(chosen, Constant) and (chosen == NONE or chosen.value in _NAMES)

    def _is_numerical(self, backward: Event) -> bool:
        """Whether the file of a backward pass uses packages for numerical work or tiny networks."""
        science = self.facts.library.science
        file = next(place.file for place in reversed(backward.places) if not place.file.is_library)
        imports = (item for function in file.tables.functions for item in function.imports)
        return any(item.qualified.partition(".")[0] in science for item in imports)

    def _may_choose(self, region: Region) -> bool:
        """Whether a context may choose a precision: it is an autocast that may be enabled, or unknown."""
        for context in self.facts.things(region.context):
            made = context.made.name if context.made is not None else ""
            if context.kind == "autocast" and self._may_be_on(context):
                return True
            package = made.partition(".")[0]
            if context.is_unknown and package not in ("builtins", "torch", *sys.stdlib_module_names):
                return True
        return False

    # -- layers

    def _products(self, modules: list[Thing], least: int) -> str:
        """The linear and attention layers with a side of at least `least` features, or a library's
        transformer; '' if they are few or small."""
        for module in modules:
            name = _of_transformers(module)
            if name and not _CONVOLUTIONAL.search(name):
                return f"`{name}`"
        for module in modules:
            kind = self.networks.flow.kind(module)
            if kind.startswith(_ATTENTION) and self._is_large([module], least, "d_model", "embed_dim"):
                return f"`{kind}`"
        return self._linears(modules, _LINEAR_PER_CONVOLUTION * len(self._convolutions(modules)), least)

    def _linears(self, modules: list[Thing], count: int, least: int) -> str:
        """The linear layers if there are at least `count`; '' if there are fewer or they are small."""
        linears = [module for module in modules if self.networks.flow.kind(module) == "Linear"]
        is_large = self._is_large(linears, least, "in_features", "out_features")
        return f"{len(linears)} linear layers" if is_large and len(linears) >= max(2, count) else ""

    def _others(self, modules: list[Thing], loss: Value | None) -> str:
        """The convolutions, or a library's network."""
        for module in modules:
            name = _of_transformers(module) or self.networks.library_name(module)[0]
            if name:
                return f"`{name}`"
        found = self._convolutions(modules)
        is_large = self._is_large(found, _SMALL_CHANNELS, "in_channels", "out_channels")
        if found or not modules:
            return (
                self.networks.flow.kind(found[0])
                if is_large
                else self._linears(modules, 2, _SMALL_FEATURES_WITH_CASTS)
            )
        names = (made.name for made in self.autocasts.differentiated(loss))
        return next((name.rpartition(".")[2] for name in names if name.startswith(_CONVOLVES)), "")

    def _convolutions(self, modules: list[Thing]) -> list[Thing]:
        return [module for module in modules if "Conv" in self.networks.flow.kind(module)]

    def _is_large(self, modules: list[Thing], least: int, *names: str) -> bool:
        """Whether a layer of these classes has a side of at least `least` features, or sides of unknown
        size."""
        for module in modules:
            sides = (self.networks.flow.argument(module, name) for name in names)
            # An option counts with its default.
            values = [item.value for side in sides if side is not None for item in constants_in(side)]
            sizes = [value for value in values if isinstance(value, int)]
            if max(sizes, default=least) >= least:
                return True
        return False

    # -- checkpoints

    def is_float32(self, module: Thing) -> bool:
        """Whether the parameters of a module are float32. Those of a loaded model are if they are stored so,
        or if the library converts everything to it: diffusers, and transformers before version 5."""
        if module.fields.get("@dtype", NONE) != NONE or module.fields.get("@quantized", NONE) != NONE:
            return module.fields.get("@dtype") == Symbol("torch.float32")
        if module.made is None or not module.made.name.endswith(".from_pretrained"):
            return True
        if module.made.name.startswith("diffusers."):
            return True
        names = constants_of(module.made.arguments.get("name", Thing()))
        patterns = self.facts.library.float32_checkpoints
        stored = names is not None and all(
            any(fnmatchcase(str(name), pattern) for pattern in patterns) for name in names
        )
        return stored or self._is_before_transformers_5(module.made)

    def _is_before_transformers_5(self, event: Event) -> bool:
        return not may_run(event.place.file.path, (5,), "transformers") or any(
            made.name in _OF_4
            or (not _ONLY_BEFORE_5.isdisjoint(made.arguments) and self._is_of_transformers(made))
            for made in self.record.of("make")
        )

    def _is_of_transformers(self, made: Event) -> bool:
        """Whether the event makes an object of a class of transformers or of one derived from it."""
        return any(
            item.file.is_library and item.file.name == "transformers"
            for thing in self.facts.things(made.result)
            for item in (thing.cls.lineage() if thing.cls is not None else ())
        )


def _is_on_cpu(scaler: Thing, facts: Facts) -> bool:
    """Whether the settings of a scaler's framework may choose a device other than a GPU."""
    return any(
        option != Constant("cuda")
        for settings in facts.things(scaler.fields.get("@settings"))
        for name in ("device", "root_device")
        for option, _ in (options_of(settings.fields[name]) if name in settings.fields else ())
    )


def _launcher_of(training: Training) -> str:
    """What beside a file chooses the precision of a framework when it starts the program; ''."""
    made = training.settings.made if training.settings is not None else None
    return launcher_with(made.place.file.path, CHOOSE_PRECISION) if made is not None else ""


def _of_transformers(module: Thing) -> str:
    """The transformers class of a module: 'BertModel' for `BertModel.from_pretrained(...)` and for
    `BertModel(config)`; '' for others."""
    parts = module.name.split(".")
    return parts[1] if module.cls is None and parts[0] == "transformers" and len(parts) > 1 else ""

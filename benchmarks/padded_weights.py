"""Do padded models of timm and transformers compute what the plan says that they do?

Each model is built twice from its own constructor: at sizes made odd, and at larger ones. The odd one's
random weights are padded to the larger one's shapes, and both run in float64 in evaluation mode: where the
plan says 'exact', outputs and the gradients of the original entries have to be equal to 1e-9. What is exact
with edits is run as if these were made.

    python benchmarks/padded_weights.py timm --models 60
    python benchmarks/padded_weights.py transformers --models 30 --csv padded.csv

Exit code 1 if something that was called exact is not.
"""

from __future__ import annotations

import argparse
import copy
import csv
import inspect
import json
import random
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from zoo_child import run_in_child

COLUMNS = ("model", "changed", "verdict", "equal", "difference", "reason", "grown", "edits")
NO_WIDTHS = re.compile(
    r"img|image|patch|window|kernel|depth|layers|head|in_chan|seed|stride|size$|block|scale|grid"
)
RATIOS = ("mlp_ratio", "expand_ratio", "mlp_ratios")
CONFIGURED = (
    "vocab_size", "intermediate_size", "ffn_dim", "d_ff", "encoder_ffn_dim", "decoder_ffn_dim", "n_inner",
    "hidden_dim", "head_dim", "d_kv", "hidden_size", "d_model", "embed_dim", "embedding_size", "n_embd",
    "projection_dim", "hidden_sizes",
)  # fmt: skip
MOST_VARIANTS = 3
_BATCH = 2
"""More than one image: for one, torch 2.13 computes some gradients of batch norms wrong on the CPU, in
evaluation mode, where the strides of the gradient fit two memory formats. Numeric derivatives agree."""
Variant = tuple[
    str, Callable[[], Any], Callable[[], Any], Callable[[Any], tuple[Sequence[Any], dict[str, Any]]]
]
"""What is changed, the odd model, the larger one, and the inputs of the first."""


# ------------------------------------------------------------------------------ timm


_libraries: list[Any] = []
"""Operators are defined as long as these live."""


@cache
def import_torchvision() -> None:
    """Import a torchvision whose compiled operators may not fit this torch: no model here uses them."""
    import torch

    found = find_spec("torchvision")
    if found is not None and found.origin is not None and "+cpu" in torch.__version__:
        text = (Path(found.origin).parent / "_meta_registrations.py").read_text(encoding="utf-8")
        names = {
            *re.findall(r'register_meta\("(\w+)"\)', text),
            *re.findall(r'register_fake\("torchvision::(\w+)', text),
        }
        library = torch.library.Library("torchvision", "DEF")
        _libraries.append(library)
        for name in sorted(names):
            library.define(f"{name}() -> ()")
    import torchvision  # noqa: F401


def timm_models() -> Iterator[str]:
    from zoo_timm import small_cases

    for case in small_cases():
        yield case.name


def timm_variants(name: str, chance: random.Random) -> Iterator[Variant]:
    import timm
    import torch

    cls, given = _construction(lambda: timm.create_model(name))
    size = timm.create_model(name).default_cfg.get("input_size") or (3, 224, 224)

    def inputs(model: Any) -> tuple[Sequence[Any], dict[str, Any]]:
        for side in (64, 128):
            image = torch.randn(_BATCH, size[0], side, side)
            try:
                model.eval()(image)
            except Exception:
                continue  # its positions, or its pools, are for larger ones
            return (image,), {}
        return (torch.randn(_BATCH, *size),), {}

    def make(arguments: dict[str, Any]) -> Any:
        return cls(**copy.deepcopy(arguments))  # some are modules

    classes = 10 * chance.randint(1, 3) + chance.choice((1, 3, 7))
    larger = -(-classes // 8) * 8
    yield (
        f"num_classes {classes} -> {larger}",
        lambda: make({**given, "num_classes": classes}),
        lambda: make({**given, "num_classes": larger}),
        inputs,
    )
    defaults = {
        key: parameter.default
        for key, parameter in inspect.signature(cls.__init__).parameters.items()
        if parameter.default is not parameter.empty
    }
    small = {**given, "num_classes": 10} if "num_classes" in defaults else given
    for key, value in {**defaults, **given}.items():
        if key == "num_classes" or (NO_WIDTHS.search(key) and key not in RATIOS):
            continue
        for odd in _odder(key, value, chance):
            yield (
                f"{key} {odd} -> {value}",
                lambda key=key, odd=odd: make({**small, key: odd}),
                lambda key=key, value=value: make({**small, key: value}),
                inputs,
            )


def _construction(build: Callable[[], Any]) -> tuple[Any, dict[str, Any]]:
    """The class that a function of timm makes an object of, and with which arguments."""
    cls = type(build())
    original, taken = cls.__init__, {}

    def remember(self: Any, *args: Any, **kwargs: Any) -> None:
        if type(self) is cls and not taken:
            taken.update(inspect.signature(original).bind(self, *args, **kwargs).arguments)
        original(self, *args, **kwargs)

    cls.__init__ = remember
    try:
        build()
    finally:
        cls.__init__ = original
    taken.pop("self")
    for parameter in inspect.signature(original).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            taken.update(taken.pop(parameter.name, {}))
    return cls, taken


def _odder(key: str, value: Any, chance: random.Random) -> Iterator[Any]:
    """Smaller values of an argument that may be a width."""
    if key in RATIOS:
        if isinstance(value, (int, float)):
            yield value * chance.uniform(0.7, 0.95)
        elif isinstance(value, (list, tuple)):
            yield type(value)(item * chance.uniform(0.7, 0.95) for item in value)
    elif type(value) is int and value >= 8:
        yield value - chance.choice((1, 3, 5, 7))
        for step in (12, 6, 4, 8, 16, 32):  # heads and groups have to divide it
            if value > step:
                yield value - step
    elif (
        isinstance(value, (list, tuple)) and value and all(type(item) is int and item >= 8 for item in value)
    ):
        yield type(value)(item - chance.choice((1, 3, 5, 7)) for item in value)
        for step in (4, 8, 16):
            yield type(value)(item - step if item > step else item for item in value)


# ------------------------------------------------------------------------------ transformers


_ARCHITECTURES = """
gpt2 bert t5 llama opt gpt_neox bart roberta distilbert electra albert mistral qwen2 gemma
phi falcon bloom gptj mpt codegen vit deit clip whisper wav2vec2 marian pegasus mixtral
xlnet deberta-v2 convbert segformer swin convnext mobilebert squeezebert fnet
nystromformer mamba rwkv stablelm olmo cohere starcoder2 gpt_bigcode biogpt xglm ctrl
openai-gpt mbart m2m_100 blenderbot longformer big_bird led dinov2 beit siglip hubert vits
"""


def transformers_models() -> Iterator[str]:
    yield from _ARCHITECTURES.split()


def transformers_variants(name: str, chance: random.Random) -> Iterator[Variant]:
    import torch
    import transformers
    from transformers.models.auto import configuration_auto
    from zoo_hf_configs import default_config, parts_of
    from zoo_hf_inputs import inputs_for
    from zoo_hf_small import narrow, shrink
    from zoo_transformers import model_class

    transformers.logging.set_verbosity_error()
    config_class = configuration_auto.CONFIG_MAPPING[name]
    causal = transformers.AutoModelForCausalLM._model_mapping
    cls = causal[config_class] if config_class in causal else model_class(config_class)

    def build(key: str = "", value: Any = None) -> Any:
        config = default_config(config_class)
        shrink(config, 2)
        narrow(config)
        config._attn_implementation = "eager" if chance_eager else "sdpa"
        for part in parts_of(config):
            _thin(part)
        for part in parts_of(config):
            if key and key in vars(part):
                setattr(part, key, value)
        try:
            return cls._from_config(config) if hasattr(cls, "_from_config") else cls(config)
        except ValueError:
            config._attn_implementation = "eager"
            return cls._from_config(config) if hasattr(cls, "_from_config") else cls(config)

    chance_eager = chance.random() < 0.5

    def given(model: Any) -> tuple[Sequence[Any], dict[str, Any]]:
        made = {key: _real(value, torch) for key, value in inputs_for(model).items()}
        if "use_cache" in inspect.signature(model.forward).parameters:
            made["use_cache"] = False
        return (), made

    config = build().config
    seen = set()
    for part in parts_of(config):
        for key in CONFIGURED:
            value = vars(part).get(key)
            if key in seen or value is None:
                continue
            seen.add(key)
            for odd in _odder(key, value, chance):
                yield (
                    f"{key} {odd} -> {value}",
                    lambda key=key, odd=odd: build(key, odd),
                    lambda key=key, value=value: build(key, value),
                    given,
                )


def _thin(config: Any) -> None:
    """At most 512 features in 8 heads, so that float64 takes seconds."""
    names = vars(config)
    width = next((key for key in ("hidden_size", "n_embd", "d_model") if type(names.get(key)) is int), None)
    if width is None or names[width] <= 1024:
        return
    wanted = {width: 512, "num_attention_heads": 8, "n_head": 8, "num_key_value_heads": 4, "head_dim": 64,
              "intermediate_size": 1024, "ffn_hidden_size": 1024}  # fmt: skip
    for key, value in wanted.items():
        if type(names.get(key)) is int:
            setattr(config, key, value)


def _real(value: Any, torch: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    shape = [
        min(size, 16) if value.dim() == 2 and not value.is_floating_point() else size for size in value.shape
    ]
    if value.is_floating_point():
        return torch.randn(value.shape)
    if value.dtype is torch.bool:
        return torch.ones(shape, dtype=torch.bool)
    return torch.randint(3, 20, shape, dtype=value.dtype)


# ------------------------------------------------------------------------------ running


def run(name: str, variants: Callable[[str, random.Random], Iterator[Variant]], seed: int, say: Any) -> None:
    """In a child process: compare up to four paddings of one model, each of another argument."""
    import torch
    from padded_equality import compare

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    chance = random.Random(f"{seed} {name}")
    rows: list[dict[str, Any]] = []
    done: set[str] = set()
    for changed, build_original, build_larger, inputs in variants(name, chance):
        key = changed.partition(" ")[0]
        if key in done or len(done) >= MOST_VARIANTS:
            continue
        try:
            torch.manual_seed(0)
            original, larger = build_original(), build_larger()
            shapes = [
                [tuple(tensor.shape) for tensor in model.state_dict().values()]
                for model in (original, larger)
            ]
            if shapes[0] == shapes[1]:
                continue
            _shake(original)
            args, kwargs = inputs(original)
            original.eval()(*args, **kwargs)
        except Exception:
            continue  # sizes that its code does not take
        try:
            result = compare(original, larger, args, kwargs)
        except Exception as error:
            text = str(error).splitlines()[0] if str(error) else ""
            rows.append(
                {
                    "model": name,
                    "changed": changed,
                    "verdict": "error",
                    "reason": f"{type(error).__name__}: {text}",
                }
            )
            done.add(key)
            say(rows=json.dumps(rows))
            continue
        if result.verdict == "unproved" and "has no such" in result.reason:
            continue
        done.add(key)
        rows.append(
            {"model": name, "changed": changed, "verdict": result.verdict, "equal": result.equal,
             "difference": result.difference, "reason": result.reason, "grown": result.grown,
             "edits": "; ".join(edit.text for edit in result.edits[:4])}
        )  # fmt: skip
        say(rows=json.dumps(rows))


def _shake(model: Any) -> None:
    """No weight is zero or one because it was made so, and no statistic."""
    import torch

    with torch.no_grad():
        for tensor in model.parameters():
            tensor.add_(torch.randn_like(tensor), alpha=0.05)
        for name, tensor in model.named_buffers():
            if name.endswith("running_mean"):
                tensor.normal_(0, 0.2)
            elif name.endswith("running_var"):
                tensor.uniform_(0.5, 2)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("library", choices=("timm", "transformers"))
    parser.add_argument("--models", type=int, default=60, help="how many models that could be padded  [60]")
    parser.add_argument("--only", help="one model by its name")
    parser.add_argument("--csv", help="also write a row per padding to this file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=120, help="seconds per model  [120]")
    options = parser.parse_args(arguments)
    import_torchvision()
    if options.library == "timm":
        import timm  # noqa: F401

        names, variants = timm_models, timm_variants
    else:
        import transformers  # noqa: F401

        names, variants = transformers_models, transformers_variants
    rows: list[dict[str, Any]] = []
    counted = 0
    for name in names() if options.only is None else (options.only,):
        said, ending = run_in_child(
            lambda say, name=name: run(name, variants, options.seed, say), options.timeout
        )
        found = json.loads(said.get("rows", "[]"))
        if not found:
            print(f"{name:28} no padding could be built{f' ({ending})' if ending else ''}", flush=True)
            continue
        for row in found:
            rows.append(row)
            is_lie = row.get("equal") is False
            outcome = (
                "NOT EQUAL " + row["difference"] if is_lie else "equal" if row.get("equal") else row["reason"]
            )
            print(f"{name:28} {row['changed']:48.48} {row['verdict']:10} {outcome:.150}", flush=True)
        counted += 1
        if counted >= options.models:
            break
    return summary(rows, counted, options.csv)


def summary(rows: list[dict[str, Any]], models: int, path: str | None) -> int:
    if path:
        with open(path, "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, restval="")
            writer.writeheader()
            writer.writerows(rows)
    verdicts = Counter((row["verdict"], row.get("equal")) for row in rows)
    print(f"{len(rows)} paddings of {models} models")
    for (verdict, equal), number in sorted(verdicts.items(), key=str):
        word = {True: "and equal", False: "and NOT EQUAL"}.get(equal, "")  # type: ignore[arg-type]
        print(f"  {number:4} {verdict} {word}")
    lies = sum(row.get("equal") is False for row in rows)
    return int(lies > 0 or not rows)


if __name__ == "__main__":
    sys.exit(main())

"""A rule on the dtype in which 4-bit layers compute."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.plugin.source import TRAINS, Mismatch


class QuantizedComputeDtype(SourceRule):
    """4-bit layers that compute in another dtype than the training around them.

    What it does
    Finds `load_in_4bit=True` without `bnb_4bit_compute_dtype`, whose default is float32, or with another
    dtype than that of the autocast under which the model is trained.

    Why it costs
    Each 4-bit layer casts its input to its compute dtype and back, and unpacks its weight in it. In float32
    the unpacked weights take twice the traffic, and since bitsandbytes 0.50 the product itself leaves the
    16-bit Tensor Cores. In float16 within bfloat16 training, activations beyond 65504 become infinite.

    Example
        quantization = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
        model = AutoModelForCausalLM.from_pretrained(name, quantization_config=quantization)
        trainer = Trainer(model, TrainingArguments("runs", bf16=True), train_dataset=dataset)

    Use instead
        quantization = BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16
        )

    When it does not apply
    Training without autocast; dtypes that are chosen at run time; checkpoints that are stored in 4 bits,
    which bring their own dtype; bfloat16 training where the project pins bitsandbytes before 0.47, whose
    layers compute in the dtype of their first input. TRL, axolotl and LLaMA-Factory set the dtype themselves.
    """

    code = "PRC010"
    name = "quantized-compute-dtype"
    level = "warning"
    confidence = "high"
    sources = (
        "transformers BitsAndBytesConfig, bnb_4bit_compute_dtype: float32 if it is not given",
        "bitsandbytes Linear4bit: compute_dtype, to which the layer casts its input",
    )
    triggers = ("load_in_4bit",)
    program = TRAINS

    def check(self, context: SourceContext) -> Iterator[Finding]:
        found = {item.event.place: item for item in context.quantized.mismatched()}
        for item in found.values():
            if context.concerns(item.event):
                yield self._report(context, item)

    def _report(self, context: SourceContext, item: Mismatch) -> Finding:
        compute, trained = (name.removeprefix("torch.") for name in (item.compute, item.trained))
        cost = "casts of each layer's input and result"
        if compute == "float32":
            cost += ", and weights that are unpacked to twice the size"
        elif compute == "float16":
            cost += ", and infinity for activations beyond 65504"
        chosen = " (the default)" if item.is_default else ""
        entered = item.region.entered
        return self.finding(
            context.at(item.event, item.thing, "bnb_4bit_compute_dtype"),
            f"The 4-bit layers compute in {compute}{chosen}, the training around them in {trained}: {cost}.",
            related=(context.also(entered, "the training's precision"),) if entered is not None else (),
            evidence={"compute_dtype": compute, "autocast": trained, "is_default": item.is_default},
            fix=Fix(f"Pass bnb_4bit_compute_dtype=torch.{trained} to BitsAndBytesConfig."),
            identity=item.event.place.function.qualified_name,
        )

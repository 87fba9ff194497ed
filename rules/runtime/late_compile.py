"""A rule on models that are compiled after a framework took them."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Effect, Event, Finding, Fix, SourceContext, SourceRule, Thing, distinct


class CompiledTooLate(SourceRule):
    """torch.compile of a model that a Trainer already holds.

    What it does
    Finds `torch.compile(model)` after an object of a framework got the model, where that object trains it and
    nothing else in the program uses the compiled model.

    Why it costs
    `torch.compile` returns a new module and leaves the old one as it is. The Trainer goes on with the old
    one, so every step runs without the kernels that compiling would have joined.

    Example
        trainer = Trainer(model=model, args=args, train_dataset=dataset)
        model = torch.compile(model)
        trainer.train()

    Use instead
        args = TrainingArguments(output_dir="out", torch_compile=True)
        trainer = Trainer(model=model, args=args, train_dataset=dataset)
        trainer.train()

    When it does not apply
    `model.compile()`, which compiles in place; a compiled model that the program calls itself or hands on.
    """

    code = "RUN027"
    name = "compiled-too-late"
    level = "warning"
    confidence = "high"
    sources = (
        "PyTorch torch.compile tutorial, Basic Usage: what it returns runs compiled",
        "transformers TrainingArguments, torch_compile: compiles the model that the Trainer holds",
    )
    triggers = ("torch.compile(",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        for event in distinct(context.record.of("wrap")):
            models = context.facts.kinds(event.first, "module")
            if event.name != "torch.compile" or not models or not context.concerns(event):
                continue
            holder = self._holder(context, event, models[0])
            if holder is None or self._is_used(context, event, models[0]):
                continue
            name = holder.name.rpartition(".")[2]
            yield self.finding(
                context.at(event),
                f"`{context.code(event)}` comes too late: the {name} on {context.where(holder, event)} has "
                "the model that is not compiled, and nothing uses the other.",
                related=(context.also(holder, "the model is handed over here"),),
                evidence={"holder": name, "function": event.place.function.qualified_name},
                effect=Effect(unknown="what compiling gains depends on the model"),
                fix=Fix(f"Have the {name} compile it (`torch_compile=True`), or compile it before."),
                identity=f"{event.place.function.qualified_name}:{name}",
            )

    def _holder(self, context: SourceContext, event: Event, model: Thing) -> Event | None:
        """The event that made a framework's object with the model before it was compiled."""
        for made in context.record.before(event, "make"):
            classes = [thing.cls for thing in context.facts.things(made.result) if thing.cls is not None]
            if any(cls.file.is_library for cls in classes) and model in context.facts.read_by(made):
                return made
        return None

    def _is_used(self, context: SourceContext, event: Event, model: Thing) -> bool:
        """Whether the program may use the compiled model, or the framework does not train the other."""
        trains = False
        for later in context.record.after(event, "make", "call", "forward", "backward", "wrap"):
            trains |= later.kind == "backward"
            is_framework = any(place.file.is_library for place in later.places)
            given = later.arguments.values() if later.kind != "forward" else (later.subject,)
            if not is_framework and any(model in context.facts.held(value) for value in given):
                return True
        return not trains

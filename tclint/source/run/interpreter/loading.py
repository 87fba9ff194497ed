"""Data loaders: runs the code that makes a batch and gives its values."""

from __future__ import annotations

from tclint.source.run.interpreter.tensors import Tensors
from tclint.source.run.values import (
    NONE,
    Constant,
    Event,
    FunctionValue,
    Region,
    Thing,
    Value,
    options_of,
)
from tclint.source.syntax.tables import Call, Name

_WRAPPERS = 6
"""The most datasets wrapped around each other that are followed."""


class Loading(Tensors):
    """Makes batches: runs the dataset's code for one item, then the collate function."""

    def batch(self, loader: Thing) -> Value:
        """A batch of a loader: the result of its collate function, or tensors on the CPU.

        Events during the making of the batch have the loader among their regions.
        """
        event = self.happen("batch", loader.name, loader, {})
        regions = self.regions
        self.regions = (*regions, Region(loader, self.here, self.path))
        try:
            made = self._prepared(loader, event)
        finally:
            self.regions = regions
        for item in self.tensors_in(made):
            item.fields.setdefault("@device", Constant("cpu"))
        event.result = made
        device = loader.fields.get("@device")
        return made if device is None else self._moved(made, device)

    def _prepared(self, loader: Thing, event: Event) -> Value:
        sample = loader.fields.get("@sample")
        if sample is None:
            sample = loader.fields["@sample"] = self._sample(loader, event)
        collate = loader.fields.get("collate_fn")
        if collate is not None and collate != NONE:
            made = self.call_value(collate, [self.container("list", None, sample)], {})
            if made != NONE and not (isinstance(made, Thing) and made.is_unknown):
                return made
            return Thing("tensor", "batch", event)
        return self._collated(sample, event)

    def _sample(self, loader: Thing, event: Event) -> Value:
        """The item that a loader's dataset gives for one index."""
        for option, _ in options_of(loader.fields.get("dataset", NONE)):
            item = self._inner_dataset(option)
            if item is None:
                continue
            loader.fields["@dataset"] = item
            loader.fields["@sampled"] = option
            method = item.cls.find("__getitem__") if item.cls is not None else item.fields.get("@transform")
            if isinstance(method, FunctionValue):
                given: Value = Thing("number") if item.cls is not None else Thing("", "sample", event)
                return self.call_value(self.bind(method, item) if item.cls else method, [given], {})
            if item.cls is not None and (item.cls.find("__iter__") or item.cls.find("__next__")):
                return self.element(item)
            if (held := self.values_in(item)) and item.kind != "dict":
                return held[0]
            if tensors := [value for key, value in item.fields.items() if str(key).isdigit()]:
                return self.container("tuple", [self._row(value) for value in tensors])
        return Thing("", "sample", event)

    def _row(self, value: Value) -> Value:
        """One row of a tensor that a dataset holds, on the same device."""
        row = self.item(value, Thing("number"))
        if isinstance(value, Thing) and isinstance(row, Thing) and "@device" in value.fields:
            row.fields["@device"] = value.fields["@device"]
        return row

    def _inner_dataset(self, value: Value, depth: int = _WRAPPERS) -> Thing | None:
        """The dataset that this one wraps or is a part of, the first of several; None if there is none."""
        for option, _ in options_of(value):
            if isinstance(option, Thing):
                over = self._wrapped(option) if depth else None
                found = option if over is None else self._inner_dataset(over, depth - 1)
                if found is not None:
                    return found
        return None

    def _wrapped(self, dataset: Thing) -> Value | None:
        """What a dataset of a library takes its items from; None if it is the inner one."""
        if dataset.cls is not None or "@transform" in dataset.fields:
            return None
        over = dataset.fields.get("over") if dataset.kind == "dataset" else None
        if over is None and dataset.operation is not None and dataset.operation[0] == "[]":
            over = dataset.operation[1][0]
        return self.element(over) if over is not None and self.is_sequence(over) else over

    def _collated(self, sample: Value, event: Event) -> Value:
        """The result of the default collate function: the containers of an item with tensors in them."""
        if isinstance(sample, Thing):
            parts = self.exact_items(sample)
            if parts and sample.kind in ("tuple", "list"):
                return self.container("list", [self._collated(part, event) for part in parts])
            if parts and sample.kind == "dict":
                made = self.container("dict")
                for key in parts:
                    self.set_item(made, key, self._collated(self.item(sample, key), event))
                return made
        made = Thing("tensor", "batch", event)
        made.fields["@collated"] = sample
        device = sample.fields.get("@device") if isinstance(sample, Thing) else None
        if device is not None:
            made.fields["@device"] = device
        return made

    def _moved(self, value: Value, device: Value) -> Value:
        """A batch after a framework has moved it to a device."""
        if not isinstance(value, Thing):
            return value
        if value.kind == "tensor":
            given = {"device": device, "non_blocking": self.unknown()}
            return self.place(value, ".to", given, Call(Name(""), (), self.node_id))
        if value.kind in ("list", "tuple", "dict"):
            made = Thing(value.kind, value.name)
            for key, item in value.fields.items():
                is_item = isinstance(key, tuple) or key == "[*]"
                made.fields[key] = self._moved(item, device) if is_item else item
            return made
        return value

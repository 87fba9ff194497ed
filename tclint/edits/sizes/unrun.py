"""Finds sizes and layers used in code of a project that the trace of its model did not run."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice

from tclint.edits.sizes.callees import Callees, Default, default_of, fields_of
from tclint.edits.sizes.candidates import FileLine
from tclint.edits.sizes.reads import Read, is_particular, kind_of, nodes, targets
from tclint.edits.sizes.syntax import constant, functions, last_name, locals_of, names_in, parsed
from tclint.edits.sizes.written import Written

_SHAPED = re.compile(
    r"Linear|Bilinear|Conv|Embedding|LSTM|GRU|RNN|Norm|Parameter|Transformer|MultiheadAttention"
    r"|^(view|reshape|expand|repeat|zeros|ones|empty|full|rand|randn|new_zeros|new_ones|new_empty|new_full"
    r"|normal|unflatten|split|narrow|resize_|Tensor|FloatTensor)$"
)
"""Calls whose numeric arguments are sizes of tensors and layers."""
_OF_LAYER = frozenset({"weight", "bias", "out_features", "out_channels", "num_embeddings", "in_proj_weight"})
_INITIALISES = re.compile(r"^(init\w*|(?!copy_|set_)\w+_|requires_grad|grad|device|dtype)$")
_NO_MODEL = re.compile(r"opt|sched|scaler|ema|sampler|loader|loss|crit", re.IGNORECASE)


class UnrunCode:
    """The code that the trace did not run in the files that mention the model.

    Args:
        texts: absolute path -> text of the project's Python files.
        traced: the files that the target read.
        ran: the lines that the trace ran; it has proved the functions that contain them.
        words: names of the target: its callable, its class, its module.
    """

    def __init__(
        self,
        texts: Mapping[str, str],
        traced: Collection[str],
        ran: Collection[FileLine],
        words: Collection[str],
    ) -> None:
        speaks = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(words)))})\b") if words else None
        self._texts = {
            path: text
            for path, text in texts.items()
            if path in traced or (speaks is not None and speaks.search(text))
        }
        self._traced, self._words = frozenset(traced), frozenset(words)
        self._reads: list[Read] = []
        self._parameters: dict[str, list[str]] = {}
        self._callees = Callees(self._texts)
        self._run_classes: dict[str, set[str]] = {}
        """Name of a class whose methods ran -> its files."""
        for path, text in self._texts.items():
            lines = {line for where, line in ran if where == path}
            tree = parsed(text)
            skipped = set()
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef) and fields_of(node):
                    names = [last_name(item.target) for item in fields_of(node)]
                    self._parameters.setdefault(node.name, names)
            for function, owner in functions(tree):
                names = [item.arg for item in (*function.args.posonlyargs, *function.args.args)]
                name = owner.name if owner is not None and function.name == "__init__" else function.name
                self._parameters.setdefault(name, names[1:] if owner is not None else names)
                last = function.end_lineno or function.lineno
                has_run = lines.intersection(range(function.lineno, last + 1))
                if has_run or function.name == "example_inputs":
                    skipped.add(id(function))
                if has_run and owner is not None:
                    self._run_classes.setdefault(owner.name, set()).add(path)
            self._reads.extend(nodes(path, tree, skipped))
        self._models = self._models_of(self._words)

    # -- layers

    def uses_of(self, layer: str, owner: str, *, calls: bool) -> list[FileLine]:
        """The places that call or replace a layer or read its size or weight, except the calls in its class.

        Args:
            layer: the attribute that holds it.
            owner: the class of that attribute.
            calls: whether calls of it count.
        """
        family = self._callees.family(owner)
        found = []
        for read in self._reads:
            node = read.node
            if not isinstance(node, ast.Attribute) or node.attr != layer:
                continue
            if read.is_own and (read.owner not in family or self._is_namesake(read)):
                continue
            if not read.is_own and not names_in(node.value) & self._models:
                continue
            is_call = isinstance(read.parent, ast.Call) and read.parent.func is node
            if read.is_own and read.owner == owner and is_call:
                continue
            if calls if is_call else self._matters(read):
                found.append(read.place)
        return sorted(set(found))

    def _is_namesake(self, read: Read) -> bool:
        """Whether the class around a node only has the same name as a class that ran, such as an older
        copy."""
        paths = self._run_classes.get(read.owner)
        return paths is not None and read.path not in paths

    def overwritten(self, layers: Collection[str]) -> list[FileLine]:
        """The places that overwrite weights of layers with values from elsewhere, such as pretrained
        vectors."""
        found = set()
        for read in self._reads:
            node = read.node
            if not isinstance(node, ast.Attribute) or node.attr not in layers:
                continue
            families = (self._callees.family(owner) for owner in self.owners_of(node.attr))
            if read.is_own and (self._is_namesake(read) or not any(read.owner in one for one in families)):
                continue
            chain = [it for it in reversed(read.around) if isinstance(it, ast.Attribute)]
            names = [item.attr for item in chain[:3]]
            stored = any(isinstance(item.ctx, ast.Store) for item in chain[:3])
            statement = next((it for it in reversed(read.around) if isinstance(it, ast.stmt)), None)
            is_tied = isinstance(statement, ast.Assign) and last_name(statement.value) == "weight"
            if names[:1] == ["weight"] and ("copy_" in names or (stored and not is_tied)):
                found.add(read.place)
        return sorted(found)

    def owners_of(self, layer: str) -> list[str]:
        """The classes that assign such an attribute to self; if the trace ran some of them, only those."""
        found = {
            owner.name
            for text in self._texts.values()
            for owner in ast.walk(parsed(text))
            if isinstance(owner, ast.ClassDef) and any(_assigned_to_self(owner, layer))
        }
        return sorted(found & self._run_classes.keys() or found)

    def _matters(self, read: Read) -> bool:
        node, parent = read.node, read.parent
        assert isinstance(node, ast.Attribute)
        if isinstance(node.ctx, ast.Store):
            return True
        if isinstance(parent, ast.Call):
            function = last_name(parent.func)
            return function not in ("isinstance", "print") and not _INITIALISES.match(function)
        if isinstance(parent, ast.Attribute) and parent.attr in _OF_LAYER:
            around = read.around[-2] if len(read.around) > 1 else parent
            if isinstance(around, ast.Assign):
                return not all(isinstance(target, ast.Attribute) for target in around.targets)
            if isinstance(around, ast.Call):
                return not _INITIALISES.match(last_name(around.func))
            while isinstance(around, ast.Attribute) and around.attr == "data":
                around = read.around[read.around.index(around) - 1]
            return not (isinstance(around, ast.Attribute) and _INITIALISES.match(around.attr))
        return False

    def flattened(self) -> list[FileLine]:
        """The places that view a result of the model in a way that only contiguous tensors allow."""
        return sorted(
            read.place
            for read in self._reads
            if isinstance(read.node, ast.Call)
            and isinstance(read.node.func, ast.Attribute)
            and read.node.func.attr == "view"
            and names_in(read.node.func) & self._models
            and read.node.args
            and (len(read.node.args) == 1 or ast.unparse(read.node.args[-1]) == "-1")
        )

    def loads(self) -> list[FileLine]:
        """The places that load saved weights into the model."""
        return sorted(
            {
                read.place
                for read in self._reads
                if isinstance(read.node, ast.Call)
                and isinstance(read.node.func, ast.Attribute)
                and read.node.func.attr in ("load_state_dict", "load_from_checkpoint")
                and not _NO_MODEL.search(last_name(read.node.func.value))
            }
        )

    def _models_of(self, words: Collection[str]) -> frozenset[str]:
        """The names of the model and of everything made from it: what is assigned from it, returned, passed
        on or looped over."""
        known = set(words)
        assigned = [pair for read in self._reads for pair in self._given_on(read)]
        while more := {name for of, names in assigned if of & known for name in names} - known:
            known |= more
        return frozenset(known - {"self"})

    def _given_on(self, read: Read) -> Iterator[tuple[set[str], set[str]]]:
        """The names in a value, with the names that get it."""
        match read.node:
            case ast.Assign(value=ast.expr() as value) | ast.AnnAssign(value=ast.expr() as value):
                yield names_in(value), targets(read.node)
            case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                yield names_in(value), names_in(target)
            case ast.withitem(context_expr=value, optional_vars=ast.expr() as target):
                yield names_in(value), names_in(target)
            case ast.Return(value=ast.expr() as value):
                around = (node for node in reversed(read.around) if isinstance(node, ast.FunctionDef))
                yield names_in(value), {function.name for function in islice(around, 1)}
            case ast.Call(func=function, args=positional, keywords=keywords):
                names = self._parameters.get(last_name(function), [])
                yield from ((names_in(value), {name}) for name, value in zip(names, positional, strict=False))
                yield from ((names_in(word.value), {word.arg}) for word in keywords if word.arg)

    # -- sizes

    def said_again(self, sizes: Collection[int], edited: Callable[[FileLine], bool]) -> list[FileLine]:
        """The places where a script beside the model repeats such a size as a number, for a tensor or a
        layer."""
        found = []
        numbers: dict[tuple[str, str], int] = {}
        for read in self._reads:
            if isinstance(read.node, ast.Assign | ast.AnnAssign) and read.node.value is not None:
                value = constant(read.node.value)
                if value in sizes and value is not None and not edited(read.place):
                    numbers.update({(read.path, name): value for name in targets(read.node)})
        for read in self._reads:
            call = read.node
            if not isinstance(call, ast.Call) or not _SHAPED.search(last_name(call.func)):
                continue
            if read.path in self._traced and not self._by_the_model(read):
                continue
            for argument in (*call.args, *(keyword.value for keyword in call.keywords)):
                for item in argument.elts if isinstance(argument, ast.Tuple | ast.List) else (argument,):
                    own = constant(item) in sizes or (read.path, last_name(item)) in numbers
                    if own and not edited((read.path, item.lineno)):
                        found.append((read.path, item.lineno))
        return sorted(set(found))

    def _by_the_model(self, read: Read) -> bool:
        """Whether the function around a node uses the model."""
        function = next(
            (node for node in reversed(read.around) if isinstance(node, ast.FunctionDef)), read.around[0]
        )
        return any(
            last_name(item.func) in self._words for item in ast.walk(function) if isinstance(item, ast.Call)
        )

    def given_again(self, written: Written) -> list[FileLine]:
        """The calls that pass a parameter their own value, so that its default does not apply to them."""
        default = self._default(written)
        if default is None:
            return []
        return sorted(
            {
                read.place
                for read in self._reads
                if isinstance(read.node, ast.Call)
                and self._callees.given(read.node, read.path, read.around, default)
            }
        )

    def _default(self, written: Written) -> Default | None:
        text = self._texts.get(written.path, "")
        return default_of(written.path, text, written.start, written.end) if text else None

    def readers(self, written: Written, way: Collection[str]) -> dict[FileLine, bool]:
        """The readers of the name that a number is bound to, except those that lead to the layers.

        Returns:
            Place -> whether another value may fail there, for example in a division or a split into heads.

        Args:
            written: the number.
            way: the names that lead from the number to the layers.
        """
        kind = kind_of(written, self._texts.get(written.path, ""))
        names = {written.name}
        if kind == "parameter":
            names = self._attributes_of(written)
        found: dict[FileLine, bool] = {}
        for read in self._reads:
            node = read.node
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                hit = kind == "constant" and node.id in names and self._is_it(node.id, read, written)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                goes_along = read.is_own and read.path == written.path and kind == "parameter"
                hit = node.attr in names and not goes_along and self._may_carry(read, names)
            elif isinstance(node, ast.Subscript):
                hit = kind == "key" and isinstance(node.slice, ast.Constant) and node.slice.value in names
            else:
                continue
            if hit and not self._is_on_the_way(read, way) and read.place != (written.path, written.start[0]):
                found[read.place] = found.get(read.place, False) or is_particular(read)
        return found

    def _may_carry(self, read: Read, names: Collection[str]) -> bool:
        """Whether an attribute of self may be the size; it is not if its class assigns it something else."""
        assert isinstance(read.node, ast.Attribute)
        if not read.is_own:
            return True
        owner = next(node for node in reversed(read.around) if isinstance(node, ast.ClassDef))
        values = list(_assigned_to_self(owner, read.node.attr))
        return not values or any(value is None or names_in(value) & set(names) for value in values)

    def _attributes_of(self, written: Written) -> set[str]:
        """The names of the attributes in which methods keep a parameter."""
        default = self._default(written)
        scope = default.scope if default is not None else parsed(self._texts.get(written.path, ""))
        return {
            target.attr
            for node in ast.walk(scope)
            if isinstance(node, ast.Assign) and last_name(node.value) == written.name
            for target in node.targets
            if isinstance(target, ast.Attribute)
        }

    def _is_it(self, name: str, read: Read, written: Written) -> bool:
        functions = [it for it in read.around if isinstance(it, ast.FunctionDef | ast.AsyncFunctionDef)]
        if any(name in locals_of(function) for function in functions):
            return False
        if read.path == written.path:
            return True
        module = os.path.splitext(os.path.basename(written.path))[0]
        return any(
            isinstance(node, ast.ImportFrom)
            and (node.module or "").rpartition(".")[2] == module
            and any((item.asname or item.name) == name or item.name == "*" for item in node.names)
            for node in ast.walk(parsed(self._texts[read.path]))
        )

    def _is_on_the_way(self, read: Read, way: Collection[str]) -> bool:
        child: ast.AST = read.node
        for node in reversed(read.around):
            if isinstance(node, ast.keyword) and node.arg in way:
                return True
            if isinstance(node, ast.Call) and child in node.args:
                names = self._parameters.get(last_name(node.func), [])
                index = node.args.index(child)
                if index < len(names) and names[index] in way:
                    return True
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
                return bool(targets(node) & set(way))
            child = node
        return False


def _assigned_to_self(owner: ast.ClassDef, attribute: str) -> Iterator[ast.expr | None]:
    """The values that a class assigns to an attribute of self; None for one that is part of an unpacking."""
    values = {
        id(target): node.value
        for node in ast.walk(owner)
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    }
    for node in ast.walk(owner):
        if (
            isinstance(node, ast.Attribute)
            and node.attr == attribute
            and isinstance(node.ctx, ast.Store)
            and last_name(node.value) == "self"
        ):
            yield values.get(id(node))

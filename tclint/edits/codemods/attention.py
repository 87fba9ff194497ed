"""Fix for attention that is written out in successive statements, causal or without a mask."""

from __future__ import annotations

import libcst as cst

from tclint.edits.causal import hides_later_tokens, is_minus_infinity
from tclint.edits.codemod import Codemod, fixes, positional
from tclint.edits.program import Statement, find_all, index_of, is_attribute, is_name, names_in
from tclint.source.syntax.expressions import dotted_name

_MODULES = frozenset({"torch", "F", "nn.functional", "torch.nn.functional"})
_SIMPLE = (cst.Call, cst.Name, cst.Attribute, cst.Integer, cst.Float)


@fixes("ARC005")
class FusedAttention(Codemod):
    """`((q @ k.transpose(-2, -1)) * scale).softmax(-1) @ v` becomes one call."""

    query = key = scale = dropout = ""
    is_causal = False

    def plan(self) -> None:
        softmax = self.find(cst.Call)
        if softmax is None:
            return
        if any(item.keyword is not None and item.keyword.value != "dim" for item in softmax.args):
            return  # in another dtype
        if _has_other_rank(self.program.function(softmax)):
            return
        self.gone: list[cst.Assign] = []
        statement, scores = self.program.statement(softmax), _softmaxed(softmax)
        if statement is None or scores is None or not self._read_scores(scores, statement):
            return
        product = self._product_of(softmax)
        last = self.program.statement(product) if product is not None else None
        called = self._function()
        if product is None or last is None or called is None or not self._are_a_run([*self.gone, last]):
            return
        if self.is_causal is not bool(self.finding.evidence.get("masked")):
            return
        if self.is_causal and _joins(self.program.function(softmax), self.key):
            return  # with the keys of a cache in front, is_causal would align the mask with the wrong corner
        value = product.right if isinstance(product, cst.BinaryOperation) else product.args[1].value
        if not isinstance(value, cst.Name):
            return
        arguments = [self.query, self.key, value.value]
        if self.dropout:
            arguments.append(f"dropout_p={self.dropout}.p if self.training else 0.0")
        if self.is_causal:
            arguments.append("is_causal=True")
        arguments.append(f"scale={self.scale or '1.0'}")
        self.rewrite(product, f"{called}({', '.join(arguments)})")
        for item in self.gone:
            self.remove(item)
        # The blank lines that separate them from the last statement are removed too.
        line = self.program.own_line(last)
        if line is not None:
            comments = [item for item in line.leading_lines if item.comment is not None]
            self.change(line, lambda line: line.with_changes(leading_lines=comments))

    def _function(self) -> str | None:
        module = self.program.name_of("torch.nn.functional")
        return f"{module}.scaled_dot_product_attention" if module else None

    def _are_a_run(self, statements: list[Statement]) -> bool:
        """Whether statements follow each other in one block, each on lines of its own."""
        block = self.program.block(statements[-1])
        ordered = sorted(statements, key=self.program.start)
        first = index_of(block, ordered[0]) if ordered[0] in block else 0
        return block[first : first + len(ordered)] == ordered and all(
            self.program.own_line(statement) is not None for statement in ordered
        )

    # -- what the scores are made of, from the softmax backwards

    def _read_scores(self, value: cst.BaseExpression, statement: Statement) -> bool:
        match value:
            case cst.Name(value=name):
                before = self.program.before(statement)
                while before and self._makes_mask(before[-1]):
                    self.gone.append(cst.ensure_type(before.pop(), cst.Assign))
                made = before[-1] if before else None
                if not isinstance(made, cst.Assign) or not _assigns(made, name):
                    return False
                self.gone.append(made)
                return self._read_scores(made.value, made)
            case cst.BinaryOperation(operator=cst.Multiply() | cst.Divide()) if not self.scale:
                if not self._is_number(value.right):
                    return False
                self.scale = self.program.code(value.right)
                if isinstance(value.operator, cst.Divide):
                    simple = value.right.lpar or isinstance(value.right, _SIMPLE)
                    self.scale = f"1.0 / {self.scale}" if simple else f"1.0 / ({self.scale})"
                elif value.right.lpar:
                    bare = value.right.with_changes(lpar=(), rpar=())
                    self.scale = self.program.code(bare)
                return self._read_scores(value.left, statement)
            case cst.Call(
                func=cst.Attribute(value=scores, attr=cst.Name(value="masked_fill")), args=[mask, low]
            ):
                if self.is_causal or not is_minus_infinity(low.value):
                    return False
                self.is_causal, self.mask = hides_later_tokens(self.program, mask.value), mask
                return self.is_causal and self._read_scores(scores, statement)
            case cst.BinaryOperation(operator=cst.MatrixMultiply(), left=left, right=right):
                return self._read_product(left, right)
            case cst.Call(args=[cst.Arg(value=left), cst.Arg(value=right)]) if _is_matmul(value):
                return self._read_product(left, right)
        return False

    def _makes_mask(self, statement: Statement) -> bool:
        """Whether a statement makes something that only the mask uses."""
        if not self.is_causal or not isinstance(statement, cst.Assign) or len(statement.targets) != 1:
            return False
        target = statement.targets[0].target
        if not isinstance(target, cst.Name):
            return False
        function = self.program.function(statement)
        (*reads,) = self.program.loads(function, target.value)
        return len(reads) == 1 and reads[0] in self.program.loads(self.mask, target.value)

    def _read_product(self, query: cst.BaseExpression, transposed: cst.BaseExpression) -> bool:
        self.query = query.value if isinstance(query, cst.Name) else ""
        if is_attribute(transposed, "mT"):
            self.key = dotted_name(transposed.value)
        elif isinstance(transposed, cst.Call) and is_attribute(transposed.func, "transpose"):
            dims = sorted(self.program.code(item.value) for item in transposed.args)
            self.key = dotted_name(transposed.func.value) if dims == ["-1", "-2"] else ""
        return bool(self.query and self.key.isidentifier())

    def _is_number(self, value: cst.BaseExpression, depth: int = 3) -> bool:
        """Whether a value is a Python number and not a tensor, as the argument requires."""
        if depth <= 0:
            return False
        match value:
            case cst.Integer() | cst.Float():
                return True
            case cst.Call(func=function):
                return dotted_name(function) == "math.sqrt"
            case cst.BinaryOperation(operator=cst.Power(), left=left, right=right):
                if not isinstance(right, cst.BaseNumber | cst.UnaryOperation):
                    return False
                return not isinstance(left, cst.Call) or dotted_name(left.func).endswith(".size")
            case cst.BinaryOperation(operator=cst.Divide() | cst.Multiply(), left=left, right=right):
                return self._is_number(left, depth - 1) and self._is_number(right, depth - 1)
            case cst.Attribute() | cst.Name():
                made = self.program.assigned(dotted_name(value))
                return bool(made) and all(self._is_number(item.value, depth - 1) for item in made)
        return False

    # -- what becomes of the weights, from the softmax forwards

    def _product_of(self, weights: cst.BaseExpression) -> cst.BinaryOperation | cst.Call | None:
        """The product of the weights with the values."""
        outer = self.program.parent(weights)
        if isinstance(outer, cst.BinaryOperation):
            is_product = isinstance(outer.operator, cst.MatrixMultiply) and outer.left is weights
            return outer if is_product else None
        if isinstance(outer, cst.Arg):
            call = self.program.parent(outer)
            if not isinstance(call, cst.Call) or call.args[0] is not outer:
                return None
            if _is_matmul(call):
                return call if len(positional(call)) == len(call.args) == 2 else None
            if self.dropout or len(call.args) != 1 or not self._is_dropout(dotted_name(call.func)):
                return None
            self.dropout = dotted_name(call.func)
            return self._product_of(call)
        if isinstance(outer, cst.Assign):
            read = self._only_read(outer)
            if read is not None:
                self.gone.append(outer)
                return self._product_of(read)
        return None

    def _only_read(self, made: cst.Assign) -> cst.BaseExpression | None:
        """The only place that reads the assigned variable, if it is in the next statement."""
        behind = self.program.behind(made)
        target = made.targets[0].target
        if not behind or len(made.targets) != 1 or not isinstance(target, cst.Name):
            return None
        found = self.program.loads(behind[0], target.value)
        return found[0] if len(found) == 1 else None

    def _is_dropout(self, name: str) -> bool:
        made = self.program.assigned(name) if name.startswith("self.") else []
        return bool(made) and all(
            isinstance(item.value, cst.Call) and dotted_name(item.value.func).rpartition(".")[2] == "Dropout"
            for item in made
        )


def _assigns(made: cst.Assign, name: str) -> bool:
    return [dotted_name(to.target) for to in made.targets] == [name]


def _is_matmul(call: cst.Call) -> bool:
    return dotted_name(call.func).endswith("torch.matmul")


def _softmaxed(call: cst.Call) -> cst.BaseExpression | None:
    """The operand of a softmax."""
    if is_attribute(call.func, "softmax"):
        receiver = call.func.value
        if dotted_name(receiver) not in _MODULES:
            return receiver
    return call.args[0].value if call.args else None


def _joins(function: cst.CSTNode, name: str) -> bool:
    """Whether a function concatenates something named so, such as new keys to those of a cache."""
    return any(
        name in names_in(call)
        for call in find_all(function, cst.Call)
        if is_attribute(call.func, *_JOINING) or is_name(call.func, *_JOINING)
    )


_JOINING = ("cat", "concat", "concatenate")


def _has_other_rank(function: cst.CSTNode) -> bool:
    """Whether a function splits off heads into other than four dims, for which no fused kernel runs."""
    for text in find_all(function, cst.SimpleString):
        split, arrow, made = text.raw_value.partition("->")
        if arrow and "(" in split and "(" not in made and len(made.split()) != 4:
            return True
    for call in find_all(function, cst.Call):
        if not is_attribute(call.func, "reshape", "view"):
            continue
        sizes: list[cst.CSTNode] = [item.value for item in call.args]
        if sizes and isinstance(sizes[0], cst.Tuple):
            sizes = [item.value for item in sizes[0].elements]
        parts = any(isinstance(size, cst.Integer) and size.value in ("2", "3") for size in sizes)
        if len(sizes) > 4 and not parts:
            return True
    return False

"""Fix of attention that is written out, its statements one behind the other and without a mask."""

from __future__ import annotations

import ast

from tclint.core.finding import Finding
from tclint.edits.codemod import Proposal, codemod, unsafe
from tclint.edits.document import Change, Document
from tclint.edits.imports import bindings, dotted, torch_name
from tclint.edits.statements import is_first_on_line, is_last_on_line, remove


@codemod("ARC005")
def fused_attention(document: Document, finding: Finding) -> Proposal | None:
    """`((q @ k.transpose(-2, -1)) * scale).softmax(-1) @ v` becomes one call."""
    softmax = document.find(finding.location, ast.Call)
    called = _function(document)
    if softmax is None or called is None or finding.evidence.get("masked"):
        return None
    if any(item.arg != "dim" for item in softmax.keywords):
        return None  # in another dtype
    if _has_other_rank(document, document.function(softmax)):
        return None
    before, after = _Scores(document), _Weights(document)
    product = after.product(softmax)
    if product is None or not before.read(_softmaxed(softmax), document.statement(softmax)):
        return None
    gone = [*reversed(before.statements), *after.statements]
    last = document.statement(product)
    if last is None or not _are_a_run(document, [*gone, last]):
        return None
    value = product.right if isinstance(product, ast.BinOp) else product.args[1]
    if not isinstance(value, ast.Name):
        return None
    arguments = [before.query, before.key, value.id]
    if after.dropout:
        arguments.append(f"dropout_p={after.dropout}.p if self.training else 0.0")
    arguments.append(f"scale={before.scale or '1.0'}")
    start, end = document.start(product), document.end(product)
    bracketed = document.text[start - 1 : start] + document.text[end : end + 1] == "()"
    if bracketed and isinstance(document.parent(product), ast.Attribute):
        start, end = start - 1, end + 1
    call = Change(start, end, f"{called}({', '.join(arguments)})")
    return unsafe([*(_without_gap(document, remove(document, statement)) for statement in gone), call])


def _without_gap(document: Document, removal: Change) -> Change:
    """A statement goes with the blank lines that set it off from the next one."""
    line = document.line_of(removal.end)
    while not document.line(line).strip() and document.line_start(line) < len(document.text):
        line += 1
    return Change(removal.start, document.line_start(line), removal.text)


def _function(document: Document) -> str | None:
    for binding in bindings(document):
        if binding.qualified == "torch.nn.functional" and binding.name != "torch":
            return f"{binding.name}.scaled_dot_product_attention"
    torch = torch_name(document)
    return f"{torch}.nn.functional.scaled_dot_product_attention" if torch else None


def _has_other_rank(document: Document, function: ast.AST) -> bool:
    """Heads are split off into other than four dims, for which no fused kernel runs."""
    for node in document.walk(function):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "->" in node.value:
            split, _, made = node.value.partition("->")
            if "(" in split and "(" not in made and len(made.split()) != 4:
                return True
        if isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] in ("reshape", "view"):
            sizes = node.args[0].elts if node.args and isinstance(node.args[0], ast.Tuple) else node.args
            parts = any(isinstance(size, ast.Constant) and size.value in (2, 3) for size in sizes)
            if len(sizes) > 4 and not parts:
                return True
    return False


def _softmaxed(call: ast.Call) -> ast.expr | None:
    """What a softmax is taken of."""
    if isinstance(call.func, ast.Attribute) and call.func.attr == "softmax":
        return call.args[0] if dotted(call.func.value) in _MODULES else call.func.value
    return call.args[0] if call.args else None


_MODULES = frozenset({"torch", "F", "nn.functional", "torch.nn.functional"})


def _are_a_run(document: Document, statements: list[ast.stmt]) -> bool:
    """They stand one behind the other in one block, each on lines of its own."""
    block = document.block(statements[-1])
    positions = [index for index, item in enumerate(block) if any(item is one for one in statements)]
    first = positions[0] if positions else 0
    return positions == list(range(first, first + len(statements))) and all(
        is_first_on_line(document, statement) and is_last_on_line(document, statement)
        for statement in statements
    )


def _assigned_before(document: Document, statement: ast.stmt, name: str) -> ast.Assign | None:
    """The statement right before, if it gives a variable its value."""
    block = document.block(statement)
    at = next(index for index, item in enumerate(block) if item is statement)
    before = block[at - 1] if at else None
    if isinstance(before, ast.Assign) and [dotted(target) for target in before.targets] == [name]:
        return before
    return None


class _Scores:
    """What the scores are made of, from the softmax backwards."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.statements: list[ast.stmt] = []
        """Those that go, the last one first."""
        self.query = self.key = self.scale = ""

    def read(self, value: ast.expr | None, statement: ast.stmt | None) -> bool:
        if value is None or statement is None:
            return False
        if isinstance(value, ast.Name):
            made = _assigned_before(self.document, statement, value.id)
            if made is None:
                return False
            self.statements.append(made)
            return self.read(made.value, made)
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult | ast.Div) and not self.scale:
            if not self._is_number(value.right):
                return False
            text = self.document.source(value.right)
            if isinstance(value.op, ast.Div):
                simple = isinstance(value.right, ast.Call | ast.Name | ast.Attribute | ast.Constant)
                text = f"1.0 / {text}" if simple else f"1.0 / ({text})"
            self.scale = text
            return self.read(value.left, statement)
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.MatMult):
            return self._product(value.left, value.right)
        if (
            isinstance(value, ast.Call)
            and dotted(value.func).endswith("torch.matmul")
            and len(value.args) == 2
        ):
            return self._product(*value.args)
        return False

    def _product(self, query: ast.expr, transposed: ast.expr) -> bool:
        self.query = query.id if isinstance(query, ast.Name) else ""
        if isinstance(transposed, ast.Attribute) and transposed.attr == "mT":
            self.key = dotted(transposed.value)
        if isinstance(transposed, ast.Call) and isinstance(transposed.func, ast.Attribute):
            dims = [self.document.source(item) for item in transposed.args]
            if transposed.func.attr == "transpose" and sorted(dims) == ["-1", "-2"]:
                self.key = dotted(transposed.func.value)
        return bool(self.query and self.key.isidentifier())

    def _is_number(self, value: ast.expr, depth: int = 3) -> bool:
        """A float of Python, as the argument has to be: no tensor."""
        if depth <= 0:
            return False
        match value:
            case ast.Constant(value=int() | float()):
                return True
            case ast.Call(func=function):
                return dotted(function) == "math.sqrt"
            case ast.BinOp(op=ast.Pow(), right=ast.Constant() | ast.UnaryOp()):
                return not isinstance(value.left, ast.Call) or dotted(value.left.func).endswith(".size")
            case ast.BinOp(left=left, op=ast.Div() | ast.Mult(), right=right):
                return self._is_number(left, depth - 1) and self._is_number(right, depth - 1)
            case ast.Attribute() | ast.Name():
                made = [
                    node.value
                    for node in self.document.walk(self.document.tree)
                    if isinstance(node, ast.Assign)
                    and any(dotted(target) == dotted(value) for target in node.targets)
                ]
                return bool(made) and all(self._is_number(item, depth - 1) for item in made)
            case _:
                return False


class _Weights:
    """What becomes of the weights, from the softmax forwards."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.statements: list[ast.stmt] = []
        """Those that go, in order."""
        self.dropout = ""

    def product(self, weights: ast.expr) -> ast.BinOp | ast.Call | None:
        """The product of the weights with the values."""
        while True:
            parent = self.document.parent(weights)
            if isinstance(parent, ast.BinOp):
                return parent if isinstance(parent.op, ast.MatMult) and parent.left is weights else None
            if isinstance(parent, ast.Call):
                if dotted(parent.func).endswith("torch.matmul") and len(parent.args) == 2:
                    return parent if parent.args[0] is weights else None
                own = dotted(parent.func).startswith("self.") and self._is_dropout(parent.func)
                if self.dropout or parent.args != [weights] or not own:
                    return None
                self.dropout = dotted(parent.func)
                weights = parent
            elif isinstance(parent, ast.Assign) and parent.value is weights:
                following = self._only_read(parent)
                if following is None:
                    return None
                self.statements.append(parent)
                weights = following
            else:
                return None

    def _only_read(self, made: ast.Assign) -> ast.Name | None:
        """Where the next statement reads the variable, once."""
        block = self.document.block(made)
        at = next(index for index, item in enumerate(block) if item is made)
        if at + 1 >= len(block) or len(made.targets) != 1 or not isinstance(made.targets[0], ast.Name):
            return None
        found = [
            node
            for node in self.document.walk(block[at + 1])
            if isinstance(node, ast.Name) and node.id == made.targets[0].id and isinstance(node.ctx, ast.Load)
        ]
        return found[0] if len(found) == 1 else None

    def _is_dropout(self, function: ast.expr) -> bool:
        made = [
            node.value
            for node in self.document.walk(self.document.tree)
            if isinstance(node, ast.Assign)
            and any(dotted(target) == dotted(function) for target in node.targets)
        ]
        return bool(made) and all(
            isinstance(value, ast.Call) and dotted(value.func).rpartition(".")[2] == "Dropout"
            for value in made
        )

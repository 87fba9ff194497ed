"""Finds the classes of a project that are modules, and the functions that return modules."""

from __future__ import annotations

import ast
import re

from tclint.engine.model_listing.files import ListedProject, ModelClass, ModelFile, own_nodes

_MODULE_BASES = frozenset(
    {
        "BaseModule", "LightningModule", "Module", "ModuleDict", "ModuleList", "PreTrainedModel",
        "ScriptModule", "Sequential",
    }
)  # fmt: skip
ABSTRACT = frozenset({"BaseModule", "LightningModule", "Module", "PreTrainedModel", "ScriptModule"})
_LIBRARIES = re.compile(
    r"(torch\.nn|timm\.models|torchvision\.models|torchvision\.ops|diffusers\.models|torch_geometric\.nn)\..*\.?[A-Z]\w*"
    r"|(transformers|diffusers)\..*(Model\w*|For[A-Z]\w*|Encoder|Decoder)"
)
"""Module classes of other packages."""
_OTHER_FRAMEWORKS = frozenset(
    ("equinox", "flax", "haiku", "jax", "jittor", "keras", "megengine", "mindspore", "mlx", "mxnet",
     "oneflow", "paddle", "tensorflow", "tinygrad")
)  # fmt: skip
"""Frameworks that also call their modules Module."""
_LIBRARY_BUILDERS = re.compile(
    r"(timm\.create_model|torchvision\.models\..*\.?[a-z]\w*|torch\.hub\.load|.*\.from_pretrained|.*\.from_config)"
)
_BUILDER_NAME = re.compile(r"_?((build|make|create|get)_?(the_)?(\w*_)?(model|net|network)s?|model|net)")


class Modules:
    """The module classes of a project and its functions that return modules."""

    def __init__(self, project: ListedProject) -> None:
        self.project = project
        self.classes = self._module_classes()
        self.builders: dict[ast.FunctionDef, bool] = {}
        """Function that returns a module -> whether that is certain and not just implied by a name."""
        self._find_builders()

    def _module_classes(self) -> set[ModelClass]:
        """The classes that derive from nn.Module, directly or indirectly."""
        modules: set[ModelClass] = set()
        grown = True
        while grown:
            grown = False
            for file in self.project.files:
                for item in file.classes.values():
                    if item not in modules and any(
                        self._is_module(item, base, modules) for base in item.bases
                    ):
                        modules.add(item)
                        grown = True
        return modules

    def _is_module(self, item: ModelClass, base: str, modules: set[ModelClass]) -> bool:
        found = self.base(item, base)
        if found is not None:
            return found in modules
        if base.partition(".")[0] in _OTHER_FRAMEWORKS:
            return False
        return base.rpartition(".")[2] in _MODULE_BASES or _LIBRARIES.fullmatch(base) is not None

    def is_module(self, item: ModelClass, base: str) -> bool:
        """Whether a base of a class, given as a dotted name, is a module class."""
        return self._is_module(item, base, self.classes)

    def base(self, item: ModelClass, base: str) -> ModelClass | None:
        """The class of the project that a base is; None for a library's class, even if the names agree."""
        found = self.project.find_class(item.file, base)
        return None if found is item else found

    def find(self, file: ModelFile, dotted: str) -> ModelClass | None:
        """The module class of the project that a dotted name in a file means."""
        found = self.project.find_class(file, dotted)
        return found if found in self.classes else None

    def _find_builders(self) -> None:
        for certain in (True, False):
            if not certain:
                for file in self.project.files:
                    for name, node in file.functions.items():
                        if _BUILDER_NAME.fullmatch(name) and _returns_something(node):
                            self.builders.setdefault(node, False)
            grown = True
            while grown:
                grown = False
                for file in self.project.files:
                    for node in file.functions.values():
                        if node not in self.builders and self._returns_module(file, node):
                            self.builders[node] = certain
                            grown = True

    def _returns_module(self, file: ModelFile, node: ast.FunctionDef) -> bool:
        """Whether a function returns a module, or a tuple that starts with one."""
        if node.returns is not None:
            annotated = file.dotted(node.returns) or (
                node.returns.value if isinstance(node.returns, ast.Constant) else ""
            )
            last = str(annotated).rpartition(".")[2]
            if self.find(file, str(annotated)) or last in ABSTRACT or last == "Sequential":
                return True
        made: dict[str, bool] = {}

        def is_module(value: ast.expr | None) -> bool:
            if isinstance(value, ast.Tuple) and value.elts:
                return is_module(value.elts[0])
            if isinstance(value, ast.Name):
                return made.get(value.id, False)
            if isinstance(value, ast.IfExp):
                return is_module(value.body) or is_module(value.orelse)
            if not isinstance(value, ast.Call):
                return False
            dotted = file.dotted(value.func)
            if dotted:
                if self.project.find_function(file, dotted) in self.builders or self.find(file, dotted):
                    return True
                name = dotted.rpartition(".")[2]
                if _LIBRARY_BUILDERS.fullmatch(dotted):
                    return True
                if dotted.startswith("torch.nn.") and name[:1].isupper():
                    return name not in ("Parameter", "Buffer")
            # model.to(device), build().eval()
            return isinstance(value.func, ast.Attribute) and is_module(value.func.value)

        nodes = list(own_nodes(node))
        for item in nodes:
            if isinstance(item, ast.Assign) and len(item.targets) == 1:
                target = item.targets[0]
                if isinstance(target, ast.Name):
                    made[target.id] = made.get(target.id, False) or is_module(item.value)
        return any(isinstance(item, ast.Return) and is_module(item.value) for item in nodes)


def _returns_something(node: ast.FunctionDef) -> bool:
    """Whether a function returns a value other than one of its own functions, which decorators return."""
    inner = {item.name for item in ast.walk(node) if isinstance(item, ast.FunctionDef) and item is not node}
    values = [item.value for item in own_nodes(node) if isinstance(item, ast.Return) and item.value]
    return any(not (isinstance(value, ast.Name) and value.id in inner) for value in values)

"""Which files of a project import each other."""

from __future__ import annotations

from tclint.engine.imports import connected, imported

FILES = {
    "/p/net.py": "from torch.nn import functional\nfrom . import parts\n",
    "/p/parts.py": "",
    "/p/functional.py": "",  # not torch's
    "/p/train.py": "from net import (\n    Net,\n)\nimport lib.data.loaders as loaders\n",
    "/p/lib/data/loaders.py": "from ..tools import x\n",
    "/p/lib/tools/__init__.py": "import importlib\nimportlib.import_module('lib.late')\n",
    "/p/lib/late.py": "",
    "/p/old_net.py": "import torch\n",
    "/p/broken.py": "import net\nthis is no python",
}


def test_what_a_file_imports() -> None:
    assert imported(FILES, ["/p/net.py"]) == {"/p/net.py", "/p/parts.py"}
    assert imported(FILES, ["/p/train.py", "/gone.py"]) == {
        "/p/train.py", "/p/net.py", "/p/parts.py",
        "/p/lib/data/loaders.py", "/p/lib/tools/__init__.py", "/p/lib/late.py",
    }  # fmt: skip


def test_what_imports_a_file() -> None:
    assert connected(FILES, ["/p/net.py"]) == FILES.keys() - {
        "/p/functional.py", "/p/old_net.py", "/p/broken.py",
    }  # fmt: skip
    assert connected(FILES, ["/p/old_net.py"]) == {"/p/old_net.py"}

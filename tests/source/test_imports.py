"""Which files of a project import each other."""

from __future__ import annotations

from tclint.source.project.scripts import Scripts

FILES = {
    "/p/net.py": "from torch.nn import functional\nfrom . import parts\n",
    "/p/parts.py": "",
    "/p/functional.py": "",  # not torch's
    "/p/train.py": "from net import (\n    Net,\n)\nimport lib.data.loaders as loaders\n",
    "/p/lib/data/loaders.py": "from ..tools import \\\n    x\n",
    "/p/lib/tools/__init__.py": "import importlib\nimportlib.import_module('lib.late')\n",
    "/p/lib/late.py": "",
    "/p/old_net.py": "import torch\n",
}
SCRIPTS = Scripts({path: text.encode() for path, text in FILES.items()})


def test_what_a_file_imports() -> None:
    assert SCRIPTS.reached_from(["/p/net.py"]) == {"/p/net.py", "/p/parts.py"}
    assert SCRIPTS.reached_from(["/p/train.py", "/gone.py"]) == {
        "/p/train.py", "/p/net.py", "/p/parts.py",
        "/p/lib/data/loaders.py", "/p/lib/tools/__init__.py", "/p/lib/late.py",
    }  # fmt: skip


def test_what_imports_a_file() -> None:
    assert SCRIPTS.connected_with(["/p/net.py"]) == FILES.keys() - {"/p/functional.py", "/p/old_net.py"}
    assert SCRIPTS.connected_with(["/p/old_net.py"]) == {"/p/old_net.py"}


def test_a_script_in_another_folder_means_the_model_by_the_end_of_its_path() -> None:
    copied = Scripts(
        {"/copy/lib/net.py": b"", "/home/train.py": b"from lib.net import Net\n", "/copy/net.py": b""}
    )
    assert copied.connected_with(["/copy/lib/net.py"]) == {"/copy/lib/net.py", "/home/train.py"}

"""Which files the paths on the command line mean."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tclint.config.pyproject import load_config
from tclint.config.settings import Settings
from tclint.core.errors import TargetError
from tclint.engine.check import check
from tclint.source.syntax.discovery import discover

CODE = "import torch\n"


def write(root: Path, *names: str, text: str = CODE) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def found(root: Path, *paths: Path, **settings: object) -> list[str]:
    files, _ = discover([str(path) for path in paths or (root,)], Settings(**settings))  # type: ignore[arg-type]
    return [os.path.relpath(file, root).replace(os.sep, "/") for file in files]


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "-q")
    return root


def test_a_submodule_that_is_not_checked_out_is_empty(repository: Path) -> None:
    write(repository, "train.py")
    (repository / "dependencies" / "sub").mkdir(parents=True)
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},dependencies/sub")
    assert found(repository) == ["train.py"]


def test_folder_outside_git_leaves_out_environments_and_builds(tmp_path: Path) -> None:
    write(
        tmp_path,
        "train.py",
        "pkg/model.py",
        ".venv/lib/a.py",
        "lib/site-packages/b.py",
        "build/c.py",
        "pkg/__pycache__/d.py",
        "env/lib/e.py",
    )
    write(tmp_path, "notes.txt", "pkg/data.pyi")
    (tmp_path / "env" / "pyvenv.cfg").write_text("home = /usr\n")
    assert found(tmp_path) == ["pkg/model.py", "train.py"]


def test_folder_outside_git_honours_nested_gitignore(tmp_path: Path) -> None:
    write(tmp_path, "a.py", "gen/b.py", "gen/keep.py", "sub/c.py", "sub/d_pb2.py")
    (tmp_path / ".gitignore").write_text("*_pb2.py\ngen/*\n!gen/keep.py\n")
    (tmp_path / "sub" / ".gitignore").write_text("!d_pb2.py\nc.py\n")
    assert found(tmp_path) == ["a.py", "gen/keep.py", "sub/d_pb2.py"]


def test_repository_gives_tracked_and_untracked_but_not_ignored(repository: Path) -> None:
    write(repository, "tracked.py", "gone.py", "untracked.py", "ignored.py", "pkg/ü b.py")
    (repository / ".gitignore").write_text("ignored.py\n")
    git(repository, "add", "tracked.py", "gone.py")
    git(repository, "commit", "-qm", "x")
    (repository / "gone.py").unlink()
    assert found(repository) == ["pkg/ü b.py", "tracked.py", "untracked.py"]
    assert found(repository, repository / "pkg") == ["pkg/ü b.py"]


def test_ignored_folder_named_explicitly_is_read(repository: Path) -> None:
    write(repository, "third_party/a.py", ".venv/lib/site-packages/lib/b.py")
    (repository / ".gitignore").write_text("third_party/\n.venv/\n")
    assert found(repository) == []
    assert found(repository, repository / "third_party") == ["third_party/a.py"]
    environment = repository / ".venv" / "lib" / "site-packages" / "lib"
    assert found(repository, environment) == [".venv/lib/site-packages/lib/b.py"]


def test_repository_inside_a_repository_is_entered(repository: Path) -> None:
    write(repository, "a.py", "inner/b.py", "inner/hidden.py")
    git(repository / "inner", "init", "-q")
    (repository / "inner" / ".gitignore").write_text("hidden.py\n")
    assert found(repository) == ["a.py", "inner/b.py"]


def test_a_hooks_environment_does_not_name_the_repository(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(repository, "a.py")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    assert found(repository) == ["a.py"]


def test_exclude_is_relative_to_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "src/a.py", "src/gen/b.py", "gen/c.py", "tests/d_test.py")
    monkeypatch.chdir(tmp_path)
    assert found(tmp_path, exclude=("/gen/", "*_test.py")) == ["src/a.py", "src/gen/b.py"]
    # A file given by name is taken as it is.
    assert found(tmp_path, tmp_path / "gen" / "c.py", exclude=("gen/",)) == ["gen/c.py"]


@pytest.mark.parametrize("where", [".", "src", "src/gen", "tests"])
def test_exclude_of_a_configuration_file_is_relative_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    write(tmp_path, "src/a.py", "src/gen/b.py", "gen/c.py", "tests/d_test.py")
    (tmp_path / "pyproject.toml").write_text('[tool.tclint]\nexclude = ["/src/gen/", "*_test.py"]\n')
    monkeypatch.chdir(tmp_path / where)
    settings = load_config(tmp_path / "pyproject.toml")
    root = os.path.relpath(tmp_path)
    for named in (root, str(tmp_path)):
        files = [os.path.relpath(file, tmp_path) for file in discover([named], settings)[0]]
        assert files == ["gen/c.py", "src/a.py"]


def test_what_is_named_is_read_though_excluded_unless_the_user_says_otherwise(tmp_path: Path) -> None:
    write(tmp_path, "pyproject.toml", text='[tool.tclint]\nexclude = ["legacy/"]\n')
    write(tmp_path, "legacy/a.py", "b.py")
    named = (tmp_path / "legacy" / "a.py", tmp_path / "b.py")
    settings = load_config(tmp_path / "pyproject.toml")
    assert found(tmp_path, *named, exclude=settings.exclude, exclude_root=settings.exclude_root) == [
        "legacy/a.py",
        "b.py",
    ]
    forced = {"exclude": settings.exclude, "exclude_root": settings.exclude_root, "force_exclude": True}
    assert found(tmp_path, *named, **forced) == ["b.py"]
    assert found(tmp_path, named[0].parent, **forced) == []


def test_exclude_holds_through_a_link_to_the_project(tmp_path: Path) -> None:
    project, link = tmp_path / "project", tmp_path / "link"
    write(project, "a.py", "gen/b.py")
    link.symlink_to(project)
    settings = Settings(exclude=("/gen/",), exclude_root=str(project))
    assert discover([str(link)], settings)[0] == [str(link / "a.py")]


def test_paths_that_overlap_give_each_file_once_in_order(tmp_path: Path) -> None:
    write(tmp_path, "a.py", "pkg/b.py")
    assert found(tmp_path, tmp_path / "pkg", tmp_path / "pkg" / "b.py", tmp_path) == ["pkg/b.py", "a.py"]


def test_missing_path_and_other_file_are_the_users_errors(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"no file or folder .*nowhere\.py"):
        discover([str(tmp_path / "nowhere.py")], Settings())
    write(tmp_path, "notes.txt")
    with pytest.raises(TargetError, match="neither a folder nor a Python file"):
        discover([str(tmp_path / "notes.txt")], Settings())


def test_empty_folder_and_links_in_circles(tmp_path: Path) -> None:
    assert found(tmp_path) == []
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "dangling.py").symlink_to(tmp_path / "nothing.py")
    write(tmp_path, "a.py")
    assert found(tmp_path) == ["a.py"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_named_pipe_is_never_waited_for(tmp_path: Path, python_m_tclint: list[str]) -> None:
    # Elsewhere than in this process: whoever opened the pipe would never come back.
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*python_m_tclint, *arguments, "--isolated", "--no-cache"]
        return subprocess.run(
            command,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    (tmp_path / "train.py").write_text("import torch\nscaler = torch.cuda.amp.GradScaler()\nimport helper\n")
    for name in ("pipe.py", "helper.py", ".gitignore", "requirements.txt"):
        os.mkfifo(tmp_path / name)
    named = run("pipe.py", "train.py")
    assert named.returncode == 2
    assert "'pipe.py' is no regular file but a pipe" in named.stderr + named.stdout
    assert "deprecated-cuda-amp" in named.stdout  # the other target went on
    beside = run("pipe.py:build", "train.py")
    assert beside.returncode == 2
    assert "'pipe.py' is no file that Python could run" in beside.stdout
    folder = run(".")
    assert folder.returncode == 0
    assert "1 finding (1 info) in 1 file;" in folder.stdout
    assert run("fix", "pipe.py").returncode == 2
    assert run("models", "pipe.py").returncode == 2


def test_one_path_that_is_no_source_does_not_keep_the_others_from_being_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "notes.txt")
    write(tmp_path, "train.py", text="import torch\nscaler = torch.cuda.amp.GradScaler()\n")
    report = check(["notes.txt", "train.py", "nowhere.py"])
    assert [finding.location.path for finding in report.findings] == ["train.py"]
    assert [error.target for error in report.errors] == ["notes.txt", "nowhere.py"]

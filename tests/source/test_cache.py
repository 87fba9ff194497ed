"""Tables kept between runs: the same findings, no parsing, nothing trusted."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tclint.config.settings import Settings
from tclint.engine.rules.registry import all_rules
from tclint.engine.sources.lint import lint
from tclint.source.source_rule import SourceRule
from tclint.source.syntax.cache import TablesCache, user_folder
from tclint.source.syntax.parse import parse
from tclint.source.syntax.positions import Span

TEXT = """\
import torch

values = (1, 2.5, 3j, ..., None, True, b"x", "é", {1: [2]}, lambda a: a if a else -a)


class Trainer:
    def step(self, batch, **rest):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = self.model(batch[0:2])
        loss.backward()
        self.optimizer.step()
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TablesCache:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = TablesCache.of(Settings())
    assert found is not None
    return found


def entries(cache: TablesCache) -> list[Path]:
    return sorted(cache.folder.iterdir())


def forbid_parsing(monkeypatch: pytest.MonkeyPatch) -> None:
    def parsed(text: str) -> None:
        raise AssertionError("parsed again")

    monkeypatch.setattr("tclint.source.syntax.cache.parse", parsed)


def test_second_time_is_equal_without_parsing(cache: TablesCache, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = parse(TEXT)
    first = cache.parse(TEXT)
    assert first.spans == fresh.spans
    forbid_parsing(monkeypatch)
    second = cache.parse(TEXT)
    assert second.tables == first.tables == fresh.tables
    assert second.spans == fresh.spans
    assert type(second.spans[0]) is Span
    with pytest.raises(AssertionError, match="parsed again"):
        cache.parse(TEXT + "\n")


def test_positions_are_found_when_only_tables_were_kept(cache: TablesCache) -> None:
    cache.parse(TEXT)
    assert [path.suffix for path in entries(cache)] == [".tables"]
    assert cache.parse(TEXT).spans == parse(TEXT).spans
    assert [path.suffix for path in entries(cache)] == [".spans", ".tables"]


@pytest.mark.parametrize("damage", ["cut", "empty", "folder"])
def test_damaged_entry_is_a_miss(cache: TablesCache, damage: str) -> None:
    fresh = cache.parse(TEXT)
    assert fresh.spans
    for path in entries(cache):
        data = path.read_bytes()
        if damage == "folder":
            path.unlink()
            path.mkdir()
        else:
            middle = len(data) // 2
            path.write_bytes({"cut": data[:middle], "empty": b""}[damage])
    again = cache.parse(TEXT)
    assert again.tables == fresh.tables
    assert again.spans == fresh.spans


class Attack:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (self.path,)


def test_forged_entry_runs_nothing(cache: TablesCache, tmp_path: Path) -> None:
    fresh = cache.parse(TEXT)
    assert fresh.spans
    payload = pickle.dumps(Attack(str(tmp_path / "attacked")))
    for path in entries(cache):
        path.write_bytes(payload)
    assert cache.parse(TEXT).tables == fresh.tables
    assert not (tmp_path / "attacked").exists()
    pickle.loads(payload)
    assert (tmp_path / "attacked").exists(), "the forged entry would have done something"


@pytest.mark.skipif(sys.platform == "win32", reason="no owners and modes")
def test_folder_is_private_or_not_used(cache: TablesCache, tmp_path: Path) -> None:
    assert cache.folder.stat().st_mode & 0o777 == 0o700
    cache.folder.chmod(0o777)
    assert TablesCache.of(Settings()) is None
    cache.folder.rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    cache.folder.symlink_to(tmp_path / "elsewhere")
    assert TablesCache.of(Settings()) is None


def test_setting_switches_it_off(cache: TablesCache, tmp_path: Path) -> None:
    assert TablesCache.of(Settings(cache=False)) is None
    (tmp_path / "train.py").write_text(TEXT)
    rules = [rule() for rule in all_rules() if issubclass(rule, SourceRule)]
    plain = lint([str(tmp_path / "train.py")], rules, Settings(cache=False))
    assert plain.findings
    assert not entries(cache)
    runs = [lint([str(tmp_path / "train.py")], rules, Settings()) for _ in range(2)]
    assert entries(cache)
    assert runs[0].findings == runs[1].findings == plain.findings


def test_cache_that_cannot_be_made_costs_only_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert TablesCache.of(Settings()) is None
    assert TablesCache(tmp_path / "missing").parse(TEXT).tables == parse(TEXT).tables


def test_relative_folder_is_not_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A relative path would point into the project that is linted."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", ".cache")
    found = user_folder("tables")
    assert found is not None
    assert found.is_absolute()
    assert not found.is_relative_to(tmp_path)


def test_the_oldest_entries_go(cache: TablesCache) -> None:
    for number in range(8):
        path = cache.folder / f"{number}.tables"
        path.write_bytes(b"x" * 100)
        os.utime(path, (time.time() - 1000 + number,) * 2)
    cache.limit(8)
    assert len(entries(cache)) == 8
    cache.limit(5)
    assert [path.name for path in entries(cache)] == [f"{number}.tables" for number in range(3, 8)]


def test_unchanged_files_are_linted_without_libcst(cache: TablesCache, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TEXT)
    program = f"""
import sys
from tclint.config.settings import Settings
from tclint.engine.rules.registry import load_rules
from tclint.plugin import SourceRule
from tclint.engine.sources.lint import lint
rules = [rule for rule in load_rules(Settings()) if isinstance(rule, SourceRule)]
found = lint([{str(tmp_path / "train.py")!r}], rules, Settings()).findings
print(sorted(finding.code for finding in found), "libcst" in sys.modules)
"""
    first, second = (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    )
    assert first.rstrip().endswith("True")
    assert second.rstrip().endswith("False")
    assert first.split("]")[0] == second.split("]")[0] != "["

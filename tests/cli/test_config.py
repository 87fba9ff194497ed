"""[tool.tclint]: where it is found, what it may say, and what is said of mistakes."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tclint.cli.main import cli
from tclint.cli.options import parse_flag
from tclint.config.pyproject import find_config, load_config, with_flags
from tclint.config.settings import SETTINGS, SETTINGS_BY_KEY, Override, Settings, matches
from tclint.core.errors import UsageError


def write(folder: Path, text: str, name: str = "pyproject.toml") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text(text)
    return file


@pytest.fixture(autouse=True)
def _in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def mistake(text: str) -> str:
    """What is said of a configuration file with this text."""
    with pytest.raises(UsageError) as caught:
        load_config(write(Path.cwd(), text))
    return str(caught.value)


def test_keys_reach_their_settings(tmp_path: Path) -> None:
    text = """
[tool.tclint]
select = ["DIM", "vocab-misaligned"]
extend-select = "AMP016"
ignore = ["DIM010"]
gpu = ["h100", "t4"]
precision = "bf16"
mode = "infer"
layout = "channels_last"
quantized = "fp8"
tensor-parallel = 4
compiled = true
optimizer = "sgd-momentum"
accumulation = 4
compare = ["gpu", "batch,layout"]
batch = 64
input = ["a", "b"]
input-set = "a;b"
arg = ["width=64", "depth=2"]
network = true
cache = false
min-gain = "2.5%"
fail-on = "error"
timeout = 60
memory-limit = "4GiB"
jobs = 2
exclude = ["generated/"]
baseline = "known.json"
rules = ["./lint_rules"]
"""
    settings = load_config(write(tmp_path, text))
    assert settings == Settings(
        gpus=("h100", "t4"),
        precision="bf16",
        mode="infer",
        layout="channels_last",
        quantized="fp8",
        tensor_parallel=4,
        compiled=True,
        optimizer="sgd-momentum",
        accumulation=4,
        compare=("gpu", "batch", "layout"),
        batch=64,
        inputs=("a", "b"),
        input_sets=("a;b",),
        arguments=("width=64", "depth=2"),
        network=True,
        cache=False,
        select=("DIM", "vocab-misaligned"),
        extend_select=("AMP016",),
        ignore=("DIM010",),
        min_gain_percent=2.5,
        fail_on="error",
        timeout_s=60.0,
        memory_limit_mib=4096,
        jobs=2,
        exclude=("generated/",),
        exclude_root=str(tmp_path),
        baseline=str(tmp_path / "known.json"),
        rules=(str(tmp_path / "lint_rules"),),
    )


def test_nearest_section_wins_and_other_files_are_passed_over(tmp_path: Path) -> None:
    top = write(tmp_path, "[tool.tclint]\n")
    write(tmp_path / "a", "[tool.black]\nline-length = 100\n")
    nearest = write(tmp_path / "a" / "b", "[tool.tclint]\n")
    deep = tmp_path / "a" / "b" / "c"
    deep.mkdir()
    assert find_config(deep) == nearest
    assert find_config(tmp_path / "a") == top


def test_no_section_anywhere(tmp_path: Path) -> None:
    assert find_config(tmp_path) is None


def test_foreign_broken_file_is_no_concern(tmp_path: Path) -> None:
    write(tmp_path, "this is = not [toml\n")
    assert find_config(tmp_path) is None


OVERRIDES = "[[tool.tclint.overrides]]"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["", "min_gain = 2"], "pyproject.toml:3: 'min_gain' is not a key of [tool.tclint]. Did you mean"),
        (["slect = []"], "pyproject.toml:2: 'slect' is not a key of [tool.tclint]. Did you mean 'select'?"),
        (["x = 1"], "'x' is not a key of [tool.tclint]. The keys are select, extend-select, ignore, gpu"),
        (["batch = 'many'"], "pyproject.toml:2: 'batch' expects a whole number above 0, not 'many'."),
        (["batch = 0"], "'batch' expects a whole number above 0, not 0."),
        (["batch = true"], "'batch' expects a whole number above 0, not True."),
        (["compiled = 1"], "'compiled' expects true or false, not 1."),
        (
            ["precision = 'bf61'"],
            "pure-bf16, fp8, int8, not 'bf61'. Did you mean 'bf16'?",
        ),
        (["select = [1]"], "'select' expects a string or an array of strings, not [1]."),
        (["select = 'DIM,,'"], "'select' expects rule codes or names such as"),
        (["min-gain = -1"], "'min-gain' expects 0 or more percent of the step, not -1."),
        (["min-gain = nan"], "'min-gain' expects percent of the step"),
        (["timeout = 0"], "'timeout' expects seconds above 0, not 0."),
        (["memory-limit = '8 bananas'"], "'memory-limit' expects MiB as a number or a size such as '8GiB'"),
        (["extend = 'none.toml'"], "pyproject.toml:2: 'extend' names 'none.toml', which does not exist."),
        (["overrides = 1"], f"'overrides' expects tables under {OVERRIDES}, not 1."),
        (
            [OVERRIDES, "paths = 'a'", "ignore = 'DIM'", OVERRIDES, "paths = 'b'", "ignor = 'X'"],
            f"pyproject.toml:7: 'ignor' is not a key of {OVERRIDES}. Did you mean 'ignore'?",
        ),
        ([OVERRIDES, "ignore = 'DIM'"], "'paths' is missing: say which paths the override is for."),
        ([OVERRIDES, "paths = 'a'"], "pyproject.toml:3: 'paths' has nothing to override; add select"),
    ],
)  # fmt: skip
def test_mistakes_read_as_one_sentence(lines: list[str], said: str) -> None:
    message = mistake("\n".join(["[tool.tclint]", *lines]) + "\n")
    assert said in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tool]\ntclint = 3\n", "pyproject.toml: tool.tclint must be a table"),
        ("[tool.tclint\n", "pyproject.toml is not valid TOML"),
        ("[tool.black]\n# tclint\n", "pyproject.toml has no [tool.tclint] section"),
    ],
)
def test_files_without_a_section(text: str, said: str) -> None:
    assert said in mistake(text)


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"There is no configuration file none\.toml"):
        load_config(tmp_path / "none.toml")
    with pytest.raises(UsageError, match="Cannot read"):
        load_config(tmp_path)
    (tmp_path / "pyproject.toml").write_bytes(b"[tool.tclint]\n# caf\xe9\n")
    with pytest.raises(UsageError, match="not UTF-8"):
        load_config(tmp_path / "pyproject.toml")


def test_extend_gives_what_this_file_does_not_say(tmp_path: Path) -> None:
    write(tmp_path / "base", '[tool.tclint]\ngpu = "t4"\nbatch = 4\nrules = ["r"]\n', "shared.toml")
    file = write(tmp_path / "app", '[tool.tclint]\nextend = "../base/shared.toml"\nbatch = 8\n')
    settings = load_config(file)
    assert (settings.gpus, settings.batch) == (("t4",), 8)
    assert settings.rules == (str(tmp_path / "base" / "r"),)


def test_extend_in_a_circle(tmp_path: Path) -> None:
    write(tmp_path, '[tool.tclint]\nextend = "b.toml"\n', "a.toml")
    write(tmp_path, '[tool.tclint]\nextend = "a.toml"\n', "b.toml")
    with pytest.raises(UsageError, match=r"in a circle: a\.toml -> b\.toml -> a\.toml"):
        load_config(tmp_path / "a.toml")


def test_overrides_of_an_extended_file_come_first(tmp_path: Path) -> None:
    override = '[[tool.tclint.overrides]]\npaths = "{}"\n{}\n'
    write(tmp_path, "[tool.tclint]\n" + override.format("*.py", 'select = "DIM"'), "base.toml")
    file = write(
        tmp_path, '[tool.tclint]\nextend = "base.toml"\n' + override.format("tests/", 'ignore = "DIM003"')
    )
    settings = load_config(file)
    assert settings.for_path(f"{tmp_path}/tests/a.py").select == ("DIM",)
    assert settings.for_path(f"{tmp_path}/tests/a.py").ignore == ("DIM003",)
    assert settings.for_path(f"{tmp_path}/src/a.py").ignore == ()
    assert settings.for_path("/elsewhere/a.py").select == ()


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("generated/", "a/generated/x.py", True),
        ("generated/", "generated.py", False),
        ("/gen", "gen/x.py", True),
        ("/gen", "a/gen/x.py", False),
        ("a/b.py", "a/b.py", True),
        ("a/b.py", "c/a/b.py", False),
        ("./b.py", "b.py", True),
        ("./b.py", "a/b.py", False),
        ("*_pb2.py", "a/x_pb2.py", True),
        ("a/**/x.py", "a/b/c/x.py", True),
    ],
)
def test_patterns_are_relative_to_their_file(tmp_path: Path, pattern: str, path: str, expected: bool) -> None:
    # Inside a folder of a name that the patterns must not see.
    folder = tmp_path / "generated"
    text = f"""[tool.tclint]
exclude = ["{pattern}"]
[[tool.tclint.overrides]]
paths = ["{pattern}"]
ignore = "DIM"
"""
    settings = load_config(write(folder, text))
    assert settings.excludes(str(folder / path)) is expected
    assert not settings.excludes(str(tmp_path / path))
    assert bool(settings.for_path(str(folder / path)).ignore) is expected
    assert not settings.for_path(str(tmp_path / path)).ignore


def test_pattern_of_the_folder_above_is_refused() -> None:
    assert "'exclude' expects paths below the folder of this file" in mistake(
        '[tool.tclint]\nexclude = "../x"\n'
    )


def test_later_negation_takes_back(tmp_path: Path) -> None:
    patterns = ("*.py", "!keep.py")
    assert matches(patterns, str(tmp_path / "a.py"))
    assert not matches(patterns, str(tmp_path / "keep.py"))


def test_flags_win() -> None:
    settings = Settings(gpus=("t4",), batch=4, select=("AMP",), ignore=("DIM003",), extend_select=("RUN",))
    assert with_flags(settings, {"gpus": ("a100",)}).gpus == ("a100",)
    assert with_flags(settings, {}).batch == 4
    selected = with_flags(settings, {"select": ("DIM003",)})
    assert (selected.select, selected.extend_select, selected.ignore) == (("DIM003",), (), ())
    assert with_flags(settings, {"extend_select": ("dim003",)}).ignore == ()
    assert with_flags(settings, {"ignore": ("RUN",)}).extend_select == ()
    assert with_flags(settings, {"ignore": ("ARC",)}).ignore == ("DIM003", "ARC")


def test_selecting_on_the_command_line_keeps_exceptions_for_paths() -> None:
    settings = Settings(overrides=(Override(("t/",), select=("AMP",), ignore=("DIM001",)),))
    chosen = with_flags(settings, {"select": ("DIM",)}).for_path("t/a.py")
    assert (chosen.select, chosen.ignore) == (("DIM",), ("DIM001",))


def test_flags_are_parsed_as_keys_are() -> None:
    assert parse_flag(SETTINGS_BY_KEY["min-gain"], "0.5%") == 0.5
    assert parse_flag(SETTINGS_BY_KEY["memory-limit"], "512") == 512
    assert parse_flag(SETTINGS_BY_KEY["memory-limit"], "1.5 GB") == 1536
    assert parse_flag(SETTINGS_BY_KEY["select"], ["DIM,AMP001", "arc"]) == ("DIM", "AMP001", "arc")
    with pytest.raises(UsageError, match="--batch expects a whole number above 0, not '3x'"):
        parse_flag(SETTINGS_BY_KEY["batch"], "3x")


toml_values: st.SearchStrategy[Any] = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)


def toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + "".join(f"\\U{ord(character):08x}" for character in value) + '"'
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return repr(value)


@settings(deadline=None)
@given(name=st.sampled_from([*SETTINGS_BY_KEY, "extend", "overrides"]), value=toml_values)
@example(name="calibration", value="~nobody0")  # a home folder that nobody has
@example(name="extend", value="~nobody0")
def test_any_value_is_taken_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, name: str, value: Any
) -> None:
    if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
        return
    file = write(tmp_path_factory.getbasetemp() / "any", f"[tool.tclint]\n{name} = {toml(value)}\n")
    refusal = refused(file)
    if refusal is None:
        hash(load_config(file))
    else:
        assert refusal.isprintable()
        assert f"{os.sep}any{os.sep}pyproject.toml:2" in os.path.abspath(refusal.split(": ")[0])


@settings(deadline=None)
@given(text=st.text(max_size=60))
def test_any_text_is_refused_in_one_line_or_read(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    file = tmp_path_factory.getbasetemp() / "any.toml"
    file.write_bytes(b"[tool.tclint]\n" + text.encode("utf-8", "surrogatepass"))
    assert (refused(file) or "").isprintable()


def refused(file: Path) -> str | None:
    """What is said against a file, or None."""
    try:
        load_config(file)
    except UsageError as error:
        return str(error)
    return None


@pytest.fixture
def projects(tmp_path: Path) -> Path:
    write(tmp_path, '[tool.tclint]\ngpu = "h100"\nexclude = ["gone.py"]\nmodels = ["net.py:build"]\n')
    write(tmp_path, '[[tool.tclint.overrides]]\npaths = ["a/"]\nignore = ["AMP"]\n', "extra.toml")
    write(tmp_path / "b", '[tool.tclint]\nprecision = "bf16"\n')
    write(tmp_path / "a", "", "x.py")
    write(tmp_path / "b", "", "y.py")
    write(tmp_path, "", "gone.py")
    return tmp_path


def shown(*arguments: str) -> str:
    result = CliRunner().invoke(cli, ["check", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_settings_of_a_run_are_shown_with_their_origin(projects: Path) -> None:
    root, nested = shown("--show-settings", "--batch", "4").split("\n\n")
    assert root.startswith(f"# .: {projects / 'pyproject.toml'}\n[tool.tclint]\n")
    assert nested.startswith(f"# b: {projects / 'b' / 'pyproject.toml'}\n[tool.tclint]\n")
    assert {'gpu = ["h100"]', 'precision = "fp16"  # default', "batch = 4  # command line"} < set(
        root.splitlines()
    )
    assert {'gpu = ["a100", "v100"]  # default', 'precision = "bf16"'} < set(nested.splitlines())
    said = re.findall(r"^(?:# )?([\w-]+) (?:=|is not set)", root, re.MULTILINE)
    assert said == [setting.key for setting in SETTINGS]
    values = {line.partition(" = ")[2].partition("  #")[0] for line in root.splitlines() if " = " in line}
    assert all(json.loads(value) is not None for value in values)


def test_the_settings_of_one_file_are_those_that_overrides_leave(projects: Path) -> None:
    config = ("--config", "extra.toml", "--show-settings")
    assert 'ignore = ["AMP"]\n' in shown("a/x.py", *config)
    assert "ignore = []  # default\n" in shown("b/y.py", *config)


def test_the_files_of_a_run_are_shown(projects: Path) -> None:
    assert shown("--show-files") == "a/x.py\nb/y.py\n"
    assert shown("gone.py", "net.py:build", "--show-files") == "net.py:build\ngone.py\n"
    assert shown("--models", "--show-files") == "net.py:build\n"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('gpu = ["a1000"]\n', "pyproject.toml:3: Unknown GPU 'a1000'."),
        ('select = ["DIM999"]\n', "pyproject.toml:3: No rule is called 'DIM999'."),
        (
            'ignore = ["DIM"]\n[[tool.tclint.overrides]]\npaths = ["a/"]\nignore = ["DIM999"]\n',
            "pyproject.toml:6: No rule is called 'DIM999'.",
        ),
        ('calibration = "none.json"\n', "pyproject.toml:3: Cannot read the calibration"),
    ],
)
def test_what_a_file_names_and_does_not_exist_is_told_with_its_line(
    projects: Path, lines: str, said: str
) -> None:
    write(projects, f"[tool.tclint]\n\n{lines}")
    for shown in ((), ("--show-settings",)):
        result = CliRunner().invoke(cli, ["check", "a", *shown])
        assert (result.exit_code, result.stdout) == (2, "")
        assert said in result.stderr.replace(f"{projects}/", "")


def test_what_the_command_line_names_is_not_blamed_on_a_file(projects: Path) -> None:
    write(projects, '[tool.tclint]\ngpu = ["a1000"]\n')
    result = CliRunner().invoke(cli, ["check", "a", "--gpu", "a2000"])
    assert "error: Unknown GPU 'a2000'." in result.stderr

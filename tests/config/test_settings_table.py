"""The table of settings: what is declared of a setting holds wherever it is stated."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import click
import pytest
from jsonschema import Draft202012Validator

from tclint.cli.main import check
from tclint.cli.options import read_settings
from tclint.config import kinds
from tclint.config.declared_models import parse_models
from tclint.config.kinds import Kind, Setting
from tclint.config.pyproject import load_config
from tclint.config.settings import SETTINGS, SETTINGS_BY_KEY, Settings
from tclint.core.errors import UsageError
from tclint.core.toml import parse_toml
from tclint.cost.scenario import Scenario
from tclint.engine.baseline import scenario_of
from tclint.engine.caches import TraceCache
from tclint.engine.report import Report
from tclint.report.formats.json import schema, to_dict

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "configuration.md"

EXAMPLES: dict[Kind, str] = {
    kinds.COUNT: "3",
    kinds.GPU_COUNT: "3",
    kinds.COUNT_OR_ZERO: "3",
    kinds.PERCENT: "2.5%",
    kinds.SECONDS: "7",
    kinds.SIZE_MIB: "64MiB",
    kinds.INPUTS: "int64[8,128]",
    kinds.INPUT_SETS: "8,64;8",
    kinds.ARGUMENTS: "width=64",
    kinds.SELECTORS: "DIM003",
    kinds.GPUS: "h100",
    kinds.PATTERNS: "generated/",
    kinds.REVISION: "main",
    kinds.TIME: "120ms",
    kinds.PRICE: "2.5",
    kinds.FILE: "own.toml",
    kinds.FILES: "own.toml",
}
"""A value of each kind, as a flag has it, that is no setting's default."""

every_setting = pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.key)


def example(setting: Setting) -> str | bool:
    if isinstance(setting.default, bool):
        return not setting.default
    choices = [choice for choice in setting.kind.choices if choice != setting.default]
    return choices[0] if choices else EXAMPLES[setting.kind]


def written(setting: Setting) -> str:
    """The example as TOML."""
    value = example(setting)
    return str(value).lower() if isinstance(value, bool) else f'"{value}"'


def in_file(folder: Path, setting: Setting) -> Any:
    """The example as a configuration file sets it."""
    file = folder / "pyproject.toml"
    file.write_text(f"[tool.tclint]\n{setting.key} = {written(setting)}\n")
    settings = load_config(file)
    assert setting.field in settings.explicit
    return getattr(settings, setting.field)


def changed(setting: Setting) -> Settings:
    """The defaults but for one setting."""
    value = example(setting)
    return Settings(**{setting.field: value if isinstance(value, bool) else setting.kind.parse(value)})


@pytest.fixture(autouse=True)
def _in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@every_setting
def test_the_field_has_the_default(setting: Setting) -> None:
    assert getattr(Settings(), setting.field) == setting.default
    assert re.fullmatch("[a-z]+(-[a-z]+)*", setting.key)
    assert setting.help.endswith(".")


def test_every_field_is_declared() -> None:
    # Those that are not are tables, follow from the file, or are what a script says or a run refuses.
    others = {
        "models",
        "overrides",
        "nested",
        "left_out",
        "budget",
        "exclude_root",
        "explicit",
        "places",
        "refused",
    }
    assert {setting.field for setting in SETTINGS} == set(Settings.__dataclass_fields__) - others
    assert len(SETTINGS_BY_KEY) == len(SETTINGS)


@every_setting
def test_the_flag_sets_what_the_key_sets(setting: Setting, tmp_path: Path) -> None:
    option = next((param for param in check.params if param.name == setting.field), None)
    by_key = in_file(tmp_path, setting)
    assert by_key != setting.default
    if not setting.has_flag:
        assert option is None
        return
    value = example(setting)
    flag = f"--{setting.key}" if value is not False else f"--no-{setting.key}"
    context = check.make_context("check", [flag] if isinstance(value, bool) else [flag, str(value)])
    given = {
        field: context.params[field] for field in Settings.__dataclass_fields__ if field in context.params
    }
    settings, _ = read_settings({**given, "config": None, "isolated": True})
    by_flag = getattr(settings, setting.field)
    assert (os.path.abspath(by_flag) if setting.kind is kinds.FILE else by_flag) == by_key
    assert settings.explicit - {"select", "extend_select", "ignore"} <= {setting.field}


@every_setting
def test_the_flag_says_what_the_table_says(setting: Setting) -> None:
    if not setting.has_flag:
        return
    option = next(param for param in check.params if param.name == setting.field)
    assert isinstance(option, click.Option)
    assert option.multiple is isinstance(setting.default, tuple)
    assert option.help is not None
    assert option.help.startswith(setting.help)
    default = option.help.removeprefix(setting.help).strip()
    if default:
        shown = default.removeprefix("[default: ").removesuffix("]")
        assert setting.kind.parse(shown) == setting.default
    else:
        assert setting.default in (None, "", (), True, False)
    assert bool(option.shell_complete(click.Context(check), "")) == bool(
        setting.kind.choices or setting.kind.names
    )


@every_setting
def test_a_mistake_is_said_alike(setting: Setting, tmp_path: Path) -> None:
    """A flag and a key expect the same, and every kind expects something."""
    file = tmp_path / "pyproject.toml"
    file.write_text(f"[tool.tclint]\n{setting.key} = [[]]\n")
    with pytest.raises(UsageError, match=f"pyproject.toml:2: '{setting.key}' expects "):
        load_config(file)


@every_setting
def test_the_json_report_states_it_under_its_name(setting: Setting) -> None:
    stated = to_dict(Report(settings=changed(setting), entries=(), findings=()))["settings"]
    described = schema()["$defs"]["settings"]
    assert (setting.field in stated) is ("report" in setting.places)
    assert (setting.field in described["required"]) is ("report" in setting.places)
    if setting.field in stated:
        part = described["properties"][setting.field]
        assert part["description"] == setting.help
        validator = Draft202012Validator(part)
        default = to_dict(Report(settings=Settings(), entries=(), findings=()))["settings"][setting.field]
        assert stated[setting.field] != default
        assert validator.is_valid(stated[setting.field])
        assert validator.is_valid(default)
        assert not validator.is_valid({})


def test_names_that_files_hold() -> None:
    """Reports and baselines that people keep have these."""
    priced = {
        "gpus", "precision", "mode", "layout", "compiled", "quantized", "tensor_parallel", "optimizer",
        "accumulation", "batch", "min_gain_percent",
    }  # fmt: skip
    stated = to_dict(Report(settings=Settings(), entries=(), findings=()))["settings"]
    assert priced | {"fail_on"} <= set(stated)
    assert priced | {"inputs", "arguments"} <= set(scenario_of(Settings()))
    assert stated["gpus"] == ["a100", "v100"]


@every_setting
def test_a_baseline_keeps_what_findings_hang_on(setting: Setting) -> None:
    differs = scenario_of(changed(setting)) != scenario_of(Settings())
    assert differs is ("baseline" in setting.places)


@every_setting
def test_a_traced_graph_is_kept_for_what_it_hangs_on(setting: Setting, tmp_path: Path) -> None:
    cache = TraceCache(str(tmp_path))
    differs = cache._file("m.py:build", changed(setting)) != cache._file("m.py:build", Settings())
    assert differs is ("trace" in setting.places)


@every_setting
def test_an_entry_of_models_sets_what_it_may(setting: Setting) -> None:
    entry = {"target": "m.py:build", setting.key: example(setting)}
    if "models" in setting.places:
        (model,) = parse_models([entry], "")
        assert model.values == ((setting.field, getattr(changed(setting), setting.field)),)
    else:
        with pytest.raises(ValueError, match=f"cannot set '{setting.key}'"):
            parse_models([entry], "")


@every_setting
def test_an_override_sets_what_it_may(setting: Setting, tmp_path: Path) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_text(
        f'[[tool.tclint.overrides]]\npaths = ["t/"]\nignore = ["AMP"]\n{setting.key} = {written(setting)}\n'
        if setting.key != "ignore"
        else f'[[tool.tclint.overrides]]\npaths = ["t/"]\nignore = {written(setting)}\n'
    )
    if "overrides" in setting.places:
        (override,) = load_config(file).overrides
        assert getattr(override, setting.field) == getattr(changed(setting), setting.field)
    else:
        with pytest.raises(UsageError, match=f"'{setting.key}' is not a key of"):
            load_config(file)


@every_setting
def test_the_page_has_its_row(setting: Setting) -> None:
    text = DOCS.read_text(encoding="utf-8").replace("\\|", "¦")
    (row,) = (line for line in text.splitlines() if line.startswith(f"| `{setting.key}` |"))
    _, _, flag, default, meaning, _ = (cell.strip().replace("¦", "|") for cell in row.split("|"))
    assert meaning == setting.help
    assert bool(flag) is setting.has_flag
    assert not flag or flag.startswith((f"`--{setting.key} ", f"`--{setting.key}`"))
    if default:
        assert setting.kind.parse(parse_toml(f"x = {default.strip('`')}")["x"]) == setting.default
    else:
        assert setting.default in (None, "", ())
    for place, sentence in (
        ("report", "The `settings` of a JSON report"),
        ("baseline", "A baseline records"),
    ):
        (said,) = (line for line in text.splitlines() if line.startswith(sentence))
        assert (f"`{setting.field}`" in said) is (place in setting.places)


def test_a_scenario_has_what_the_settings_say() -> None:
    shared = [setting for setting in SETTINGS if setting.field in Scenario.__dataclass_fields__]
    assert {setting.field for setting in shared} | {"gpu"} == set(Scenario.__dataclass_fields__)
    assert Scenario.of(Settings()) == Scenario()
    for setting in shared:
        scenario = Scenario.of(changed(setting), "h100")
        assert scenario.gpu == "h100"
        assert getattr(scenario, setting.field) == getattr(changed(setting), setting.field)

"""action.yml: valid, free of injected text, and its own steps run as the runner runs them."""

from __future__ import annotations

import http.server
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tclint.core.version import __version__

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS: list[dict[str, Any]] = ACTION["runs"]["steps"]
SCRIPTS = [step for step in STEPS if "run" in step]

EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="the action's scripts are for bash")

# `-m pip` is only written down: nothing is downloaded. `find_spec` answers as the test says. tclint does not
# run for tests that are not about what it says.
PYTHON = """\
#!{bash}
if [ "$1" = -m ] && [ "$2" = pip ]; then
  printf '%s\\0' "$@" >> "{log}"; printf '\\n' >> "{log}"
  exit 0
fi
if [ "$1" = -c ]; then exit {without_torch}; fi
if [ "$2" = tclint ] && [ {lints} = False ]; then exit 0; fi
if [ "$2" = tclint ]; then shift 2; exec {command} "$@"; fi
exec "{python}" "$@"
"""


@dataclass
class Runner:
    """A GitHub Actions runner as far as this action needs one."""

    folder: Path
    has_torch: bool = True
    lints: bool = True
    command: ClassVar[str]
    """What runs for `python -m tclint`."""

    def __post_init__(self) -> None:
        self.environment: dict[str, str] = {}
        self.temporary = self.folder / "temp"
        self.work = self.folder / "work"
        for folder in (self.temporary, self.work):
            folder.mkdir()
        self.output_file = self.folder / "output"
        self.summary_file = self.folder / "summary"
        self.pip_log = self.folder / "pip"
        self.python = self.folder / "python"
        self.python.write_text(
            PYTHON.format(
                bash=shutil.which("bash"),
                log=self.pip_log,
                python=sys.executable,
                without_torch=int(not self.has_torch),
                lints=self.lints,
                command=self.command,
            )
        )
        self.python.chmod(0o755)

    def run(self, **inputs: str) -> list[subprocess.CompletedProcess[str]]:
        """All steps with a script, in order, until one fails; later ones see the outputs of `lint`."""
        given = self._given(inputs)
        self.output_file.write_text("")
        results = []
        for step in SCRIPTS:
            if "if" in step and not all(
                self._condition(part, given) for part in EXPRESSION.sub(r"\1", step["if"]).split(" && ")
            ):
                continue
            results.append(self._step(step, given))
            if results[-1].returncode:
                break
        return results

    def step(self, name: str, **inputs: str) -> subprocess.CompletedProcess[str]:
        """One step alone, with the outputs of the last run of all."""
        [step] = [step for step in SCRIPTS if step["name"] == name]
        return self._step(step, self._given(inputs))

    def _given(self, inputs: dict[str, str]) -> dict[str, str]:
        given = {name: str(spec.get("default", "")) for name, spec in ACTION["inputs"].items()}
        given |= {name.replace("_", "-"): value for name, value in inputs.items()}
        return {**given, "python": str(self.python)}

    def _step(self, step: dict[str, Any], given: dict[str, str]) -> subprocess.CompletedProcess[str]:
        values = {name: self._value(text, given) for name, text in step.get("env", {}).items()}
        folder = self.work / self._value(step.get("working-directory", "."), given)
        output_file = self.output_file if step.get("id") != "install" else self.folder / "installed"
        return self._run(step["run"], {**values, "GITHUB_OUTPUT": str(output_file)}, folder)

    def _run(self, script: str, values: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "PYTHONPATH": str(ROOT),
            "GITHUB_ACTIONS": "true",
            "GITHUB_WORKSPACE": str(self.work),
            "GITHUB_STEP_SUMMARY": str(self.summary_file),
            "RUNNER_TEMP": str(self.temporary),
            **self.environment,
            **values,
        }
        file = self.folder / "step.sh"
        file.write_text(script)
        command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(file)]
        return subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
        )

    def _value(self, text: str, inputs: dict[str, str]) -> str:
        return EXPRESSION.sub(lambda match: self._expression(match[1], inputs), text)

    def _expression(self, expression: str, inputs: dict[str, str]) -> str:
        if expression == "github.action_path":
            return str(ROOT)
        if expression == "github.token":
            return "secret"
        if expression.startswith("inputs."):
            return inputs[expression.removeprefix("inputs.")]
        return self.outputs().get(expression.removeprefix("steps.lint.outputs."), "")

    def _condition(self, condition: str, inputs: dict[str, str]) -> bool:
        said, relation, value = re.fullmatch(r"(\S+) ([!=]=) '(\w*)'", condition).groups()  # type: ignore[union-attr]
        return (self._expression(said, inputs) == value) is (relation == "==")

    def outputs(self) -> dict[str, str]:
        """What the steps wrote to GITHUB_OUTPUT, read as the runner reads it."""
        found: dict[str, str] = {}
        lines = iter(self.output_file.read_text().splitlines())
        for line in lines:
            name, end = line.split("<<", 1)
            value = []
            for content in lines:
                if content == end:
                    break
                value.append(content)
            found[name] = "\n".join(value)
        return found

    def installed(self) -> list[list[str]]:
        """The arguments of every pip call."""
        if not self.pip_log.exists():
            return []
        calls = self.pip_log.read_text().split("\0\n")
        return [call.split("\0") for call in calls if call]


@pytest.fixture(scope="module", autouse=True)
def _command(python_m_tclint: list[str]) -> None:
    Runner.command = shlex.join(python_m_tclint)


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    found = Runner(tmp_path)
    shutil.copy(ROOT / "fixtures" / "train_fp16_no_scaler.py", found.work / "train.py")
    (found.work / "clean.py").write_text("x = 1\n")
    return found


def test_no_expression_in_a_script() -> None:
    """`${{ }}` in a script is replaced before bash reads it: whoever names a branch could run commands."""
    assert SCRIPTS
    for step in SCRIPTS:
        assert "${{" not in step["run"]
        assert step["shell"] == "bash"


def test_every_input_is_described_used_and_known() -> None:
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    used = set(re.findall(r"inputs\.([a-z-]+)", text))
    assert used == set(ACTION["inputs"])
    for part in ("inputs", "outputs"):
        assert all(spec["description"].strip() for spec in ACTION[part].values())


def test_valid_by_the_published_schema() -> None:
    check = shutil.which(
        "check-jsonschema", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    )
    if check is None:
        pytest.skip("check-jsonschema is not installed")
    command = [check, "--builtin-schema", "vendor.github-actions", str(ROOT / "action.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    broken = ROOT / ".pre-commit-hooks.yaml"
    refused = subprocess.run([*command[:-1], str(broken)], capture_output=True, text=True, check=False)
    assert refused.returncode == 1


def test_hooks_are_valid_by_pre_commit() -> None:
    clientlib = pytest.importorskip("pre_commit.clientlib")
    hooks = clientlib.load_manifest(str(ROOT / ".pre-commit-hooks.yaml"))
    assert "tclint" in {hook["id"] for hook in hooks}


def test_scripts_pass_shellcheck(tmp_path: Path) -> None:
    shellcheck = shutil.which("shellcheck")
    for number, step in enumerate(SCRIPTS):
        file = tmp_path / f"{number}.sh"
        file.write_text(step["run"])
        assert subprocess.run(["bash", "-n", str(file)], check=False).returncode == 0
        if shellcheck:
            assert subprocess.run([shellcheck, "-s", "bash", str(file)], check=False).returncode == 0


def test_findings_fail_the_last_step_only(runner: Runner) -> None:
    runner.python.write_text(runner.python.read_text().replace(runner.command, f"{sys.executable} -m tclint"))
    install, lint, verdict = runner.run(targets="train.py")
    assert (install.returncode, lint.returncode, verdict.returncode) == (0, 0, 1)
    outputs = runner.outputs()
    assert outputs["exit-code"] == "1"
    assert int(outputs["findings"]) >= 1
    assert "readiness" not in outputs
    report = json.loads(Path(outputs["json"]).read_text())
    assert len(report["findings"]) == int(outputs["findings"])
    assert json.loads(Path(outputs["sarif"]).read_text())["version"] == "2.1.0"
    assert Path(outputs["markdown"]).read_text() == runner.summary_file.read_text()
    annotated = [line for line in lint.stdout.splitlines() if line.startswith("::")]
    assert len(annotated) == int(outputs["findings"])
    assert all("file=train.py," in line for line in annotated)


def test_clean_sources_pass_and_need_no_torch(runner: Runner) -> None:
    results = runner.run(targets="clean.py")
    assert [result.returncode for result in results] == [0, 0, 0]
    assert runner.outputs()["findings"] == "0"
    assert [call[-1] for call in runner.installed()] == [str(ROOT)]


def test_declared_models_are_linted_beside_the_targets(runner: Runner) -> None:
    (runner.work / "model.py").write_text(
        "import torch\nfrom torch import nn\n"
        "def build(): return nn.Linear(1024, 1001), torch.zeros(4096, 1024)\n"
    )
    (runner.work / "pyproject.toml").write_text('[tool.tclint]\nmodels = ["model.py:build"]\n')
    runner.run(targets="train.py", declared_models="true", fail_on="never")
    outputs = runner.outputs()
    report = json.loads(Path(outputs["json"]).read_text())
    assert [entry["target"] for entry in report["entries"]] == ["model.py:build"]
    assert "train.py" in {finding["location"]["path"] for finding in report["findings"]}
    assert outputs["exit-code"] == "0"
    assert float(outputs["readiness"]) >= 0


def test_torch_is_installed_only_for_models_and_only_where_missing(tmp_path: Path) -> None:
    for name, has_torch, models, declared, expected in (
        ("a", False, "", "false", 0),
        ("b", False, " \n", "false", 0),
        ("c", True, "model.py:build_model", "true", 0),
        ("d", False, "model.py:build_model", "false", 1),
        ("e", False, "", "true", 1),
    ):
        folder = tmp_path / name
        folder.mkdir()
        runner = Runner(folder, has_torch, lints=False)
        runner.run(targets="", models=models, declared_models=declared)
        torch_calls = [call for call in runner.installed() if call[-1] == "torch"]
        assert len(torch_calls) == expected
        assert all("--index-url" not in call for call in torch_calls)


def test_torch_comes_from_the_index_that_is_named(tmp_path: Path) -> None:
    runner = Runner(tmp_path, has_torch=False, lints=False)
    runner.run(targets="", models="model.py:build_model", torch_index_url="https://index.example/a b")
    [call] = [call for call in runner.installed() if call[-1] == "torch"]
    assert call[call.index("--index-url") + 1] == "https://index.example/a b"


def test_model_gives_readiness(runner: Runner) -> None:
    (runner.work / "model.py").write_text(
        "import torch\n\n\ndef build_model():\n    return torch.nn.Linear(1024, 1000)\n\n\n"
        "def example_inputs():\n    return torch.empty(64, 1024)\n"
    )
    results = runner.run(targets="clean.py", models="model.py:build_model", gpu="a100", fail_on="never")
    assert [result.returncode for result in results] == [0, 0, 0], results[-1].stderr
    assert 0 <= float(runner.outputs()["readiness"]) <= 100


def test_options_reach_tclint(runner: Runner) -> None:
    runner.run(targets="train.py", fail_on="never", gpu="h100", precision="bf16", mode="infer", min_gain="5")
    settings = json.loads(Path(runner.outputs()["json"]).read_text())["settings"]
    assert settings["gpus"] == ["h100-sxm5-80gb"]
    assert (settings["precision"], settings["mode"], settings["min_gain_percent"]) == ("bf16", "infer", 5.0)
    assert runner.outputs()["exit-code"] == "0"


def test_paths_are_relative_to_the_repository(runner: Runner) -> None:
    folder = runner.work / "sub folder"
    folder.mkdir()
    shutil.copy(runner.work / "train.py", folder / "a,b:c%d.py")
    _, lint, _ = runner.run(targets="a,b:c%d.py", working_directory="sub folder")
    assert "file=sub folder/a%2Cb%3Ac%25d.py," in lint.stdout


@pytest.mark.parametrize(
    "hostile",
    ['$(touch {mark})`touch {mark}`"; touch {mark}; "\'; touch {mark} #', "--config=$(touch {mark})"],
)
def test_hostile_inputs_are_only_text(tmp_path: Path, hostile: str) -> None:
    runner = Runner(tmp_path, has_torch=False)
    mark = runner.folder / "mark"
    text = hostile.format(mark=mark)
    names = ("targets", "models", "gpu", "precision", "mode", "min_gain", "fail_on", "config", "torch")
    results = runner.run(**dict.fromkeys(names, text))
    assert results[-1].returncode == 2
    assert not mark.exists()
    assert results[1].stderr.count("\n") == 1
    assert text in runner.installed()[0]


def test_wrong_usage_has_no_report(runner: Runner) -> None:
    results = runner.run(targets="clean.py", gpu="no-such-gpu", comment="true")
    assert [result.returncode for result in results] == [0, 0, 2], "nothing to comment with"
    outputs = runner.outputs()
    assert outputs == {"exit-code": "2"}


def test_outputs_of_an_odd_report_folder(runner: Runner) -> None:
    """A line break in a path must not become an output of its own."""
    folder = runner.folder / "x\nexit-code=0"
    runner.run(targets="clean.py", report_directory=str(folder))
    outputs = runner.outputs()
    assert outputs["json"] == str(folder / "tclint.json")
    assert set(outputs) == {"exit-code", "json", "sarif", "markdown", "findings"}


def repository(runner: Runner, **files: tuple[str, str]) -> None:
    """The runner's checkout as a pull request's: two commits, with the text of each file before and after."""
    for place in (0, 1):
        for name, texts in files.items():
            (runner.work / f"{name}.py").write_text(texts[place])
        for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "--allow-empty", "-m", "x"]):
            who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
            subprocess.run(["git", *who, *command], cwd=runner.work, check=True)


NO_SCALER = (ROOT / "fixtures" / "train_fp16_no_scaler.py").read_text()


def test_what_was_there_before_does_not_fail_a_comparison(runner: Runner) -> None:
    repository(runner, train=(NO_SCALER, NO_SCALER + "x = 1\n"), other=("y = 1\n", "y = 2\n"))
    assert runner.run()[-1].returncode == 1
    results = runner.run(compare_with="HEAD^1")
    assert results[-1].returncode == 0, results[1].stderr
    comparison = Path(runner.outputs()["comparison"]).read_text()
    assert comparison.startswith("## tclint: passed; 0 new, 0 fixed")
    assert runner.summary_file.read_text().endswith(comparison)

    repository(runner, other=("y = 2\n", NO_SCALER))
    results = runner.run(compare_with="HEAD^1")
    assert results[-1].returncode == 1
    assert "other.py" in Path(runner.outputs()["comparison"]).read_text()
    assert "failed" in results[1].stdout
    listed = subprocess.run(
        ["git", "worktree", "list"], cwd=runner.work, capture_output=True, text=True, check=True
    )
    assert listed.stdout.count("\n") == 1


@pytest.mark.parametrize(("compare_with", "lints"), [("HEAD^1", False), ("HEAD~2", False), ("side", True)])
def test_what_a_checkout_of_one_commit_lacks_is_fetched(
    tmp_path: Path, compare_with: str, lints: bool
) -> None:
    runner = Runner(tmp_path, lints=lints)
    origin = runner.folder / "origin"
    repository(runner, train=("x = 1\n", "x = 2\n"), other=("y = 1\n", "y = 2\n"))
    repository(runner, train=("x = 2\n", NO_SCALER))
    git = ("git", "-C", str(runner.work))
    subprocess.run([*git, "branch", "side", "HEAD~1"], check=True)
    runner.work.rename(origin)
    url = origin.as_uri()
    subprocess.run(["git", "clone", "-q", "--depth=1", url, str(runner.work)], check=True)
    assert subprocess.run([*git, "rev-parse", "--verify", "-q", compare_with], check=False).returncode == 1
    _, lint, verdict = runner.run(compare_with=compare_with)
    assert "::error" not in lint.stdout
    assert verdict.returncode == lints, lint.stderr
    if lints:
        comparison = Path(runner.outputs()["comparison"]).read_text()
        assert comparison.startswith("## tclint: failed"), comparison
        assert runner.outputs()["findings"] in comparison

    _, lint, verdict = runner.run(compare_with="no-such\n::set-output", comment="true")
    assert (lint.returncode, verdict.returncode) == (0, 2)
    assert lint.stdout.startswith(
        "::error title=tclint::This checkout does not have the revision 'no-such ::set"
    )
    assert lint.stdout.count("\n") == 1


def test_a_pull_request_of_one_commit_reads_what_it_changes(runner: Runner) -> None:
    origin = runner.folder / "origin"
    repository(runner, train=(NO_SCALER, NO_SCALER), other=("y = 1\n", "y = 2\n"))
    runner.work.rename(origin)
    subprocess.run(["git", "clone", "-q", "--depth=1", origin.as_uri(), str(runner.work)], check=True)
    runner.environment["GITHUB_EVENT_NAME"] = "pull_request"
    assert runner.run(changed_only="true")[-1].returncode == 0
    report = json.loads(Path(runner.outputs()["json"]).read_text())
    assert report["summary"]["source_files"] == 1


def test_caches_are_of_a_version(runner: Runner) -> None:
    runner.run(targets="clean.py", install="false")
    assert runner.installed() == []
    assert (runner.folder / "installed").read_text() == f"version<<end\n{__version__}\nend\n"
    [cache] = [step["with"] for step in STEPS if "cache" in step.get("uses", "")]
    assert "${{ steps.install.outputs.version }}" in cache["key"]
    assert "${{ steps.install.outputs.version }}" in cache["restore-keys"]


def test_only_what_a_pull_request_changes_is_read(runner: Runner) -> None:
    repository(runner, train=(NO_SCALER, NO_SCALER), other=("y = 1\n", "y = 2\n"))
    assert runner.run(changed_only="true")[-1].returncode == 1  # a push: everything
    runner.environment["GITHUB_EVENT_NAME"] = "pull_request"
    for compare_with in ("", "HEAD^1"):
        assert runner.run(changed_only="true", compare_with=compare_with)[-1].returncode == 0
        report = json.loads(Path(runner.outputs()["json"]).read_text())
        assert report["summary"]["source_files"] == 1


GitHub = Callable[[int], tuple[str, list[dict[str, Any]]]]
"""From the status that it answers writing with, to its address and comments."""


@pytest.fixture
def github() -> Iterator[GitHub]:
    """Starts GitHub's comments of one pull request; answers writing with a status of its own."""
    servers = []

    def start(status: int) -> tuple[str, list[dict[str, Any]]]:
        comments: list[dict[str, Any]] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(200, comments)

            def do_POST(self) -> None:
                self._write()

            def do_PATCH(self) -> None:
                self._write()

            def _write(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["body"]
                assert self.headers["Authorization"] == "Bearer secret"
                if status < 400:
                    if self.command == "POST":
                        assert self.path == "/repos/o/r/issues/7/comments"
                        comments.append({"id": len(comments), "body": body, "user": {"type": "Bot"}})
                    else:
                        comments[int(self.path.rpartition("/")[2])]["body"] = body
                self._answer(status, {})

            def _answer(self, code: int, value: object) -> None:
                self.send_response(code)
                self.end_headers()
                self.wfile.write(json.dumps(value).encode())

            def log_message(self, *_: object) -> None: ...

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}", comments

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def commenting(
    runner: Runner, url: str, event: dict[str, Any], job: str = "lint", only: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run all steps, or that one alone on what they wrote before."""
    file = runner.folder / "event.json"
    file.write_text(json.dumps(event))
    runner.environment |= {
        "GITHUB_API_URL": url,
        "GITHUB_REPOSITORY": "o/r",
        "GITHUB_EVENT_PATH": str(file),
        "GITHUB_WORKFLOW": "ci",
        "GITHUB_JOB": job,
    }
    if only:
        return runner.step("Comment", comment="true")
    results = runner.run(targets="train.py", comment="true", fail_on="never")
    assert [result.returncode for result in results] == [0, 0, 0, 0], results[-2].stderr
    return results[2]


def test_one_comment_is_renewed(runner: Runner, github: GitHub) -> None:
    url, comments = github(200)
    pull_request = {"pull_request": {"number": 7}}
    commenting(runner, url, pull_request)
    first = comments[0]["body"]
    assert "AMP001" in first or "GradScaler" in first
    (runner.work / "train.py").write_text("x = 1\n")
    commenting(runner, url, pull_request)
    assert len(comments) == 1
    assert comments[0]["body"] != first
    commenting(runner, url, pull_request, job="other", only=True)
    assert len(comments) == 2
    assert "no pull request" in commenting(runner, url, {}, only=True).stdout
    assert len(comments) == 2


def test_from_a_fork_the_summary_has_it(runner: Runner, github: GitHub) -> None:
    url, comments = github(403)
    said = commenting(runner, url, {"pull_request": {"number": 7}})
    assert "the token may only read" in said.stdout
    assert comments == []
    assert runner.summary_file.read_text()


def test_other_actions_are_pinned() -> None:
    for file in (ROOT / "action.yml", ROOT / "docs" / "how-to" / "ci.md"):
        used = re.findall(r"uses: ((?!OWNER)\S+)", file.read_text(encoding="utf-8"))
        assert used
        assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", name) for name in used)

"""The command `doctor`: what tclint runs with here, and what is wrong with it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import click

from tclint.core.errors import TargetError
from tclint.core.terminal import write_stdout
from tclint.core.units import bytes_text, plural
from tclint.core.version import __version__

_TRIAL = "torch.nn:TransformerEncoderLayer"
_TRIAL_S = 120.0


@click.command()
def doctor() -> int:
    """Check versions, the installation, caches, torch, the GPU and a trace, and say how to fix what is wrong.

    Exit codes: 0 nothing is wrong, 1 something is.
    """
    problems: list[str] = []
    lines = [*_versions(problems), *_torch(problems), *_caches(problems)]
    width = max(len(name) for name, _ in lines)
    text = "".join(f"{name:{width}}  {value}\n" for name, value in lines)
    text += "".join(f"problem: {problem}\n" for problem in problems) or "Nothing is wrong.\n"
    write_stdout(text)
    return 1 if problems else 0


def _versions(problems: list[str]) -> Iterator[tuple[str, str]]:
    yield "tclint", f"{__version__}, {Path(__file__).parents[1]}"
    yield "Python", f"{sys.version.split()[0]}, {sys.executable}"
    for name in ("click", "libcst", "numpy", "pathspec", "pyyaml"):
        try:
            yield name, metadata.version(name)
        except metadata.PackageNotFoundError:
            yield name, "missing"
            problems.append(f"{name} is missing: install tensorcore-lint again.")
    try:
        from tensorcore_lint import mixed_installation
    except ModuleNotFoundError:
        return  # run from a folder, not installed
    mixed = mixed_installation()
    yield "installation", "whole" if mixed is None else "mixed"
    if mixed is not None:
        problems.append(mixed)


def _torch(problems: list[str]) -> Iterator[tuple[str, str]]:
    from tclint.tracing.worker.torch_probe import probe

    try:
        found = probe()
    except TargetError as error:
        yield "torch", "cannot be imported"
        problems.append(str(error))
        return
    if found is None:
        yield "torch", "not installed: sources are read, models need 'tensorcore-lint[torch]'"
        return
    build = f"for CUDA {found.cuda}" if found.cuda else "for the CPU, which is enough"
    yield "torch", f"{found.version}, {build}"
    gpus = [f"{name} ({_known_as(name)})" for name in found.gpus]
    yield "GPU", ", ".join(gpus) or "none, and none is needed"
    yield from _trial(found.version, problems)


def _trial(version: str, problems: list[str]) -> Iterator[tuple[str, str]]:
    """Traces a layer of torch's own, as a model that is named is traced."""
    from tclint.config.settings import Settings
    from tclint.tracing import trace_targets

    layer = Settings(arguments=("d_model=64", "nhead=2"), inputs=("8,2,64",), timeout_s=_TRIAL_S)
    (result,) = trace_targets([_TRIAL], layer)
    if result.error is None:
        yield "tracing models", "works"
        return
    yield "tracing models", "fails"
    problems.append(
        f"torch {version} traces no model: {result.error} 'tclint {_TRIAL} --arg d_model=64 --arg nhead=2 "
        "--input 8,2,64 --debug' shows where; please report that, and use another version until then."
    )


def _known_as(name: str) -> str:
    """Which of tclint's GPUs a GPU of this machine can be, by its name."""
    from tclint.cost.gpu import all_gpus

    words = name.lower().replace("-", " ").split()
    known = [gpu.id for gpu in all_gpus() if gpu.id.partition("-")[0] in words]
    return f"--gpu {' or '.join(known)}" if known else "not known: 'tclint gpus' lists those that are"


def _caches(problems: list[str]) -> Iterator[tuple[str, str]]:
    from tclint.source.syntax.cache import private_folder, user_folder

    for name, what in (("tables", "parsed files"), ("models", "traced models")):
        folder = private_folder(name)
        if folder is None:
            yield f"cache of {what}", "off"
            problems.append(
                f"nothing is kept of {what}: {user_folder(name) or 'the cache folder'} cannot be written, or "
                "others can write into it; make it yours alone (chmod 700)."
            )
            continue
        sizes = [file.stat().st_size for file in Path(folder).iterdir() if file.is_file()]
        yield f"cache of {what}", f"{folder}: {plural(len(sizes), 'file')}, {bytes_text(sum(sizes))}"

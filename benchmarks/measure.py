"""Measure operators on your GPU, for calibrating tclint: run it, and the CSV files are what it needs.

    python benchmarks/measure.py --output measured/      # an hour or two; interrupt and go on at any time
    python benchmarks/measure.py --output measured/ --kind gemm --minutes 20

Each figure is the median of device-event timings after a warm-up, over fresh random inputs that rotate
through buffers larger than the L2 (so do the results), captured in a CUDA graph where the operator allows
it, so that no launch gap counts. Use an idle GPU; clocks are left as they are. On a machine with several
GPUs, CUDA_VISIBLE_DEVICES chooses the one that is measured. The files have the schema of published
measurements plus the versions of driver, CUDA, cuDNN and torch; what is in them is not measured again, and
cases that do not fit the GPU's memory are left out with a message.

Without CUDA, `--device cpu` tries the script out: such rows say `device=cpu`, name no GPU, and calibrate
nothing.
"""

from __future__ import annotations

import argparse
import csv
import platform
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from measure_cases import COLUMNS, KINDS, Case, all_cases
from measure_clock import Clock, CpuClock, CudaClock, buffer_sets

MEMORY_SHARE = 0.4
"""The share of the free memory that rotating inputs may take; results need up to as much again."""
CPU_SCALE = 16
"""Divides sizes where the script is only tried out."""
SOURCE = "measure"
VERSION_COLUMNS = ("device", "launch", "driver", "cuda", "cudnn", "torch")


def gpu_id(name: str) -> str:
    """tclint's id of a device by the name that its driver gives it: 'NVIDIA A100-SXM4-80GB'.

    An unknown device keeps its own name, in the same spelling.
    """
    from tclint.core.errors import UsageError
    from tclint.cost.gpu import load_gpu

    words = re.sub(r"\b(nvidia|tesla|geforce|graphics|hbm3e?|hbm2e?)\b", " ", name.lower())
    spelt = re.sub(r"[^a-z0-9]+", "-", words).strip("-")
    if spelt == "h100-80gb":  # the SXM part names its memory only
        spelt = "h100-sxm5-80gb"
    try:
        return load_gpu(spelt).id
    except UsageError:
        return spelt


def versions(device: str) -> dict[str, str]:
    """The versions of everything that a time may depend on."""
    import torch

    found = {"device": device, "torch": torch.__version__, "driver": "", "cuda": "", "cudnn": ""}
    if device == "cuda":
        found["cuda"] = str(torch.version.cuda)
        found["cudnn"] = str(torch.backends.cudnn.version())
        try:
            command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0"]
            found["driver"] = subprocess.run(
                command, capture_output=True, text=True, check=True, timeout=20
            ).stdout.strip()
        except (OSError, subprocess.SubprocessError):
            found["driver"] = "unknown"
    return found


class Results:
    """The CSV file of one kind: what is in it is done."""

    def __init__(self, path: Path, kind: str) -> None:
        self.path = path
        self.kind = kind
        self.columns = ("gpu", *COLUMNS[kind], "time_us", "source", *VERSION_COLUMNS)
        self.done = set(self._read())

    def _read(self) -> Iterable[tuple[str, ...]]:
        if not self.path.exists():
            return
        text = self.path.read_text(encoding="utf-8")
        if not text.endswith("\n"):
            # A run that was killed while it wrote: the piece of a line would spoil the next row.
            self.path.write_text(text[: text.rfind("\n") + 1], encoding="utf-8")
        with self.path.open(newline="", encoding="utf-8") as stream:
            for row in csv.DictReader(stream):
                if row.get("time_us"):
                    yield tuple(row.get(name) or "" for name in ("gpu", *COLUMNS[self.kind]))

    def key(self, gpu: str, case: Case) -> tuple[str, ...]:
        return (gpu, *(str(case.row[name]) for name in COLUMNS[self.kind]))

    def add(self, gpu: str, case: Case, time_us: float, launch: str, found: dict[str, str]) -> None:
        """Append one row, so that an interruption loses nothing."""
        new = not self.path.exists() or not self.path.stat().st_size
        row = {
            "gpu": gpu,
            **case.row,
            "time_us": round(time_us, 3),
            "source": SOURCE,
            "launch": launch,
            **found,
        }
        with self.path.open("a", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, self.columns, lineterminator="\n")
            if new:
                writer.writeheader()
            writer.writerow(row)
        self.done.add(self.key(gpu, case))


def set_precision(dtype: str) -> None:
    """TF32 on for 'tf32' and off for 'fp32', in matmuls and convolutions."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    torch.backends.cudnn.allow_tf32 = dtype == "tf32"
    torch.backends.cudnn.benchmark = True


def measure(case: Case, clock: Clock, device: Any) -> tuple[float, str]:
    """Microseconds of one case, and how it was launched."""
    set_precision(str(case.row["dtype"]))
    if case.bytes > MEMORY_SHARE * clock.free_bytes:
        raise RuntimeError(f"{case.bytes / 2**30:.0f} GiB do not fit the memory")
    most = max(1, int(clock.free_bytes * MEMORY_SHARE / max(case.bytes, 1)))
    sets = [case.build(device) for _ in range(min(buffer_sets(case.bytes, clock.cache_bytes), most))]
    return clock.time_us(case.call, sets)


def run(arguments: argparse.Namespace) -> int:
    import torch

    clock: Clock = CudaClock() if arguments.device == "cuda" else CpuClock()
    device = torch.device(arguments.device)
    if arguments.device == "cuda":
        gpu = arguments.gpu or gpu_id(torch.cuda.get_device_name())
    else:
        gpu = f"cpu-{platform.machine()}"
        say("no GPU is measured: these rows try the script out, say device=cpu and calibrate nothing")
    found = versions(arguments.device)
    arguments.output.mkdir(parents=True, exist_ok=True)
    kinds = tuple(arguments.kind or KINDS)
    files = {kind: Results(arguments.output / f"{kind}_{gpu}.csv", kind) for kind in kinds}
    scale = CPU_SCALE if arguments.device == "cpu" else 1
    cases = list(all_cases(kinds, arguments.conv_batch if scale == 1 else 1, scale))
    if arguments.device == "cpu":
        cases = [case for case in cases if case.bytes < 2**24]
    # Mixed, so that an interrupted run has something of everything.
    random.Random(0).shuffle(cases)
    waiting = [case for case in cases if files[case.kind].key(gpu, case) not in files[case.kind].done]
    say(f"{gpu}: {len(waiting)} of {len(cases)} cases to measure, into {arguments.output}")
    end = time.monotonic() + 60 * arguments.minutes if arguments.minutes else None
    failed = 0
    for number, case in enumerate(waiting[: arguments.limit], 1):
        if end is not None and time.monotonic() > end:
            say(f"time is up after {number - 1} cases")
            break
        try:
            with torch.no_grad():
                time_us, launch = measure(case, clock, device)
        except (RuntimeError, NotImplementedError) as error:
            failed += 1
            say(f"left out {case.kind} {case.row}: {(str(error) or type(error).__name__).splitlines()[0]}")
            if not clock.recover():
                say("the GPU answers no more after that case; run it again to go on with the others")
                return 1
            continue
        files[case.kind].add(gpu, case, time_us, launch, found)
        if number % 100 == 0:
            say(f"{number} of {len(waiting)}")
    if failed:
        say(f"{failed} cases could not be run; they are in no file")
    return 0


def say(text: str) -> None:
    print(f"measure: {text}", file=sys.stderr, flush=True)


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True, help="folder for the CSV files")
    parser.add_argument("--kind", choices=KINDS, action="append", help="only these kinds; may be repeated")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--gpu", help="tclint's id of the GPU, if its name does not give it away")
    parser.add_argument("--conv-batch", type=int, default=64, help="images per convolution (default 64)")
    parser.add_argument("--minutes", type=float, help="stop after so many minutes; run again to go on")
    parser.add_argument("--limit", type=int, help="stop after so many cases")
    arguments = parser.parse_args(given)
    try:
        import torch
    except ImportError:
        say("it needs torch: pip install torch")
        return 2
    if arguments.device == "cuda" and not torch.cuda.is_available():
        say("torch sees no CUDA GPU; --device cpu tries the script out, and measures nothing of use")
        return 2
    try:
        return run(arguments)
    except KeyboardInterrupt:
        say("interrupted; run it again to go on")
        return 130


if __name__ == "__main__":
    sys.exit(main())

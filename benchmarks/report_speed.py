"""How long every report format takes for 5,000 findings and 5,000 operators, how large it gets, and `--help`.

    python benchmarks/report_speed.py [--findings 5000] [--operators 5000] [--browser]

Prints CPU seconds and bytes per format; with --browser also how long Chromium takes to load the HTML report
and to turn a page, choose a level and choose a precision in it (needs selenium, chromium and chromedriver).
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import tclint
from tclint.config.settings import Settings
from tclint.core.finding import Level
from tclint.engine.report import Report
from tclint.report.render import FORMATS, render

MODEL = """\
import torch
from torch import nn

def build():
    layers = []
    for _ in range({count} // 4):
        layers += [nn.Linear(250, 250), nn.LayerNorm(250), nn.GELU(), nn.Dropout(0.1)]
    return nn.Sequential(*layers), torch.zeros(512, 250)
"""
FILES = 50
LEVELS: tuple[Level, ...] = ("error", "warning", "info")


def large_report(findings: int, operators: int) -> Report:
    """A traced report whose first finding is repeated in 50 files of the working directory."""
    Path("model.py").write_text(MODEL.format(count=operators))
    settings = Settings(gpus=("a100", "h100"), min_gain_percent=0.0)
    report = tclint.check(["model.py:build"], settings)
    if report.errors:
        raise SystemExit(report.errors[0].message)
    Path("src").mkdir()
    for number in range(FILES):
        lines = findings // FILES + 1
        Path(f"src/file{number}.py").write_text("x = torch.nn.Linear(250, 250)  # a line\n" * lines)
    first = report.findings[0]
    many = tuple(
        replace(
            first,
            level=LEVELS[number % 3],
            message=f"Finding {number}: {first.message}",
            location=replace(
                first.location,
                path=f"src/file{number % FILES}.py",
                line=1 + number // FILES,
                module_path=f"layer{number}",
            ),
        )
        for number in range(findings)
    )
    return replace(report, findings=many)


def rendered(report: Report, name: str) -> tuple[str, float]:
    """The report in a format, and the CPU seconds that it took."""
    before = time.process_time()
    text = render(report, name)
    return text, time.process_time() - before


def help_cpu_s() -> float:
    """Least CPU seconds of five runs of `tclint --help`; the first writes the byte code."""
    seconds = []
    for _ in range(6):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "tclint", "--help"], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(seconds[1:])


def browse(file: Path) -> None:
    """Load the report in Chromium, and use its selectors."""
    from selenium import webdriver

    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        raise SystemExit("--browser needs chromium and chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        browser.get(file.as_uri())
        loaded_ms = browser.execute_script(
            "return performance.getEntriesByType('navigation')[0].loadEventEnd"
        )
        used_ms = browser.execute_script(
            "const start = performance.now();"
            "document.getElementById('finding-after').click();"
            "for (const [name, value] of [['level', 'error'], ['precision', 'bf16']]) {"
            "  const e = document.getElementById(name);"
            "  e.value = value; e.dispatchEvent(new Event('change')); }"
            "return performance.now() - start"
        )
    finally:
        browser.quit()
    print(f"browser: loaded in {loaded_ms / 1000:.2f} s")
    print(f"browser: a page, a level and a precision in {used_ms / 1000:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--findings", type=int, default=5000)
    parser.add_argument("--operators", type=int, default=5000)
    parser.add_argument("--browser", action="store_true")
    options = parser.parse_args()
    print(f"tclint --help: {help_cpu_s():.3f} s CPU")
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            report = large_report(options.findings, options.operators)
            print(f"{len(report.findings)} findings, {report.entries[0].op_count} operators")
            for name in FORMATS:
                text, seconds = rendered(report, name)
                print(f"{name:12} {seconds:6.2f} s CPU {len(text.encode()):12,} bytes")
            if options.browser:
                file = Path("report.html").resolve()
                file.write_text(render(report, "html"), encoding="utf-8")
                browse(file)
        finally:
            os.chdir(before)


if __name__ == "__main__":
    main()

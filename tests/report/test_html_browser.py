"""The HTML report in a real browser: Chromium, without a window and without a network."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hostile import HOSTILE, hostile_report, many_findings
from html_support import traced_entry

from tclint.engine.report import Report
from tclint.report.render import render

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
support = pytest.importorskip("selenium.webdriver.support.ui", reason="selenium is not installed")

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--window-size=1200,900",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("no Chromium and chromedriver here (Debian: apt-get install chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    started = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    started.set_page_load_timeout(60)
    yield started
    started.quit()


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Callable[[Report], Any]]:
    """Opens a report; nothing may have been logged and nothing but the file fetched when the test ends."""

    def open_report(report: Report) -> Any:
        file = tmp_path / "report.html"
        file.write_text(render(report, "html"), encoding="utf-8")
        for kind in ("browser", "performance"):
            browser.get_log(kind)
        browser.get(file.as_uri())
        return browser

    yield open_report
    assert browser.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
    page = (tmp_path / "report.html").as_uri()
    # The browser's own new tab asks for things as well; every page asks for itself.
    assert {params["request"]["url"] for params in sent if params["documentURL"] == page} == {page}


def ask(browser: Any, expression: str) -> Any:
    return browser.execute_script(f"return {expression}")


def choose(browser: Any, name: str, value: str) -> None:
    browser.execute_script(
        "const e = document.getElementById(arguments[0]); e.value = arguments[1];"
        "e.dispatchEvent(new Event('change'))",
        name,
        value,
    )


def text_of(browser: Any, name: str) -> str:
    return str(browser.execute_script("return document.getElementById(arguments[0]).textContent", name))


CHART = "Chart.getChart('roofline')"


@pytest.fixture
def traced(report: Report) -> Report:
    return replace(report, entries=(traced_entry(),))


def test_renders_findings_with_source(traced: Report, show: Callable[[Report], Any]) -> None:
    browser = show(traced)
    assert ask(browser, "document.querySelectorAll('.finding').length") == 3
    assert ask(browser, "[...document.querySelectorAll('.source mark')].map(e => e.textContent)") == [
        "loss.backward()", "nn.Linear(768, 50257, bias=False)", "self.stem = nn.Conv2d(3, 30, 3, padding=1)",
    ]  # fmt: skip
    assert ask(browser, "document.querySelector('.change .removed').textContent") == "-     loss.backward()"
    assert ask(browser, "document.querySelector('.change .added').textContent") == "+ loss.backward()"
    choose(browser, "level", "info")
    assert ask(browser, "document.querySelectorAll('.finding').length") == 1
    assert "conv-misaligned" in text_of(browser, "finding-list")
    choose(browser, "level", "")
    choose(browser, "rule", "DIM003")
    assert "vocab-misaligned" in text_of(browser, "finding-list")


def test_selectors_change_chart_modules_and_tiles(traced: Report, show: Callable[[Report], Any]) -> None:
    browser = show(traced)
    labels = f"{CHART}.data.datasets.map(d => d.label)"
    assert "fp16 Tensor Cores, 312 TFLOP/s" in ask(browser, labels)
    assert ask(browser, "[...document.getElementById('precision').options].map(o => o.value)")[0] == "fp16"
    points = f"{CHART}.data.datasets.filter(d => d.type === 'bubble').flatMap(d => d.data)"
    drawn = ask(browser, f"{points}.map(p => [p.x, p.y, p.r])")
    assert len(drawn) == 13  # twelve ops and the optimizer
    assert all(x > 0 and y > 0 and r > 0 for x, y, r in drawn)
    assert len({r for _, _, r in drawn}) > 1
    step, tiles = text_of(browser, "profile"), text_of(browser, "kernels")
    assert "512" in tiles
    choose(browser, "precision", "tf32")
    assert "tf32 Tensor Cores, 156 TFLOP/s" in ask(browser, labels)
    assert text_of(browser, "profile") != step
    assert "not the precision of this run" in text_of(browser, "profile")
    assert text_of(browser, "kernels") != tiles
    choose(browser, "precision", "fp16")
    choose(browser, "gpu", "v100-sxm2-16gb")
    assert "memory, 900 GB/s" in ask(browser, labels)
    assert "tf32" not in text_of(browser, "precision")
    browser.execute_script("document.querySelector('#modules details').open = true")
    assert ask(browser, "document.querySelectorAll('#modules .name').length") > 6


def test_tooltips(traced: Report, show: Callable[[Report], Any]) -> None:
    browser = show(traced)
    browser.execute_script(
        f"const c = {CHART}; const d = c.data.datasets.findIndex(d => d.type === 'bubble' && d.data.length);"
        "c.tooltip.setActiveElements([{datasetIndex: d, index: 0}], {x: 0, y: 0}); c.update()"
    )
    lines = ask(browser, f"{CHART}.tooltip.body.flatMap(b => b.lines)")
    assert any("TFLOP/s at" in line for line in lines)
    assert any("of the step" in line for line in lines)


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_hostile_names_are_shown_and_not_run(number: int, show: Callable[[Report], Any]) -> None:
    text = HOSTILE[number]
    report = hostile_report(text, text, text, text)
    entry = replace(
        report.entries[0], graph=traced_entry(4, layer=text, path=text.replace("\0", "") or "x").graph
    )
    browser = show(replace(report, entries=(entry,)))
    browser.execute_script("for (const e of document.querySelectorAll('details')) e.open = true")
    assert ask(browser, "document.querySelectorAll('.finding').length") == 2
    assert ask(browser, "document.querySelectorAll('img, a, iframe, script').length") == 4  # its own scripts
    assert ask(browser, "document.querySelectorAll('#kernels tbody tr').length") > 0


def test_5000_findings_and_ops_keep_the_page_small(
    show: Callable[[Report], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkdir("src")
    for number in range(50):
        Path(f"src/file{number}.py").write_text("x = torch.nn.Linear(10, 10)  # a line\n" * 200)
    browser = show(replace(many_findings(5_000), entries=(traced_entry(5_000),)))
    count = "document.querySelectorAll('.finding').length"
    # On a busy machine the page of several megabytes is still being read.
    support.WebDriverWait(browser, 30).until(lambda _: ask(browser, count))
    assert ask(browser, count) == 50
    assert "1 to 50 of 5000" in text_of(browser, "finding-shown")
    browser.execute_script("document.getElementById('finding-after').click()")
    choose(browser, "level", "error")
    choose(browser, "precision", "bf16")
    assert "of 1667" in text_of(browser, "finding-shown")
    assert ask(browser, "document.getElementsByTagName('*').length") < 10_000


@pytest.mark.parametrize("width", [360, 1200])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_fits_the_screen_in_both_schemes(
    width: int, scheme: str, traced: Report, show: Callable[[Report], Any], browser: Any
) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    try:
        show(traced)
        assert ask(browser, "document.documentElement.scrollWidth") <= width
        background = ask(browser, "getComputedStyle(document.body).backgroundColor")
        brightness = sum(int(part) for part in background.strip("rgb()").split(","))
        assert (brightness > 600) == (scheme == "light")
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_each_of_several_models_is_a_page_behind_a_table(
    report: Report, show: Callable[[Report], Any]
) -> None:
    names = [f"zoo.py:build_{number}" for number in range(5)]
    entries = [replace(traced_entry(), target=name) for name in names]
    found = [replace(report.findings[1], target=name) for name in names[1:3]]
    slow = replace(entries[2].metrics["a100-sxm4-80gb"], step_time_us=1e9)
    entries[2] = replace(entries[2], metrics={**entries[2].metrics, "a100-sxm4-80gb": slow})
    browser = show(replace(report, entries=tuple(entries), findings=tuple(found)))
    shown = "[...document.querySelectorAll('#models tbody tr')].filter(r => !r.hidden).map(r => r.innerText)"
    assert len(ask(browser, shown)) == 10
    assert ask(browser, "document.getElementById('analysis').hidden")
    assert ask(browser, "document.querySelectorAll('section.model:not([hidden])').length") == 0
    browser.find_element("id", "model-words").send_keys("build_2")
    choose(browser, "model-column-1", "a100-sxm4-80gb")
    browser.implicitly_wait(2)
    browser.find_element("xpath", "//span[text()='1 of 10 rows']")
    browser.find_element("id", "model-words").clear()
    choose(browser, "model-column-1", "")
    heads = browser.find_elements("css selector", "#models th button")
    heads[2].send_keys("\n")  # by keyboard: the longest step first
    assert ask(browser, shown)[0].startswith("zoo.py:build_2")
    assert heads[2].find_element("xpath", "..").get_attribute("aria-sort") == "descending"
    browser.find_element("css selector", "#models a").send_keys("\n")
    browser.find_element("css selector", "section.model:not([hidden]) h2")
    assert ask(browser, "document.activeElement.textContent") == "zoo.py:build_2"
    assert ask(browser, "document.querySelectorAll('.finding').length") == 1
    assert ask(browser, "document.querySelectorAll('#icicle div').length") > 5
    assert not ask(browser, "document.getElementById('analysis').hidden")
    browser.find_element("css selector", "section.model:not([hidden]) .back a").send_keys("\n")
    browser.find_element("css selector", "#overview:not([hidden])")
    assert ask(browser, "document.querySelectorAll('.finding').length") == 2


def test_prints(traced: Report, show: Callable[[Report], Any], browser: Any) -> None:
    show(traced)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert ask(browser, "getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert ask(browser, "getComputedStyle(document.querySelector('.pages')).display") == "none"
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    browser.execute_script(
        "window.addEventListener('beforeprint', () => {"
        "  window.bodies = document.querySelectorAll('.finding[open] > .body').length })"
    )
    for element in ask(browser, "[...document.querySelectorAll('.finding')]"):
        browser.execute_script("arguments[0].open = false", element)
    assert len(browser.execute_cdp_cmd("Page.printToPDF", {})["data"]) > 20_000
    assert ask(browser, "window.bodies") == 3
    assert ask(browser, "document.querySelectorAll('.finding').length") == 3

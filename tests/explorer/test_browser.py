"""The page in a real Chromium: it loads, follows the slider, takes a file, refuses a bad one, fits a phone."""

import shutil

import numpy as np
import pytest

from swallowtail.cli.files import read_array
from swallowtail.datasets import random_symmetric
from swallowtail.explorer.server import serve
from swallowtail.explorer.study import Study

pytestmark = pytest.mark.extras
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SWITCH_MS = 100  # from one fitted budget to another


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def explorer():
    running = serve(Study("first.npy", random_symmetric(16, 3, 0)), read_array)
    yield running
    running.close()


def until(page, condition, seconds=60):
    """Wait for a condition. Playwright's own way evaluates strings in the page, which its policy forbids."""
    for _ in range(20 * seconds):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"{condition} did not come")


def opened(browser, explorer, width=1200, height=1500):
    page = browser.new_page(viewport={"width": width, "height": height})
    faults = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.on("request", lambda r: faults.append(r.url) if not r.url.startswith(explorer.url) else None)
    page.goto(explorer.url)
    until(page, "state.overview && state.overview.fits.every((fit) => fit.ready)")
    page.wait_for_selector(".number.ours b")
    return page, faults


def test_the_slider_moves_the_numbers(browser, explorer):
    page, faults = opened(browser, explorer)
    page.focus("#budget")
    page.keyboard.press("Home")
    least = page.inner_text(".number.ours b")
    page.keyboard.press("End")
    most = page.inner_text(".number.ours b")
    assert float(most.rstrip("°")) < float(least.rstrip("°"))
    until(page, "state.details.has(current().rotations)")
    # Once fetched, a budget is shown again within a tenth of a second.
    page.keyboard.press("Home")
    until(page, "state.details.has(current().rotations)")
    took = page.evaluate(
        """async () => {
            const begin = performance.now();
            pick(fits().length - 1);
            await show();
            return performance.now() - begin;
        }"""
    )
    assert took < SWITCH_MS
    page.select_option("#unit", "bytes")
    assert "bytes" in page.inner_text("#amount")
    with page.expect_download() as download:
        page.click("#download")
    assert download.value.suggested_filename.endswith(".safetensors")
    assert faults == []


def test_files_good_and_bad(browser, explorer, tmp_path):
    page, faults = opened(browser, explorer)
    (tmp_path / "bad.npy").write_bytes(b"junk")
    page.set_input_files("#file", tmp_path / "bad.npy")
    until(page, "document.getElementById('notice').textContent.includes('numpy.save')")
    assert "first.npy" in page.inner_text("#name")
    assert [fault for fault in faults if "400" not in fault] == []
    np.save(tmp_path / "good.npy", random_symmetric(8, 2, 1))
    page.set_input_files("#file", tmp_path / "good.npy")
    until(page, "document.getElementById('name').textContent.includes('good.npy, 8')")


def test_it_fits_a_phone(browser, explorer):
    page, faults = opened(browser, explorer, 380, 800)
    assert page.evaluate("document.documentElement.scrollWidth") <= 380
    assert page.is_visible("#budget")
    assert faults == []

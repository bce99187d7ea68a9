"""The page is one file that needs nothing, is escaped, and fits a phone."""

import re
import shutil
import subprocess

import pytest
from experiments.report.conftest import html

from swallowtail.experiments.common.findings import Finding
from swallowtail.experiments.report.html import render
from swallowtail.experiments.report.page import Page, Section


def test_report_is_one_file_that_needs_nothing(folder):
    page = html(folder)
    assert sorted(path.name for path in folder.iterdir()) == [
        *("fig1.csv", "fig1.png", "fig2.csv", "fig2.png", "findings.md", "index.html", "run.json")
    ]
    assert "http" not in page
    assert "<script" not in page
    assert "@import" not in page
    assert "url(" not in page
    assert all(source.startswith("data:image/png;base64,") for source in re.findall(r'src="([^"]*)', page))
    assert all(link.startswith("#") for link in re.findall(r"href=['\"]([^'\"]*)", page))
    assert page.count("<img") == 2
    assert 'name="viewport"' in page
    for anchor in re.findall(r"href='#([^']*)", page):
        assert f"id='{anchor}'" in page


def test_text_is_escaped():
    section = Section(
        "a", "<b>", "about & more\n\n- one\n- two", findings=(Finding("x < y", "`c`", "3", ""),)
    )
    page = render(Page("full", [section], {}, []))
    assert "<h2 id='a'>&lt;b&gt;</h2>" in page
    assert "about &amp; more" in page
    assert "<ul><li>one</li><li>two</li></ul>" in page
    assert "x &lt; y" in page
    assert "<code>c</code>" in page


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
@pytest.mark.parametrize("width", [390, 1200])
def test_browser_shows_it_without_scrolling_sideways(folder, tmp_path, width):
    """The page is laid out as wide as the screen, and every figure has pixels."""
    count = "<script>document.title = [document.documentElement.scrollWidth, innerWidth, ...Array.from("
    count += "document.images, i => i.naturalWidth > 200 && i.clientWidth > 300)].join(' ')</script></body>"
    (tmp_path / "probe.html").write_text(html(folder).replace("</body>", count), encoding="utf-8")
    browser = ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", f"--window-size={width},2000"]
    picture = tmp_path / "shot.png"
    common = {"check": True, "capture_output": True, "timeout": 120}
    page = subprocess.run([*browser, "--dump-dom", str(tmp_path / "probe.html")], **common).stdout.decode()
    wide, inner, *images = re.search("<title>(.*?)</title>", page)[1].split()
    assert int(wide) <= int(inner)
    assert images == ["true", "true"]
    subprocess.run([*browser, f"--screenshot={picture}", str(folder / "index.html")], **common)
    assert picture.stat().st_size > 20_000  # a blank page of this size is a few kilobytes

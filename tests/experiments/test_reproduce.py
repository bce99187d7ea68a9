"""swallowtail reproduce: the report, its folder, and what happens when something goes wrong."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from swallowtail.cli.commands import main
from swallowtail.experiments import EXPERIMENTS, fig1, fig2, fig3
from swallowtail.experiments.common import draw as _draw
from swallowtail.experiments.common.run import read_rows
from swallowtail.experiments.report import Finding, Page, Section, render

from .conftest import TINY, without_times


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A report of figures 1 and 2 on small matrices."""
    folder = tmp_path_factory.mktemp("made") / "report"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_draw, "DPI", 40)
        for module in (fig1, fig2):
            patch.setattr(module, "QUICK", module.Config(**TINY[module.__name__.split(".")[-1]]))
        assert main(["reproduce", "--only", "fig2, fig1", "-o", str(folder), "--quiet"]) == 0
    return folder


@pytest.fixture
def folder(made, tiny, tmp_path):
    """A copy of that report, to be spoilt."""
    tiny("fig1")
    tiny("fig2")
    return shutil.copytree(made, tmp_path / "report")


def html(folder):
    return (folder / "index.html").read_text(encoding="utf-8")


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


def test_report_says_where_it_comes_from(folder):
    page, table = html(folder), (folder / "findings.md").read_text(encoding="utf-8")
    assert "swallowtail reproduce --quick --only fig2,fig1" in page
    for word in ("cores", "python 3", "torch", "numpy", "20"):
        assert word in page.split("id='run'")[1]
    assert "Not in this run: pairs, fig3" in page
    for module in (fig1, fig2):
        for finding in module.findings(read_rows(folder / f"{module.__name__.split('.')[-1]}.csv")):
            assert finding.ours in page
            assert f"| {finding.claim} | {finding.paper} | {finding.ours} |" in table
    assert os.getcwd() not in page  # no places of this machine


def test_a_second_run_runs_nothing_and_says_the_same(folder, tiny, capsys):
    before, record = html(folder), json.loads((folder / "run.json").read_text())
    rows = read_rows(folder / "fig1.csv")
    assert main(["reproduce", "--only", "fig1", "-o", str(folder), "--quiet"]) == 0
    assert read_rows(folder / "fig1.csv") == rows  # times too: it was not run again
    assert json.loads((folder / "run.json").read_text()) == record
    assert html(folder) == before
    assert "report in" in capsys.readouterr().out


def test_redraw_takes_the_rows_as_they_are(folder):
    text = (folder / "fig1.csv").read_text()
    rows = read_rows(folder / "fig1.csv")
    old = fig1.findings(rows)[0].ours
    end = [row["angle"] for row in rows if row["part"] == "end" and row["what"] == "H"]
    for angle in end:
        text = text.replace(repr(angle), "12.25")
    (folder / "fig1.csv").write_text(text)
    (folder / "fig1.png").unlink()
    assert main(["reproduce", "--redraw", "-o", str(folder)]) == 0
    assert "12.2° (12.2 … 12.2)" in html(folder)
    assert old not in html(folder)
    assert (folder / "fig1.png").exists()


def test_redraw_without_rows(tmp_path, capsys):
    assert main(["reproduce", "--redraw", "-o", str(tmp_path / "nothing")]) == 1
    assert "--redraw: expected" in capsys.readouterr().err


def test_unknown_names_are_listed(tmp_path, capsys):
    assert main(["reproduce", "--only", "fig1,fig9", "-o", str(tmp_path)]) == 1
    err = capsys.readouterr().err
    assert "got fig9" in err
    assert all(name in err for name in EXPERIMENTS)


def test_modes_are_not_mixed(folder, capsys):
    assert main(["reproduce", "--full", "--only", "fig1", "-o", str(folder), "--quiet"]) == 1
    assert "got rows of --quick; give another folder with -o" in capsys.readouterr().err


def test_settings_are_not_mixed(folder, monkeypatch, capsys):
    monkeypatch.setattr(fig1, "QUICK", fig1.Config(n=8, n_large=1, epochs=4, n_seeds=2, n_timed=0))
    before = (folder / "fig1.csv").read_bytes()
    assert main(["reproduce", "--only", "fig1", "-o", str(folder), "--quiet"]) == 1
    assert "expected rows with the settings" in capsys.readouterr().err
    assert (folder / "fig1.csv").read_bytes() == before


def test_one_failure_does_not_lose_the_others(tiny, tmp_path, monkeypatch, capsys):
    tiny("fig1")
    tiny("fig2")

    def fail(*_, **__):
        raise ValueError("no such <luck>")

    with monkeypatch.context() as patch:
        patch.setattr(fig1, "fit_sgd", fail)
        assert main(["reproduce", "--only", "fig1,fig2", "-o", str(tmp_path), "--quiet"]) == 1
    assert "fig1 failed: ValueError: no such <luck>" in capsys.readouterr().err
    page = html(tmp_path)
    assert "This experiment failed:</b> ValueError: no such &lt;luck&gt;" in page
    assert fig2.findings(read_rows(tmp_path / "fig2.csv"))[0].ours in page
    assert main(["reproduce", "--only", "fig1", "-o", str(tmp_path), "--quiet"]) == 0  # mended since
    assert "This experiment failed" not in html(tmp_path)


def test_an_interrupt_says_how_to_go_on(tiny, tmp_path, monkeypatch, capsys):
    tiny("fig1")

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(fig1, "random_orthogonal", interrupt)  # the second task
    assert main(["reproduce", "--only", "fig1", "-o", str(tmp_path), "--quiet"]) == 130
    assert "the same command continues" in capsys.readouterr().err
    assert {row["task"] for row in read_rows(tmp_path / "fig1.csv")} == {"H 2014"}
    assert (
        main(["reproduce", "--redraw", "-o", str(tmp_path)]) == 1
    )  # half an experiment cannot be drawn, and says so


def test_rows_that_cannot_be_drawn_are_a_failure(folder, capsys):
    (folder / "fig2.csv").write_text("task,nonsense\nx,1\n")
    assert main(["reproduce", "--redraw", "-o", str(folder)]) == 1
    assert "fig2 failed: KeyError" in capsys.readouterr().err
    assert fig1.findings(read_rows(folder / "fig1.csv"))[0].ours in html(folder)


def test_mnist_path_reaches_the_loader_but_not_the_report(tiny, tmp_path, monkeypatch):
    tiny("fig3")
    given, load = [], fig3.datasets.mnist_covariance
    monkeypatch.setattr(fig3.datasets, "mnist_covariance", lambda path: given.append(path) or load())
    place = tmp_path / "images"
    place.mkdir()
    options = [
        "reproduce",
        "--only",
        "fig3",
        "--mnist",
        str(place),
        "-o",
        str(tmp_path / "report"),
        "--quiet",
    ]
    assert main(options) == 0
    assert given == [str(place)]
    assert str(tmp_path) not in html(tmp_path / "report") + (tmp_path / "report" / "run.json").read_text()
    assert "MNIST, 5000 images" in html(tmp_path / "report")
    options[4] = str(tmp_path / "nowhere")
    assert main(options) == 1


def test_without_matplotlib_it_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for module in [m for m in sys.modules if m.startswith("swallowtail.experiments.")]:
        monkeypatch.delitem(sys.modules, module)
    assert main(["reproduce", "-o", str(tmp_path)]) == 1
    assert "pip install swallowtail[plot]" in capsys.readouterr().err


SLOW = """
import sys, time
from pathlib import Path
from swallowtail.experiments import fig2
from swallowtail.experiments import reproduce as _reproduce
fig2.QUICK = fig2.Config(n=8, n_large=(0, 4, 8), epochs=2, starts=1, kicks=0, cycles=1, n_seeds=2)
fit_pairs = fig2.fit_pairs
def slow(*args, **options):
    time.sleep(1)
    return fit_pairs(*args, **options)
fig2.fit_pairs = slow
_reproduce.reproduce(Path(sys.argv[1]), ["fig2"], progress=False)
"""


def test_a_killed_run_continues(tiny, tmp_path):
    """SIGKILL in the middle; what was done stays, and the end is that of an undisturbed run."""
    rows = tmp_path / "killed" / "fig2.csv"
    process = subprocess.Popen([sys.executable, "-c", SLOW, str(tmp_path / "killed")])
    begin = time.monotonic()
    while not rows.exists() and time.monotonic() - begin < 240:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    part = read_rows(rows)
    assert 0 < len({row["task"] for row in part}) < 6
    _, config = tiny("fig2")
    for folder in ("killed", "undisturbed"):
        fig2.run(config, tmp_path / folder / "fig2.csv", progress=False)
    done = read_rows(rows)
    assert done[: len(part)] == part
    assert without_times(done) == without_times(read_rows(tmp_path / "undisturbed" / "fig2.csv"))


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

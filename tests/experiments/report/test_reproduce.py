"""swallowtail reproduce: the report, its folder, and what happens when something goes wrong."""

import json
import os
import sys
import time

from bounded import started
from experiments.conftest import without_times
from experiments.report.conftest import html

from swallowtail.cli.commands import main
from swallowtail.experiments import EXPERIMENTS, fig1, fig2, fig3
from swallowtail.experiments.common.rows import read_rows


def test_report_says_where_it_comes_from(folder):
    page, table = html(folder), (folder / "findings.md").read_text(encoding="utf-8")
    assert "swallowtail reproduce --quick --only fig2,fig1" in page
    for word in ("cores", "python 3", "torch", "numpy", "20"):
        assert word in page.split("id='run'")[1]
    assert "Not in this run: samples, fig3" in page
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
    assert "got rows of --quick; try another folder with -o" in capsys.readouterr().err


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
    # Half an experiment cannot be drawn, and says so.
    assert main(["reproduce", "--redraw", "-o", str(tmp_path)]) == 1


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
    assert 'pip install "swallowtail[plot]"' in capsys.readouterr().err


SLOW = """
import sys, time
from pathlib import Path
from swallowtail.experiments import fig2
from swallowtail.experiments.report.reproduce import reproduce
fig2.QUICK = fig2.Config(n=8, n_large=(0, 4, 8), epochs=2, starts=1, kicks=0, cycles=1, n_seeds=2)
fit_pairs = fig2.fit_pairs
def slow(*args, **options):
    time.sleep(1)
    return fit_pairs(*args, **options)
fig2.fit_pairs = slow
reproduce(Path(sys.argv[1]), ["fig2"], progress="")
"""


def test_a_killed_run_continues(tiny, tmp_path):
    """SIGKILL in the middle; what was done stays, and the end is that of an undisturbed run."""
    rows = tmp_path / "killed" / "fig2.csv"
    with started([sys.executable, "-c", SLOW, str(tmp_path / "killed")]) as process:
        while not rows.exists() and process.poll() is None:
            time.sleep(0.02)
    part = read_rows(rows)
    assert 0 < len({row["task"] for row in part}) < 6
    _, config = tiny("fig2")
    for folder in ("killed", "undisturbed"):
        fig2.run(config, tmp_path / folder / "fig2.csv", progress=False)
    done = read_rows(rows)
    assert done[: len(part)] == part
    assert without_times(done) == without_times(read_rows(tmp_path / "undisturbed" / "fig2.csv"))

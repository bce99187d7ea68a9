"""A short form of every trial of `make soak`, and that the trials would notice."""

import ctypes
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from soak import guards, products
from soak.__main__ import all_trials, write_rows
from soak.report import BEGIN, END, write_report
from soak.trial import Row, Trial, in_child, run

ROOT = Path(__file__).parents[2]
posix = pytest.mark.skipif(sys.platform != "linux", reason="needs fork, /proc and POSIX limits")
# How many cases each may take here. What is left out imports the package again or waits for a disk, for seconds.
SHORT = {
    "products and gradients": 120, "guard pages": 10, "damaged operators": 40, "damaged inputs": 100,
    "damaged checkpoints": 3, "interrupted products and gradients": 30, "interrupted saves": 20, "killed saves": 8,
    "killed streams": 2, "killed distributed fits": 2, "threads while angles change": 1000, "full disks": 6,
    "little memory": 3, "updates of a tracker": 4000, "operators that come and go": 2500,
}  # fmt: skip
LONG = {
    "interrupted fits", "killed fits", "killed training", "forked, spawned and served processes",
    "homes that cannot be written to", "rows of a stream",
}  # fmt: skip


def test_every_trial_is_here():
    assert {trial.name for trial in all_trials()} == SHORT.keys() | LONG
    assert sum(trial.share for trial in all_trials()) <= 1.2 + 1e-9  # half an hour


@posix
def test_short():
    """In a process of their own: they fork, and forks of a process with OpenMP's threads may hang."""
    program = (
        "import sys, json, torch\ntorch.set_num_threads(1)\n"
        "from soak.__main__ import all_trials\nfrom soak.trial import run\n"
        "short = json.loads(sys.argv[1])\n"
        "rows = [run(t, 0, short[t.name], seconds=200.0) for t in all_trials() if t.name in short]\n"
        "print(json.dumps(rows))"
    )
    command = [sys.executable, "-W", "ignore", "-c", program, json.dumps(SHORT)]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400)
    assert found.returncode == 0, found.stderr
    rows = [Row(*row) for row in json.loads(found.stdout.splitlines()[-1])]
    assert {row.name: row.cases for row in rows} == SHORT
    assert [row for row in rows if row.failures] == []


# The trials notice what they are for


def test_a_wrong_product_is_noticed():
    exact = np.ones((2, 3), np.longdouble)
    good, scale = torch.ones(2, 3), np.ones(2)
    assert products.judged("", good, exact, None, scale, 4, torch.float32) is None
    for bad in (good * (1 + 1e-5), good * torch.nan, good.double(), good[:1]):
        assert products.judged("", bad, exact, None, scale, 4, torch.float32) is not None


@posix
@pytest.mark.parametrize("side", [-1, 4])
def test_a_step_outside_a_buffer_is_noticed(side):
    def outcomes():
        for seed in range(8):  # some begin behind a guard page, some end before one
            made = guards.Guards(np.random.default_rng(seed)).array((4,), np.float32)
            ctypes.c_float.from_address(made.ctypes.data + 4 * side).value  # noqa: B018
            yield None

    assert "the process ended with -11" in list(in_child(outcomes, timeout=20))


@posix
def test_crashes_hangs_and_exceptions_are_outcomes():
    def crash():
        yield None
        os.kill(os.getpid(), signal.SIGABRT)

    def hang():
        yield None
        signal.pause()

    def fail():
        yield None
        raise ValueError("no such thing")

    assert list(in_child(crash, timeout=20)) == [None, "the process ended with -6"]
    assert list(in_child(hang, timeout=0.2)) == [None, "no end within 0.2 s"]
    assert "no such thing" in list(in_child(fail, timeout=20))[1]


def test_rows_are_counted_and_written(tmp_path):
    trial = Trial("some", lambda seed: (o for o in (None, "wrong", None, "again")), 4, 1.0)
    row = run(trial, 0, 3, 10.0)
    assert row[:3] == ("some", 3, 1)
    assert row.first_failure == "wrong"
    other = Row("other", 1, 0, 0.5)
    write_rows(tmp_path / "results" / "rows.csv", [row._replace(cases=2), other])
    assert write_rows(tmp_path / "results" / "rows.csv", [row]) == [row, other]
    assert (
        (tmp_path / "results" / "rows.csv")
        .read_text()
        .startswith("name,cases,failures,seconds,first_failure\nsome,3,1")
    )
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_report([Row("some", 60_000, 0, 12.4)], page)
    assert page.read_text().splitlines()[0] == "before"
    assert "| some | 60,000 | 0 | 12 |" in page.read_text()
    assert "old" not in page.read_text()
    assert page.read_text().endswith("after\n")

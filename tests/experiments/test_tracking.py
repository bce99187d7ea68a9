"""The matrix turns as fast as it says, keeps its spectrum, and the tracker follows it."""

from itertools import islice

import numpy as np
import pytest
from experiments.checks import check_continues, check_makes_the_report

from swallowtail.datasets import random_symmetric
from swallowtail.experiments import tracking

TINY = tracking.Config(speeds=(0.0, 0.2), windows=(16,), seeds=1, settle=1500, steps=400, n=16, n_large=2)


def test_rows_continue_and_make_the_report(tmp_path):
    rows = check_continues(tracking, TINY, tmp_path / "rows.csv")
    check_makes_the_report(tracking, rows, "angle")
    angle = lambda method: np.mean([r["angle"] for r in rows if r["speed"] == 0.2 and r["method"] == method])
    assert angle(tracking.TRACKER) < angle(tracking.LEFT) - 5


@pytest.mark.parametrize("speed", [0.0, 0.5])
def test_a_step_turns_a_random_vector_by_the_speed(speed):
    H = random_symmetric(12, 3, 0)
    one, two = islice(tracking.turning(H, speed, np.random.default_rng(1)), 2)
    for moved in (one, two):
        np.testing.assert_allclose(np.linalg.eigvalsh(moved), np.linalg.eigvalsh(H), atol=1e-12)
    # Eigenvectors are turned with R: their root mean square angle is the speed.
    before, after = (np.linalg.eigh(A)[1] for A in (one, two))
    cosines = np.minimum(np.abs((before * after).sum(0)), 1.0)
    angles = np.degrees(np.arccos(cosines))
    assert np.sqrt(np.mean(angles**2)) == pytest.approx(speed, rel=1e-3, abs=1e-5)


def test_trackers_of_two_speeds_do_not_share_what_they_learn():
    first, second = (tracking.settled(TINY, 600)[tracking.TRACKER] for _ in range(2))
    before = second.angles
    first.update(np.ones(16), np.ones(16))
    np.testing.assert_array_equal(second.angles, before)
    np.testing.assert_array_equal(tracking.settled(TINY, 600)[tracking.TRACKER].angles, before)


def test_findings_name_the_speed_where_tracking_helps_most():
    rows = [
        {"speed": s, "method": m, "angle": a}
        for s, m, a in (
            (0.0, "tracker", 30.0), (0.0, "constant fit", 30.0), (0.1, "tracker", 31.0), (0.1, "constant fit", 60.0),
        )
    ]  # fmt: skip
    finding = tracking.findings(rows)[0]
    assert finding.ours == "31.0° at 0.1° per step, where a constant fit has 60.0°"
    assert "up to 0.1°" in finding.note

"""Matrices in the class: recovery finds them, the printed form is not among them, no start knows the answer."""

from types import SimpleNamespace

import numpy as np
import pytest
from experiments.checks import check_continues, check_makes_the_report

from swallowtail.experiments import sanity
from swallowtail.fitting.core.objectives import Objective
from swallowtail.wiring import Butterfly

TINY = sanity.Config(
    sizes=(8, 16),
    spreads=(0.1, sanity.UNIFORM),
    trials=1,
    epochs=3,
    starts=2,
    direct_sizes=(8, 16),
    direct_trials=1,
)


def test_rows_continue_and_make_the_report(tmp_path):
    rows = check_continues(sanity, TINY, tmp_path / "rows.csv")
    check_makes_the_report(sanity, rows, "error")
    direct = [row for row in rows if row["part"] == "direct"]
    assert {row["matrix"] for row in direct} == {*sanity.KINDS, sanity.PRINTED}
    for row in direct:
        assert (row["error"] < 1e-6) == (row["matrix"] != sanity.PRINTED)


def test_relative_error_of_an_angle_that_is_off():
    fit = SimpleNamespace(wiring=Butterfly(2), angles=np.array([0.4]))
    c, s = np.cos(0.3), np.sin(0.3)
    assert sanity.relative_error(np.array([[c, -s], [s, c]]), fit) == pytest.approx(2 * np.sin(0.05))


def test_hidden_matrices_have_the_spread_asked_for():
    R, values = sanity.hidden(8, 1e-3, 0)
    np.testing.assert_allclose(R, np.eye(8), atol=2e-2)
    assert not np.allclose(R, np.eye(8), atol=1e-5)
    assert (values > 0).all()
    R, _ = sanity.hidden(8, sanity.UNIFORM, 0)
    np.testing.assert_allclose(R @ R.T, np.eye(8), atol=1e-12)
    assert np.abs(R - np.eye(8)).max() > 0.5


def test_no_start_is_the_hidden_answer():
    """Starts drawn with the seed of the hidden angles would begin at the solution."""
    R, values = sanity.hidden(32, sanity.UNIFORM, 5)
    assert sanity._lbfgs(Objective((R * values) @ R.T), 3, 5) > 0.01


def test_findings_count_successes():
    rows = [
        {"part": "gradient", "n": 16, "spread": "uniform", "matrix": "H", "method": "Algorithm 1", "error": e}
        for e in (0.5, 0.001, 0.2)
    ]
    assert "uniform angles: 1 of 3" in sanity.findings(rows)[1].ours

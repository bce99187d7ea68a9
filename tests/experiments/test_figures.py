"""Figures 1 to 3 and the number of pairs, on small matrices: rows, resumption, plots, findings from rows."""

import copy
import importlib

import matplotlib
import numpy as np
import pytest

import swallowtail as st
from swallowtail.experiments import EXPERIMENTS, fig1, fig2, fig3
from swallowtail.experiments.common import draw as _draw
from swallowtail.experiments.common.fits import rival_rows
from swallowtail.experiments.common.run import read_rows, write_rows

from .conftest import without_times


def words(module, rows):
    """All that the report would say."""
    return str(
        [getattr(module, part)(rows) for part in ("findings", "text", "better") if hasattr(module, part)]
    )


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_has_what_the_report_needs(name):
    module = importlib.import_module(EXPERIMENTS[name])
    assert module.TITLE
    assert len(module.__doc__) > 100
    assert isinstance(module.QUICK, module.Config)
    assert isinstance(module.FULL, module.Config)
    assert module.QUICK != module.FULL
    assert all(callable(getattr(module, part)) for part in ("run", "plot", "findings"))


def test_runs_repeat_and_half_a_run_continues_to_the_same_rows(name, tiny, rows, tmp_path):
    module, config = tiny(name)
    path = tmp_path / "rows.csv"
    assert without_times(module.run(config, path, progress=False)) == without_times(rows)
    done = read_rows(path)
    half = list(dict.fromkeys(row["task"] for row in done))[::2]
    write_rows(path, [row for row in done if row["task"] in half])
    assert without_times(module.run(config, path, progress=False)) == without_times(rows)


def test_figures_and_words_come_from_rows(name, tiny, rows):
    module, _ = tiny(name)
    with matplotlib.rc_context(_draw.STYLE):
        image = _draw.picture(module.plot(rows))
        assert image.startswith(b"\x89PNG")
        altered = [row | ({"angle": 0.5 * row["angle"] + 1} if "angle" in row else {}) for row in rows]
        assert image != _draw.picture(module.plot(altered))
    assert words(module, rows) == words(module, copy.deepcopy(rows))
    assert words(module, rows) != words(module, altered)


def test_labels_and_units_are_on_every_axis(name, tiny, rows):
    module, _ = tiny(name)
    for axes in module.plot(rows).axes:
        if axes.lines:  # pictures have none
            assert "degrees" in axes.get_ylabel() + axes.get_xlabel()
            assert axes.get_xlabel()
            assert axes.get_legend() is not None


def test_findings_of_figure_1_are_means_over_seeds():
    ends = {"H": (34.0, 37.0), "R": (70.0, 71.0)}
    rows = [
        {"part": "end", "what": what, "n": 64, "n_large": 5, "seed": seed, "angle": angle}
        for what, angles in ends.items()
        for seed, angle in enumerate(angles)
    ]
    H, R, order = fig1.findings(rows)
    assert (H.paper, H.ours) == ("about 35°", "35.5° (34.0 … 37.0)")
    assert "+0.5° from the paper, within ±2°; 2 seeds" in H.note
    assert R.ours == "70.5° (70.0 … 71.0)"
    assert "beyond ±1.5°" in R.note
    assert order.ours == "yes"


def test_findings_of_figure_2_see_the_shape():
    def rows(angles):
        return [
            {"n": 64, "n_large": x, "seed": 0, "method": fig2.ALGORITHM_1, "angle": a}
            for x, a in angles.items()
        ]

    peak, end, shape = fig2.findings(rows({0: 25.0, 16: 42.0, 32: 38.0, 64: 19.0}))
    assert peak.ours == "42.0° at n_μ = 16"
    assert "38.0°" in peak.note
    assert end.ours == "19.0°"
    assert "−1.0° from the paper, within ±2°" in end.note
    assert shape.ours == "yes"
    assert fig2.findings(rows({0: 50.0, 16: 42.0, 64: 19.0}))[2].ours == "no"
    short = [{"n": 64, "n_large": 64, "seed": s, "method": fig2.BY_DEFAULT, "angle": a, "alone": 1, "epochs": 10}
             for s, a in ((0, 24.0), (1, 26.0))]  # fmt: skip
    found = fig2.findings(rows({0: 25.0, 16: 42.0, 32: 38.0, 64: 19.0}) + short)[2]
    assert (found.claim, found.ours) == ("the same, stopped after 10 epochs", "25.0° (24.0 … 26.0)")
    assert "beyond ±2°, ours the worse" in found.note


@pytest.mark.parametrize("name", ["fig3"], indirect=True)
def test_pictures_of_figure_3_are_the_matrices(tiny, rows):
    """Averaged over two by two entries, to within a shade."""
    module, _ = tiny("fig3")
    H = module.datasets.digits_covariance()
    drawn = fig3.picture_of(rows, "true")
    expected = (H[::2, ::2] + H[1::2, ::2] + H[::2, 1::2] + H[1::2, 1::2]) / 4
    limit = np.quantile(np.abs(expected), 0.995)
    np.testing.assert_allclose(drawn, np.clip(expected, -limit, limit), atol=limit / 127)


def test_rivals_have_the_budget_they_claim():
    """The rank whose count is nearest to the fit's, by counting anew."""
    H, n = st.random_symmetric(32, 3, 1), 32
    operator = st.fit_symmetric(H, wiring="pairs").operator
    rows = {row["method"]: row for row in rival_rows(H, operator, seed=0)}
    K = operator.rotation.n_rotations
    numbers = {"floats": (K + n, "floats"), "bytes": (4 * (K + n) + 4 * K, "bytes")}
    numbers["multiply-adds"] = (operator.multiply_adds, "multiply_adds")
    for name, (budget, column) in numbers.items():
        row = rows[f"c·I + low rank, equal {name}"]
        step = {"floats": n + 1, "bytes": 4 * (n + 1), "multiply_adds": 2 * n}[column]
        assert abs(row[column] - budget) <= step / 2 + 1e-9
    values = np.linalg.eigvalsh(H)
    assert rows["c·I"]["angle"] == pytest.approx(st.error_angle(H, values.mean() * np.eye(n), 2000, 1))

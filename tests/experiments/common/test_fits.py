"""Rivals have the budget they claim."""

import numpy as np
import pytest

import swallowtail as st
from swallowtail.experiments.common.fits import rival_rows


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

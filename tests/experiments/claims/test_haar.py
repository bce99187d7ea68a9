"""Statistics with known values."""

import numpy as np
import pytest
import torch

import swallowtail as st
from swallowtail.experiments.claims.haar import dense, haar_rows, interaction_rows, statistics


def test_statistics_of_known_matrices():
    assert statistics(np.eye(8))["fourth_moment"] == pytest.approx(8.0)
    assert statistics(st.Rotation.hadamard(8, dtype=torch.float64).to_dense().numpy())[
        "largest_entry"
    ] == pytest.approx(1.0)
    rows = haar_rows(16, (1,), 300, 7)
    fourth = {row["depth"]: row["value"] for row in rows if row["statistic"] == "fourth_moment"}
    assert fourth[1] == pytest.approx(16**2 * (3 / 8) ** 4, rel=0.06)
    assert fourth["uniform"] == pytest.approx(3 * 16 / 18, rel=0.02)


def test_interactions_are_non_zeros():
    rows = {(row["n"], row["depth"]): row for row in interaction_rows((8, 9))}
    assert rows[8, 1]["share"] == 1.0
    assert rows[9, 1]["fewest"] == 2
    assert rows[9, 1]["share"] == pytest.approx(np.count_nonzero(dense(9, 1, 3)) / 81)

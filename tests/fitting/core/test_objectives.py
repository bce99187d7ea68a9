"""The objectives: no unit, and a polish that goes down to a stationary point."""

import numpy as np
import pytest
from fitting.core.matrices import covariance, random_pairs, scrambled_kernel

from swallowtail.fitting.core.objectives import Objective


@pytest.mark.parametrize("target", ["matrix", "likelihood"])
def test_polish_goes_down_to_a_stationary_point(target):
    objective = Objective(covariance(24), target)
    pairs, angles = random_pairs(24, 60)
    reported = []
    x, value = objective.polish(pairs, angles, 2000, 1e-14, lambda _, f: reported.append(f))
    assert value < objective(pairs, angles)[0]
    assert value == pytest.approx(objective(pairs, x)[0], abs=1e-14)
    assert reported == sorted(reported, reverse=True)
    assert np.abs(objective(pairs, x)[1]).max() < 1e-5


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e30, 1e150])
def test_objective_has_no_unit(scale):
    H, (pairs, angles) = covariance(10), random_pairs(10, 20)
    plain, scaled = Objective(H), Objective(H * scale)
    assert scaled(pairs, angles)[0] == pytest.approx(plain(pairs, angles)[0], rel=1e-12)
    np.testing.assert_allclose(
        scaled.eigenvalues(pairs, angles) / scale, plain.eigenvalues(pairs, angles), rtol=1e-12
    )


def test_equal_entries_told_apart_are_all_but_equal():
    H = scrambled_kernel(15)
    A = Objective(H).told_apart()
    scale = Objective(H).scale
    np.testing.assert_allclose(A * scale, H, rtol=2e-12)
    np.testing.assert_array_equal(A, A.T)
    entries = np.sort(np.abs(A - np.diag(np.diag(A))), axis=1)
    assert (entries[:, -1] > entries[:, -2]).all()
    assert Objective(H, "likelihood").told_apart() is None
    assert Objective(covariance(220)).told_apart() is None  # no two entries are equal

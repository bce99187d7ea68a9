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


@pytest.mark.parametrize("target", ["matrix", "likelihood"])
@pytest.mark.parametrize("start", Objective.starts)
def test_starts_are_layers_that_reach_nearly_all(start, target):
    objective = Objective(scrambled_kernel(6), target)
    A = objective.residual(*random_pairs(36, 0))
    pairs, angles = objective.begin(A, start, 10**6, 1)
    assert len(np.unique(pairs)) == 2 * len(pairs)  # disjoint
    assert 8 <= len(pairs) <= 18
    assert start == "layers" or len(pairs) >= 16
    np.testing.assert_allclose(A, objective.residual(pairs, angles), atol=1e-12)
    assert len(objective.begin(A, start, 5, 1)[1]) == 5


@pytest.mark.parametrize("target", ["matrix", "likelihood"])
def test_what_is_put_in_front_or_behind_helps(target):
    objective = Objective(covariance(30), target)
    pairs, angles = random_pairs(30, 40)
    before, reports = objective(pairs, angles)[0], []
    more, by = objective.in_front(pairs, 0.1 * angles, 6, 0.1, lambda: reports.append(1))
    front = np.concatenate([more, pairs]), np.concatenate([by, 0.1 * angles])
    before = objective(pairs, 0.1 * angles)[0]
    assert reports
    assert 1 <= len(by) <= 6
    assert objective.polish(*front, 5)[1] < objective.polish(pairs, 0.1 * angles, 5)[1]
    more, by = objective.behind(pairs, 0.1 * angles, 6, 0.1)
    assert len(by) == 6
    back = np.concatenate([pairs, more]), np.concatenate([0.1 * angles, by])
    assert objective(*back)[0] < before

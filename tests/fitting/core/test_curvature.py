"""Second derivatives of the objectives, against differences of the gradient."""

import numpy as np
import pytest
from fitting.core.matrices import covariance

from swallowtail import random_orthogonal
from swallowtail.fitting.core.alignment import Alignment
from swallowtail.fitting.core.curvature import LEAST, derivatives, steps
from swallowtail.fitting.core.objectives import Objective

OBJECTIVES = {
    "matrix": lambda n: Objective(covariance(n)),
    "likelihood": lambda n: Objective(covariance(n), "likelihood"),
    "rotation": lambda n: Alignment(random_orthogonal(n, seed=1)),
}


@pytest.mark.parametrize("n", [2, 9, 70])  # one tile, and two
@pytest.mark.parametrize("name", OBJECTIVES)
def test_derivatives_are_those_of_the_objective(name, n):
    objective, generator = OBJECTIVES[name](n), np.random.default_rng(2)
    pairs = np.array([generator.permutation(n)[:2] for _ in range(2 * n)])
    angles = generator.uniform(-1, 1, 2 * n)
    value, slopes, bends = derivatives(objective.tiles, pairs, angles, objective.target, objective.floor)
    f, g = objective(pairs, angles)
    assert objective.constant - value / objective.unit == pytest.approx(f, abs=1e-13)
    np.testing.assert_allclose(slopes / -objective.unit, g, atol=1e-13)
    for k in range(0, 2 * n, max(1, n // 5)):
        by = 1e-4 * np.eye(2 * n)[k]
        difference = (objective(pairs, angles + by)[1][k] - objective(pairs, angles - by)[1][k]) / 2e-4
        assert bends[k] / -objective.unit == pytest.approx(difference, abs=1e-7)


def test_steps_are_bounded_where_nothing_bends():
    assert steps(np.array([2.0, -4.0, 0.0])).tolist() == [0.5, 0.25, 1 / (4 * LEAST)]
    assert np.isfinite(steps(np.zeros(3))).all()
    assert len(steps(np.zeros(0))) == 0

"""Free numbers of a mixture with many rotations."""

import numpy as np
from sklearn.mixture import GaussianMixture

from swallowtail.gaussians.mixture import GivensMixture


def test_columns_that_nearly_determine_each_other_take_more_rotations():
    """So many are no more free numbers than a full basis has."""
    rng = np.random.default_rng(0)
    first = rng.standard_normal((1300, 8)) + 4 * rng.integers(0, 2, (1300, 1))
    X = np.hstack([first, first @ rng.standard_normal((8, 7)) + 0.01 * rng.standard_normal((1300, 7))])
    rival = GaussianMixture(2, random_state=0).fit(X[:300]).score(X[300:])
    model = GivensMixture(2, n_rotations=2 * 15**2, random_state=0).fit(X[:300])
    assert model.score(X[300:]) > rival - 0.05 * 15
    assert min(model.n_rotations_) > 105
    assert model.n_parameters == 1 + 2 * 2 * 15 + 2 * 105

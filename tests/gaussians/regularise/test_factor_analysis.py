"""Factor analysis of a covariance."""

import numpy as np

from swallowtail.gaussians.regularise.factor_analysis import factor_path


def test_columns_that_nearly_repeat_each_other_keep_what_little_is_their_own():
    W, psi = np.linspace(0.9, 1.1, 6)[:, None], np.geomspace(3e-4, 1e-3, 6)
    (found,) = factor_path(W @ W.T + np.diag(psi), [1])
    np.testing.assert_allclose(found.noise, psi, rtol=0.01)

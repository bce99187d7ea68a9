"""Preconditioners are inverses, and CG counts what theory says."""

import numpy as np

from swallowtail.experiments.hessians.solving import conjugate_gradients, preconditioner
from swallowtail.fitting.core.factor import Factor
from swallowtail.fitting.rivals import low_rank
from swallowtail.fitting.symmetric import fit_symmetric


def test_preconditioners_are_inverses():
    rng = np.random.default_rng(1)
    A = rng.standard_normal((6, 6))
    H, r = A @ A.T, rng.standard_normal(6)
    cut, fit = low_rank(H, [3])[3], fit_symmetric(H).operator
    factor = Factor(cut.d, cut.V, cut.w)
    for form in (cut, factor, fit, np.diag(np.diagonal(H))):
        dense = form @ np.eye(6) + 0.1 * np.eye(6)
        np.testing.assert_allclose(preconditioner(form, 0.1, "")(r), np.linalg.solve(dense, r), atol=1e-9)
    np.testing.assert_array_equal(preconditioner(H, 0.1, "none")(r), r)


def test_cg_takes_as_many_steps_as_there_are_eigenvalues():
    d = np.array([1.0, 1.0, 3.0, 3.0, 7.0, 7.0])
    H, g = np.diag(d), np.ones(6)
    assert conjugate_gradients(H, 0.5, g, lambda r: r) == 3
    assert conjugate_gradients(H, 0.5, g, lambda r: r / (d + 0.5)) == 1
    assert conjugate_gradients(H, 0.5, g, lambda r: r, limit=2) == 2

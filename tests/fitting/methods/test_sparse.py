"""Growth on the entries of a sparse matrix: the same numbers as on a dense one, and where it ends."""

import numpy as np
import pytest
import scipy.sparse as sp

from swallowtail.fitting.core.records import Stop
from swallowtail.fitting.forms.symmetric import symmetric_operator
from swallowtail.fitting.methods.sparse import fit_sparse


def grid(m):
    line = sp.diags_array([np.full(m - 1, -1.0), np.full(m, 2.0), np.full(m - 1, -1.0)], offsets=[-1, 0, 1])
    return (sp.kron(line, sp.eye_array(m)) + sp.kron(sp.eye_array(m), line)).tocsr()


def dense(fit):
    return np.asarray(symmetric_operator(fit.wiring, fit.angles, fit.eigenvalues))


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_the_error_is_that_of_the_product(scale):
    H = grid(9) * scale
    fit = fit_sparse(H, 200)
    assert [k for _, k, _ in fit.history] == list(fit.wiring.offsets)
    assert fit.wiring.n_rotations == 200
    left = (H.toarray() - dense(fit)) / scale
    assert fit.history[-1][2] ** 0.5 == pytest.approx(
        np.linalg.norm(left) / np.linalg.norm(H.toarray() / scale)
    )
    assert fit.history[-1][2] < 0.3 * fit.history[0][2]
    assert np.abs(fit.angles).max() <= np.pi / 4


def test_blocks_of_two_are_exact():
    rng = np.random.default_rng(0)
    H = sp.block_diag([A + A.T for A in rng.standard_normal((20, 2, 2))]).tocsr()
    order = rng.permutation(40)
    H = H[order][:, order]
    fit = fit_sparse(H, 100)
    assert fit.wiring.n_rotations == 20  # and none beyond
    np.testing.assert_allclose(dense(fit), H.toarray(), atol=1e-12)


def test_a_diagonal_needs_no_rotation():
    for H in (sp.diags_array(np.arange(5.0)).tocsr(), sp.csr_array((5, 5))):
        fit = fit_sparse(H, 10)
        assert fit.wiring.n_rotations == 0
        np.testing.assert_array_equal(fit.eigenvalues, H.diagonal())


def test_it_ends_when_it_is_told_to():
    H = grid(9)
    assert fit_sparse(H, 0).history == [("grow", 0, pytest.approx(4 / 20, rel=0.2))]
    crowded = fit_sparse(H, 500, most=1000)
    assert 0 < crowded.wiring.n_rotations < 500
    enough = fit_sparse(H, 500, target_error=0.3)
    assert enough.history[-1][2] <= 0.09 < enough.history[-2][2]

    def stop(stage, rotations, objective):
        raise Stop

    assert len(fit_sparse(H, 500, callback=stop).history) == 2

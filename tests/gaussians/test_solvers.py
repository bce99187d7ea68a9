"""Matrix-free linear algebra."""

import pytest
import torch
from gaussians.small import operator

from swallowtail import ArgumentError, SymmetricOperator
from swallowtail.gaussians.solvers import conjugate_gradients, log_determinant


def test_log_determinant_by_quadrature():
    H = operator(64)
    near = SymmetricOperator(H.rotation, H.eigenvalues * 1.3)
    estimate = log_determinant(H, near)
    assert estimate.value == pytest.approx(H.logdet().item(), abs=1e-8)
    assert estimate.low <= estimate.value <= estimate.high
    other = log_determinant(H, operator(64, seed=4))
    assert abs(other.value - H.logdet().item()) < 4 * other.error


@pytest.mark.parametrize("preconditioned", [True, False])
def test_conjugate_gradients(preconditioned):
    H, b = operator(32), torch.ones(2, 32, dtype=torch.float64)
    b[1] = 0.0  # a row that is solved from the start
    solved = conjugate_gradients(H, b, H.inverse() if preconditioned else None)
    torch.testing.assert_close(solved.x, H.solve(b.T).T, rtol=1e-6, atol=1e-7)
    assert solved.converged
    assert solved.error < 1e-8
    assert solved.iterations <= (2 if preconditioned else 64)
    stopped = conjugate_gradients(H, b, max_iterations=1)
    assert not stopped.converged
    assert stopped.iterations == 1


def test_matrices_that_have_no_logarithm_are_refused():
    H = operator(16)
    shifted = H - float(H.eigenvalues.median())
    with pytest.raises(
        ArgumentError, match=r"^like: expected positive eigenvalues, got \d others; try like.function"
    ):
        log_determinant(H, shifted)
    with pytest.raises(
        ArgumentError, match=r"^matvec: expected a positive definite matrix, got an eigenvalue of -"
    ):
        log_determinant(shifted, H)


@pytest.mark.parametrize("matrix", [torch.eye(4), torch.eye(4).numpy()])
def test_a_matrix_for_a_function_of_rows(matrix):
    with pytest.raises(ArgumentError, match=r"^matvec: expected a function .*; try lambda X: X @ A"):
        conjugate_gradients(matrix, torch.ones(4))
    with pytest.raises(ArgumentError, match=r"^preconditioner: .*; try lambda X: X @ A"):
        conjugate_gradients(lambda x: x, torch.ones(4), matrix)
    with pytest.raises(ArgumentError, match=r"^matvec: .*; try lambda X: X @ A"):
        log_determinant(matrix, operator(4))


def test_conjugate_gradients_refuse_a_negative_eigenvalue():
    d = torch.ones(32, dtype=torch.float64)
    d[5] = -1.0
    with pytest.raises(ArgumentError, match=r"positive definite matrix, got pᵀA p = -"):
        conjugate_gradients(lambda x: x * d, torch.arange(32.0, dtype=torch.float64)[None])
    d[5] = 0.0  # singular, and solvable
    b = torch.arange(32.0, dtype=torch.float64)[None] * (d > 0)
    torch.testing.assert_close(conjugate_gradients(lambda x: x * d, b).x, b)

"""fit_symmetric: everything it can start from, and odd matrices that work."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from fitting.common import operator_error
from scipy.sparse.linalg import LinearOperator, aslinearoperator

import swallowtail as st
from swallowtail.fitting import FitResult, fit_symmetric, inputs
from swallowtail.metrics import error_angle

N = 12


H = st.random_symmetric(N, 3, 0)


QUICK = {"wiring": "pairs", "n_rotations": 20}


class Counted:
    """Products with a matrix, counted."""

    def __init__(self, A):
        self.A, self.columns = A, 0

    def __call__(self, X):
        self.columns += X.shape[1]
        return self.A @ X


SOURCES = {
    "array": lambda: H,
    "list": lambda: H.tolist(),
    "read-only": lambda: np.broadcast_to(H, H.shape),
    "Fortran order": lambda: np.asfortranarray(H),
    "tensor": lambda: torch.from_numpy(H),
    "tensor with gradient": lambda: torch.from_numpy(H.copy()).requires_grad_(),
    "csr": lambda: sp.csr_array(H),
    "coo matrix": lambda: sp.coo_matrix(H),
    "LinearOperator": lambda: aslinearoperator(H),
    "LinearOperator with matvec only": lambda: LinearOperator((N, N), matvec=lambda x: H @ x, dtype=float),
    "function": lambda: lambda X: H @ X,
    "function that returns a tensor": lambda: lambda X: torch.from_numpy(H @ X),
    "samples": lambda: (np.eye(N), H.copy()),
    "samples, more than n": lambda: (X := np.random.default_rng(0).standard_normal((N, 30)), H @ X),
}


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_gives_the_same_fit(name):
    source = SOURCES[name]()
    result = fit_symmetric(source, N if callable(source) and not hasattr(source, "shape") else None, **QUICK)
    assert isinstance(result, FitResult)
    assert isinstance(result.operator, st.SymmetricOperator)
    assert result.operator.dtype == torch.float64
    assert result.operator.rotation.n_rotations <= 20
    assert operator_error(H, result) == pytest.approx(operator_error(H, fit_symmetric(H, **QUICK)), abs=0.02)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_tensors_keep_their_dtype_and_device(dtype):
    A = torch.from_numpy(H).to(dtype)
    result = fit_symmetric((A + A.T) / 2, **QUICK)
    assert result.operator.dtype == result.operator.rotation.angles.dtype == dtype
    assert result.operator.device == A.device
    assert isinstance(result.operator @ A, torch.Tensor)
    assert not result.operator.eigenvalues.requires_grad
    assert operator_error(H, result) < 0.2


@pytest.mark.gpu
def test_cuda_in_cuda_out():
    result = fit_symmetric(torch.from_numpy(H).float().cuda(), **QUICK)
    assert result.operator.device.type == "cuda"
    assert result.operator.dtype == torch.float32


@pytest.mark.parametrize(
    "make", [lambda: H.astype(np.float32), lambda: aslinearoperator(H.astype(np.float32))]
)
def test_float32_numpy_gives_a_float32_operator(make):
    assert fit_symmetric(make(), **QUICK).operator.dtype == torch.float32


def test_operators_of_linear_operator():
    linear_operator = pytest.importorskip("linear_operator")
    source = linear_operator.to_linear_operator(torch.from_numpy(H).float())
    result = fit_symmetric(source, **QUICK)
    assert result.operator.dtype == torch.float32
    assert result.n_products == N
    assert operator_error(H, result) < 0.15


def test_own_operators():
    own = fit_symmetric(H, **QUICK).operator
    result = fit_symmetric(own, n_rotations=40)
    assert error_angle(own, result.operator) < 1.0


def test_integers_are_numbers():
    result = fit_symmetric(np.array([[2, 1], [1, 2]]))
    np.testing.assert_allclose(np.sort(result.operator.eigenvalues), [1.0, 3.0])


def test_few_products_are_a_hard_limit():
    A = st.random_symmetric(64, 5, 1)
    for m in (1, 7, 40):
        product = Counted(A)
        result = fit_symmetric(product, 64, max_products=m, wiring="pairs")
        assert product.columns == result.n_products == m
        assert result.estimated
        assert "estimate" in result.message
        assert "angle of H (estimate)" in str(result)


def test_enough_products_are_the_matrix_itself():
    product = Counted(H)
    result = fit_symmetric(product, N, **QUICK)
    assert product.columns == result.n_products == N
    assert not result.estimated


def test_large_sparse_input_stays_sparse(monkeypatch):
    monkeypatch.setattr(inputs, "DENSE_SPARSE", 32)
    A = sp.csr_array(
        sp.diags_array([np.full(63, -1.0), np.full(64, 2.0), np.full(63, -1.0)], offsets=[-1, 0, 1])
    )
    result = fit_symmetric(A, n_rotations=64, max_products=16)
    assert result.n_products == 16
    assert error_angle(A, result.operator) < 60
    with pytest.raises(ValueError, match="symmetric"):
        fit_symmetric(sp.csr_array(sp.triu(A)))
    with pytest.raises(ValueError, match="square"):
        fit_symmetric(A[:, :40])


def test_sparse_input_has_itself_for_a_rival():
    result = fit_symmetric(sp.csr_array(np.diag(np.full(7, 0.5), 1) + np.diag(np.full(7, 0.5), -1)))
    assert any("CSR" in rival.name for rival in result.rivals)
    assert "The matrix is sparse" in result.message


ODD = {
    "1 × 1": np.array([[2.5]]),
    "constant": np.full((N, N), 3.0),
    "multiple of 1": 3.0 * np.eye(N),
    "diagonal": np.diag(np.arange(N) - 4.0),
    "negative": -np.eye(N) - np.ones((N, N)),
    "2 × 2": np.array([[0.0, 1.0], [1.0, 0.0]]),
}


@pytest.mark.parametrize("source", ["entries", "products"])
@pytest.mark.parametrize("name", ODD)
def test_simple_matrices_are_exact(name, source):
    A = ODD[name]
    result = fit_symmetric(
        A if source == "entries" else lambda X: A @ X, None if source == "entries" else len(A)
    )
    assert operator_error(A, result) < 1e-6
    assert result.angle < 1e-3
    assert result.status == "exact"
    assert result.relative_error == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("method", ["auto", "pairs", "butterfly", "sgd"])
def test_zero(method):
    result = fit_symmetric(np.zeros((5, 5)), method=method)
    assert torch.equal(result.operator.eigenvalues, torch.zeros(5, dtype=torch.float64))
    assert result.angle == result.relative_error == 0.0
    str(result)


@pytest.mark.parametrize("rank", [1, 3])
def test_rank_deficient(rank):
    V = np.random.default_rng(0).standard_normal((N, rank))
    result = fit_symmetric(V @ V.T, n_rotations=66)
    assert result.relative_error < 0.05
    assert torch.isfinite(result.operator.eigenvalues).all()


@pytest.mark.parametrize("scale", [1e-310, 1e-30, 1e30, 1e150])
@pytest.mark.parametrize("arguments", [{}, {"method": "sgd", "epochs": 2}, {"max_products": 6, "n": N}])
def test_scale_is_no_matter(scale, arguments):
    make = (lambda A: lambda X: A @ X) if "max_products" in arguments else (lambda A: A)
    plain, scaled = fit_symmetric(make(H), **arguments), fit_symmetric(make(H * scale), **arguments)
    assert scaled.angle == pytest.approx(plain.angle, rel=0.1, abs=0.3)
    assert operator_error(H * scale, scaled) == pytest.approx(operator_error(H, plain), rel=0.1, abs=0.01)
    assert np.isfinite([rival.angle for rival in scaled.rivals]).all()


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_float32_at_the_edge_of_its_range(scale):
    result = fit_symmetric((H * scale).astype(np.float32), **QUICK)
    assert torch.isfinite(result.operator.eigenvalues).all()
    assert operator_error(H * scale, result) < 0.2


def test_the_same_seed_gives_the_same_bits():
    one, two = (fit_symmetric(H, seed=3) for _ in range(2))
    assert torch.equal(one.operator.eigenvalues, two.operator.eigenvalues)
    assert torch.equal(one.operator.rotation.angles, two.operator.rotation.angles)


@pytest.mark.parametrize("effort", ["quick", "default"])
def test_a_quality_asked_for_is_the_quality_measured(effort):
    """An RBF kernel, whose angle moves a little with the x that it is measured with."""
    line = np.linspace(0, 1, 90)
    H = np.exp(-200.0 * np.subtract.outer(line, line) ** 2)
    for degrees in (3.0, 8.0):
        result = fit_symmetric(H, method="pairs", target_angle=degrees, effort=effort)
        assert result.status == "converged"
        assert 0.7 * degrees < result.angle <= degrees


def test_a_likelihood_beside_a_variance_of_nothing():
    result = fit_symmetric([[0.0, 1e-3], [1e-3, 1.0]], target="likelihood")  # no covariance, but for rounding
    assert result.operator.eigenvalues.isfinite().all()


def test_a_small_matrix_with_more_floats_than_entries():
    line = np.linspace(0, 1, 32)
    H = np.exp(-8.0 * np.abs(np.subtract.outer(line, line)))
    assert fit_symmetric(H, n_rotations=464).angle < 0.1

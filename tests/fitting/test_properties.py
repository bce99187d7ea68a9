"""What a matrix must be to be fitted, and how what is not is refused."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from fitting.common import operator_error
from scipy.sparse.linalg import aslinearoperator

import swallowtail as st
from swallowtail import fit_rotation
from swallowtail.errors import ArgumentError
from swallowtail.fitting import fit_symmetric, properties
from swallowtail.fitting.properties import Symmetric, warn_asymmetry

N = 12


H = st.random_symmetric(N, 3, 0)


QUICK = {"wiring": "pairs", "n_rotations": 20}


def asymmetric(amount=0.3):
    A = np.random.default_rng(1).standard_normal((N, N))
    return H + amount * (A - A.T)


BAD = {
    "NaN": (lambda: np.where(np.eye(N) > 0, np.nan, H), ValueError, "12 of 144 NaN"),
    "infinite": (lambda: np.where(np.eye(N) > 0, np.inf, H), ValueError, "12 of 144 NaN or infinite"),
    "not square": (lambda: H[:, :5], ValueError, r"square.*\(12, 5\)"),
    "a vector": (lambda: np.ones(3), ValueError, "square"),
    "a batch": (lambda: torch.zeros(2, 3, 3), ValueError, "square"),
    "not symmetric": (asymmetric, ValueError, "symmetrize=True"),
    "complex": (lambda: H + 0j, TypeError, "real part"),
    "complex tensor": (lambda: torch.from_numpy(H + 0j), TypeError, "real part"),
    "empty": (lambda: np.zeros((0, 0)), ValueError, "n ≥ 1"),
    "text": (lambda: "H", TypeError, "got str"),
    "nothing": (lambda: None, TypeError, "got NoneType"),
    "sparse NaN": (lambda: sp.csr_array(np.diag([1.0, np.nan])), ValueError, "finite"),
    "sparse complex": (lambda: sp.csr_array(H + 0j), TypeError, "real"),
    "sparse not square": (lambda: sp.csr_array(H[:, :5]), ValueError, "square"),
    "sparse empty": (lambda: sp.csr_array((0, 0)), ValueError, "n ≥ 1"),
    "sparse not symmetric": (lambda: sp.csr_array(asymmetric()), ValueError, "symmetrize=True"),
    "complex operator": (lambda: aslinearoperator(H + 0j), TypeError, "real part"),
    "operator that is not square": (lambda: aslinearoperator(H[:, :5]), ValueError, "square"),
    "samples of two shapes": (lambda: (H, H[:5]), ValueError, r"\(12, 12\) and \(5, 12\)"),
    "samples of zeros": (lambda: (np.zeros((4, 2)), np.zeros((4, 2))), ValueError, "2 zero columns"),
    "samples with NaN": (lambda: (H, H * np.nan), ValueError, "Y: expected finite"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_matrices(name):
    make, error, message = BAD[name]
    with pytest.raises(error, match=message):
        fit_symmetric(make())


@pytest.mark.parametrize("max_products", [None, 4])
@pytest.mark.parametrize(
    ("product", "error", "message"),
    [
        (lambda X: X[:5], ValueError, r"expected.*shape.*got \(5, "),
        (lambda X: X[:, 0], ValueError, r"got \(12,\)"),
        (lambda X: X.T[:2], ValueError, "shape"),
        (lambda X: X * np.nan, ValueError, "NaN"),
        (lambda X: X * 1j, TypeError, "complex"),
        (lambda X: None, TypeError, "NoneType"),
        (lambda X: 1 / 0, ZeroDivisionError, "division"),  # the user's own error is the user's to see
    ],
)
def test_bad_product_functions(product, error, message, max_products):
    with pytest.raises(error, match=message):
        fit_symmetric(product, N, max_products=max_products)


@pytest.mark.parametrize("max_products", [None, 6])
def test_asymmetric_products_are_fitted_with_a_warning_that_says_by_how_much(max_products):
    A = asymmetric(0.1)
    with pytest.warns(UserWarning, match=r"antisymmetric part 0\.\d+ of the whole") as caught:
        result = fit_symmetric(lambda X: A @ X, N, max_products=max_products, **QUICK)
    assert caught[0].filename == __file__
    if max_products is None:
        assert operator_error(H, result) < 0.2


def test_symmetrize_is_the_way():
    A = asymmetric()
    result = fit_symmetric(A, symmetrize=True, **QUICK)
    assert operator_error((A + A.T) / 2, result) == pytest.approx(result.relative_error, rel=1e-6)
    sparse = fit_symmetric(sp.csr_array(A), symmetrize=True, **QUICK)
    assert operator_error((A + A.T) / 2, sparse) < 0.2


def test_rounding_is_no_asymmetry():
    A = H.astype(np.float32).astype(np.float64)
    A[0, 1] *= 1 + 1e-15
    fit_symmetric(A, **QUICK)
    noisy = torch.from_numpy(H).float()
    noisy[0, 1] *= 1 + 1e-6
    fit_symmetric(noisy, **QUICK)


def test_targets_that_the_matrix_cannot_serve():
    with pytest.raises(ValueError, match="invertible"):
        fit_symmetric(np.ones((4, 4)), target="inverse")
    with pytest.raises(ValueError, match="invertible"):
        fit_symmetric(np.zeros((4, 4)), target="inverse")
    with pytest.raises(ValueError, match="negative eigenvalue, -"):
        fit_symmetric(-np.eye(3), target="likelihood")
    with pytest.raises(ValueError, match="negative eigenvalue, -1"):
        fit_symmetric([[1.0, 2.0], [2.0, 1.0]], target="likelihood")
    halves = np.cov(np.random.default_rng(0).standard_normal((40, 10))).astype(
        np.float16
    )  # singular but for rounding
    assert np.linalg.eigvalsh(halves.astype(float))[0] < 0
    assert fit_symmetric(halves, target="likelihood", **QUICK).status == "converged"


def test_symmetric_within_rounding_only():
    A = np.array([[2.0, 1.0, 0.0], [1.0, 3.0, -1.0], [0.0, -1.0, 1.0]])
    A[0, 1] += 1e-15
    np.testing.assert_array_equal(Symmetric(False).matrix(A, 2.2e-16), ((A + A.T) / 2))
    A[0, 1] += 1e-9
    with pytest.raises(ValueError, match=r"entries 1e-09 apart.*largest entry 3"):
        Symmetric(False).matrix(A, 2.2e-16)
    Symmetric(False).matrix(A, 1.2e-7)
    Symmetric(True).matrix(A, 2.2e-16)


def test_samples_in_rows_get_a_hint():
    with pytest.warns(UserWarning, match="in columns: try X.T"):
        warn_asymmetry(0.5)


@pytest.mark.parametrize(
    ("R", "message"),
    [
        (2 * np.eye(3), r"expected an orthogonal matrix, got ‖RᵀR − I‖ = 5.2"),
        (np.eye(3) + 1e-9, "expected an orthogonal matrix"),
        (np.zeros((3, 3)), "expected an orthogonal matrix"),
        (np.eye(4)[:3], "expected a square matrix"),
        (np.zeros((0, 0)), "expected a square matrix"),
        (np.full((2, 2), np.nan), "expected finite numbers"),
        (aslinearoperator(np.diag([1.0, 2.0])), "expected an orthogonal matrix"),
        ((np.ones((3, 2)), np.ones((3, 3))), "expected X and Y of one shape"),
    ],
)
def test_what_is_no_rotation(R, message):
    with pytest.raises(ValueError, match=message):
        fit_rotation(R)


def test_the_inverse_is_made_in_columns_and_says_so(monkeypatch):
    monkeypatch.setattr(properties, "INVERTED", 16)
    H, seen = np.diag(np.linspace(1.0, 2.0, 40)) + 0.01, []
    inverse = properties.dense_inverse(H, seen.append)
    assert seen == [16, 32, 40]
    assert np.abs(inverse @ H - np.eye(40)).max() < 1e-13
    assert np.array_equal(inverse, inverse.T)
    monkeypatch.setattr(properties, "READ_EIGENVALUES", 0)
    for singular in (np.ones((40, 40)), np.zeros((40, 40)), np.diag([1.0, 1e-17])):
        with pytest.raises(ArgumentError, match="expected an invertible matrix"):
            properties.dense_inverse(singular)

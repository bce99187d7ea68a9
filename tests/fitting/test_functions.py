"""Functions of H as targets, against dense oracles; and functions that cannot serve."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from function_cases import LINE, A, N, heat

import swallowtail as st
from swallowtail.errors import ArgumentError
from swallowtail.fitting import fit_symmetric
from swallowtail.fitting.functions import in_the_basis_of, sparse_solver
from swallowtail.metrics import relative_error


def dense(f, H):
    d, V = np.linalg.eigh(H)
    return (V * f(torch.from_numpy(d)).numpy()) @ V.T


@pytest.mark.parametrize(
    "more", [{}, {"budget": "multiply_adds"}, {"wiring": "grouped"}], ids=["plain", "budget", "grouped"]
)
def test_the_operator_is_close_to_the_function(more):
    exact = dense(heat, A)
    aimed, plain = fit_symmetric(A, target=heat, **more), fit_symmetric(A, **more)
    assert (aimed.target, aimed.angle_of) == ("function", "f(H)")
    assert "those of f(H)" in aimed.message
    assert aimed.angle == pytest.approx(st.error_angle(exact, aimed.operator, seed=1), abs=0.5)
    assert aimed.angle < 0.9 * st.error_angle(exact, plain.operator.function(heat), seed=1)
    assert aimed.relative_error == pytest.approx(relative_error(exact, aimed.operator.to_dense()).value)
    assert any(rival.angle > 0 for rival in aimed.rivals)
    assert plain.of_H is plain.operator


def test_the_eigenvalues_of_H_come_with_it():
    result = fit_symmetric(A, target=heat, wiring="pairs")
    Q = result.operator.rotation.to_dense().numpy()
    np.testing.assert_allclose(result.of_H.eigenvalues, np.diagonal(Q.T @ A @ Q), atol=1e-10)
    np.testing.assert_array_equal(result.of_H.rotation.angles, result.operator.rotation.angles)


def test_H_beside_rank_one_terms_is_in_least_squares():
    rng = np.random.default_rng(0)
    Q = st.Rotation.random(8, seed=1).to(dtype=torch.float64)
    operator = st.HybridOperator(
        st.SymmetricOperator(Q, torch.ones(8, dtype=torch.float64)), rng.standard_normal((8, 2)), np.ones(2)
    )
    H = st.random_symmetric(8, 4, seed=2)
    found, R = in_the_basis_of(operator, H), Q.to_dense().numpy()
    terms = [np.outer(q, q).ravel() for q in (*R.T, *operator.basis.numpy().T)]
    best = np.linalg.lstsq(np.stack(terms, 1), H.ravel(), rcond=None)[0]
    np.testing.assert_allclose(found.to_dense(), (np.stack(terms, 1) @ best).reshape(8, 8), atol=1e-9)


def test_sparse_solves():
    order = np.random.default_rng(0).permutation(N)
    shuffled, X = LINE[order][:, order].tocsr(), np.random.default_rng(1).standard_normal((N, 3))
    np.testing.assert_allclose(shuffled @ sparse_solver(shuffled)(X), X, atol=1e-12)
    with pytest.raises(ArgumentError, match="H: expected an invertible matrix"):
        sparse_solver(sp.csr_array(np.diag([1.0, 0.0, 2.0])))
    with pytest.raises(ArgumentError, match="in magnitude; try fitting H"):
        sparse_solver(sp.csr_array(np.diag([1.0, 1e-17, 2.0])))


@pytest.mark.parametrize(
    ("f", "message"),
    [
        (lambda d: d.sum(), r"target: expected a function from 48 .*shape \(\)"),
        (lambda d: d[:3], r"shape \(3,\)"),
        (lambda d: torch.log(d - 100.0), r"finite values .* nan at"),
        (lambda d: 1 / (d - d), "finite values .* inf at"),
        (lambda d: None, "target: expected a tensor or array"),
        (lambda d: d * 1j, "target: expected float64"),
    ],
)
def test_functions_that_cannot_be_targets(f, message):
    with pytest.raises(ArgumentError, match=message):
        fit_symmetric(A, target=f)


def test_matrices_that_products_cannot_invert():
    for H, got in (
        (np.diag(np.linspace(-1, 1, N)), "Ritz value of -"),
        (np.zeros((N, N)), "Ritz value of 0"),
    ):
        with pytest.raises(ArgumentError, match=f"positive definite H.*{got}"):
            fit_symmetric(lambda X, H=H: H @ X, N, target="inverse", max_products=8)
    with pytest.raises(ArgumentError, match="the entries of H or products"):
        fit_symmetric((np.eye(N)[:, :4], A[:, :4]), target=heat)
    with pytest.raises(ArgumentError, match="'matrix' for method='sgd', got 'function'"):
        fit_symmetric(A, target=heat, method="sgd")


def test_a_function_that_has_changed_is_another_fit(tmp_path):
    path = tmp_path / "fit.safetensors"

    def stop(stage, done, objective):
        if stage == "cycle":
            raise st.fitting.Stop

    fit_symmetric(A, target=heat, checkpoint=path, callback=stop)
    with pytest.raises(ArgumentError, match="another fit"):
        fit_symmetric(A, target=lambda d: torch.exp(-2 * d), checkpoint=path)
    again = fit_symmetric(A, target=lambda d: torch.exp(-3.0 * d), checkpoint=path)
    assert again.angle == fit_symmetric(A, target=heat).angle

"""Probes and completions of a symmetric H, against dense formulas."""

import numpy as np
import pytest
from fitting.common import approximation, low_rank, relative_error, symmetric, synthetic

from swallowtail.fitting.core import completion
from swallowtail.fitting.core.completion import complete, orthonormal_samples, probe
from swallowtail.fitting.core.records import Stop
from swallowtail.fitting.methods.products import fit_products


@pytest.mark.parametrize("m", [3, 8, 13])
def test_completion_is_the_dense_formula(m):
    n = 16
    H = symmetric(n)
    probes = probe(lambda X: H @ X, n, m, passes=1)
    factor = complete(probes).factor
    X, Y = probes.X, probes.Y
    P, T = X @ X.T, X.T @ Y
    known = Y @ X.T + X @ Y.T - X @ T @ X.T
    out = np.eye(n) - P
    A = factor.dense()
    np.testing.assert_allclose(A - out @ A @ out, known, atol=1e-12)
    np.testing.assert_allclose(A @ X, Y, atol=1e-12)
    assert np.trace(A) == pytest.approx(probes.trace)
    # The unseen block: R (T − c)⁻¹ Rᵀ where a Ritz value stands out from c by more than its residual.
    theta, V = np.linalg.eigh(T)
    R, gap = (Y - X @ T) @ V, theta - factor.shift
    kept = np.abs(gap) > np.linalg.norm(R, axis=0)
    block = (R[:, kept] / gap[kept]) @ R[:, kept].T + factor.shift * out
    np.testing.assert_allclose(out @ A @ out, block, atol=1e-6)


def test_plain_completion_when_nothing_stands_out(monkeypatch):
    """With no Ritz value trusted, Ĥ = YXᵀ + XYᵀ − XTXᵀ + c(1 − XXᵀ)."""
    monkeypatch.setattr(completion, "BREAKDOWN", 1e9)
    n, m = 16, 6
    H = symmetric(n)
    probes = probe(lambda X: H @ X, n, m, passes=1)
    X, Y = probes.X, probes.Y
    T = X.T @ Y
    c = (probes.trace - np.trace(T)) / (n - m)
    expected = Y @ X.T + X @ Y.T - X @ T @ X.T + c * (np.eye(n) - X @ X.T)
    np.testing.assert_allclose(complete(probes).factor.dense(), expected, atol=1e-12)


@pytest.mark.parametrize("shift", [0.0, 0.7, -0.4])
@pytest.mark.parametrize("passes", [2, 4])
def test_shift_plus_low_rank_is_recovered(shift, passes):
    n, rank = 40, 3
    H = low_rank(n, rank, shift)
    completion = complete(probe(lambda X: H @ X, n, 16, passes))
    assert relative_error(H, completion.factor.dense()) < 1e-9
    assert completion.relative_error < 1e-5
    assert len(completion.factor.weights) == rank
    fit = fit_products(lambda X: H @ X, n, 40 * rank, 16, passes=passes)
    assert fit.history[-1][2] == pytest.approx(relative_error(H, approximation(fit)) ** 2, rel=1e-4)


def test_trace_and_norm_estimates():
    H = synthetic(200, 10, 0)
    probes = probe(lambda X: H @ X, 200, 60, seed=2)
    assert probes.trace == pytest.approx(np.trace(H), rel=0.1)
    assert probes.norm == pytest.approx(np.linalg.norm(H), rel=0.05)


@pytest.mark.parametrize("scale", [2.0**-996, 2.0**-100, 2.0**100, 2.0**664])
def test_scale_does_not_matter(scale):
    H = synthetic(24, 3, 1)
    plain = fit_products(lambda X: H @ X, 24, 40, 8)
    scaled = fit_products(lambda X: scale * (H @ X), 24, 40, 8)
    np.testing.assert_allclose(scaled.eigenvalues / scale, plain.eigenvalues, rtol=1e-12)
    assert scaled.completion.relative_error == pytest.approx(plain.completion.relative_error, rel=1e-6)


def test_noisy_samples_are_fitted_in_least_squares():
    n, m, generator = 8, 30, np.random.default_rng(4)
    H, X = symmetric(n), generator.standard_normal((n, m))
    Y = H @ X + 0.1 * generator.standard_normal((n, m))
    A = complete(orthonormal_samples(X, Y)).factor.dense()
    # The gradient of ‖AX − Y‖² over symmetric A vanishes.
    G = (A @ X - Y) @ X.T
    np.testing.assert_allclose(G + G.T, 0.0, atol=1e-10)


def test_noise_does_not_spoil_a_low_rank():
    H, generator = low_rank(60, 4, 0.0), np.random.default_rng(6)
    X = generator.standard_normal((60, 20))
    Y = H @ X
    Y += 0.01 * np.linalg.norm(Y) / np.sqrt(Y.size) * generator.standard_normal(Y.shape)
    assert relative_error(H, complete(orthonormal_samples(X, Y)).factor.dense()) < 0.05


def test_pieces_of_a_pass_span_what_the_pass_does(monkeypatch):
    H = symmetric(40)
    whole = probe(lambda X: H @ X, 40, 15, passes=3)
    monkeypatch.setattr(completion, "PIECE_NUMBERS", 2 * 40)
    widths = []
    pieces = probe(lambda X: widths.append(X.shape[1]) or H @ X, 40, 15, passes=3)
    assert widths == [2, 2, 1] * 3
    np.testing.assert_allclose(pieces.X.T @ pieces.X, np.eye(15), atol=1e-14)
    np.testing.assert_allclose(pieces.Y, H @ pieces.X, atol=1e-12)
    # A Krylov space from other random columns: what it says of the norm is as good.
    assert pieces.norm == pytest.approx(whole.norm, rel=0.2)


def test_a_pass_can_be_stopped_between_its_pieces(monkeypatch):
    monkeypatch.setattr(completion, "PIECE_NUMBERS", 2 * 40)
    H, reports = symmetric(40), []

    def report(stage, done, objective):
        reports.append((stage, done))
        if done >= 4:
            raise Stop

    probes = probe(lambda X: H @ X, 40, 30, passes=3, report=report)
    assert reports == [("probe", 2), ("probe", 4)]
    assert probes.X.shape == (40, 4)
    assert np.isfinite(complete(probes).factor.dense()).all()

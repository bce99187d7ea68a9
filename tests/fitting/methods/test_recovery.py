"""Matrices made from a butterfly are recognised, whatever their spectrum and their zero angles."""

import numpy as np
import pytest

from swallowtail.fitting.core.product import conjugate, rotate_rows
from swallowtail.fitting.core.records import Stop
from swallowtail.fitting.methods.recovery import recover_rotation, recover_symmetric
from swallowtail.wiring import Butterfly

SPECTRA = {
    "distinct": lambda n, g: np.abs(g.standard_normal(n)),
    "signed": lambda n, g: g.standard_normal(n),
    "two levels": lambda n, g: np.where(g.random(n) < 0.5, 1.0, 0.1),
    "a few large": lambda n, g: np.where(g.permutation(n) < max(1, n // 12), 1.0, 0.1),
    "one large": lambda n, g: np.where(g.permutation(n) < 1, 1.0, 0.1),
    "all equal": lambda n, g: np.full(n, 0.3),
    "graded": lambda n, g: 10.0 ** -np.linspace(0, 6, n),
}


def butterfly(n, seed, zeros=0.0, reverse=False):
    """A dense Q with angles uniform in (−π, π), a share of them zero."""
    generator = np.random.default_rng(seed)
    pairs = Butterfly(n, reverse=reverse).flat_pairs()
    angles = generator.uniform(-np.pi, np.pi, len(pairs)) * (generator.random(len(pairs)) >= zeros)
    Q = np.eye(n)
    rotate_rows(Q, pairs, np.cos(angles), np.sin(angles), False)
    return Q, generator


def relative_error(H, fit):
    pairs = fit.wiring.flat_pairs()
    A = conjugate(H, pairs, fit.angles) - np.diag(fit.eigenvalues)
    return np.linalg.norm(A) / np.linalg.norm(H)


@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize("zeros", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("n", [2, 3, 8, 21, 64, 100])
def test_symmetric_is_recovered(n, zeros, spectrum):
    for seed in range(2):
        Q, generator = butterfly(n, seed, zeros)
        H = (Q * SPECTRA[spectrum](n, generator)) @ Q.T
        fit = recover_symmetric((H + H.T) / 2, polish=0)
        assert fit.wiring == Butterfly(n)
        assert relative_error(H, fit) < 1e-9


@pytest.mark.parametrize("spectrum", ["distinct", "two levels"])
def test_symmetric_is_recovered_at_1024(spectrum):
    Q, generator = butterfly(1024, 0)
    H = (Q * SPECTRA[spectrum](1024, generator)) @ Q.T
    assert relative_error(H, recover_symmetric((H + H.T) / 2)) < 1e-9


def test_the_papers_order():
    """RᵀΛR with R a butterfly has the strides the other way round."""
    Q, generator = butterfly(32, 0, reverse=True)
    H = (Q * generator.random(32)) @ Q.T
    assert relative_error(H, recover_symmetric(H, give_up=np.inf)) > 0.1
    fit = recover_symmetric(H, reverse=True)
    assert fit.wiring == Butterfly(32, reverse=True)
    assert relative_error(H, fit) < 1e-9
    with pytest.raises(ValueError, match="power of two"):
        recover_symmetric(np.eye(6), reverse=True)


@pytest.mark.parametrize("noise", [1e-3, 1e-2, 0.1])
@pytest.mark.parametrize("spectrum", ["distinct", "two levels"])
def test_noise_costs_no_more_than_itself(spectrum, noise):
    Q, generator = butterfly(64, 1)
    H = (Q * SPECTRA[spectrum](64, generator)) @ Q.T
    E = generator.standard_normal((64, 64))
    E = E + E.T
    H = H + E * (noise * np.linalg.norm(H) / np.linalg.norm(E))
    assert relative_error(H, recover_symmetric(H)) < noise


def test_a_matrix_outside_the_class_is_turned_away():
    generator = np.random.default_rng(0)
    X = generator.standard_normal((64, 64))
    assert recover_symmetric(X @ X.T) is None
    fit = recover_symmetric(X @ X.T, give_up=np.inf)
    assert relative_error(X @ X.T, fit) < 1.0


@pytest.mark.parametrize("zeros", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("n", [1, 2, 3, 8, 21, 64, 100, 256])
def test_rotation_is_recovered(n, zeros):
    for seed in range(3):
        Q, _ = butterfly(n, seed, zeros)
        fit = recover_rotation(Q)
        again = np.eye(n)
        rotate_rows(again, fit.wiring.flat_pairs(), np.cos(fit.angles), np.sin(fit.angles), False)
        np.testing.assert_allclose(again, Q, atol=1e-12)
        assert (fit.signs == 1).all()
        assert fit.relative_error < 1e-12


def test_a_reflection_shows_in_the_signs():
    Q, _ = butterfly(16, 0)
    Q[:, 5] *= -1
    fit = recover_rotation(Q)
    assert np.prod(fit.signs) == -1
    assert fit.relative_error < 1e-12


def test_a_rotation_outside_the_class_has_an_error():
    Q, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((32, 32)))
    assert recover_rotation(Q).relative_error > 0.5


def test_a_stop_leaves_the_other_angles_zero():
    H, calls = np.diag(np.arange(8.0)) + 0.1, []

    def pulse():
        calls.append(1)
        if len(calls) > 3:
            raise Stop

    fit = recover_symmetric(H, give_up=np.inf, pulse=pulse)
    assert (fit.angles[8:] == 0).all()  # the third layer
    assert fit.angles[:4].any()
    assert relative_error(H, fit) == pytest.approx(fit.history[-1][2] ** 0.5, rel=1e-6)

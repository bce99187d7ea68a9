"""Algorithm 1: gradient against autograd, projection against the SVD, the paper's numbers, bad input."""

import numpy as np
import pytest
import torch

from swallowtail.datasets import random_orthogonal, random_symmetric
from swallowtail.errors import ArgumentError
from swallowtail.fitting.core import samples as core_samples
from swallowtail.fitting.core.records import Stop
from swallowtail.fitting.methods import sgd as methods_sgd
from swallowtail.fitting.methods.sgd import fit_sgd, spectral_scale
from swallowtail.metrics import error_angle
from swallowtail.operators.rotation import Rotation
from swallowtail.operators.symmetric import SymmetricOperator
from swallowtail.wiring import Butterfly, Pairs

WIRINGS = [Butterfly(8), Butterfly(5, 2), Pairs(6, [[(4, 1), (0, 2)], [(1, 0)], [(5, 3), (2, 1)]])]


def operator(fit):
    Q = Rotation(fit.wiring, torch.from_numpy(fit.angles))
    return Q if fit.eigenvalues is None else SymmetricOperator(Q, torch.from_numpy(fit.eigenvalues))


def in_class(wiring, spread, seed):
    """H = Q D Qᵀ with hidden angles of that standard deviation."""
    rng = np.random.default_rng(seed)
    Q = (
        Rotation(wiring, torch.from_numpy(spread * rng.standard_normal(wiring.n_rotations)))
        .to_dense()
        .numpy()
    )
    return Q, (Q * np.linspace(0.2, 2.0, wiring.n)) @ Q.T


@pytest.mark.parametrize("wiring", WIRINGS, ids=str)
def test_learns_what_is_in_the_class(wiring):
    Q, H = in_class(wiring, 0.3, seed=1)
    options = {
        "wiring": wiring,
        "angles": np.zeros(wiring.n_rotations),
        "epochs": 400,
        "rate": 0.02,
        "n_samples": 200,
    }
    assert error_angle(H, operator(fit_sgd(H, **options))) < 0.1
    assert error_angle(Q, operator(fit_sgd(Q, loss="rotation", **options))) < 0.1


@pytest.mark.parametrize(("n_large", "low", "high"), [(5, 31, 40), (64, 16, 24)])
def test_the_papers_angles_for_symmetric_matrices(n_large, low, high):
    H = random_symmetric(64, n_large, seed=7001)
    fit = fit_sgd(lambda X: H @ X, 64)
    angle = error_angle(H, operator(fit))
    assert low < angle < high
    assert fit.history[-1].angle == pytest.approx(angle, abs=1.5)
    assert fit.n_products == 2048


def test_the_papers_angle_for_a_rotation():
    R = random_orthogonal(64, seed=7001)
    fit = fit_sgd(R, loss="rotation")
    assert fit.eigenvalues is None
    assert 66 < error_angle(R, operator(fit)) < 71


@pytest.mark.parametrize("factor", [1e-30, 1e30])
def test_the_norm_does_not_matter(factor):
    H = random_symmetric(16, 3, 0)
    one, other = fit_sgd(H, epochs=3), fit_sgd(factor * H, epochs=3)
    np.testing.assert_allclose(other.angles, one.angles, atol=1e-6)
    np.testing.assert_allclose(other.eigenvalues / factor, one.eigenvalues, atol=1e-6)


def test_scale_of_isotropic_samples():
    H = random_symmetric(64, 1, 0)
    X = 3 * np.random.default_rng(0).standard_normal((4000, 64))
    x_scale, sigma = spectral_scale(X, X @ H)
    plain, weighted = np.sum(H**2) / 64, np.sum((H @ H) ** 2) / np.sum(H**2)
    assert x_scale == pytest.approx(3.0, rel=0.02)
    assert sigma == pytest.approx(np.sqrt(max(plain, weighted / 24)), rel=0.1)


def test_same_seed_same_bits_and_limits():
    H = random_symmetric(16, 3, 0)
    one, other = fit_sgd(H, seed=3), fit_sgd(H, seed=3)
    assert np.array_equal(one.angles, other.angles)
    assert fit_sgd(H, fresh=True, max_products=700).n_products == 700
    assert fit_sgd(H, max_products=100).n_products == 100
    assert len(fit_sgd(H, epochs=500, tolerance=0.01).history) < 500


@pytest.mark.parametrize("signal", [Stop, KeyboardInterrupt])
def test_a_callback_can_stop_the_fit(signal):
    def callback(epoch):
        if epoch.epoch == 3:
            raise signal

    fit = fit_sgd(random_symmetric(16, 3, 0), callback=callback)
    assert [record.epoch for record in fit.history] == [1, 2, 3]
    assert np.isfinite(fit.angles).all()


def test_zero_one_by_one_and_floor():
    assert not fit_sgd(np.zeros((4, 4))).eigenvalues.any()
    assert fit_sgd([[3.0]]).eigenvalues == pytest.approx([3.0])
    assert fit_sgd(-np.eye(4), floor=1e-3).eigenvalues.min() >= 0


H8 = np.eye(8)


@pytest.mark.parametrize(
    ("source", "options", "error", "words"),
    [
        (lambda X: X, {}, TypeError, "n=64"),
        (lambda X: X[:3], {"n": 8}, ValueError, "length n = 8"),
        (lambda X: X * np.nan, {"n": 8}, ValueError, "finite"),
        (np.ones((3, 4)), {}, ValueError, "n = 3"),
        (H8, {"n": 4}, ValueError, "n = 4"),
        ((H8,), {}, ValueError, "a tuple of 1"),
        ((H8, H8[:, :3]), {}, ValueError, "one shape"),
        ((H8, H8), {"n": 4}, ValueError, "leave it out"),
        (H8, {"loss": "angle"}, ValueError, "'rotation'"),
        (H8, {"inputs": "ball"}, ValueError, "'sphere'"),
        (H8, {"inputs": np.ones((3, 5))}, ValueError, "inputs"),
        (H8, {"inputs": lambda k, rng: np.ones((8, k + 1))}, ValueError, "inputs"),
        (H8, {"wiring": Butterfly(4)}, ValueError, "n = 8 coordinates"),
        (H8, {"angles": np.zeros(3)}, ValueError, "one per rotation"),
        (H8, {"eigenvalues": np.zeros(3)}, ValueError, "eigenvalues"),
        (H8, {"rate": -1.0}, ValueError, "rate"),
        (H8, {"rate": (1.0, 1.0, 1.0)}, ValueError, "one for Q and one for D"),
        (np.diag(np.arange(8.0)), {"rate": 1e6}, ValueError, "try a tenth"),
        (H8, {"floor": -1.0}, ValueError, "floor"),
        (H8, {"epochs": 0}, ValueError, "epochs"),
        (H8, {"max_products": 0}, ValueError, "max_products"),
    ],
)
def test_bad_input(source, options, error, words):
    with pytest.raises(error, match=words):
        fit_sgd(source, **options)


def test_a_stop_inside_an_epoch_keeps_the_steps_so_far(monkeypatch):
    monkeypatch.setattr(methods_sgd, "WORK", 1)  # look after every step
    H, steps = np.diag(np.arange(1.0, 9.0)), []

    def pulse():
        steps.append(1)
        if len(steps) > 20:
            raise Stop

    fit = fit_sgd(H, n_samples=100, epochs=3, pulse=pulse)
    assert len(fit.history) == 1
    assert 0 < fit.history[0].loss < np.inf
    whole = fit_sgd(H, n_samples=100, epochs=3, pulse=lambda: None)
    monkeypatch.setattr(methods_sgd, "WORK", 2**23)
    assert np.array_equal(fit_sgd(H, n_samples=100, epochs=3).angles, whole.angles)


def test_a_stop_between_products_takes_the_samples_so_far(monkeypatch):
    monkeypatch.setattr(core_samples, "_BLOCK", 80)

    def stop():
        raise Stop

    fit = fit_sgd(np.eye(8), n_samples=100, pulse=stop)
    assert fit.n_products == 10


def test_samples_that_do_not_fit_into_memory_are_refused():
    with pytest.raises(ArgumentError, match="try a smaller `n_samples`"):
        fit_sgd(lambda X: X, 10**6)

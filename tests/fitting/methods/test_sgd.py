"""Algorithm 1: gradient against autograd, projection against the SVD, the paper's numbers, bad input."""

import numpy as np
import pytest
import torch
from scipy.linalg import svd

from swallowtail.datasets import random_orthogonal, random_symmetric
from swallowtail.fitting.core import relaxed as _relaxed
from swallowtail.fitting.core.records import Stop
from swallowtail.fitting.methods.sgd import fit_sgd, spectral_scale
from swallowtail.metrics import column_angles, error_angle
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


def relaxed_product(wiring, blocks, x, transpose):
    """Q̃ x or Q̃ᵀ x with free blocks [[a, b], [c, d]]: the multilayer linear network, in torch."""
    layers = list(zip(wiring.layers(), torch.split(blocks, np.diff(wiring.offsets).tolist()), strict=True))
    for pairs, part in layers if transpose else reversed(layers):
        matrix = torch.eye(wiring.n, dtype=x.dtype)
        i, j = torch.as_tensor(pairs).T
        diagonal = torch.zeros_like(matrix).index_put(
            (torch.cat([i, j]),) * 2, torch.ones(2 * len(i), dtype=x.dtype)
        )
        matrix = (matrix - diagonal).index_put(
            (torch.cat([i, i, j, j]), torch.cat([i, j, i, j])), part.T.reshape(-1), accumulate=True
        )
        x = (matrix.T if transpose else matrix) @ x
    return x


@pytest.mark.parametrize("wiring", WIRINGS, ids=str)
@pytest.mark.parametrize("rotation", [False, True])
@pytest.mark.parametrize("b", [1, 3])
def test_gradient_of_the_extended_parameters_is_autograds(wiring, rotation, b):
    n, K = wiring.n, wiring.n_rotations
    rng = np.random.default_rng(0)
    theta, d = rng.uniform(-np.pi, np.pi, K), rng.standard_normal(n)
    x, y = rng.standard_normal((2, n, b))
    c, s = np.cos(theta), np.sin(theta)
    blocks = torch.tensor(np.stack([c, -s, s, c], 1), requires_grad=True)
    diagonal = torch.tensor(d, requires_grad=True)
    out = torch.from_numpy(x)
    if not rotation:
        out = diagonal[:, None] * relaxed_product(wiring, blocks, out, True)
    out = relaxed_product(wiring, blocks, out, False)
    expected = ((out - torch.from_numpy(y)) ** 2).sum() / b
    expected.backward()

    gradient, gradient_d, work = np.empty((K, 4)), np.zeros(n), np.empty((2, n, b))
    pairs, x_kept = _relaxed.unsigned_pairs(wiring), x.copy()
    loss, angle = _relaxed.extended_gradient(pairs, c, s, d, x, y, rotation, gradient, gradient_d, *work)
    assert loss == pytest.approx(expected.item())
    assert np.degrees(angle) == pytest.approx(column_angles(out.detach().numpy(), y).mean())
    np.testing.assert_allclose(gradient, blocks.grad, atol=1e-12)
    if not rotation:
        np.testing.assert_allclose(gradient_d, diagonal.grad, atol=1e-12)
    np.testing.assert_allclose(x, x_kept, atol=1e-13)


def test_projection_is_the_nearest_rotation():
    blocks = np.random.default_rng(0).standard_normal((200, 4))
    cosines, sines = np.ones(200), np.zeros(200)
    _relaxed.project(blocks, cosines, sines)
    for block, c, s in zip(blocks, cosines, sines, strict=True):
        U, _, Vt = svd(block.reshape(2, 2))  # nearest rotation: U diag(1, det UVᵀ) Vᵀ
        nearest = U @ np.diag([1.0, np.linalg.det(U @ Vt)]) @ Vt
        np.testing.assert_allclose([[c, -s], [s, c]], nearest, atol=1e-12)


def test_projection_keeps_the_old_rotation_where_all_are_equally_near():
    cosines, sines = np.array([0.6]), np.array([0.8])
    _relaxed.project(np.array([[1.0, 2.0, 2.0, -1.0]]), cosines, sines)  # a + d = 0, b = c
    assert (cosines[0], sines[0]) == (0.6, 0.8)


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


def test_scale_of_isotropic_pairs():
    H = random_symmetric(64, 1, 0)
    X = 3 * np.random.default_rng(0).standard_normal((4000, 64))
    x_scale, sigma = spectral_scale(X, X @ H)
    plain, weighted = np.sum(H**2) / 64, np.sum((H @ H) ** 2) / np.sum(H**2)
    assert x_scale == pytest.approx(3.0, rel=0.02)
    assert sigma == pytest.approx(np.sqrt(max(plain, weighted / 24)), rel=0.1)


def test_the_papers_inputs():
    H = random_symmetric(16, 3, 0)
    samples = np.random.default_rng(0).standard_normal((16, 500))
    fits = [
        fit_sgd(H, inputs="cube"),
        fit_sgd(H, inputs=samples),
        fit_sgd(H, inputs=lambda k, rng: rng.standard_normal((16, k))),
        fit_sgd((samples, H @ samples)),
        fit_sgd(H, fresh=True, batch_size=7),
        fit_sgd(H, rate=lambda step: 0.004 / (1 + step / 2000)),
        fit_sgd(H, rate=(0.002, 0.001)),
    ]
    assert [fit.n_products for fit in fits] == [512, 512, 512, 0, 5120, 512, 512]
    baseline = error_angle(H, np.eye(16))
    for fit in fits:
        assert error_angle(H, operator(fit)) < baseline - 5


def test_a_region_is_fitted_better_by_its_own_inputs():
    H = random_symmetric(16, 8, 0)
    basis = random_orthogonal(16, 5)[:, :4]
    inside = fit_sgd(H, inputs=lambda k, rng: basis @ rng.standard_normal((4, k)), epochs=60)
    anywhere = fit_sgd(H, epochs=60)
    angles = [error_angle(H @ basis, lambda X, f=f: operator(f) @ (basis @ X)) for f in (inside, anywhere)]
    assert angles[0] < angles[1]


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

"""fit_rotation: exact where R is in the class, close where it is not, and clear about what it cannot take."""

import numpy as np
import pytest
import scipy.sparse
import torch
from scipy.sparse.linalg import aslinearoperator

from swallowtail import (
    Butterfly,
    Pairs,
    Rotation,
    SignedRotation,
    error_angle,
    fit_rotation,
    load,
    random_orthogonal,
    save,
)
from swallowtail.fitting.core.objectives import Alignment
from swallowtail.fitting.core.product import flat_pairs, rotate_rows, tile
from swallowtail.fitting.core.records import Stop
from swallowtail.fitting.core.trace import grow_aligned, sweep_layers, trace_parts
from swallowtail.fitting.methods.butterfly import align_butterfly
from swallowtail.fitting.methods.pairs import align_pairs, givens_qr
from swallowtail.fitting.orthogonal import low_rank


def in_class(n, seed, depth=1):
    return Rotation.random(n, depth, seed=seed, dtype=torch.float64).to_dense().numpy()


def dense(fit):
    return Rotation(fit.wiring, fit.angles).to_dense().numpy()


def relative_error(R, operator):
    return np.linalg.norm(operator.to_dense().double().numpy() - R) / np.linalg.norm(R)


@pytest.mark.parametrize("n", [8, 16, 33, 64, 100])
def test_in_class_is_recovered(n):
    for seed in range(10 if n < 40 else 3):
        R = in_class(n, seed)
        result = fit_rotation(R, method="recovery")
        assert result.status == "exact"
        assert result.operator.wiring == Butterfly(n)
        assert relative_error(R, result.operator) < 1e-12


@pytest.mark.parametrize("n", [64, 512])
def test_in_class_is_recovered_by_default(n):
    result = fit_rotation(in_class(n, 0))
    assert (result.status, result.method) == ("exact", "recovery")
    assert result.relative_error < 1e-12
    assert "within rounding" in result.message


def test_the_transpose_of_a_butterfly_is_recovered():
    for n in (16, 21):
        R = in_class(n, 1)
        result = fit_rotation(R.T)
        assert result.status == "exact"
        assert result.operator.wiring == Butterfly(n, reverse=True)
        reverse = fit_rotation(R.T, wiring=Butterfly(n, reverse=True))
        assert reverse.relative_error < 1e-12


@pytest.mark.parametrize("n", [1, 2, 5, 16, 21])
@pytest.mark.parametrize("transposed", [False, True])
def test_determinant_minus_one(n, transposed):
    R = in_class(n, 2)
    R[:, n // 2] *= -1
    R = R.T.copy() if transposed else R
    result = fit_rotation(R)
    assert isinstance(result.operator, SignedRotation)
    assert result.status == "exact"
    assert relative_error(R, result.operator) < 1e-12
    assert "The determinant is −1: the operator is Q·diag(±1)" in result.message


def test_determinant_minus_one_out_of_the_class(tmp_path):
    R = random_orthogonal(16, 0)
    R[:, 3] *= -1
    for form in ("pairs", "butterfly"):
        result = fit_rotation(R, wiring=form)
        assert isinstance(result.operator, SignedRotation)
        plus = fit_rotation(np.where(np.arange(16) == 3, -R, R), wiring=form)
        assert abs(result.angle - plus.angle) < 6
    save(result.operator, tmp_path / "q")
    assert torch.equal(load(tmp_path / "q").to_dense(), result.operator.to_dense())


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_small_rotations_are_met_by_enough_pairs(n):
    R = random_orthogonal(n, 5)
    result = fit_rotation(R, n_rotations=n * (n - 1) // 2)
    assert result.status == "exact"
    assert relative_error(R, result.operator) < 1e-6


@pytest.mark.parametrize("R", [np.eye(5), np.roll(np.eye(5), 1, axis=0), -np.eye(4), np.fliplr(np.eye(6))])
def test_permutations_and_signs(R):
    result = fit_rotation(R)
    assert result.status == "exact"
    assert relative_error(R, result.operator) < 1e-6


def test_haar():
    """Bars at n = 64 with the paper's 192 rotations; the paper's own algorithm ends at 68°."""
    R = random_orthogonal(64, 0)
    result = fit_rotation(R)
    assert result.method == "pairs"
    assert result.operator.n_rotations == 192
    assert result.angle < 50.5
    assert result.angle == pytest.approx(error_angle(R, result.operator, seed=1), abs=1e-9)
    assert result.angle_interval[0] < result.angle < result.angle_interval[1]
    names = {rival.name: rival for rival in result.rivals}
    assert names["butterfly, as fitted"].angle < 69
    assert names["dense"].multiply_adds == 64**2
    assert names["c·I + rank 1"].equal == "floats"
    assert "Better" in result.message
    assert fit_rotation(R, wiring="butterfly").angle < 68
    assert fit_rotation(R, wiring="butterfly", depth=2).angle < 55
    assert fit_rotation(R, method="sgd", epochs=20).angle < 70


def test_same_seed_same_bits():
    R = random_orthogonal(12, 0)
    a, b = (fit_rotation(R, seed=3).operator for _ in range(2))
    assert a.wiring == b.wiring
    assert torch.equal(a.angles, b.angles)


def test_noise_is_filtered_by_the_class():
    R = in_class(32, 0)
    noise = 1e-3 * np.random.default_rng(0).standard_normal((32, 32))
    U, _, Vh = np.linalg.svd(R + noise)
    result = fit_rotation(U @ Vh)
    assert result.method == "butterfly"
    assert result.relative_error < np.linalg.norm(U @ Vh - R) / 32**0.5 + 1e-6


def test_something_simpler_wins():
    v = np.random.default_rng(0).standard_normal(24)
    result = fit_rotation(np.eye(24) - 2 * np.outer(v, v) / (v @ v))
    assert result.rivals[0].relative_error < 1e-7
    assert "Something simpler wins" in result.message
    small = fit_rotation(random_orthogonal(6, 0), n_rotations=20)
    assert "The dense matrix costs no more" in small.message


@pytest.mark.parametrize("target", [30.0, 10.0])
def test_target_angle(target):
    result = fit_rotation(random_orthogonal(16, 0), target_angle=target)
    assert result.status == "converged"
    assert target * 0.7 < result.angle <= target
    assert result.operator.n_rotations < 120
    few = fit_rotation(random_orthogonal(16, 0), target_angle=target, n_rotations=4)
    assert few.status == "budget"
    assert "was not reached" in few.message


def test_given_wirings():
    R = random_orthogonal(12, 0)
    pairs = Pairs(12, [[(0, 5), (1, 2)], [(3, 4)], [(0, 1), (10, 11)]])
    result = fit_rotation(R, wiring=pairs)
    assert result.operator.wiring == pairs
    assert result.relative_error < np.linalg.norm(R - np.eye(12)) / 12**0.5
    assert fit_rotation(R, wiring=Butterfly(12, 3)).operator.wiring == Butterfly(12, 3)
    inside = Rotation(pairs, np.linspace(-1, 1, 5)).to_dense().numpy()
    assert fit_rotation(inside, wiring=pairs).relative_error < 1e-6


def test_inputs_of_every_kind():
    R = random_orthogonal(10, 0)
    expected = fit_rotation(R)
    for value, n, products in [
        (torch.from_numpy(R), None, 0),
        (R.tolist(), None, 0),
        (scipy.sparse.csr_array(R), None, 0),
        (aslinearoperator(R), None, 10),
        (lambda X: R @ X, 10, 10),
    ]:
        result = fit_rotation(value, n)
        assert result.n_products == products
        assert result.angle == pytest.approx(expected.angle, abs=0.1)
    single = fit_rotation(torch.from_numpy(R).float())
    assert single.operator.dtype == torch.float32
    assert single.angle == pytest.approx(expected.angle, abs=1.0)
    X = np.random.default_rng(0).standard_normal((10, 14))
    paired = fit_rotation((X, R @ X))
    assert paired.angle == pytest.approx(expected.angle, abs=1.0)
    assert "nearest to the pairs" in paired.message


def test_products_only():
    R = in_class(8, 0)
    counted = []

    def product(X):
        counted.append(X.shape[1])
        return R @ X

    result = fit_rotation(product, 8, max_products=7, epochs=5, method="sgd")
    assert sum(counted) == result.n_products == 7
    assert result.estimated
    counted.clear()
    fit_rotation(product, 8, max_products=8)
    assert sum(counted) == 8
    X = np.random.default_rng(0).standard_normal((8, 5))
    few = fit_rotation((X, R @ X))
    assert few.method == "sgd"
    assert few.estimated
    assert few.n_products == 0


def test_large_operators_are_learned_from_products():
    Q = Rotation.random(1100, seed=0)
    result = fit_rotation(Q, max_products=64)
    assert result.method == "sgd"
    assert result.n_products == 64
    assert "4 products kept for it" in result.message


def test_time_and_interruption_keep_the_best():
    R = random_orthogonal(48, 0)
    result = fit_rotation(R, max_seconds=1e-6)
    assert result.status == "time"
    assert result.angle < 90

    def stop(stage, done, objective):
        raise Stop

    fit = align_pairs(R, 100, callback=stop)
    assert np.linalg.norm(dense(fit) - R) ** 2 / 48 == pytest.approx(fit.history[-1][2])


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


def test_wrong_arguments():
    R = np.eye(4)
    with pytest.raises(TypeError, match="expected float64"):
        fit_rotation(1j * R)
    with pytest.raises(TypeError, match="n: expected the dimension"):
        fit_rotation(lambda X: X)
    with pytest.raises(ValueError, match="whose length changed"):
        fit_rotation(lambda X: 2 * X, 8, max_products=4)
    with pytest.raises(ValueError, match="expected the entries of R"):
        fit_rotation(lambda X: X, 8, max_products=4, method="pairs")
    with pytest.raises(ValueError, match="R is not in the butterfly class"):
        fit_rotation(random_orthogonal(16, 0), method="recovery")
    with pytest.raises(TypeError, match="options only with a method"):
        fit_rotation(R, cycles=3)
    for arguments in (
        {"n": 5}, {"method": "qr"}, {"wiring": "tree"}, {"wiring": Butterfly(5)}, {"n_rotations": -1}, {"depth": 0},
        {"max_seconds": 0}, {"target_angle": 90}, {"max_products": 0},
    ):  # fmt: skip
        with pytest.raises(ValueError, match="expected"):
            fit_rotation(R, **arguments)


def test_gradient_and_removal():
    R, wiring = random_orthogonal(70, 0), Butterfly(70, 2)  # two tiles
    pairs, generator = flat_pairs(wiring), np.random.default_rng(0)
    angles = generator.uniform(-np.pi, np.pi, len(pairs))
    trace, w, p = trace_parts(tile(R), pairs, angles)
    Q = Rotation(wiring, angles).to_dense().numpy()
    assert trace == pytest.approx(np.trace(Q.T @ R))
    losses = Alignment(R).removal_losses(pairs, angles)
    for k in generator.integers(len(pairs), size=6):
        turned = angles + 0.7 * (np.arange(len(pairs)) == k)
        change = trace_parts(tile(R), pairs, turned)[0] - trace
        assert change == pytest.approx(p[k] * (np.cos(0.7) - 1) + w[k] * np.sin(0.7))
        without = trace_parts(tile(R), pairs, np.where(np.arange(len(pairs)) == k, 0.0, angles))[0]
        assert losses[k] == pytest.approx(2 * (trace - without) / 70)


def test_sweeps_never_lose():
    R, wiring = random_orthogonal(21, 0), Butterfly(21, 2)
    pairs = flat_pairs(wiring)
    angles = np.random.default_rng(0).uniform(-np.pi, np.pi, len(pairs))
    traces = [trace_parts(tile(R), pairs, angles)[0]]
    for _ in range(10):
        traces.append(sweep_layers(R, pairs, wiring.offsets, angles))
        assert traces[-1] == pytest.approx(trace_parts(tile(R), pairs, angles)[0])
    assert (np.diff(traces) > -1e-12).all()
    fit = align_butterfly(R, wiring)
    assert 2 - 2 * traces[-1] / 21 > fit.history[-1][2]


def test_growth_takes_the_largest_gain():
    R = random_orthogonal(9, 0)
    i, j = np.triu_indices(9, 1)
    a, b = R[i, i] + R[j, j], R[j, i] - R[i, j]
    best = np.argmax(np.hypot(a, b) - a)
    M = R.copy()
    pairs, angles = grow_aligned(M, 1, 1.0, 0.0)
    assert pairs.tolist() == [[i[best], j[best]]]
    assert np.trace(M) - np.trace(R) == pytest.approx((np.hypot(a, b) - a)[best])
    rotated = R.copy()
    rotate_rows(rotated, pairs, np.cos(angles), np.sin(angles), True)
    np.testing.assert_allclose(M, rotated)


def test_elimination_is_exact():
    R = random_orthogonal(7, 0)
    pairs, angles = givens_qr(R)
    assert len(pairs) == 21
    np.testing.assert_allclose(Alignment(R).residual(pairs, angles), np.eye(7), atol=1e-14)


def test_low_rank_rival_is_the_best():
    R = random_orthogonal(12, 0)
    for r, form in low_rank(R, [0, 1, 3, 12]).items():
        error = np.linalg.norm(R - form @ np.eye(12))
        for c in np.linspace(-1, 1, 41):
            rest = np.linalg.svd(R - c * np.eye(12), compute_uv=False)[r:]
            assert error <= np.linalg.norm(rest) + 1e-9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"wiring": "butterfly", "n_rotations": 5}, "n_rotations: expected 12"),
        ({"method": "sgd", "wiring": "pairs"}, "fixed wiring"),
        ({"method": "pairs", "wiring": "butterfly"}, "chooses pairs"),
    ],
)
def test_requests_that_contradict_themselves(arguments, message):
    with pytest.raises(ValueError, match=message):
        fit_rotation(np.eye(8), **arguments)

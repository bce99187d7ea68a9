"""Forms of an orthogonal matrix: exact where it is in the class, with signs where the determinant is −1."""

import numpy as np
import pytest
import torch

from swallowtail import (
    Butterfly,
    Pairs,
    Rotation,
    SignedRotation,
    fit_rotation,
    load,
    random_orthogonal,
    save,
)


def in_class(n, seed, depth=1):
    return Rotation.random(n, depth, seed=seed, dtype=torch.float64).to_dense().numpy()


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


def test_noise_is_filtered_by_the_class():
    R = in_class(32, 0)
    noise = 1e-3 * np.random.default_rng(0).standard_normal((32, 32))
    U, _, Vh = np.linalg.svd(R + noise)
    result = fit_rotation(U @ Vh)
    assert result.method == "butterfly"
    assert result.relative_error < np.linalg.norm(U @ Vh - R) / 32**0.5 + 1e-6


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


@pytest.mark.parametrize("signs", [np.ones(9), np.array([1.0] * 8 + [-1.0])])
def test_the_identity_takes_no_rotations(signs):
    result = fit_rotation(np.diag(signs))
    assert result.status == "exact"
    np.testing.assert_array_equal(np.asarray(result.operator), np.diag(signs))
    assert getattr(result.operator, "rotation", result.operator).n_rotations == 0

"""fit_rotation: close to a Haar matrix, from whatever it starts."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.sparse.linalg import aslinearoperator

from swallowtail import Rotation, fit_rotation, random_orthogonal
from swallowtail.metrics import error_angle


def in_class(n, seed, depth=1):
    return Rotation.random(n, depth, seed=seed, dtype=torch.float64).to_dense().numpy()


def test_haar():
    """Bars at n = 64 with the paper's 192 rotations; the paper's own algorithm ends at 68°."""
    R = random_orthogonal(64, 0)
    result = fit_rotation(R)
    assert result.method == "pairs"
    assert result.operator.n_rotations == 192
    assert result.angle < 50.5
    assert result.angle == pytest.approx(error_angle(R, result.operator, seed=1), abs=1e-9)
    assert result.angle_estimate.low < result.angle < result.angle_estimate.high
    names = {rival.name: rival for rival in result.rivals}
    assert names["butterfly, as fitted"].angle < 69
    assert names["dense"].multiply_adds == 64**2
    assert names["c·I + rank 1"].equal == "floats"
    assert "Won at equal floats" in result.message
    assert fit_rotation(R, wiring="butterfly").angle < 68
    assert fit_rotation(R, wiring="butterfly", depth=2).angle < 55
    assert fit_rotation(R, method="sgd", epochs=20).angle < 70


def test_same_seed_same_bits():
    R = random_orthogonal(12, 0)
    a, b = (fit_rotation(R, seed=3).operator for _ in range(2))
    assert a.wiring == b.wiring
    assert torch.equal(a.angles, b.angles)


def test_inputs_of_every_kind():
    R = random_orthogonal(10, 0)
    expected = fit_rotation(R)
    for value, n, products in [
        (torch.from_numpy(R), None, 0),
        (R.tolist(), None, 0),
        (sp.csr_array(R), None, 0),
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
    assert "nearest to the samples" in paired.message


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


@pytest.mark.parametrize("name", ["budget", "target", "symmetrize"])
def test_arguments_of_the_other_fit_are_not_recommended(name):
    with pytest.raises(
        TypeError, match=rf"{name}: expected an argument of fit_rotation, .*; try (?!`{name}`)"
    ):
        fit_rotation(np.eye(4), **{name: "floats"})


@pytest.mark.parametrize("n", [6, 10, 33])
def test_permutations_are_exact(n):
    for seed in range(6):
        rng = np.random.default_rng(seed)
        R = np.eye(n)[rng.permutation(n)]
        for signs in (np.ones(n), rng.choice([-1.0, 1.0], n)):
            result = fit_rotation(signs * R)
            assert result.status == "exact"
            np.testing.assert_allclose(np.asarray(result.operator), signs * R, atol=1e-12)

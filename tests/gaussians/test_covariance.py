"""GivensCovariance: a scikit-learn estimator, and better than others on held-out rows."""

import numpy as np
import pytest
import torch
from sklearn.covariance import OAS, LedoitWolf
from sklearn.utils.estimator_checks import parametrize_with_checks

from swallowtail import Butterfly, SymmetricOperator, error_angle
from swallowtail.gaussians.covariance import GivensCovariance


@parametrize_with_checks([GivensCovariance(random_state=0)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def digits():
    from sklearn.datasets import load_digits

    X = load_digits().data
    X = (X + np.random.default_rng(0).random(X.shape)) / 17
    order = np.random.default_rng(1).permutation(len(X))
    return X[order[:1200]], X[order[1200:]]


# With 1200 rows 64 × 64 numbers are well known: there it takes more rotations than n⌈lg n⌉/2 = 192.
@pytest.mark.parametrize(("n_samples", "n_rotations"), [(40, None), (200, None), (1200, 800)])
def test_better_held_out_than_ledoit_wolf_and_oas(digits, n_samples, n_rotations):
    train, test = digits[0][:n_samples], digits[1]
    ours = GivensCovariance(n_rotations=n_rotations, random_state=0).fit(train).score(test)
    for rival in (LedoitWolf(), OAS()):
        location = train.mean(0)
        covariance = rival.fit(train).covariance_
        delta = test - location
        q = np.einsum("ri,ij,rj->r", delta, np.linalg.inv(covariance), delta)
        theirs = -0.5 * (q.mean() + np.linalg.slogdet(2 * np.pi * covariance)[1])
        assert ours > theirs


def test_scores_are_those_of_the_dense_gaussian(digits):
    model = GivensCovariance(random_state=0).fit(digits[0])
    normal = torch.distributions.MultivariateNormal(
        torch.from_numpy(model.location_), model.covariance_.to_dense()
    )
    expected = normal.log_prob(torch.from_numpy(digits[1])).numpy()
    np.testing.assert_allclose(model.score_samples(digits[1]), expected, rtol=1e-8)
    assert isinstance(model.precision_, SymmetricOperator)
    product = model.precision_.to_dense() @ model.covariance_.to_dense()
    torch.testing.assert_close(product, torch.eye(64, dtype=torch.float64), atol=1e-8, rtol=0)


def test_samples_have_the_covariance(digits):
    model = GivensCovariance(random_state=0).fit(digits[0])
    draws = model.sample(20000, random_state=3)
    assert error_angle(np.cov(draws.T), model.covariance_) < 4
    np.testing.assert_array_equal(draws, model.sample(20000, random_state=3))


def test_a_stream_ends_where_the_batch_does(digits):
    train = digits[0]
    batch = GivensCovariance(random_state=0).fit(train)
    stream = GivensCovariance(random_state=0)
    for part in np.array_split(train, 7):
        stream.partial_fit(part)
    assert stream.n_samples_seen_ == len(train)
    assert error_angle(batch.covariance_, stream.covariance_) < 0.5
    np.testing.assert_allclose(stream.location_, batch.location_)


def test_sketch_holds_no_square_matrix_and_comes_near(digits):
    train, test = digits
    model = GivensCovariance(sketch=True, sketch_size=16, random_state=0)
    for part in np.array_split(train, 5):
        model.partial_fit(part)
    assert all(np.size(value) <= 17 * 64 for value in vars(model._moments).values())
    np.testing.assert_allclose(model._moments.variances, train.var(0))
    assert np.isfinite(model.score(test))
    assert error_angle(np.cov(train.T), model.covariance_) < 25


def test_constant_and_duplicate_columns_give_finite_densities():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 50))
    X[:, 3] = 7.0
    X[:, 10] = X[:, 11]
    X[:, 20:25] = 0.0
    model = GivensCovariance(random_state=0).fit(X)
    assert np.isfinite(model.score_samples(X)).all()
    assert np.isfinite(GivensCovariance().fit(np.ones((5, 4))).score(np.ones((2, 4))))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_variances_from_1e_minus_12_to_1e12(dtype):
    rng = np.random.default_rng(0)
    deviations = np.logspace(-6, 6, 25)
    X, Y = (rng.standard_normal((400, 25)) * deviations for _ in range(2))
    model = GivensCovariance(random_state=0).fit(X.astype(dtype))
    exact = -0.5 * ((Y / deviations) ** 2 + np.log(2 * np.pi * deviations**2)).sum(1).mean()
    assert model.score(Y.astype(dtype)) == pytest.approx(exact, abs=0.5)
    assert model.score_samples(Y.astype(dtype)).dtype == dtype


@pytest.mark.parametrize("wiring", ["butterfly", Butterfly(64, depth=2), Butterfly(64, reverse=True)])
def test_a_fixed_butterfly(digits, wiring):
    model = GivensCovariance(wiring=wiring, random_state=0).fit(digits[0])
    assert model.covariance_.rotation.wiring == (Butterfly(64) if wiring == "butterfly" else wiring)
    assert np.isfinite(model.score(digits[1]))


@pytest.mark.parametrize(
    "arguments",
    [
        {"target": "x"},
        {"wiring": "x"},
        {"shrinkage": -1},
        {"shrinkage": "x"},
        {"n_rotations": -1},
        {"wiring": Butterfly(4)},
        {"sketch": "yes"},
    ],
)
def test_arguments_are_checked_in_fit(arguments):
    with pytest.raises(ValueError, match="expected"):
        GivensCovariance(**arguments).fit(np.random.default_rng(0).standard_normal((9, 3)))


def test_neither_seed_nor_order_nor_pieces_change_the_fit(digits):
    train = digits[0]
    first = GivensCovariance(random_state=0).fit(train)
    order = np.random.default_rng(5).permutation(len(train))
    second = GivensCovariance(random_state=1)
    for part in np.array_split(train[order], 11):
        second.partial_fit(part)
    assert error_angle(first.covariance_, second.covariance_) < 1e-3
    assert (first.ridge_, first.noise_) == (second.ridge_, second.noise_)

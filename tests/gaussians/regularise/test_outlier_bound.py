"""The bound on outliers."""

import numpy as np
import pytest
from scipy.linalg import eigvalsh
from scipy.stats import multivariate_normal
from sklearn.covariance import oas
from sklearn.datasets import load_wine

from swallowtail import GivensCovariance
from swallowtail.gaussians.regularise.outlier_bound import BOUND, bounded, worth_it
from swallowtail.gaussians.regularise.weights import FoldModels

N_DARK = 8


@pytest.fixture
def matrices():
    F, G = np.random.default_rng(0).standard_normal((2, 8, 8))
    return F @ F.T + 0.1 * np.eye(8), G @ G.T + 0.1 * np.eye(8)


def test_no_distance_is_more_than_the_bound_allows(matrices):
    P, C = matrices
    before, after = eigvalsh(P, np.linalg.inv(C)), eigvalsh(bounded(P, C), np.linalg.inv(C))
    assert before[-1] > BOUND > before[0]
    np.testing.assert_allclose(after, np.minimum(before, BOUND), rtol=1e-8)


def test_what_is_within_the_bound_stays(matrices):
    P, C = matrices
    np.testing.assert_allclose(bounded(P, 1e-4 * C), P, rtol=1e-8)


@pytest.mark.parametrize(("flash", "wanted"), [(1.0, True), (0.03, False)])
def test_a_held_out_row_that_stands_out_pays_for_the_bound(flash, wanted):
    rows = np.random.default_rng(0).standard_normal((200, 4)) * [1, 1, 1, 0.01]
    rows[7, 3] = flash
    model = np.diag([1.0, 1.0, 1.0, 1e4])
    assert worth_it([FoldModels([model], rows.T @ rows / 200, np.eye(4), rows)], np.ones(1)) is wanted


def test_a_model_that_never_comes_near_the_bound_is_left_alone():
    rows = np.random.default_rng(0).standard_normal((200, 4))
    assert not worth_it([FoldModels([np.eye(4)], rows.T @ rows / 200, np.eye(4), rows)], np.ones(1))


def pixels(rng, count):
    """40 columns, `N_DARK` of them dark but for a flash in one row of 300; a little noise on all."""
    X = rng.standard_normal((count, 40)) @ np.random.default_rng(1).standard_normal((40, 40)) / 40
    dark = (rng.random((count, N_DARK)) < 1 / 300) * rng.random((count, N_DARK))
    return np.concatenate([dark, X[:, N_DARK:]], axis=1) + rng.random(X.shape) / 256


@pytest.mark.parametrize("seed", [7, 9])  # held-out rows of these show what a flash costs
def test_a_dark_pixel_that_lights_up_is_at_most_three_times_as_far_as_under_oas(seed):
    rng = np.random.default_rng(seed)
    train, test = pixels(rng, 300), pixels(rng, 300)
    flashes = test[:N_DARK].copy()
    flashes[np.arange(N_DARK), np.arange(N_DARK)] = 1.0
    model, usual = GivensCovariance().fit(train), oas(train)[0]
    centred = flashes - train.mean(0)
    far = np.einsum("ij,ij->i", centred, np.linalg.solve(usual, centred.T).T)
    assert (model.mahalanobis(flashes) < 1.05 * BOUND * far).all()  # written with few rank-one terms
    assert model.score(test) > multivariate_normal(train.mean(0), usual).logpdf(test).mean()


def test_units_do_not_matter():
    X = load_wine().data  # nearly all of the variance is in one column
    X = X[np.random.default_rng(0).permutation(len(X))]
    scale = X.std(0)
    raw = GivensCovariance().fit(X[:100]).score(X[100:]) + np.log(scale).sum()
    assert abs(raw - GivensCovariance().fit(X[:100] / scale).score(X[100:] / scale)) < 0.1 * X.shape[1]

"""A blend of few rows with heavy tails, in columns of different units."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.covariance import ledoit_wolf
from sklearn.datasets import load_breast_cancer

from swallowtail import GivensCovariance
from swallowtail.gaussians.regularise import blend
from swallowtail.gaussians.regularise.heavy_tails import FEWEST, MANY, MORE, SHARE, cautious
from swallowtail.gaussians.regularise.weights import FoldModels

COLUMNS = 5
UNITS = 10.0 ** np.arange(COLUMNS)
WEIGHTS = np.array([0.0, 0.25, 0.75])  # of "shrunk", "scaled" and some other


def seen(units, heavy, n_samples=FEWEST):
    """A fold whose held-out rows are Gaussian or have the tails of Student's t with one degree of freedom."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((n_samples, len(units)))
    if heavy:
        rows /= np.abs(rng.standard_normal((n_samples, 1)))
    rows *= units
    members = [np.eye(len(units)) / np.mean(units**2), np.diag(1 / units**2), np.diag(1 / units**2)]
    return FoldModels(members, rows.T @ rows / n_samples, np.eye(len(units)), rows)


def test_heavy_tails_in_different_units_ask_for_caution():
    found = cautious([seen(UNITS, True)], WEIGHTS, 0, 1, FEWEST)
    expected = np.array([0.0, 0.25 * (1 - SHARE) + SHARE, 0.75 * (1 - SHARE)]) / (1 + MORE)
    np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize(
    ("units", "heavy", "n_samples"),
    [
        (np.ones(COLUMNS), True, FEWEST),
        (UNITS, False, FEWEST),
        (UNITS, True, FEWEST - 1),
        (np.resize(UNITS, COLUMNS + 20), True, FEWEST),
        (UNITS, True, MANY * COLUMNS + 1),
    ],
)
def test_else_the_best_weights_stay(units, heavy, n_samples):
    assert cautious([seen(units, heavy)], WEIGHTS, 0, 1, n_samples) is WEIGHTS


@pytest.mark.parametrize("seed", [2001, 2010, 2013, 2028])
def test_raw_columns_of_breast_cancer_are_not_taken_at_their_word(seed, monkeypatch):
    X = load_breast_cancer().data
    X = X[np.random.default_rng(seed).permutation(len(X))]
    train, test = X[:80], X[80:]
    careful = GivensCovariance().fit(train).score_samples(test)
    monkeypatch.setattr(blend, "cautious", lambda folds, weights, *others: weights)
    bold = GivensCovariance().fit(train).score_samples(test)
    usual = multivariate_normal(train.mean(0), ledoit_wolf(train)[0]).logpdf(test).min()
    assert careful.min() > usual - 2 * abs(usual) > bold.min()
    assert careful.mean() > bold.mean() - 0.02 * 30

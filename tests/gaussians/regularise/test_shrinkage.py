"""Linear shrinkage where columns differ in their units."""

import numpy as np
import pytest
from sklearn.covariance import OAS
from sklearn.datasets import load_breast_cancer, load_wine

from swallowtail import GivensCovariance
from swallowtail.gaussians.regularise.shrinkage import reconsidered, scaled, shrunk

UNITS = 10.0 ** np.arange(-3, 4)


@pytest.fixture
def rows():
    return np.random.default_rng(0).standard_normal((12, 7)) @ np.random.default_rng(1).standard_normal(
        (7, 7)
    )


def test_shrunk_is_oas_and_scaled_is_oas_of_the_correlations(rows):
    centred, none = rows - rows.mean(0), np.zeros(7)
    S = np.cov(rows.T, bias=True)
    s = np.trace(S) / 7
    np.testing.assert_allclose(s * shrunk(S / s, none, 12), OAS().fit(rows).covariance_, rtol=1e-10)
    deviations = centred.std(0)
    expected = OAS().fit(centred / deviations).covariance_ * np.outer(deviations, deviations)
    np.testing.assert_allclose(s * scaled(S / s, none, 12), expected, rtol=1e-10)
    both = np.outer(UNITS, UNITS)
    np.testing.assert_allclose(scaled(S * both, none, 12), scaled(S, none, 12) * both, rtol=1e-10)


@pytest.mark.parametrize("units", [np.ones(7), UNITS])
def test_few_rows_are_taken_to_be_as_the_better_shrinkage_expects(units):
    S = 0.9 ** np.abs(np.subtract.outer(np.arange(7), np.arange(7))) * np.outer(units, units)
    S /= np.trace(S) / 7
    models = [(C, np.linalg.inv(C)) for C in (shrunk(S, np.zeros(7), 6), scaled(S, np.zeros(7), 6))]
    found = reconsidered(S, 6, np.diagonal(S), models)
    deviations = np.sqrt(np.diagonal(found))
    correlations = found / np.outer(deviations, deviations)
    assert 0.4 < correlations[0, 1] < 0.9  # 0.04 by "shrunk" alone, where units differ
    assert (deviations[:-1] < 3 * units[:-1] * np.sqrt(S[0, 0]) / units[0]).all()
    np.testing.assert_allclose(reconsidered(S, 1e6, np.diagonal(S), models), S, rtol=1e-6)


@pytest.mark.parametrize(
    ("load", "n_samples"), [(load_breast_cancer, 20), (load_breast_cancer, 40), (load_wine, 20)]
)
def test_few_rows_of_columns_in_different_units(load, n_samples):
    """About as good as OAS where somebody has divided the columns by their deviations."""
    gains = []
    for seed in range(6):
        rows = load().data[np.random.default_rng(seed).permutation(len(load().data))]
        train, unseen = rows[:n_samples], rows[n_samples:]
        deviations = train.std(0)
        rival = OAS().fit(train / deviations).score(unseen / deviations) - np.log(deviations).sum()
        gains.append(GivensCovariance().fit(train).score(unseen) - rival)
    assert np.mean(gains) > -0.02 * rows.shape[1]

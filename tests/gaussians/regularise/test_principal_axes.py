"""Columns that others nearly determine: how little is left is neither overlooked nor taken for nothing."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from swallowtail import GivensCovariance
from swallowtail.gaussians.regularise.principal_axes import principal_precision
from swallowtail.gaussians.regularise.spectrum import Level

AS_IT_IS = Level(np.zeros(0), np.zeros(0), 0.0)
UNITS = 10.0 ** np.linspace(-9, 9, 15)


def nearly_collinear(n_samples, noise):
    """Rows of 15 columns, and their covariance; the last 7 are combinations of the others, and a little noise."""
    rng = np.random.default_rng(0)
    loadings = rng.standard_normal((8, 7))
    first = rng.standard_normal((n_samples, 8))
    rows = np.hstack([first, first @ loadings + noise * rng.standard_normal((n_samples, 7))])
    both = np.hstack([np.eye(8), loadings])
    return rows, both.T @ both + np.diag([0.0] * 8 + [noise**2] * 7)


@pytest.mark.parametrize("units", [np.ones(15), UNITS])
def test_without_a_correction_it_is_the_inverse(units):
    rows, _ = nearly_collinear(100, 0.1)
    S = np.cov((rows * units).T)
    P = principal_precision(S, np.zeros(15), AS_IT_IS)
    np.testing.assert_allclose(P @ S * np.outer(units, 1 / units), np.eye(15), atol=1e-8)


@pytest.mark.parametrize(("n_samples", "noise"), [(30, 1e-1), (30, 1e-2), (60, 1e-2), (300, 1e-3)])
@pytest.mark.parametrize("units", [np.ones(15), UNITS])
def test_what_is_left_of_columns_that_nearly_follow_from_others(n_samples, noise, units):
    rows, covariance = nearly_collinear(n_samples + 2000, noise)
    train, test = rows[:n_samples], rows[n_samples:]
    best = multivariate_normal(np.zeros(15), covariance).logpdf(test).mean() - np.log(units).sum()
    sample = multivariate_normal(train.mean(0), np.cov(train.T)).logpdf(test).mean() - np.log(units).sum()
    found = GivensCovariance().fit(train * units).score(test * units)
    assert found > sample - 0.15 * 15  # it was 0.5 to 3 nats per dimension behind
    assert found > best - 0.4 * 15


@pytest.mark.parametrize("n_samples", [20, 40, 160])
def test_neighbours_that_are_nearly_equal(n_samples):
    """A smooth curve, measured at 40 points with an error of a hundredth."""
    steps = np.subtract.outer(np.arange(40), np.arange(40))
    covariance = np.exp(-0.5 * (steps / 6) ** 2) + 1e-4 * np.eye(40)
    rows = np.random.default_rng(1).standard_normal((n_samples + 2000, 40)) @ np.linalg.cholesky(covariance).T
    best = multivariate_normal(np.zeros(40), covariance).logpdf(rows[n_samples:]).mean()
    found = GivensCovariance().fit(rows[:n_samples]).score(rows[n_samples:])
    # 2.0, 1.5 and 0.7 were lost
    assert found > best - {20: 1.5, 40: 0.4, 160: 0.1}[n_samples] * 40

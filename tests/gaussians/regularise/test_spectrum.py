"""What a sample may have missed, in columns that mostly repeat one value."""

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.datasets import load_wine

from swallowtail import GivensCovariance
from swallowtail.gaussians.regularise.spectrum import SAME, TELLING, UNSEEN, UNSEEN_TIED, unseen

N = 100


def column(values):
    """N rows, 0 but for the first ones."""
    return np.concatenate([values, np.zeros(N - len(values))])


def missed(*columns):
    """`unseen` of these columns beside one in other units, per row that may have been missed."""
    rows = np.stack([*columns, 1e4 * np.random.default_rng(0).standard_normal(N)], axis=1)
    return unseen(rows.var(0), rows, N)[:-1] * N / UNSEEN_TIED


def test_a_column_that_varies_is_taken_at_its_own_variance():
    rows = np.random.default_rng(0).standard_normal((N, 3)) * [1e-3, 1, 1e3]
    np.testing.assert_allclose(unseen(rows.var(0), rows, N), UNSEEN / N * rows.var(0))


@pytest.mark.parametrize("values", [np.ones(SAME), np.arange(1.0, TELLING + 1), -2 * np.ones(30)])
def test_a_column_tells_how_far_it_goes_from_the_value_it_repeats(values):
    found = missed(column(values), column(np.full(20, 70.0)))
    np.testing.assert_allclose(found, [np.square(values).max(), 70.0**2])


@pytest.mark.parametrize("values", [[], [1.0], np.ones(SAME - 1), np.arange(1.0, TELLING)])
def test_any_other_may_go_as_far_as_the_one_that_goes_farthest(values):
    np.testing.assert_allclose(missed(column(values), column(np.full(20, 70.0))), [70.0**2, 70.0**2])


def test_the_mean_variance_is_the_most_and_all_that_is_left_where_nothing_tells():
    rows = np.stack([column([]), np.linspace(-1, 1, N)], axis=1)
    usual = rows.var(0).mean()
    assert unseen(rows.var(0), rows, N)[0] == pytest.approx(UNSEEN_TIED / N * usual)
    rows = np.stack([column([1e3]), np.linspace(-1, 1, N)], axis=1)
    assert unseen(rows.var(0), rows, N)[0] == pytest.approx(UNSEEN_TIED / N * rows.var(0).mean())
    assert np.isfinite(unseen(np.ones(2), np.zeros((0, 2)), N)).all()


def test_columns_of_zeros_and_ones_beside_others_cost_what_they_cost_alone():
    """One nat per dimension and more before: a thousandth of the mean variance of wine's columns is a wide margin."""
    rng = np.random.default_rng(0)
    X = load_wine().data[rng.permutation(178)]
    flags = (rng.random((178, 4)) < [0.4, 0.3, 0.2, 0.1]) * 1.0
    both = np.concatenate([X, flags], axis=1)
    together = GivensCovariance().fit(both[:90]).score(both[90:])
    apart = GivensCovariance().fit(X[:90]).score(X[90:])
    apart += norm(flags[:90].mean(0), flags[:90].std(0)).logpdf(flags[90:]).sum(1).mean()
    assert together > apart - 0.05 * 17

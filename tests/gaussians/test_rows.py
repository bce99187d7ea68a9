"""Rows and weights that no estimator takes, and rows beyond what a dtype holds."""

import numpy as np
import pytest

from swallowtail import GivensCovariance, GivensDiscriminant, GivensMixture
from swallowtail.errors import ArgumentError
from swallowtail.gaussians.statistics import RowStatistics

ROWS = np.random.default_rng(0).standard_normal((60, 4)) @ np.diag([1.0, 2, 3, 4]) + 3
Y = np.arange(60) % 2
ESTIMATORS = [GivensCovariance(), GivensMixture(2, random_state=0), GivensDiscriminant(random_state=0)]


def taking_y(model, X, **keywords):
    return model.fit(X, Y, **keywords)


@pytest.mark.parametrize("model", ESTIMATORS)
def test_masked_entries_are_refused_and_masks_without_any_are_not(model):
    masked = np.ma.masked_greater(ROWS, 5)
    count = int(np.ma.count_masked(masked))
    message = f"^X: expected all entries, got {count} of 240 masked; try its filled"
    with pytest.raises(ArgumentError, match=message):
        taking_y(model, masked)
    taking_y(model, np.ma.masked_greater(ROWS, 1e9))
    with pytest.raises(ArgumentError, match=message):
        model.score(masked, Y)
    with pytest.raises(ArgumentError, match=r"^sample_weight: expected all entries"):
        taking_y(model, ROWS, sample_weight=np.ma.masked_equal(np.arange(60.0), 3))


def test_masked_rows_and_labels_are_refused_where_they_go_in_otherwise():
    with pytest.raises(ArgumentError, match=r"^y: expected all entries"):
        GivensDiscriminant().fit(ROWS, np.ma.masked_equal(Y, 1))
    masked = np.ma.masked_greater(ROWS, 5)
    with pytest.raises(ArgumentError, match=r"^X: expected all entries"):
        GivensCovariance().partial_fit(ROWS).partial_fit(masked)
    with pytest.raises(ArgumentError, match=r"^X: expected all entries"):
        RowStatistics(4, np.float64).update(masked)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("model", ESTIMATORS)
def test_weights_may_be_large_but_not_so_large_that_their_squares_overflow(model, dtype):
    rows = ROWS.astype(dtype)
    for size in (1e155, 1e300):
        with pytest.raises(ArgumentError, match=r"weights that add up to at most 1e\+30.*sample_weight.mean"):
            taking_y(model, rows, sample_weight=np.full(60, size))
    usual, heavy = (
        taking_y(model, rows, sample_weight=np.full(60, size)).score(rows, Y) for size in (1e10, 1e28)
    )
    assert heavy == pytest.approx(usual, abs=0.02)


def test_statistics_refuse_weights_that_are_too_large_and_rows_that_their_dtype_cannot_hold():
    statistics = RowStatistics(4, np.float32)
    statistics.update(ROWS)
    for rows, weights, words in (
        (ROWS, np.full(60, 1e155), r"weights: expected weights that add up to at most 1e\+30"),
        (ROWS, ["a"] * 60, "weights: expected 60 finite numbers"),
        (ROWS * 1e40, None, "X: expected finite numbers, got .* more than float32 holds"),
    ):
        with pytest.raises(ArgumentError, match=words):
            statistics.update(rows, weights)
    wide = RowStatistics(4, np.float64)
    wide.update(ROWS * 1e40)
    with pytest.raises(ArgumentError, match="more than float32 holds"):
        statistics.merge(wide)
    assert (statistics.n_rows, statistics.moments.count) == (60, 60.0)
    with pytest.raises(ArgumentError, match=r"^n: expected an integer ≥ 1"):
        RowStatistics(0, np.float64)


@pytest.mark.parametrize("shrinkage", ["auto", 0.1])
@pytest.mark.parametrize(
    ("dtype", "sizes"), [(np.float32, (1e20, 1e38, 1e40, 1e300)), (np.float64, (1e200, 1e307))]
)
def test_rows_far_away_are_infinitely_unlikely(dtype, sizes, shrinkage):
    model = GivensCovariance(shrinkage=shrinkage).fit(ROWS.astype(dtype))
    for size in sizes:
        far = np.concatenate([ROWS[:3], ROWS[:2] * size])
        scores, distances = model.score_samples(far), model.mahalanobis(far)
        assert scores.dtype == distances.dtype == dtype
        np.testing.assert_array_equal(scores[3:], -np.inf)
        np.testing.assert_array_equal(distances[3:], np.inf)
        np.testing.assert_array_equal(scores[:3], model.score_samples(ROWS[:3]))
        assert not np.isnan(model.whiten(far)).any()


def test_rows_that_float32_cannot_hold_are_done_in_float64():
    model = GivensCovariance().fit(ROWS.astype(np.float32) * np.float32(1e15))
    exact = GivensCovariance().fit(ROWS * 1e15)
    far = ROWS[:3] * 1e33  # distances are within the range of float32, their parts are not
    np.testing.assert_allclose(model.mahalanobis(far), exact.mahalanobis(far), rtol=0.2)
    assert np.isfinite(model.mahalanobis(far)).all()


@pytest.mark.parametrize("model", [GivensCovariance(), GivensMixture(2, random_state=0)])
def test_a_batch_in_another_dtype_has_to_be_in_the_range_of_what_was_seen(model):
    model.partial_fit(ROWS.astype(np.float32))
    score = model.score(ROWS)
    for bad in (ROWS * 1e40, ROWS * 1e20):
        with pytest.raises(ArgumentError, match=r"^X: expected deviations .* in the range of float32"):
            model.partial_fit(bad)
    assert model.score(ROWS) == score
    model.partial_fit(ROWS)

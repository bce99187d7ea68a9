"""Estimators that merge, forget and take batches: what they keep, and what they refuse."""

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

from swallowtail import GivensCovariance, GivensMixture
from swallowtail.errors import ArgumentError

ROWS = np.random.default_rng(0).standard_normal((200, 8))


def test_an_estimator_without_rows_takes_columns_from_what_it_merges_with():
    frame = pd.DataFrame(ROWS, columns=list("abcdefgh"))
    merged = GivensCovariance().merge(GivensCovariance().fit(frame))
    assert merged.n_features_in_ == 8
    assert list(merged.feature_names_in_) == list("abcdefgh")
    with pytest.raises(ValueError, match="feature names should match"):
        merged.partial_fit(frame[list("abcde")])


def test_columns_of_other_names_do_not_merge():
    frame = pd.DataFrame(ROWS, columns=list("abcdefgh"))
    model = GivensCovariance().fit(frame)
    with pytest.raises(ArgumentError, match=r"columns \['a'.*got \['b', 'a'"):
        model.merge(GivensCovariance().fit(frame[list("bacdefgh")]))


@pytest.mark.parametrize("share", ["half", None, -0.1, 1.1, np.nan])
def test_shares_are_numbers_from_0_to_1(share):
    with pytest.raises(ArgumentError, match="share"):
        GivensCovariance().fit(ROWS).forget(share)


def test_nothing_is_left_of_what_is_wholly_forgotten():
    other = np.random.default_rng(1).standard_normal((100, 8))
    anew = GivensCovariance().fit(ROWS).forget(0)
    with pytest.raises(ArgumentError, match=r"partial_fit after forget"):
        anew.score(other)
    assert anew.partial_fit(other).score(ROWS) == pytest.approx(GivensCovariance().fit(other).score(ROWS))


@pytest.mark.parametrize(
    ("rows", "weights", "words"),
    [
        (np.full((3, 8), np.nan), None, "X: expected finite numbers"),
        (np.ones((3, 7)), None, "X: expected rows of 8 numbers"),
        (np.full((3, 8), "a"), None, "X: expected rows of 8 numbers"),
        (np.ones((3, 8)), -np.ones(3), "weights: expected 3 finite numbers"),
        (np.ones((3, 8)), np.ones(2), "weights: expected 3 finite numbers"),
    ],
)
def test_statistics_refuse_what_would_spoil_them(rows, weights, words):
    statistics = GivensCovariance().fit(ROWS).statistics_
    with pytest.raises(ArgumentError, match=words):
        statistics.update(rows, weights)
    assert statistics.n_rows == len(ROWS)
    assert np.isfinite(statistics.moments.scatter).all()


def test_batches_may_be_empty_and_a_bad_one_is_named():
    parts = [ROWS[:50], ROWS[:0], ROWS[50:]]
    assert GivensCovariance().fit_batches(parts).score(ROWS) == pytest.approx(
        GivensCovariance().fit(ROWS).score(ROWS)
    )
    for bad in (np.full((3, 8), np.nan), ROWS[:, :5]):
        with pytest.raises(ArgumentError, match="in batch 1: "):
            GivensCovariance().fit_batches([ROWS, bad])


@pytest.mark.parametrize("model", [GivensCovariance(), GivensMixture(2, random_state=0)])
def test_weights_that_add_up_to_one_are_noted(model):
    with pytest.warns(UserWarning, match="count as so many rows; try sample_weight / sample_weight.mean"):
        model.fit(ROWS, sample_weight=np.full(len(ROWS), 1 / len(ROWS)))


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (None, "NoneType"),
        (csr_array(ROWS), "dense data is required"),
        ((ROWS,), "expected rows, or a pair of rows and weights, got a tuple of 1"),
        (
            (ROWS, np.arange(200) % 2),
            r"expected weights that are real numbers .* got int64; try astype\(float\) .* \(X, y\)",
        ),
        ((ROWS, ["a"] * 200), "expected weights that are real numbers"),
        ((ROWS, np.ones(199)), "sample_weight.shape"),
    ],
)
def test_what_is_no_batch_is_named(bad, words):
    with pytest.raises(
        ArgumentError, match=f"^batches: expected rows that can be used, got in batch 1: .*{words}"
    ):
        GivensCovariance().fit_batches([ROWS, bad])


def test_batches_are_what_one_can_go_through():
    with pytest.raises(ArgumentError, match=r"^batches: expected arrays of shape \(m, n\), .* got int"):
        GivensCovariance().fit_batches(3)
    weights = np.linspace(0, 2, 200)
    pairs = [(ROWS[:50], weights[:50]), (ROWS[50:], weights[50:])]
    whole = GivensCovariance().fit(ROWS, sample_weight=weights)
    assert GivensCovariance().fit_batches(pairs).score(ROWS) == pytest.approx(whole.score(ROWS))

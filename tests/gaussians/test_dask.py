"""Estimators on dask arrays: any chunks, nothing gathered but statistics."""

import copy

import numpy as np
import pytest

from swallowtail import GivensCovariance, GivensMixture

da = pytest.importorskip("dask.array", reason="needs dask: pip install swallowtail[dask]")
dask = pytest.importorskip("dask")


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 6)) @ rng.standard_normal((6, 6))
    return np.concatenate([X, X[:, ::-1] + 9.0])


@pytest.fixture(autouse=True)
def synchronous():
    with dask.config.set(scheduler="synchronous"):
        yield


def test_any_chunks_give_what_an_array_gives(rows):
    whole = GivensCovariance().fit(rows)
    for chunks in (600, (100, 6), (77, 2), ((1, 0, 599), (3, 3))):
        X = da.from_array(rows, chunks=chunks)
        found = GivensCovariance().fit(X)
        scale = np.abs(whole.statistics_.moments.scatter).max()
        np.testing.assert_allclose(
            found.statistics_.moments.scatter, whole.statistics_.moments.scatter, atol=1e-10 * scale
        )
        assert found.score(rows) == pytest.approx(whole.score(rows), abs=1e-6)
    scores = found.score_samples(X)
    assert isinstance(scores, da.Array)
    np.testing.assert_allclose(scores.compute(), whole.score_samples(rows), atol=1e-6)
    assert found.score(X) == pytest.approx(whole.score(rows), abs=1e-6)
    streamed = GivensCovariance().partial_fit(X[:200]).partial_fit(X[200:])
    assert streamed.n_samples_seen_ == 600


def test_weights_travel_with_their_rows(rows):
    weights = np.arange(600.0) % 3
    whole = GivensCovariance().fit(rows, sample_weight=weights)
    X, w = da.from_array(rows, chunks=(70, 6)), da.from_array(weights, chunks=100)
    assert GivensCovariance().fit(X, sample_weight=w).score(rows) == pytest.approx(
        whole.score(rows), abs=1e-6
    )


def test_weights_may_be_an_array_and_count_in_the_score(rows):
    weights = np.arange(600.0) % 3
    X = da.from_array(rows, chunks=(70, 6))
    for model in (GivensCovariance(), GivensMixture(2, random_state=0)):
        model.fit(X, sample_weight=weights)
        right = np.average(model.score_samples(rows), weights=weights)
        for w in (weights, da.from_array(weights, chunks=100)):
            assert model.score(X, sample_weight=w) == pytest.approx(right, abs=1e-6)
        assert model.score(X) != pytest.approx(right, abs=1e-3)
    with pytest.raises(ValueError, match="one number per row"):
        GivensCovariance().fit(X, sample_weight=weights[1:])
    with pytest.raises(ValueError, match=r"sample_weight.*chunk 3"):
        GivensCovariance().fit(X, sample_weight=np.where(np.arange(600) == 250, -1.0, 1.0))


def test_em_as_reductions(rows):
    whole = GivensMixture(2, random_state=0).fit(rows)
    found = GivensMixture(2, random_state=0).fit(da.from_array(rows, chunks=(100, 6)))
    assert found.converged_
    assert found.score(rows) > whole.score(rows) - 0.05
    scores = found.score_samples(da.from_array(rows, chunks=(250, 3)))
    np.testing.assert_allclose(scores.compute(), found.score_samples(rows))


def test_a_mixture_goes_on_with_dask_arrays(rows):
    parts = [rows[::2], rows[1::2]]
    start = GivensMixture(2, random_state=0).partial_fit(parts[0])
    lazy = copy.deepcopy(start).partial_fit(da.from_array(parts[1], chunks=(70, 4)))
    np.testing.assert_allclose(lazy.means_, start.partial_fit(parts[1]).means_, rtol=1e-9)
    first = GivensMixture(2, random_state=0).partial_fit(da.from_array(parts[0], chunks=(70, 4)))
    assert first.partial_fit(parts[1]).score(rows) == pytest.approx(start.score(rows), abs=0.05)
    with pytest.raises(ValueError, match="6 features"):
        first.partial_fit(da.from_array(rows[:, :4], chunks=100))


def test_a_bad_chunk_is_named(rows):
    bad = rows.copy()
    bad[250, 2] = np.nan
    with pytest.raises(ValueError, match="chunk 2, its row 50, column 2"):
        GivensCovariance().fit(da.from_array(bad, chunks=(100, 6)))
    model = GivensCovariance().fit(rows)
    with pytest.raises(ValueError, match="chunk 2, its row 50, column 2"):
        model.score(da.from_array(bad, chunks=(100, 6)))
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(da.from_array(rows[:, :4], chunks=100))


@pytest.mark.parametrize("model", [GivensCovariance(), GivensMixture(2)])
def test_columns_that_change_between_chunks_are_an_error(model):
    make = lambda columns: np.random.default_rng(0).standard_normal((10, columns))
    parts = [da.from_delayed(dask.delayed(make)(columns), (10, 5), float) for columns in (5, 6)]
    with pytest.raises(ValueError, match=r"5 columns in every chunk, got .*10, 6.* in chunk 1"):
        model.fit(da.concatenate(parts))


def test_rows_dropped_by_a_mask_leave_chunks_of_unknown_size(rows):
    X = da.from_array(np.where(rows > 25, np.nan, rows), chunks=(100, 6))
    kept = X[~da.isnan(X).any(axis=1)]  # what the error about NaN suggests
    whole = GivensCovariance().fit(rows[(rows <= 25).all(1)])
    found = GivensCovariance().fit(kept)
    assert found.score(kept) == pytest.approx(whole.score(rows[(rows <= 25).all(1)]), abs=1e-6)


@pytest.mark.extras
def test_worker_processes_one_of_which_dies(rows):
    """Real processes. A killed worker's chunks are done again elsewhere, and the answer is the same."""
    distributed = pytest.importorskip("distributed")
    whole = GivensCovariance().fit(rows)
    X = da.from_array(np.tile(rows, (40, 1)), chunks=(500, 6))
    answers = []
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
        dask.config.set(scheduler=client),
    ):
        for kill in (False, True):
            if kill:
                next(iter(cluster.workers.values())).process.process.kill()
            answers.append(GivensCovariance().fit(X).statistics_.moments.scatter)
    np.testing.assert_array_equal(answers[0], answers[1])
    scale = np.abs(answers[0]).max()
    np.testing.assert_allclose(answers[0], 40 * whole.statistics_.moments.scatter, atol=1e-9 * scale)


def test_a_mixture_takes_chunks_without_rows(rows):
    whole = GivensMixture(2, random_state=0).fit(da.from_array(rows, chunks=(300, 6)))
    found = GivensMixture(2, random_state=0).fit(da.from_array(rows, chunks=((0, 300, 0, 300), 6)))
    assert found.score(rows) == pytest.approx(whole.score(rows), abs=1e-6)


def test_words_and_squares_out_of_range_are_named(rows):
    with pytest.raises(ValueError, match=r"X: expected numbers, got <U1 in chunk 0"):
        GivensCovariance().fit(da.from_array(np.full((4, 2), "a"), chunks=(4, 2)))
    with np.errstate(over="ignore", invalid="ignore"), pytest.raises(ValueError, match="try other units"):
        GivensCovariance().fit(da.from_array(1e200 * rows, chunks=(100, 6)))


@pytest.mark.parametrize("model", [GivensCovariance(), GivensMixture(2, random_state=0)])
def test_masked_chunks_and_weights_too_large_are_refused(rows, model):
    X = da.from_array(rows, chunks=(100, 6))
    with pytest.raises(ValueError, match=r"X: expected all entries, got .* masked"):
        model.fit(da.ma.masked_greater(X, 9))
    for size, words in ((1e155, r"add up to at most 1e\+30"), (0.0, "more than 0|minimum of 2")):
        with pytest.raises(ValueError, match=words):
            model.fit(X, sample_weight=np.full(600, size))
    assert not hasattr(model, "n_features_in_")


def test_rows_that_what_was_seen_cannot_hold_change_nothing(rows):
    model = GivensCovariance().partial_fit(rows.astype(np.float32))
    score = model.score(rows)
    with pytest.raises(ValueError, match="more than float32 holds"):
        model.partial_fit(da.from_array(rows * 1e40, chunks=(100, 6)))
    assert model.score(rows) == score

"""Moments of a stream of rows: exact, sketched, and the sample kept."""

import copy
import pickle

import numpy as np
import pytest
import torch

from swallowtail import GivensCovariance, GivensMixture
from swallowtail.gaussians.statistics import DenseMoments, Reservoir, RowStatistics, SketchMoments


def test_moments_without_some_rows():
    X = np.random.default_rng(0).standard_normal((50, 6)) + 1e4
    moments = DenseMoments(6)
    for part in np.array_split(X, 4):
        moments.update(part)
    np.testing.assert_allclose(moments.covariance, np.cov(X.T, bias=True), rtol=1e-7, atol=1e-9)
    covariance, rest = moments.without(X[5:20])
    others = np.delete(X, slice(5, 20), axis=0)
    np.testing.assert_allclose(covariance, np.cov(others.T, bias=True), atol=1e-6)
    np.testing.assert_allclose(rest, X[5:20] - others.mean(0), atol=1e-7)


def test_what_is_left_without_some_rows_is_positive_though_they_differ_in_last_digits_only():
    for seed in range(12):
        X = (np.random.default_rng(seed).standard_normal((60, 5)) + 1e16) * 1.234e-17
        moments = DenseMoments(5)
        moments.update(X)
        covariance, _ = moments.without(X[:12])
        assert np.linalg.eigvalsh(covariance)[0] > 0
        assert np.isfinite(GivensCovariance().fit(X).score(X))


def test_sketch_is_exact_when_the_rank_is_small():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 4)) @ rng.standard_normal((4, 40)) + 3.0
    sketch = SketchMoments(40, 6)
    for part in np.array_split(X, 9):
        sketch.update(part)
    np.testing.assert_allclose(sketch.factor().dense(), np.cov(X.T, bias=True), atol=1e-8)


def test_reservoir_is_uniform():
    reservoir = Reservoir(1, np.float64)
    for start in range(0, 10000, 500):
        reservoir.update(np.arange(start, start + 500.0)[:, None])
    rows = reservoir.rows[:, 0]
    assert len(rows) == len(set(rows)) == 4096
    assert abs(rows.mean() - 5000) < 150
    assert abs(np.corrcoef(rows, np.arange(4096))[0, 1]) < 0.1


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    return rng.standard_normal((3000, 6)) @ rng.standard_normal((6, 6)) + 1e4


def statistics_of(*parts, **kind):
    made = RowStatistics(6, np.float64, **kind)
    for part in parts:
        made.update(part)
    return made


def test_any_split_and_order_of_merging_gives_the_same(rows):
    whole = statistics_of(rows)
    a, b, c = (statistics_of(part) for part in np.split(rows, [7, 2000]))
    left = copy.deepcopy(a).merge(b).merge(c)
    right = pickle.loads(pickle.dumps(c)).merge(copy.deepcopy(b).merge(a))
    for found in (left, right):
        assert found.n_rows == 3000
        np.testing.assert_allclose(found.moments.mean, whole.moments.mean, rtol=1e-12)
        scale = np.abs(whole.moments.scatter).max()
        np.testing.assert_allclose(found.moments.scatter, whole.moments.scatter, atol=1e-10 * scale, rtol=0)
        np.testing.assert_array_equal(found.sample.rows, whole.sample.rows)
    with pytest.raises(ValueError, match="statistics of the same kind"):
        a.merge(RowStatistics(5, np.float64))
    with pytest.raises(ValueError, match="statistics of the same kind"):
        a.merge(statistics_of(rows, sketch_size=2))


def test_sketches_merge():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 3)) @ rng.standard_normal((3, 6)) + 5.0
    halves = [statistics_of(part, sketch_size=4) for part in np.split(X, 2)]
    merged = halves[0].merge(halves[1]).moments
    np.testing.assert_allclose(merged.factor().dense(), np.cov(X.T, bias=True), atol=1e-8)
    np.testing.assert_allclose(merged.variances, X.var(0))


@pytest.mark.parametrize("kind", [{}, {"sketch_size": 6}])
def test_weights_count_rows_more_often(rows, kind):
    weights = np.random.default_rng(1).integers(0, 3, len(rows))
    weighted = RowStatistics(6, np.float64, **kind)
    weighted.update(rows, weights.astype(float))
    repeated = statistics_of(np.repeat(rows, weights, axis=0), **kind)
    assert weighted.moments.count == repeated.moments.count
    np.testing.assert_allclose(weighted.moments.mean, repeated.moments.mean)
    a, b = (s.moments.covariance if not kind else s.moments.factor().dense() for s in (weighted, repeated))
    np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


def test_forgetting_leaves_the_new(rows):
    found = statistics_of(rows[:1000] + 100.0)
    found.forget(0.0)
    found.update(rows[1000:])
    np.testing.assert_allclose(found.moments.covariance, np.cov(rows[1000:].T, bias=True), rtol=1e-6)
    with pytest.raises(ValueError, match="from 0 to 1"):
        found.forget(2.0)


def test_estimators_merge_forget_and_read_batches(rows):
    whole = GivensCovariance().fit(rows)
    parts = [GivensCovariance().partial_fit(part) for part in np.array_split(rows, 3)]
    merged = parts[0].merge(parts[1]).merge(parts[2])
    assert merged.n_samples_seen_ == len(rows)
    assert merged.score(rows) == pytest.approx(whole.score(rows), abs=1e-6)
    batches = GivensCovariance().fit_batches(iter(np.array_split(rows, 5)))
    assert batches.score(rows) == pytest.approx(whole.score(rows), abs=1e-6)
    weighted = GivensCovariance().fit(rows, sample_weight=np.full(len(rows), 1.0))
    assert weighted.score(rows) == pytest.approx(whole.score(rows), abs=1e-9)
    moved = GivensCovariance().partial_fit(rows + 50.0).forget(1e-6).partial_fit(rows)
    np.testing.assert_allclose(moved.location_, whole.location_, atol=1e-3)


def test_mixture_statistics_merge():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.standard_normal((300, 4)), rng.standard_normal((300, 4)) + 6])
    components = GivensMixture(2, random_state=0).fit(X)._components
    whole = components.statistics(X, scatters=True)
    a, b, c = (components.statistics(part, scatters=True) for part in np.split(X[::-1], [50, 330]))
    for found in (copy.deepcopy(a).merge(b).merge(c), copy.deepcopy(c).merge(copy.deepcopy(b).merge(a))):
        for name in ("counts", "means", "rotated", "squares", "scatters"):
            np.testing.assert_allclose(getattr(found, name), getattr(whole, name), rtol=1e-9, atol=1e-9)
        assert found.log_density == pytest.approx(whole.log_density)
    before = copy.deepcopy(components)
    components.maximise_from(whole)
    logs = before.weighted_log_densities(X)
    before.maximise(X, np.exp(logs - before.log_density(X, logs)[:, None]))
    np.testing.assert_allclose(components.variances, before.variances, rtol=1e-9)
    np.testing.assert_allclose(components.means, before.means, rtol=1e-9)


def test_rotations_of_a_mixture_follow_the_data():
    """The first rows show no correlation; later ones do."""
    rng = np.random.default_rng(0)
    factor = rng.standard_normal((5, 5))
    model = GivensMixture(1, random_state=0).partial_fit(rng.standard_normal((200, 5)))
    first = model.precisions_[0].rotation
    for _ in range(8):
        model.partial_fit(rng.standard_normal((500, 5)) @ factor)
    assert model.precisions_[0].rotation.n_rotations != first.n_rotations or not torch.equal(
        model.precisions_[0].rotation.angles, first.angles
    )
    test = rng.standard_normal((2000, 5)) @ factor
    assert model.score(test) > GivensMixture(1, n_rotations=0, random_state=0).fit(test).score(test)


def test_copies_of_a_mixture_merge():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.standard_normal((300, 4)), rng.standard_normal((300, 4)) + 6])
    model = GivensMixture(2, random_state=0).partial_fit(X)
    a, b = copy.deepcopy(model), copy.deepcopy(model)
    assert a.merge(b).score(X) == pytest.approx(model.score(X), abs=1e-2)
    with pytest.raises(ValueError, match="through partial_fit"):
        a.merge(GivensMixture(2, random_state=0).fit(X))
    with pytest.raises(ValueError, match="other rotations; try copy"):
        a.merge(GivensMixture(2, random_state=0).partial_fit(X * [1, 2, 3, 4] + X[:, ::-1]))


@pytest.mark.parametrize("rotations", ["full", "tied"])
def test_copies_of_a_mixture_merge_after_each_has_seen_rows_of_its_own(rotations):
    """They choose other rotations then; what they have seen is brought to the same axes."""
    rng = np.random.default_rng(0)
    factor = rng.standard_normal((4, 4))
    draw = lambda: np.concatenate(
        [rng.standard_normal((300, 4)) @ factor, rng.standard_normal((300, 4)) @ factor.T + 20]
    )
    model = GivensMixture(2, rotations=rotations, random_state=0).partial_fit(draw())
    a, b = copy.deepcopy(model), copy.deepcopy(model)
    for _ in range(4):
        a.partial_fit(draw())
        b.partial_fit(draw())
    assert not a._components.same_rotations(b._components)
    means, scatters = (0.5 * (getattr(a._running, w) + getattr(b._running, w)) for w in ("means", "scatters"))
    merged, test = copy.deepcopy(a).merge(b), draw()
    np.testing.assert_allclose(merged.means_, means, atol=0.05)
    np.testing.assert_allclose(merged._running.scatters, scatters, atol=0.05)
    for k, precision in enumerate(merged.precisions_):  # D is what the merged scatter has along the axes
        S = merged._running.scatters[k] / merged._running.counts[k]
        d = np.diagonal(precision.rotation.to_dense().T.numpy() @ S @ precision.rotation.to_dense().numpy())
        np.testing.assert_allclose(merged._components.along[k], d, rtol=1e-9)
    assert merged.score(test) > max(a.score(test), b.score(test)) - 0.05


def test_a_new_fit_forgets_what_came_before():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 4))
    model = GivensMixture(1, random_state=0).partial_fit(X + 100).fit(X).partial_fit(X)
    np.testing.assert_allclose(model.means_[0], X.mean(0), atol=1e-3)


def test_only_statistics_are_added(rows):
    with pytest.raises(ValueError, match="statistics: expected a RowStatistics"):
        GivensCovariance().add_statistics(np.eye(6))


def test_batches_bring_their_weights(rows):
    weights = np.random.default_rng(0).integers(1, 4, len(rows)).astype(float)
    parts = zip(np.array_split(rows, 3), np.array_split(weights, 3), strict=True)
    whole = GivensCovariance().fit(rows, sample_weight=weights)
    assert GivensCovariance().fit_batches(parts).score(rows) == pytest.approx(whole.score(rows), abs=1e-6)
    with pytest.raises(ValueError, match="one batch of rows or more"):
        GivensCovariance().fit_batches([])


@pytest.mark.parametrize("estimator", [GivensCovariance(), GivensMixture(2, random_state=0)])
@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (np.ones(5), "expected .200,"),
        (-np.ones(200), "Negative"),
        (np.full(200, np.nan), "NaN"),
        (np.zeros(200), "non-zero"),
    ],
)
def test_weights_of_a_score_are_checked(rows, estimator, weights, words):
    with pytest.raises(ValueError, match=words):
        estimator.fit(rows[:200]).score(rows[:200], sample_weight=weights)


@pytest.mark.parametrize("shrinkage", [0.0, 1e-12])
def test_what_few_rows_cannot_support_is_said(rows, shrinkage):
    with pytest.warns(UserWarning, match="with 4 rows of 6 columns: .* try shrinkage"):
        GivensCovariance(shrinkage=shrinkage).fit(rows[:4])
    with pytest.warns(UserWarning, match="rows of 6 columns in the smallest component"):
        GivensMixture(3, shrinkage=shrinkage, random_state=0).fit(rows[:9])


@pytest.mark.parametrize("package", ["pandas", pytest.param("polars", marks=pytest.mark.extras)])
def test_tables_keep_their_names(rows, package):
    frame = pytest.importorskip(package).DataFrame({f"column {i}": rows[:200, i] for i in range(6)})
    model = GivensCovariance().fit(frame)
    assert model.feature_names_in_.tolist() == [f"column {i}" for i in range(6)]
    np.testing.assert_allclose(
        model.score_samples(frame), GivensCovariance().fit(rows[:200]).score_samples(rows[:200])
    )


def test_weights_can_be_routed(rows):
    from sklearn import config_context

    with config_context(enable_metadata_routing=True):
        model = GivensCovariance().set_fit_request(sample_weight=True)
        assert model.get_metadata_routing().fit.requests["sample_weight"] is True

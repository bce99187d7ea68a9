"""Moments of a stream of rows: exact, sketched, and the sample kept."""

import numpy as np

from swallowtail.gaussians.moments import DenseMoments, Reservoir, SketchMoments


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


def test_sketch_is_exact_when_the_rank_is_small():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 4)) @ rng.standard_normal((4, 40)) + 3.0
    sketch = SketchMoments(40, 6)
    for part in np.array_split(X, 9):
        sketch.update(part)
    np.testing.assert_allclose(sketch.factor().dense(), np.cov(X.T, bias=True), atol=1e-8)


def test_reservoir_is_uniform():
    reservoir = Reservoir()
    for start in range(0, 10000, 500):
        reservoir.update(np.arange(start, start + 500.0)[:, None])
    rows = reservoir.rows[:, 0]
    assert len(rows) == len(set(rows)) == 4096
    assert abs(rows.mean() - 5000) < 150
    assert abs(np.corrcoef(rows, np.arange(4096))[0, 1]) < 0.1

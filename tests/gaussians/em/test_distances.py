"""Rows far away, and a Python without a compiler."""

import numpy as np
import pytest
import torch

from swallowtail import Pairs, Rotation
from swallowtail.gaussians.em import distances
from swallowtail.gaussians.em.distances import Distances


def problem(dtype, n=6, k=3):
    rng = np.random.default_rng(0)
    wirings = [Pairs(n, [rng.permutation(n).reshape(-1, 2) for _ in range(4)]) for _ in range(k)]
    rotations = [Rotation(w, torch.from_numpy(rng.uniform(-3, 3, w.n_rotations))) for w in wirings]
    X, centre, mu = rng.normal(size=(20, n)), rng.normal(size=n), rng.normal(size=(k, n))
    weights = rng.uniform(0.5, 2, (k, n))
    means = np.stack([r.T(torch.from_numpy(m - centre)).numpy() for r, m in zip(rotations, mu, strict=True)])
    return rotations, *(a.astype(dtype) for a in (X, centre, means, weights))


def by_hand(rotations, X, centre, means, weights):
    x = torch.from_numpy(X.astype(np.float64) - centre)
    z = [
        (r.T(x).numpy() - m) ** 2 @ w.astype(np.float64)
        for r, m, w in zip(rotations, means, weights, strict=True)
    ]
    return np.stack(z, 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_without_a_compiler(dtype, monkeypatch):
    rotations, X, *rest = problem(dtype)
    expected, r = Distances(rotations, dtype), np.linspace(0, 1, len(X))
    monkeypatch.setattr(distances, "switched_off", lambda: "NUMBA_DISABLE_JIT is set")
    found = Distances(rotations, dtype)
    np.testing.assert_allclose(
        found(X, *rest), expected(X, *rest), rtol=1e-4 if dtype == np.float32 else 1e-12
    )
    np.testing.assert_allclose(found(X, *rest), by_hand(rotations, X, *rest), rtol=1e-6)
    for k in (0, 2):
        moments = [d.second_moments(k, X, r, rest[0], np.ones(6)) for d in (found, expected)]
        np.testing.assert_allclose(*moments, rtol=1e-4)


@pytest.mark.parametrize(("dtype", "size"), [(np.float32, 1e30), (np.float64, 1e170), (np.float64, 1e307)])
def test_rows_far_away_keep_their_order_and_do_not_disturb_the_others(dtype, size):
    rotations, X, *rest = problem(dtype)
    X[3] *= size
    found = Distances(rotations, dtype)(X, *rest)
    assert np.isfinite(found).all()
    scaled = by_hand(
        rotations, (X[3:4].astype(np.float64) / size), *(0 * a if k < 2 else a for k, a in enumerate(rest))
    )
    np.testing.assert_allclose(found[3] / found[3].max(), scaled[0] / scaled.max(), rtol=1e-5)
    others = np.arange(len(X)) != 3
    np.testing.assert_allclose(found[others], by_hand(rotations, X[others], *rest), rtol=1e-4)

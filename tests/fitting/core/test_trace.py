"""The trace of QᵀR: gradient, removal, sweeps and growth against dense products."""

import numpy as np
import pytest

from swallowtail import Butterfly, Rotation, random_orthogonal
from swallowtail.fitting.core.alignment import Alignment
from swallowtail.fitting.core.product import rotate_rows, tile
from swallowtail.fitting.core.trace import grow_aligned, sweep_layers, trace_parts
from swallowtail.fitting.methods.butterfly import align_butterfly


def test_gradient_and_removal():
    R, wiring = random_orthogonal(70, 0), Butterfly(70, 2)  # two tiles
    pairs, generator = wiring.flat_pairs(), np.random.default_rng(0)
    angles = generator.uniform(-np.pi, np.pi, len(pairs))
    trace, w, p = trace_parts(tile(R), pairs, angles)
    Q = Rotation(wiring, angles).to_dense().numpy()
    assert trace == pytest.approx(np.trace(Q.T @ R))
    losses = Alignment(R).removal_losses(pairs, angles)
    for k in generator.integers(len(pairs), size=6):
        turned = angles + 0.7 * (np.arange(len(pairs)) == k)
        change = trace_parts(tile(R), pairs, turned)[0] - trace
        assert change == pytest.approx(p[k] * (np.cos(0.7) - 1) + w[k] * np.sin(0.7))
        without = trace_parts(tile(R), pairs, np.where(np.arange(len(pairs)) == k, 0.0, angles))[0]
        assert losses[k] == pytest.approx(2 * (trace - without) / 70)


def test_sweeps_never_lose():
    R, wiring = random_orthogonal(21, 0), Butterfly(21, 2)
    pairs = wiring.flat_pairs()
    angles = np.random.default_rng(0).uniform(-np.pi, np.pi, len(pairs))
    traces = [trace_parts(tile(R), pairs, angles)[0]]
    for _ in range(10):
        traces.append(sweep_layers(R, pairs, wiring.offsets, angles))
        assert traces[-1] == pytest.approx(trace_parts(tile(R), pairs, angles)[0])
    assert (np.diff(traces) > -1e-12).all()
    fit = align_butterfly(R, wiring)
    assert 2 - 2 * traces[-1] / 21 > fit.history[-1][2]


def test_growth_takes_the_largest_gain():
    R = random_orthogonal(9, 0)
    i, j = np.triu_indices(9, 1)
    a, b = R[i, i] + R[j, j], R[j, i] - R[i, j]
    best = np.argmax(np.hypot(a, b) - a)
    M = R.copy()
    pairs, angles = grow_aligned(M, 1, 1.0, 0.0, 0)
    assert pairs.tolist() == [[i[best], j[best]]]
    assert np.trace(M) - np.trace(R) == pytest.approx((np.hypot(a, b) - a)[best])
    rotated = R.copy()
    rotate_rows(rotated, pairs, np.cos(angles), np.sin(angles), True)
    np.testing.assert_allclose(M, rotated)


@pytest.mark.parametrize("n", [4, 9, 20])
def test_swaps_are_joined_where_no_single_rotation_gains(n):
    R = np.eye(n)[[1, 0, 3, 2, *range(4, n)]]
    M = R.copy()
    pairs, _ = grow_aligned(M, 2 * n, 0.0, 1e-15, 0)
    np.testing.assert_allclose(M, np.eye(n), atol=1e-12)
    assert len(pairs) <= 5
    assert len(grow_aligned(R.copy(), 1, 0.0, 1e-15, 0)[0]) == 0  # one alone gains nothing
    one = np.eye(n)[[1, 0, *range(2, n)]]
    assert len(grow_aligned(one, 2 * n, 0.0, 1e-15, 0)[0]) == 0  # of determinant −1: nothing to join

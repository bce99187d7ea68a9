"""Tracker: its step is Algorithm 1's, it follows a moving matrix, the paper's options, resuming, errors."""

import numpy as np
import pytest
from scipy.linalg import expm

from swallowtail.datasets import random_orthogonal, random_symmetric
from swallowtail.fitting.methods.sgd import fit_sgd
from swallowtail.fitting.methods.tracker import Tracker
from swallowtail.metrics import error_angle
from swallowtail.wiring import Butterfly

n = 16


def test_one_update_is_the_papers_step():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, n))
    tracker = Tracker(n, rate=(0.01, 0.003), rescale=False, unit_inputs=False)
    start = {"angles": tracker.angles, "eigenvalues": tracker.eigenvalues}
    tracker.update(x, y)
    fit = fit_sgd((x, y), epochs=1, rate=(0.01, 0.003), rescale=False, **start)
    np.testing.assert_allclose(tracker.angles, fit.angles, atol=1e-12)
    np.testing.assert_allclose(tracker.eigenvalues, fit.eigenvalues, atol=1e-12)


def test_unit_inputs_make_the_length_of_x_irrelevant():
    x, y = np.random.default_rng(0).standard_normal((2, n))
    trackers = [Tracker(n, rate=0.1, rescale=False) for _ in range(2)]
    trackers[0].update(x, y)
    trackers[1].update(1e5 * x, 1e5 * y)
    np.testing.assert_allclose(trackers[0].angles, trackers[1].angles, atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"normalized_step": 0.3}], ids=["plain", "normalized"])
def test_follows_a_drifting_matrix_better_than_a_frozen_one(options):
    rng = np.random.default_rng(1)
    H, A = random_symmetric(n, 3, 0), rng.standard_normal((n, n))
    drift = expm(4e-5 * (A - A.T))  # about 0.013 degrees an update
    tracker = Tracker(n, **options)
    for _ in range(6000):
        x = rng.standard_normal(n)
        tracker.update(x, H @ x)
    frozen, settled = tracker.operator, error_angle(H, tracker.operator)
    assert settled < error_angle(H, np.eye(n)) - 10
    for _ in range(4000):
        H = drift @ H @ drift.T
        x = rng.standard_normal(n)
        tracker.update(x, H @ x)
    assert error_angle(H, tracker.operator) < error_angle(H, frozen) - 10
    assert error_angle(H, tracker.operator) < settled + 10


def test_follows_a_rotation_and_takes_batches():
    rng, R = np.random.default_rng(0), random_orthogonal(8, 0)
    tracker = Tracker(8, Butterfly(8, 2), loss="rotation")
    for _ in range(1500):
        x = rng.standard_normal((8, 4))
        tracker.update(x, R @ x)
    assert error_angle(R, tracker.operator) < 35
    Q = tracker.operator.to_dense()
    np.testing.assert_allclose(Q @ Q.T, np.eye(8), atol=1e-12)


def test_the_norm_of_H_does_not_matter():
    H, X = random_symmetric(n, 3, 0), np.random.default_rng(0).standard_normal((200, n))
    one, other = Tracker(n), Tracker(n)
    for x in X:
        one.update(x, H @ x)
        other.update(x, 1e6 * (H @ x))
    np.testing.assert_allclose(one.angles, other.angles, atol=1e-8)


def test_floor_for_negative_eigenvalues():
    tracker, rng = Tracker(n, floor=1e-3), np.random.default_rng(0)
    for x in rng.standard_normal((300, n)):
        tracker.update(x, -x)
    assert 0 <= tracker.eigenvalues.min() <= tracker.eigenvalues.max() <= 1e-3
    tracker = Tracker(n)
    for x in rng.standard_normal((300, n)):
        tracker.update(x, -x)
    np.testing.assert_allclose(tracker.eigenvalues, -1.0, atol=1e-6)


def test_zero_x_says_nothing():
    tracker, twin = Tracker(n), Tracker(n)
    x = np.random.default_rng(0).standard_normal((n, 2))
    assert tracker.update(np.zeros(n), np.ones(n)) == 0.0
    assert tracker.n_updates == 0
    tracker.update(np.c_[x, np.zeros(n)], np.c_[2 * x, np.ones(n)])
    twin.update(x, 2 * x)
    assert np.array_equal(tracker.angles, twin.angles)


def test_resumes_to_the_same_bits():
    H, X = random_symmetric(n, 3, 0), np.random.default_rng(0).standard_normal((60, n))
    whole, first, second = Tracker(n), Tracker(n), Tracker(n, seed=9)
    for x in X:
        whole.update(x, H @ x)
    for x in X[:30]:
        first.update(x, H @ x)
    second.load_state_dict(first.state_dict())
    for x in X[30:]:
        second.update(x, H @ x)
    assert np.array_equal(whole.angles, second.angles)
    assert np.array_equal(whole.eigenvalues, second.eigenvalues)
    with pytest.raises(ValueError, match="state_dict"):
        second.load_state_dict({"angles": X})


@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        (np.ones(3), np.ones(3), r"expected \(16,\)"),
        (np.ones(n), np.ones((n, 2)), "both alike"),
        (np.full(n, np.nan), np.ones(n), "finite"),
        (np.ones((n, 1, 1)), np.ones((n, 1, 1)), "columns"),
    ],
)
def test_bad_pairs(x, y, words):
    with pytest.raises(ValueError, match=words):
        Tracker(n).update(x, y)


def test_bad_options():
    with pytest.raises(ValueError, match="normalized_step"):
        Tracker(n, normalized_step=0.0)
    with pytest.raises(ValueError, match="coordinates"):
        Tracker(n, Butterfly(8))

"""Weighted sums of precision matrices."""

import numpy as np
import pytest

from swallowtail.gaussians.regularise.weights import (
    FoldModels,
    best_blend,
    best_single,
    inverse,
    log_determinant,
)


@pytest.fixture
def folds():
    rng = np.random.default_rng(0)
    found = []
    for _ in range(2):
        factors = rng.standard_normal((3, 6, 6))
        members = [np.eye(6) + F @ F.T for F in factors]
        truth = np.linalg.inv(0.5 * members[0] + 2.0 * members[2])
        found.append(FoldModels(members, truth, np.eye(6), np.zeros((0, 6))))
    return found


def loss(folds, w):
    total = 0.0
    for fold in folds:
        P = sum(a * b for a, b in zip(w, fold.members, strict=True))
        total += 0.5 * (np.vdot(P, fold.moments) - np.linalg.slogdet(P)[1]) / len(P)
    return total / len(folds)


def test_the_right_weights_are_found(folds):
    found = best_blend(folds)
    np.testing.assert_allclose(found.weights, [0.5, 0.0, 2.0], atol=1e-2)
    assert found.loss == pytest.approx(loss(folds, found.weights))
    alone = min((best_single(folds, member) for member in range(3)), key=lambda b: b.loss)
    assert alone.loss == pytest.approx(loss(folds, alone.weights))
    assert alone.loss > found.loss
    for nudge in np.random.default_rng(1).uniform(-0.1, 0.1, (20, 3)):
        assert loss(folds, np.maximum(found.weights + nudge, 0)) > found.loss - 1e-5


def test_the_same_member_twice(folds):
    twice = [
        fold._replace(members=[fold.members[0]] * 2, moments=np.linalg.inv(fold.members[0])) for fold in folds
    ]
    assert best_blend(twice).weights.sum() == pytest.approx(1.0, abs=1e-3)


def test_inverse_and_determinant_of_columns_in_very_different_units():
    rng = np.random.default_rng(0)
    F, units = rng.standard_normal((5, 5)), np.logspace(-9, 9, 5)
    A = np.eye(5) + F @ F.T
    np.testing.assert_allclose(
        inverse(A * np.outer(units, units)) * np.outer(units, units), np.linalg.inv(A), rtol=1e-9
    )
    expected = np.linalg.slogdet(A)[1] + 2 * np.log(units).sum()
    assert log_determinant(A * np.outer(units, units)) == pytest.approx(expected)

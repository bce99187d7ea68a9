"""A study: what it takes, what it fits, what it shows."""

import base64
import json

import numpy as np
import pytest

from swallowtail.datasets import random_symmetric
from swallowtail.explorer.study import PIXELS, Study

H = random_symmetric(8, 2, 1)


def test_every_budget_is_fitted_and_shown():
    told = []
    study = Study("cov.npy", H)
    assert not any(fit["ready"] for fit in study.overview()["fits"])
    with pytest.raises(KeyError):
        study.detail(study.budgets[0])
    study.fit_all(told.append)
    assert len(told) == len(study.budgets)
    overview = study.overview()
    json.dumps(overview)
    angles = [fit["angle"] for fit in overview["fits"]]
    assert all(fit["ready"] for fit in overview["fits"])
    assert angles[-1] < angles[0]
    np.testing.assert_allclose(overview["spectrum"], np.linalg.eigvalsh(H)[::-1], rtol=1e-4, atol=1e-12)
    budget = study.budgets[0]
    detail = study.detail(budget)
    dense = np.asarray(study.operator(budget))
    levels = np.frombuffer(base64.b64decode(detail["residual"]["levels"]), np.int8).reshape(8, 8)
    np.testing.assert_allclose(
        levels / 127 * detail["residual"]["largest"], H - dense, atol=0.01 * abs(H).max()
    )
    assert sum(map(len, detail["layers"])) == study.operator(budget).rotation.n_rotations


def test_pictures_of_large_matrices_are_averages():
    study = Study("big", np.diag(np.arange(1.0, 2 * PIXELS + 1)))
    assert study.matrix()["side"] == PIXELS
    assert study.matrix()["largest"] == pytest.approx((4 * PIXELS - 1) / 4)


def test_samples_become_their_covariance():
    X = np.random.default_rng(0).standard_normal((50, 4))
    study = Study("X.csv", X)
    np.testing.assert_allclose(study.H, np.cov(X.T))
    assert "50 samples of 4" in study.note


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.ones(3), "a matrix with two rows and columns or more, got shape"),
        (np.ones((1, 1)), "a matrix with two rows and columns or more, got shape"),
        (np.full((3, 3), np.nan), "a matrix of finite numbers, got 9 of 9 NaN"),
        (np.eye(3) * (1 + 1j), "real numbers, got complex ones; try its real part"),
        (np.triu(np.ones((3, 3))), "a symmetric matrix"),
        (np.eye(2049), "at most 2048 rows"),
    ],
)
def test_bad_matrices(data, message):
    with pytest.raises(ValueError, match=message):
        Study("bad.npy", data)

"""The compiled parts that `test_small` does not compare step by step."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from swallowtail.optim.adam import compiled


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [2, 5, 16, 33, 64, 128])
def test_qr_is_lapacks(n, dtype):
    A = np.random.default_rng(n).standard_normal((n, n)).astype(dtype)
    A[:, n // 2 + 1 :] *= 1e-3
    Q, expected = np.empty_like(A), torch.linalg.qr(torch.from_numpy(A.astype(np.float64)))[0].numpy()
    compiled.orthogonal(A.copy(), Q)
    eps = np.finfo(dtype).eps
    assert np.abs(Q.T @ Q - np.eye(n)).max() < 10 * n * eps
    assert np.abs(Q - expected).max() < 2000 * n * eps


def test_qr_of_columns_that_are_zero():
    Q = np.empty((4, 4))
    compiled.orthogonal(np.diag([2.0, 0.0, 3.0, 0.0]), Q)
    assert np.array_equal(np.abs(Q), np.eye(4))


def test_largest_square_knows_nan():
    work = np.zeros(1)
    for values, expected in (([3.0, 4.0], 25.0), ([np.nan, 1.0], np.inf), ([1e200, 1.0], np.inf)):
        row, gradient = np.zeros((1, compiled.WIDTH), np.int64), np.array(values)
        row[0, compiled.GRADIENT], row[0, compiled.COLUMNS] = gradient.ctypes.data, 2
        assert compiled.largest_square(row, work) == expected

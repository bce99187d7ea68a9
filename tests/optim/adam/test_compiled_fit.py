"""The compiled parts of a fit that `test_small` does not compare step by step."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from swallowtail.optim.adam import compiled_fit


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [2, 5, 16, 17, 33, 64, 96, 128])
def test_qr_is_lapacks(n, dtype):
    A = np.random.default_rng(n).standard_normal((n, n)).astype(dtype)
    A[:, n // 2 + 1 :] *= 1e-3
    Q, expected = np.empty_like(A), torch.linalg.qr(torch.from_numpy(A.astype(np.float64)))[0].numpy()
    compiled_fit.orthogonal(A.copy(), Q)
    eps = np.finfo(dtype).eps
    assert np.abs(Q.T @ Q - np.eye(n)).max() < 10 * n * eps
    assert np.abs(Q - expected).max() < 2000 * n * eps


def test_qr_of_columns_that_are_zero():
    Q = np.empty((4, 4))
    compiled_fit.orthogonal(np.diag([2.0, 0.0, 3.0, 0.0]), Q)
    assert np.array_equal(np.abs(Q), np.eye(4))

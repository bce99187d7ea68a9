"""Sums of operators and rank-one terms, against dense algebra."""

import numpy as np
import pytest
import torch

from swallowtail import HybridOperator, LowRank, Rotation, SymmetricOperator
from swallowtail.errors import ArgumentError


def operator(n):
    return SymmetricOperator(
        Rotation.random(n, seed=0, dtype=torch.float64), torch.arange(1.0, n + 1).double()
    )


def test_sums_are_those_of_the_matrices():
    S = operator(5)
    U, w = np.random.default_rng(0).standard_normal((5, 2)), np.array([2.0, -0.5])
    low, dense, term = LowRank(U, w), S.to_dense().numpy(), U @ np.diag(w) @ U.T
    for found, expected in (
        (S + low, dense + term),
        (low + S, dense + term),
        (S - low, dense - term),
        (S + low + LowRank(U[:, 0]), dense + term + np.outer(U[:, 0], U[:, 0])),
        (0.5 - low, 0.5 * np.eye(5) - term),
    ):
        assert isinstance(found, HybridOperator)
        np.testing.assert_allclose(found.to_dense().numpy(), expected, atol=1e-12)


def test_gradients_reach_the_terms():
    U = torch.ones(4, 1, dtype=torch.float64, requires_grad=True)
    (operator(4) + LowRank(U))(torch.ones(4).double()).sum().backward()
    assert U.grad is not None


def test_mistakes():
    with pytest.raises(ArgumentError, match="weights"):
        LowRank(np.ones((4, 2)), [1.0])
    with pytest.raises(ArgumentError, match=r"\(n, r\)"):
        LowRank(np.ones((2, 2, 2)))
    with pytest.raises(ArgumentError, match="basis"):
        operator(3) + LowRank(np.ones(4))
    with pytest.raises(TypeError):
        LowRank(np.ones(4)) + "1"

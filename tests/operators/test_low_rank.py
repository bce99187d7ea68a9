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


def test_numbers_in_lists_and_scalars_are_as_precise_as_the_operator():
    S, U = operator(4), np.linspace(1.0, 2.0, 4)
    dense = S.to_dense().numpy() + 0.1 * np.outer(U, U)
    listed = S + LowRank(U, [0.1])
    assert listed.weights.dtype == torch.float64
    np.testing.assert_allclose(listed.to_dense().numpy(), dense, atol=1e-14)
    np.testing.assert_allclose(listed.diagonal().numpy(), np.diag(dense), atol=1e-14)
    np.testing.assert_allclose(listed.inverse().to_dense().numpy(), np.linalg.inv(dense), atol=1e-13)
    shifted = 0.1 * np.eye(4) + np.outer(U, U)
    for number in (0.1, np.float64(0.1), torch.tensor(0.1, dtype=torch.float64)):
        np.testing.assert_allclose((number + LowRank(U)).to_dense().numpy(), shifted, atol=1e-15)
    assert (np.float32(0.5) + LowRank(U)).dtype == torch.float64


def test_parts_of_two_dtypes_promote():
    S, U = operator(4), torch.linspace(1.0, 2.0, 4).double()
    mixed = HybridOperator(S, U[:, None], torch.tensor([0.1]))
    dense = mixed.to_dense()
    torch.testing.assert_close(mixed.diagonal(), dense.diagonal())
    torch.testing.assert_close(mixed.inverse().to_dense(), torch.linalg.inv(dense), atol=1e-13, rtol=0)
    root = mixed.function(torch.sqrt).to_dense()
    torch.testing.assert_close(root @ root, dense, atol=1e-12, rtol=0)
    more = (S.to(torch.float32) + LowRank(U.float())) + LowRank(U / 3)
    assert more.basis.dtype == torch.float64
    torch.testing.assert_close(more.basis[:, 1], U / 3, atol=0, rtol=0)


def test_mistakes():
    with pytest.raises(ArgumentError, match="weights"):
        LowRank(np.ones((4, 2)), [1.0])
    with pytest.raises(ArgumentError, match=r"\(n, r\)"):
        LowRank(np.ones((2, 2, 2)))
    with pytest.raises(ArgumentError, match="basis"):
        operator(3) + LowRank(np.ones(4))
    with pytest.raises(TypeError):
        LowRank(np.ones(4)) + "1"

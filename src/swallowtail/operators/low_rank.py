"""LowRank: rank-one terms to add to an operator, A + LowRank(U, w)."""

from __future__ import annotations

from typing import Any

import torch

from swallowtail import checks
from swallowtail.errors import ArgumentError
from swallowtail.operators.base import is_number
from swallowtail.operators.hybrid import HybridOperator
from swallowtail.operators.symmetric import SymmetricOperator


class LowRank:
    """U diag(w) Uᵀ, to be added to an operator or a number: the sum is a `HybridOperator`.

    Args:
        basis: U, shape (n, r), or (n,) for one term; its columns need not be orthonormal.
        weights: w, shape (r,), of either sign; by default all 1.

    >>> from swallowtail import Rotation
    >>> S = SymmetricOperator(Rotation.random(4, seed=0), torch.arange(4.0))
    >>> H = S + LowRank(torch.ones(4), [2.0])
    >>> bool(torch.allclose(H.to_dense(), S.to_dense() + 2))
    True
    >>> (1 + LowRank([[1.0], [1.0]])).to_dense().tolist()
    [[2.0, 1.0], [1.0, 2.0]]
    """

    def __init__(self, basis: Any, weights: Any = None) -> None:
        U = checks.as_tensor("basis", basis)
        self.basis = U[:, None] if U.ndim == 1 else U
        if self.basis.ndim != 2 or not len(self.basis):
            raise ArgumentError("basis", "shape (n, r) or (n,)", tuple(U.shape))
        ones = torch.ones(self.basis.shape[1], dtype=self.basis.dtype, device=self.basis.device)
        self.weights = ones if weights is None else checks.as_tensor("weights", weights, ones)
        if self.weights.shape != ones.shape:
            expected = f"shape ({len(ones)},), one weight per column of basis"
            raise ArgumentError("weights", expected, tuple(self.weights.shape))

    def __neg__(self) -> LowRank:
        return LowRank(self.basis, -self.weights)

    def __add__(self, other: Any) -> Any:
        """A + U diag(w) Uᵀ."""
        if isinstance(other, SymmetricOperator):
            return HybridOperator(other, self.basis, self.weights)
        if isinstance(other, HybridOperator):
            basis, weights = (
                torch.cat([a, b.to(a.device)], -1)  # of two dtypes: the one they promote to
                for a, b in ((other.basis, self.basis), (other.weights, self.weights))
            )
            return HybridOperator(other.symmetric, basis, weights)
        if is_number(other):
            diagonal = torch.ones_like(self.basis[:, 0]) * other
            return HybridOperator.without_rotations(diagonal, self.basis, self.weights)
        return NotImplemented

    __radd__ = __add__

    def __rsub__(self, other: Any) -> Any:
        """A − U diag(w) Uᵀ."""
        return (-self).__add__(other)

    def __repr__(self) -> str:
        return f"LowRank(n={len(self.basis)}, rank {self.basis.shape[1]})"

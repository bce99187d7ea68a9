"""H as an operator of the ``linear_operator`` package."""

from __future__ import annotations

from typing import Any

import torch

from swallowtail import ops
from swallowtail.errors import absent
from swallowtail.operators.symmetric import SymmetricOperator

try:
    from linear_operator import LinearOperator
    from linear_operator.operators import MatmulLinearOperator
except ImportError as error:
    raise absent("to_linear_operator", "linear_operator", "gp", name=error.name) from error


class GivensLinearOperator(LinearOperator):
    """Q D Qᵀ for linear_operator: angles (*batch, K), eigenvalues (*batch, n), one wiring for all."""

    def __init__(self, angles: torch.Tensor, eigenvalues: torch.Tensor, wiring: Any) -> None:
        super().__init__(angles, eigenvalues, wiring=wiring)
        self.angles, self.eigenvalues_, self.wiring = angles, eigenvalues, wiring

    def _matmul(self, rhs: torch.Tensor) -> torch.Tensor:
        columns = rhs[:, None] if rhs.ndim == 1 else rhs
        x = columns.mT  # shape: (*batch, k, n)
        y = ops.symmetric_matvec(
            x, self.wiring, self.angles[..., None, :], self.eigenvalues_[..., None, :]
        ).mT
        return y.squeeze(-1) if rhs.ndim == 1 else y

    def _size(self) -> torch.Size:
        return torch.Size((*self.eigenvalues_.shape[:-1], self.wiring.n, self.wiring.n))

    def _transpose_nonbatch(self) -> GivensLinearOperator:
        return self

    def _expand_batch(self, batch_shape: Any) -> GivensLinearOperator:
        angles, d = (t.expand(*batch_shape, t.shape[-1]) for t in (self.angles, self.eigenvalues_))
        return GivensLinearOperator(angles, d, wiring=self.wiring)


def as_linear_operator(operator: SymmetricOperator) -> GivensLinearOperator:
    """Angles and eigenvalues expanded to one batch shape, as linear_operator indexes them together."""
    angles, d = (
        t.expand(*operator.batch_shape, t.shape[-1]) for t in (operator.rotation.angles, operator.eigenvalues)
    )
    return GivensLinearOperator(
        angles.to(operator.dtype), d.to(operator.dtype), wiring=operator.rotation.wiring
    )


def as_sum(symmetric: SymmetricOperator, basis: torch.Tensor, weights: torch.Tensor) -> LinearOperator:
    """S + U diag(w) Uᵀ as a sum of two operators."""
    dtype = torch.promote_types(symmetric.dtype, torch.promote_types(basis.dtype, weights.dtype))
    U, own = basis.to(dtype), as_linear_operator(symmetric.to(dtype=dtype))
    return own + MatmulLinearOperator(U * weights.to(dtype), U.mT)

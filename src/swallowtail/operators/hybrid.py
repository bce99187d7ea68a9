"""HybridOperator: rotations and a few rank-one terms, H = Q D Qᵀ + U diag(w) Uᵀ."""

from __future__ import annotations

from typing import Any

import torch

from swallowtail import checks
from swallowtail.errors import ArgumentError
from swallowtail.operators.base import Operator, device_and_dtype
from swallowtail.operators.rotation import Rotation
from swallowtail.operators.symmetric import SymmetricOperator


class HybridOperator(Operator):
    """H = S + U diag(w) Uᵀ with S = Q D Qᵀ a `SymmetricOperator`: for a few strong directions among many weak.

    Solves and determinants go by Woodbury's formula and need an invertible D. One operator, not a batch.

    Args:
        symmetric: S.
        basis: U, shape (n, r); its columns need not be orthonormal.
        weights: w, shape (r,), of either sign.

    >>> S = SymmetricOperator(Rotation.identity(2), torch.tensor([1.0, 1.0]))
    >>> HybridOperator(S, torch.tensor([[1.0], [1.0]]), torch.tensor([2.0])).to_dense()
    tensor([[3., 2.],
            [2., 3.]])
    """

    def __init__(self, symmetric: SymmetricOperator, basis: Any, weights: Any) -> None:
        checks.instance("symmetric", symmetric, SymmetricOperator)
        checks.single("symmetric", symmetric.batch_shape)
        self.symmetric, self.n = symmetric, symmetric.n
        self.basis = checks.as_tensor("basis", basis, symmetric.eigenvalues)
        self.weights = checks.as_tensor("weights", weights, symmetric.eigenvalues)
        if self.basis.ndim != 2 or self.basis.shape[0] != self.n:
            raise ArgumentError("basis", f"shape ({self.n}, r)", tuple(self.basis.shape))
        if self.weights.shape != self.basis.shape[1:]:
            expected = f"shape ({self.basis.shape[1]},), one weight per column of basis"
            raise ArgumentError("weights", expected, tuple(self.weights.shape))
        checks.same_device(eigenvalues=symmetric.eigenvalues, basis=self.basis, weights=self.weights)
        self.batch_shape = torch.Size()

    @property
    def rotation(self) -> Rotation:
        """Q."""
        return self.symmetric.rotation

    @property
    def rank(self) -> int:
        """How many rank-one terms there are."""
        return int(self.basis.shape[1])

    @property
    def dtype(self) -> torch.dtype:  # type: ignore[override]
        """The dtype all parts promote to."""
        both = torch.promote_types(self.basis.dtype, self.weights.dtype)
        return torch.promote_types(self.symmetric.dtype, both)

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The device of all parts."""
        return self.basis.device

    @property
    def T(self) -> HybridOperator:
        """H itself."""
        return self

    @property
    def multiply_adds(self) -> int:
        """Those of S x, and 2n per rank-one term."""
        return self.symmetric.multiply_adds + 2 * self.n * self.rank

    def to(self, device: Any = None, dtype: torch.dtype | None = None) -> HybridOperator:
        """The same operator on another device or in another dtype."""
        device, dtype = device_and_dtype(device, dtype)
        basis, weights = (t.to(device=device, dtype=dtype) for t in (self.basis, self.weights))
        return HybridOperator(self.symmetric.to(device, dtype), basis, weights)

    def trace(self) -> torch.Tensor:
        """Tr H = Σ d + Σ w ‖u‖²."""
        return self.symmetric.trace() + (self.weights * (self.basis * self.basis).sum(0)).sum()

    def diagonal(self, method: str = "exact", n_probes: int = 100, seed: int = 0) -> torch.Tensor:
        """diag H, shape (n,); the part of S as `SymmetricOperator.diagonal` finds it."""
        own = self.symmetric.diagonal(method, n_probes, seed)
        return own + (self.basis * self.basis) @ self.weights

    def quadratic_form(self, x: Any) -> Any:
        """xᵀ H x for vectors on the last axis."""
        if not isinstance(x, torch.Tensor):
            like = torch.empty(0, dtype=self.dtype, device=self.device)
            return self.quadratic_form(checks.as_tensor("x", x, like)).detach().cpu().numpy()
        own = self.symmetric.quadratic_form(x)
        U, w = self._terms(own.dtype)
        return (own.to(U.dtype) + ((x.to(U.dtype) @ U) ** 2) @ w).to(own.dtype)

    def solve(self, B: Any, epsilon: float | None = None) -> Any:
        """H⁻¹ B for B (n,) or (n, k): S⁻¹B − S⁻¹U (1 + W UᵀS⁻¹U)⁻¹ W UᵀS⁻¹B.

        Zero eigenvalues of S are a ValueError unless ``epsilon``, their floor, is given.
        """
        if not isinstance(B, torch.Tensor):
            like = torch.empty(0, dtype=self.dtype, device=self.device)
            return self.solve(checks.as_tensor("B", B, like), epsilon).detach().cpu().numpy()
        inverse = self.symmetric.inverse(epsilon)
        first = inverse @ B
        U, w = self._terms(first.dtype)
        solved_U, columns = inverse @ U, first.to(U.dtype).reshape(self.n, -1)
        inner = torch.linalg.solve(self._capacitance(U, solved_U, w), w[:, None] * (U.T @ columns))
        return (columns - solved_U @ inner).reshape(first.shape).to(first.dtype)

    def logdet(self, epsilon: float | None = None) -> torch.Tensor:
        """log det H = log det S + log det(1 + W UᵀS⁻¹U); NaN if det H < 0, an error if S is singular."""
        inverse = self.symmetric.inverse(epsilon)
        U, w = self._terms(self.dtype)
        sign, size = torch.linalg.slogdet(self._capacitance(U, inverse @ U, w))
        d = inverse.eigenvalues.to(U.dtype)
        size, sign = size - d.abs().log().sum(), sign * d.sign().prod()
        return torch.where(sign < 0, torch.full_like(size, torch.nan), size).to(self.dtype)

    def _capacitance(self, U: torch.Tensor, solved_U: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        """1 + W UᵀS⁻¹U, shape (r, r), from U, S⁻¹U and w."""
        return torch.eye(self.rank, dtype=U.dtype, device=U.device) + w[:, None] * (U.T @ solved_U)

    def _terms(self, like: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """U and w in the dtype to compute in: half precision is storage only."""
        half = like in checks.HALF
        dtype = torch.promote_types(torch.float32 if half else like, self.dtype)
        return self.basis.to(dtype), self.weights.to(dtype)

    def _rows(self, x: torch.Tensor) -> torch.Tensor:
        own = self.symmetric._rows(x)
        U, w = self._terms(own.dtype)
        # Half-precision x keeps its dtype, as everywhere; otherwise all parts promote.
        dtype = own.dtype if x.dtype in checks.HALF else U.dtype
        return (own.to(U.dtype) + ((x.to(U.dtype) @ U) * w) @ U.T).to(dtype)

    _transposed_rows = _rows

    def __repr__(self) -> str:
        return f"HybridOperator(n={self.n}, rank {self.rank}, {self.rotation!r})"

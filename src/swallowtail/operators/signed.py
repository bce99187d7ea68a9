"""SignedRotation: any orthogonal matrix that is a rotation but for the signs of its columns."""

from __future__ import annotations

from typing import Any

import torch

from swallowtail import checks
from swallowtail.errors import ArgumentError
from swallowtail.operators.base import Operator, device_and_dtype
from swallowtail.operators.rotation import Rotation


class SignedRotation(Operator):
    """Q S with Q a `Rotation` and S = diag(signs): what a matrix with determinant −1 needs.

    Args:
        rotation: Q.
        signs: ±1, shape (n,), or (*batch, n). They are copied.

    >>> reflection = SignedRotation(Rotation.identity(2), torch.tensor([1.0, -1.0]))
    >>> reflection @ torch.tensor([3.0, 4.0])
    tensor([ 3., -4.])
    """

    def __init__(self, rotation: Rotation, signs: Any) -> None:
        checks.instance("rotation", rotation, Rotation, "try Rotation(wiring, angles)")
        self.rotation = rotation
        signs = checks.as_tensor("signs", signs, rotation._angles).detach()
        checks.last_axis("signs", signs, rotation.n, "n")
        checks.same_device(angles=rotation._angles, signs=signs)
        checks.same_batch(angles=rotation._angles, signs=signs)
        if bool((signs.abs() != 1).any()):
            wrong = signs[signs.abs() != 1]
            got = f"{wrong.numel()} others, the first {float(wrong[0]):.3g}"
            raise ArgumentError("signs", "+1 or −1", got, "try torch.sign")
        self._signs = signs.to(rotation.dtype).clone()
        self.n = rotation.n

    @property
    def signs(self) -> torch.Tensor:
        """The diagonal of S, shape (n,) or (*batch, n): a copy."""
        return self._signs.clone()

    @property
    def batch_shape(self) -> torch.Size:  # type: ignore[override]
        """Leading axes of angles and signs, broadcast together."""
        return torch.broadcast_shapes(self.rotation.batch_shape, self._signs.shape[:-1])

    @property
    def dtype(self) -> torch.dtype:  # type: ignore[override]
        """The dtype of the angles."""
        return self.rotation.dtype

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The device of the angles."""
        return self.rotation.device

    @property
    def T(self) -> SignedRotation:
        """(Q S)ᵀ = (S Qᵀ S) S, and S Qᵀ S is Qᵀ with θ → σᵢσⱼθ: G between two signs is G or its inverse."""
        transposed = self.rotation.T
        i, j = torch.from_numpy(transposed.wiring.flat_pairs()).to(self.device).unbind(-1)
        angles = transposed._angles * (self._signs[..., i] * self._signs[..., j])
        return SignedRotation(Rotation(transposed.wiring, angles), self._signs)

    @property
    def multiply_adds(self) -> int:
        """Those of Q x: changing signs costs none."""
        return self.rotation.multiply_adds

    def to(self, device: Any = None, dtype: torch.dtype | None = None) -> SignedRotation:
        """The same operator on another device or in another dtype."""
        device, dtype = device_and_dtype(device, dtype)
        return SignedRotation(self.rotation.to(device, dtype), self._signs.to(device=device, dtype=dtype))

    def to_sparse_factors(self) -> list[Any]:
        """The paper's sparse-BLAS form, SciPy CSR: Q₁, …, Q_L, S; their product is Q S."""
        from scipy.sparse import diags_array

        checks.single("to_sparse_factors", self.batch_shape)
        factors = self.rotation.to_sparse_factors()
        return [*factors, diags_array(self._signs.cpu().double().numpy()).tocsr()]

    def _rows(self, x: torch.Tensor) -> torch.Tensor:
        return self.rotation._rows(self._flipped(x))

    def _transposed_rows(self, x: torch.Tensor) -> torch.Tensor:
        return self._flipped(self.rotation._transposed_rows(x))

    def _on_columns(self, X: torch.Tensor, transposed: bool = False) -> torch.Tensor:
        signs = self._signs[..., None].to(X.dtype)
        if transposed:
            return signs * self.rotation._on_columns(X, transposed=True)
        return self.rotation._on_columns(signs * X)

    def _flipped(self, x: torch.Tensor) -> torch.Tensor:
        checks.last_axis("x", x, self.n, "n")  # before (…, 1) broadcasts
        checks.same_device(x=x, signs=self._signs)
        return x * self._signs.to(x.dtype)

    def __repr__(self) -> str:
        negative = int((self._signs < 0).sum())
        return f"SignedRotation(n={self.n}, {negative} negative, {self.rotation!r})"

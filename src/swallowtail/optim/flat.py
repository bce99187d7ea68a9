"""Several parameters as one vector."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from swallowtail.optim.gradients import dense_gradient


class FlatParameters:
    """Several parameters read and written as one vector, in at least float32, on the first one's device."""

    def __init__(self, params: Iterable[Tensor]) -> None:
        self.params = list(params)
        self.device = self.params[0].device
        self.dtype = torch.float32
        for p in self.params:
            self.dtype = torch.promote_types(self.dtype, p.dtype)
        self.n = sum(p.numel() for p in self.params)

    def values(self) -> Tensor:  # shape: (n,)
        """A copy of all parameters."""
        return torch.cat([p.detach().reshape(-1).to(self.device, self.dtype) for p in self.params])

    def gradient(self, *, negate: bool = False) -> Tensor:  # shape: (n,)
        """All gradients; zeros for parameters without one. ``negate`` is for a loss that is maximised."""
        flat = self.join([None if p.grad is None else dense_gradient(p) for p in self.params])
        return flat.neg_() if negate else flat

    def join(self, parts: Sequence[Tensor | None]) -> Tensor:  # shape: (n,)
        """One tensor per parameter as one vector; zeros for None."""
        filled = [
            torch.zeros_like(p) if part is None else part for p, part in zip(self.params, parts, strict=True)
        ]
        return torch.cat([part.detach().reshape(-1).to(self.device, self.dtype) for part in filled])

    def split(self, x: Tensor) -> list[Tensor]:
        """The vector x cut into pieces shaped as the parameters."""
        pieces = x.split([p.numel() for p in self.params])
        return [piece.view(p.shape) for p, piece in zip(self.params, pieces, strict=True)]

    def assign(self, x: Tensor) -> None:
        """Write x back, rounded to each parameter's dtype."""
        for p, piece in zip(self.params, self.split(x), strict=True):
            p.detach().copy_(piece)

"""Rotate: a trainable rotation, orthogonal by construction however long it is trained."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from swallowtail import checks, kernels, ops
from swallowtail.operators import Rotation
from swallowtail.wiring import Butterfly, Wiring


class Rotate(torch.nn.Module):
    """x ↦ Q x on the last axis, with the K angles of Q as parameters.

    The angles are free numbers and every set of them is a rotation, so there is nothing to project back.
    Half-precision inputs keep their dtype; the arithmetic, and by default the angles, are float32.

    Args:
        n: size of the last axis.
        depth: how many times the strides n/2 … 1 are gone through.
        init: "identity", "random" (uniform angles) or "hadamard" (all π/4; n a power of two).
        wiring: any wiring on n coordinates in place of the butterfly; "hadamard" then is not offered.
        seed: for "random"; torch's global generator otherwise.
        dtype, device: of the angles.

    >>> layer = Rotate(8, init="hadamard")
    >>> layer(torch.eye(8)).norm(dim=-1).allclose(torch.ones(8))
    True
    """

    def __init__(
        self,
        n: int,
        depth: int = 1,
        init: str = "identity",
        *,
        wiring: Wiring | None = None,
        seed: int | None = None,
        dtype: torch.dtype | None = None,
        device: Any = None,
    ) -> None:
        super().__init__()
        checks.choice("init", init, ("identity", "random", "hadamard"))
        self.wiring = Butterfly(n, depth) if wiring is None else wiring
        if self.wiring.n != n:
            raise ValueError(f"wiring: expected one on n = {n} coordinates, got {self.wiring!r}")
        self.init, self.seed = init, seed
        self.angles = torch.nn.Parameter(torch.empty(self.wiring.n_rotations, dtype=dtype, device=device))
        self._cache = kernels.PreparedCache()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the angles as ``init`` says."""
        regular = isinstance(self.wiring, Butterfly) and self.wiring.n & (self.wiring.n - 1) == 0
        if self.init == "hadamard" and not regular:
            raise ValueError(f"init='hadamard': expected a butterfly on 2^k coordinates, got {self.wiring!r}")
        with torch.no_grad():
            if self.init == "identity":
                self.angles.zero_()
            elif self.init == "hadamard":
                # Once through the strides is a Hadamard matrix; further rounds start as the identity.
                self.angles.zero_()[: Butterfly(self.wiring.n).n_rotations] = math.pi / 4
            else:
                generator = None
                if self.seed is not None:
                    generator = torch.Generator(self.angles.device).manual_seed(self.seed)
                self.angles.uniform_(-math.pi, math.pi, generator=generator)

    @property
    def rotation(self) -> Rotation:
        """The layer's rotation as an operator; it shares the angles."""
        return Rotation(self.wiring, self.angles)

    def forward(self, x: Tensor) -> Tensor:
        """Q x, shape (*batch, n)."""
        return ops.rotate(x, self.wiring, self.angles, cache=self._cache)

    def extra_repr(self) -> str:
        """What ``print(layer)`` shows."""
        return f"n={self.wiring.n}, n_rotations={self.wiring.n_rotations}, init={self.init!r}"

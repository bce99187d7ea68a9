"""What every wiring has.

A rotation is a sequence of layers; a layer is a set of disjoint pairs of coordinates, one angle each.
Layers are listed in the order of the paper's product Q = Q₁Q₂…Q_L, so Q x applies the last one first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cached_property

import numpy as np
import torch


class Wiring:
    """The pairs of every layer. Abstract: use `Butterfly`, `Pairs` or `Grouped`."""

    n: int  # dimension of the space
    n_layers: int  # L
    n_rotations: int  # K, the number of pairs in all layers together
    # The wiring as arguments of a torch operator (see `ops.library`): integers, and a table if pairs are data.
    code: list[int]
    table: torch.Tensor | None = None

    def layer(self, index: int) -> np.ndarray:  # shape: (m, 2), int64
        """Return the pairs (i, j) of layer ``index``."""
        raise NotImplementedError

    @property
    def T(self) -> Wiring:
        """The wiring of Qᵀ: the same layers in the opposite order."""
        raise NotImplementedError

    @property
    def offsets(self) -> np.ndarray:  # shape: (L + 1,)
        """Where each layer's angles begin in the flat vector of K angles."""
        raise NotImplementedError

    @property
    def fingerprint(self) -> int:
        """64 bits that tell this wiring from others; the same in every process and on every machine."""
        raise NotImplementedError

    @property
    def encoded(self) -> tuple[torch.Tensor | None, list[int]]:
        """The wiring as two arguments of a torch operator."""
        return self.table, self.code

    def layers(self) -> Iterator[np.ndarray]:
        """Go through the layers, Q₁ first."""
        return (self.layer(index) for index in range(self.n_layers))

    @cached_property
    def transpose_order(self) -> np.ndarray:  # shape: (K,)
        """Angles of Qᵀ are ``-angles[transpose_order]``."""
        spans = list(zip(self.offsets[:-1], self.offsets[1:], strict=True))
        return np.concatenate([np.arange(a, b) for a, b in reversed(spans)] or [np.arange(0)])


def hash64(*parts: bytes) -> int:
    """The first 64 bits of a SHA-256, as a signed integer: what an int64 tensor holds."""
    return int.from_bytes(hashlib.sha256(b"".join(parts)).digest()[:8], "little", signed=True)

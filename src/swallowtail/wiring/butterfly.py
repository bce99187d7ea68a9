"""The paper's wiring: strides that halve from layer to layer."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from swallowtail import checks
from swallowtail.wiring.base import Wiring, as_text, hash64

LAYER_BYTES = 64  # of Python objects per layer: its stride in a list and a tuple, its offset


class Butterfly(Wiring):
    """The paper's wiring: strides n/2, n/4, …, 1, ``depth`` times over.

    Layer i pairs (2pk + j, 2pk + p + j) with stride p = 2^(⌈lg n⌉ − i). Pairs whose partner
    would be ≥ n are dropped, so any n ≥ 1 works and the data is never padded. ``reverse=True``
    lists the layers the other way round: it is the wiring of Qᵀ.

    >>> Butterfly(8)
    Butterfly(n=8, depth=1): 3 layers, 12 rotations
    >>> Butterfly(8).layer(0).tolist()
    [[0, 4], [1, 5], [2, 6], [3, 7]]
    """

    def __init__(self, n: int, depth: int = 1, *, reverse: bool = False) -> None:
        self.n = checks.integer("n", n, at_least=1)
        self.depth = checks.integer("depth", depth, at_least=1)
        self.reverse = bool(reverse)
        layers = (self.n - 1).bit_length() * self.depth
        checks.fits_in_memory(
            f"one vector and the float32 angles of a butterfly with n = {checks.short(self.n)}, "
            f"depth = {checks.short(self.depth)}",
            4 * self.n + 2 * (self.n - 1) * layers + LAYER_BYTES * max(layers, self.depth),
        )
        once = [1 << e for e in reversed(range((self.n - 1).bit_length()))] * self.depth
        self.strides: tuple[int, ...] = tuple(reversed(once) if self.reverse else once)
        self.n_layers = len(self.strides)
        self.n_rotations = int(self.offsets[-1])
        self.encoded = as_text([self.n, self.depth, int(self.reverse)])

    def layer(self, index: int) -> np.ndarray:
        p = self.strides[index]
        first = np.arange(self.n, dtype=np.int64)
        first = first[(first & p == 0) & (first + p < self.n)]
        return np.stack([first, first + p], axis=1)

    @cached_property
    def offsets(self) -> np.ndarray:
        sizes = [pairs_at_stride(self.n, p) for p in self.strides]
        return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)

    @property
    def T(self) -> Butterfly:
        return Butterfly(self.n, self.depth, reverse=not self.reverse)

    @property
    def fingerprint(self) -> int:
        return hash64(f"Butterfly {self._key()}".encode())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Butterfly) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[int, int, bool]:
        # Below n = 3 there is at most one stride, so both directions are the same wiring.
        return self.n, self.depth, self.reverse and self.n > 2

    def __repr__(self) -> str:
        reverse = ", reverse=True" if self.reverse else ""
        return (
            f"Butterfly(n={self.n}, depth={self.depth}{reverse}): "
            f"{self.n_layers} layers, {self.n_rotations} rotations"
        )


def pairs_at_stride(n: int, p: int) -> int:
    """Count i < n with bit p clear and i + p < n."""
    whole, rest = divmod(n, 2 * p)
    return whole * p + max(0, rest - p)

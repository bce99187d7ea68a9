"""Which coordinates meet: the one definition of who is rotated with whom, for every back end.

A rotation is a sequence of layers; a layer is a set of disjoint pairs of coordinates, one angle each.
Layers are listed in the order of the paper's product Q = Q₁Q₂…Q_L, so Q x applies the last one first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch

from swallowtail import checks


class Wiring:
    """The pairs of every layer. Abstract: use `Butterfly` or `Pairs`."""

    n: int  # dimension of the space
    n_layers: int  # L
    n_rotations: int  # K, the number of pairs in all layers together
    # The wiring as arguments of a torch operator (see ops.py): integers, and the pairs if they are data.
    code: list[int]
    pairs_tensor: torch.Tensor | None = None

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

    def layers(self) -> Iterator[np.ndarray]:
        """Go through the layers, Q₁ first."""
        return (self.layer(index) for index in range(self.n_layers))

    @cached_property
    def transpose_order(self) -> np.ndarray:  # shape: (K,)
        """Angles of Qᵀ are ``-angles[transpose_order]``."""
        spans = list(zip(self.offsets[:-1], self.offsets[1:], strict=True))
        return np.concatenate([np.arange(a, b) for a, b in reversed(spans)] or [np.arange(0)])


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
        checks.fits_in_memory(
            f"one vector and the float32 angles of a butterfly with n = {self.n}, depth = {self.depth}",
            4 * self.n + 2 * (self.n - 1) * (self.n - 1).bit_length() * self.depth,
        )
        once = [1 << e for e in reversed(range((self.n - 1).bit_length()))] * self.depth
        self.strides: tuple[int, ...] = tuple(reversed(once) if self.reverse else once)
        self.n_layers = len(self.strides)
        self.n_rotations = int(self.offsets[-1])
        self.code = [0, self.n, self.depth, int(self.reverse)]

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


class Pairs(Wiring):
    """Any layers of disjoint pairs, for instance chosen from data.

    Args:
        n: dimension of the space.
        layers: one sequence of pairs (i, j) per layer, Q₁ first; i ≠ j, no coordinate twice in a layer.

    >>> Pairs(4, [[(0, 3)], [(0, 1), (2, 3)]])
    Pairs(n=4): 2 layers, 3 rotations
    """

    def __init__(self, n: int, layers: Iterable[Any]) -> None:
        self.n = checks.integer("n", n, at_least=1)
        arrays = [_layer_array(self.n, index, pairs) for index, pairs in enumerate(layers)]
        self._set(np.concatenate(arrays) if arrays else np.zeros((0, 2), np.int64), [len(a) for a in arrays])

    def _set(self, pairs: np.ndarray, sizes: Sequence[int]) -> None:
        self.pairs = np.ascontiguousarray(pairs, dtype=np.int64)  # shape: (K, 2), layer by layer
        self._offsets = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)
        self.n_layers = len(sizes)
        self.n_rotations = len(self.pairs)
        self.code = [1, self.n, *self._offsets.tolist()]
        self.pairs_tensor = torch.from_numpy(self.pairs)

    @classmethod
    def from_flat(cls, n: int, pairs: np.ndarray, offsets: np.ndarray) -> Pairs:
        """Build from arrays known to be valid: pairs (K, 2) and offsets (L + 1,)."""
        wiring = cls.__new__(cls)
        wiring.n = int(n)
        wiring._set(pairs, np.diff(offsets).tolist())
        return wiring

    @classmethod
    def from_sequence(cls, n: int, pairs: Any) -> tuple[Pairs, np.ndarray]:
        """Pack a sequence of single rotations G₁G₂… into as few layers as their order allows.

        Returns:
            The wiring, and the order in which to take the sequence's angles for it.
        """
        n = checks.integer("n", n, at_least=1)
        sequence = _pairs_array(n, "pairs", pairs)
        level = np.zeros(n, np.int64)
        layer_of = np.zeros(len(sequence), np.int64)
        for k, (i, j) in enumerate(sequence):
            layer_of[k] = max(level[i], level[j])
            level[i] = level[j] = layer_of[k] + 1
        order = np.argsort(layer_of, kind="stable")
        sizes = np.bincount(layer_of) if len(sequence) else np.zeros(0, np.int64)
        return cls(n, np.split(sequence[order], np.cumsum(sizes)[:-1]) if len(sequence) else []), order

    def layer(self, index: int) -> np.ndarray:
        return self.pairs[self._offsets[index] : self._offsets[index + 1]]

    @property
    def offsets(self) -> np.ndarray:
        return self._offsets

    @property
    def T(self) -> Pairs:
        sizes = np.diff(self._offsets)[::-1]
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        return Pairs.from_flat(self.n, self.pairs[self.transpose_order], offsets)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Pairs)
            and self.n == other.n
            and np.array_equal(self._offsets, other._offsets)
            and np.array_equal(self.pairs, other.pairs)
        )

    def __hash__(self) -> int:
        return hash((self.n, self.pairs.tobytes(), self._offsets.tobytes()))

    def __repr__(self) -> str:
        return f"Pairs(n={self.n}): {self.n_layers} layers, {self.n_rotations} rotations"


def pairs_at_stride(n: int, p: int) -> int:
    """Count i < n with bit p clear and i + p < n."""
    whole, rest = divmod(n, 2 * p)
    return whole * p + max(0, rest - p)


def _layer_array(n: int, index: int, pairs: Any) -> np.ndarray:
    """One layer as an (m, 2) array, checked."""
    array = _pairs_array(n, f"layer {index}", pairs)
    if array.size == 0:
        return array
    values, counts = np.unique(array, return_counts=True)
    if counts.max() > 1:
        raise ValueError(
            f"layer {index}: expected disjoint pairs, got coordinate {int(values[counts.argmax()])} "
            f"{int(counts.max())} times; "
            "try a layer of its own for each rotation that shares it"
        )
    return array


def _pairs_array(n: int, name: str, pairs: Any) -> np.ndarray:
    """Pairs of coordinates as an (m, 2) array, checked but for coordinates that occur twice."""
    try:
        array = np.asarray(pairs)
    except ValueError as error:
        raise ValueError(
            f"{name}: expected pairs of integers, shape (m, 2), got rows of unequal length; "
            "try [(i, j), …] with two integers each"
        ) from error
    if array.size == 0:
        return np.zeros((0, 2), np.int64)
    if array.ndim != 2 or array.shape[1] != 2 or not np.issubdtype(array.dtype, np.integer):
        raise ValueError(
            f"{name}: expected pairs of integers, shape (m, 2), got shape {array.shape} of {array.dtype}; "
            "try [(i, j), …], one such list per layer"
        )
    if array.min() < 0 or array.max() >= n:
        bad = int(array.min() if array.min() < 0 else array.max())
        raise ValueError(
            f"{name}: expected coordinates in 0 … {n - 1}, got {bad}; try a larger n, or count from 0"
        )
    return array.astype(np.int64)

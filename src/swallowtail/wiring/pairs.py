"""Any layers of disjoint pairs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from swallowtail import checks
from swallowtail.errors import ArgumentError
from swallowtail.wiring.base import Wiring, as_text, hash64


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
        given = checks.items("layers", layers, "layers of pairs [(i, j), …]")
        arrays = [_layer_array(self.n, index, pairs) for index, pairs in enumerate(given)]
        self._set(np.concatenate(arrays) if arrays else np.zeros((0, 2), np.int64), [len(a) for a in arrays])

    def _set(self, pairs: np.ndarray, sizes: Sequence[int]) -> None:
        # For compiled functions, which Numba would compile again for read-only arrays. Nobody may write to them.
        self.indices = np.ascontiguousarray(pairs, dtype=np.int64)  # shape: (K, 2), layer by layer
        self._offsets = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)
        self.n_layers = len(sizes)
        self.n_rotations = len(self.indices)
        self.encoded = as_text([self.n, *self._offsets.tolist()], self.indices)

    @staticmethod
    def from_flat(n: int, pairs: np.ndarray, offsets: np.ndarray) -> Pairs:
        """Build from arrays known to be valid: pairs (K, 2) and offsets (L + 1,)."""
        wiring = Pairs.__new__(Pairs)
        wiring.n = int(n)
        wiring._set(np.array(pairs, np.int64), np.diff(offsets).tolist())
        return wiring

    @staticmethod
    def from_sequence(n: int, pairs: Any) -> tuple[Pairs, np.ndarray]:
        """Pack a sequence of single rotations G₁G₂… into as few layers as their order allows.

        Returns:
            The wiring, and the order in which to take the sequence's angles for it.
        """
        n = checks.integer("n", n, at_least=1)
        sequence = pairs_array(n, "pairs", pairs)
        level = np.zeros(n, np.int64)
        layer_of = np.zeros(len(sequence), np.int64)
        for k, (i, j) in enumerate(sequence):
            layer_of[k] = max(level[i], level[j])
            level[i] = level[j] = layer_of[k] + 1
        order = np.argsort(layer_of, kind="stable")
        sizes = np.bincount(layer_of) if len(sequence) else np.zeros(0, np.int64)
        return Pairs(n, np.split(sequence[order], np.cumsum(sizes)[:-1]) if len(sequence) else []), order

    @property
    def pairs(self) -> np.ndarray:  # shape: (K, 2)
        """All pairs, layer by layer. Read-only: kernels go where they say, unchecked."""
        return read_only(self.indices)

    def layer(self, index: int) -> np.ndarray:
        return self.indices[self._offsets[index] : self._offsets[index + 1]].copy()

    def flat_pairs(self) -> np.ndarray:
        return self.indices.copy()

    @property
    def offsets(self) -> np.ndarray:
        return read_only(self._offsets)

    @property
    def T(self) -> Pairs:
        sizes = np.diff(self._offsets)[::-1]
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        return Pairs.from_flat(self.n, self.pairs[self.transpose_order], offsets)

    @cached_property
    def fingerprint(self) -> int:
        numbers = (np.array([self.n, self.n_layers]), self._offsets, self.pairs)
        return hash64(b"Pairs", *(array.astype("<i8").tobytes() for array in numbers))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Pairs)
            and self.n == other.n
            and np.array_equal(self._offsets, other._offsets)
            and np.array_equal(self.pairs, other.pairs)
        )

    def __hash__(self) -> int:
        return self.fingerprint  # it is kept: back ends look their tables up by the wiring in every call

    def __repr__(self) -> str:
        return f"Pairs(n={self.n}): {self.n_layers} layers, {self.n_rotations} rotations"


def read_only(array: np.ndarray) -> np.ndarray:
    """A view that nobody can write to."""
    view = array.view()
    view.flags.writeable = False
    return view


def _layer_array(n: int, index: int, pairs: Any) -> np.ndarray:
    """One layer as an (m, 2) array, checked."""
    array = pairs_array(n, f"layer {index}", pairs)
    if array.size == 0:
        return array
    values, counts = np.unique(array, return_counts=True)
    if counts.max() > 1:
        raise ArgumentError(
            f"layer {index}",
            "disjoint pairs",
            f"coordinate {int(values[counts.argmax()])} {int(counts.max())} times",
            "try a layer of its own for each rotation that shares it",
        )
    return array


def pairs_array(n: int, name: str, pairs: Any) -> np.ndarray:
    """Pairs of coordinates as an (m, 2) array, checked, except that a coordinate may occur twice."""
    expected = "pairs of integers, shape (m, 2)"
    try:
        array = np.asarray(pairs)
    except (ValueError, TypeError, RuntimeError) as error:
        hint = "try [(i, j), …] with two integers each"
        got = "rows of unequal length" if isinstance(error, ValueError) else f"no array ({error})"
        raise ArgumentError(name, expected, got, hint) from error
    if array.size == 0:
        return np.zeros((0, 2), np.int64)
    if array.ndim != 2 or array.shape[1] != 2 or not np.issubdtype(array.dtype, np.integer):
        got = f"shape {array.shape} of {array.dtype}"
        raise ArgumentError(name, expected, got, "try [(i, j), …], one such list per layer")
    within(n, name, array)
    return array.astype(np.int64)


def within(n: int, name: str, coordinates: np.ndarray) -> None:
    """Check that all coordinates lie in 0 … n − 1."""
    if coordinates.min() < 0 or coordinates.max() >= n:
        bad = int(coordinates.min() if coordinates.min() < 0 else coordinates.max())
        raise ArgumentError(name, f"coordinates in 0 … {n - 1}", bad, "try a larger n, or count from 0")

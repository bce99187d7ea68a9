"""What every wiring has.

A rotation is a sequence of layers; a layer is a set of disjoint pairs of coordinates, one angle each.
Layers are listed in the order of the paper's product Q = Q₁Q₂…Q_L, so Q x applies the last one first.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np


class Wiring:
    """The pairs of every layer. Abstract: use `Butterfly`, `Pairs` or `Grouped`."""

    n: int  # dimension of the space
    n_layers: int  # L
    n_rotations: int  # K, the number of pairs in all layers together
    # All of it as text, an argument of torch operators (`ops.library`). A plain attribute: compilers read it.
    encoded: str

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

    def layers(self) -> Iterator[np.ndarray]:
        """Go through the layers, Q₁ first."""
        return (self.layer(index) for index in range(self.n_layers))

    def flat_pairs(self) -> np.ndarray:  # shape: (K, 2)
        """The pairs of all layers, Q₁ first, in an array of the caller's own."""
        return np.concatenate([*self.layers(), np.zeros((0, 2), np.int64)])

    @cached_property
    def derived(self) -> dict[Any, Any]:
        """What kernels made from this wiring alone. It lasts as long as the wiring, and a copy starts without it."""
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "derived"}

    @cached_property
    def transpose_order(self) -> np.ndarray:  # shape: (K,)
        """Angles of Qᵀ are ``-angles[transpose_order]``."""
        spans = list(zip(self.offsets[:-1], self.offsets[1:], strict=True))
        return np.concatenate([np.arange(a, b) for a, b in reversed(spans)] or [np.arange(0)])


def as_text(code: Sequence[int], table: np.ndarray | None = None) -> str:
    """Integers, and a table (rows, 2) of integers below 2^31 if there is one, as text."""
    numbers = " ".join(map(str, code))
    if table is None:
        return numbers
    return f"{numbers};{base64.b64encode(table.astype('<i4').tobytes()).decode()}"


def from_text(text: str) -> tuple[list[int], np.ndarray | None]:
    """Undo `as_text`.

    >>> from_text(as_text([4, 0, 1], np.array([[0, 3]])))
    ([4, 0, 1], array([[0, 3]]))
    """
    numbers, separator, table = text.partition(";")
    code = [int(number) for number in numbers.split()]
    if not separator:
        return code, None
    return code, np.frombuffer(base64.b64decode(table), "<i4").astype(np.int64).reshape(-1, 2)


def hash64(*parts: bytes) -> int:
    """The first 64 bits of a SHA-256, as a signed integer: what an int64 tensor holds."""
    return int.from_bytes(hashlib.sha256(b"".join(parts)).digest()[:8], "little", signed=True)

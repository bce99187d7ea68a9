"""Q D Qᵀ as the paper's network, on numbers that count what is done with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from swallowtail.wiring import Wiring

Vector = list[Any]  # of numbers that may count


@dataclass
class Tally:
    """How often two numbers were multiplied."""

    multiplications: int = 0


class Counted:
    """A real number that tells its tally of every multiplication it takes part in."""

    __slots__ = ("tally", "value")
    __array_ufunc__ = None  # NumPy's scalars leave the arithmetic to us

    def __init__(self, value: float, tally: Tally) -> None:
        self.value, self.tally = float(value), tally

    def __mul__(self, other: Any) -> Counted:
        self.tally.multiplications += 1
        return Counted(self.value * float(other), self.tally)

    def __add__(self, other: Any) -> Counted:
        return Counted(self.value + float(other), self.tally)

    def __sub__(self, other: Any) -> Counted:
        return Counted(self.value - float(other), self.tally)

    def __rsub__(self, other: Any) -> Counted:
        return Counted(float(other) - self.value, self.tally)

    __rmul__, __radd__ = __mul__, __add__

    def __pow__(self, power: int) -> Counted:
        return self * self if power == 2 else NotImplemented

    def __truediv__(self, other: Any) -> Counted:
        return self * (1 / float(other))

    def __lt__(self, other: Any) -> bool:
        return self.value < float(other)

    def __gt__(self, other: Any) -> bool:
        return self.value > float(other)

    def __float__(self) -> float:
        return self.value


class Network:
    """Q D Qᵀ as the paper's network of sparse layers; every activation is kept, as backpropagation wants it."""

    def __init__(self, wiring: Wiring, angles: np.ndarray, eigenvalues: np.ndarray) -> None:
        bounds = wiring.offsets.tolist()
        self.layers = [
            list(zip(wiring.layer(k).tolist(), np.cos(part).tolist(), np.sin(part).tolist(), strict=True))
            for k, part in enumerate(np.split(angles, bounds[1:-1]))
        ]
        self.d = eigenvalues.tolist()

    def product(self, x: Vector) -> Vector:
        """Q D Qᵀ x."""
        return self._from_basis(self._scaled(self._to_basis(x)[-1]))[-1]

    def quadratic_form(self, x: Vector) -> Any:
        """(Qᵀx)ᵀ D (Qᵀx)."""
        return sum(z * z * d for z, d in zip(self._to_basis(x)[-1], self.d, strict=True))

    def gradient(self, x: Vector, y: Vector) -> tuple[list[list[list[Any]]], Vector]:
        """Gradient of ‖Q D Qᵀx − y‖² by every non-zero: layer, rotation, (a, b, c, d); and by D."""
        before = self._to_basis(x)
        after = self._from_basis(self._scaled(before[-1]))
        u = [z - t for z, t in zip(after[-1], y, strict=True)]
        u = [r + r for r in u]
        blocks: list[list[list[Any]]] = [[[] for _ in layer] for layer in self.layers]
        for k, layer in enumerate(self.layers):  # the left half Q, from its end
            entering = after[len(self.layers) - 1 - k]
            for r, ((i, j), _, _) in enumerate(layer):
                blocks[k][r] = [u[m] * entering[p] for m in (i, j) for p in (i, j)]
            u = _apply(layer, u, transpose=True)
        by_d = [v * z for v, z in zip(u, before[-1], strict=True)]
        u = self._scaled(u)
        for k in reversed(range(len(self.layers))):  # the right half Qᵀ holds the same blocks, transposed
            entering = before[k]
            for r, ((i, j), _, _) in enumerate(self.layers[k]):
                more = [entering[m] * u[p] for m in (i, j) for p in (i, j)]
                blocks[k][r] = [g + h for g, h in zip(blocks[k][r], more, strict=True)]
            u = _apply(self.layers[k], u, transpose=False)
        return blocks, by_d

    def _to_basis(self, x: Vector) -> list[Vector]:
        """x, …, Qᵀx: what enters each layer of Qᵀ, and what leaves the last."""
        states = [x]
        for layer in self.layers:
            states.append(_apply(layer, states[-1], transpose=True))
        return states

    def _from_basis(self, x: Vector) -> list[Vector]:
        """x, …, Qx: what enters each layer of Q, and what leaves the last."""
        states = [x]
        for layer in reversed(self.layers):
            states.append(_apply(layer, states[-1], transpose=False))
        return states

    def _scaled(self, x: Vector) -> Vector:
        return [z * d for z, d in zip(x, self.d, strict=True)]


def _apply(layer: list[Any], x: Vector, transpose: bool) -> Vector:
    out = list(x)
    for (i, j), c, s in layer:
        s = -s if transpose else s
        out[i], out[j] = x[i] * c - x[j] * s, x[i] * s + x[j] * c
    return out

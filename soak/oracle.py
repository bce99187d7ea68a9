"""Q x, Qᵀ x, Q D Qᵀ x, xᵀQ D Qᵀ x and their gradients in extended precision. Shares no code with the package.

Layers are pairs of index arrays, Q₁ first. Vectors are rows (m, n).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

WIDE = np.longdouble
Layer = tuple[np.ndarray, np.ndarray]


class Gradients(NamedTuple):
    """Of Σ ⟨g, f(x)⟩."""

    x: np.ndarray  # shape: (m, n)
    angles: np.ndarray  # shape: (K,)
    d: np.ndarray | None = None  # shape: (n,)


def butterfly_layers(n: int, depth: int, reverse: bool) -> list[Layer]:
    """Pair by pair, as the paper draws them."""
    bits = max(0, math.ceil(math.log2(n)))
    strides = [2**bit for bit in (range(bits) if reverse else reversed(range(bits)))] * depth
    layers = []
    for p in strides:
        first = np.array([i for i in range(n - p) if not i & p], np.int64)
        layers.append((first, first + p))
    return layers


class Turns(NamedTuple):
    """A layer: where it acts, and its cosines and sines in extended precision."""

    i: np.ndarray
    j: np.ndarray
    c: np.ndarray
    s: np.ndarray


def turns(layers: list[Layer], angles: np.ndarray) -> list[Turns]:
    """What all functions below take in place of layers and angles, made once."""
    wide, ends = angles.astype(WIDE), np.cumsum([0, *(len(i) for i, _ in layers)])
    c, s = np.cos(wide), np.sin(wide)
    return [Turns(i, j, c[a:b], s[a:b]) for (i, j), a, b in zip(layers, ends, ends[1:], strict=False)]


def rotate(Q: list[Turns], x: np.ndarray, transpose: bool) -> np.ndarray:
    """Q x, or Qᵀ x."""
    y = np.array(x, WIDE)
    for turn in Q if transpose else Q[::-1]:
        _turn(y, turn, transpose)
    return y


def symmetric(Q: list[Turns], d: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Q D Qᵀ x."""
    return rotate(Q, d.astype(WIDE) * rotate(Q, x, True), False)


def quadratic(Q: list[Turns], d: np.ndarray, x: np.ndarray) -> np.ndarray:
    """xᵀQ D Qᵀ x, shape (m, 1)."""
    return (d.astype(WIDE) * rotate(Q, x, True) ** 2).sum(-1, keepdims=True)


def rotate_gradients(Q: list[Turns], x: np.ndarray, g: np.ndarray, transpose: bool) -> Gradients:
    """For f = Q x, or Qᵀ x. ⟨g, Qᵀx⟩ = ⟨Q g, x⟩, so x and g change places there."""
    wedge = _wedges(Q, g, x) if transpose else _wedges(Q, x, g)
    return Gradients(rotate(Q, g, not transpose), wedge)


def symmetric_gradients(Q: list[Turns], d: np.ndarray, x: np.ndarray, g: np.ndarray) -> Gradients:
    """For f = Q D Qᵀ x."""
    d, z, p = d.astype(WIDE), rotate(Q, x, True), rotate(Q, g, True)
    angle = _wedges(Q, d * z, g) + _wedges(Q, d * p, x)
    return Gradients(rotate(Q, d * p, False), angle, (p * z).sum(0))


def quadratic_gradients(Q: list[Turns], d: np.ndarray, x: np.ndarray, g: np.ndarray) -> Gradients:
    """For f = xᵀQ D Qᵀ x; g has shape (m, 1)."""
    d, z = d.astype(WIDE), rotate(Q, x, True)
    w = 2 * g * d * z
    return Gradients(rotate(Q, w, False), _wedges(Q, w, x), (g * z * z).sum(0))


def dense(Q: list[Turns], n: int, number: type) -> np.ndarray:
    """Q by arithmetic in ``number``: what a user of a dense matrix would have."""
    matrix = np.eye(n, dtype=number)
    for i, j, c, s in Q:
        c, s = c.astype(number), s.astype(number)
        matrix[:, i], matrix[:, j] = matrix[:, i] * c + matrix[:, j] * s, matrix[:, j] * c - matrix[:, i] * s
    return matrix


def _turn(y: np.ndarray, turn: Turns, transpose: bool) -> None:
    i, j, c, s = turn
    s = -s if transpose else s
    a, b = y[:, i], y[:, j]
    y[:, i], y[:, j] = c * a - s * b, s * a + c * b


def _wedges(Q: list[Turns], x: np.ndarray, g: np.ndarray) -> np.ndarray:
    """The angles' gradients of Σ ⟨g, Q x⟩. Behind layer k: h_j v_i − h_i v_j, with v from the right and h from g."""
    v, h, out = rotate(Q, x, False), np.array(g, WIDE), []
    for turn in Q:
        out.append((h[:, turn.j] * v[:, turn.i] - h[:, turn.i] * v[:, turn.j]).sum(0))
        _turn(v, turn, True)
        _turn(h, turn, True)
    return np.concatenate(out) if out else np.zeros(0, WIDE)

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


def rotate(layers: list[Layer], angles: np.ndarray, x: np.ndarray, transpose: bool) -> np.ndarray:
    """Q x, or Qᵀ x."""
    y = np.array(x, WIDE)
    for (i, j), theta in _steps(layers, angles, transpose):
        _turn(y, i, j, theta, transpose)
    return y


def symmetric(layers: list[Layer], angles: np.ndarray, d: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Q D Qᵀ x."""
    return rotate(layers, angles, d.astype(WIDE) * rotate(layers, angles, x, True), False)


def quadratic(layers: list[Layer], angles: np.ndarray, d: np.ndarray, x: np.ndarray) -> np.ndarray:
    """xᵀQ D Qᵀ x, shape (m, 1)."""
    return (d.astype(WIDE) * rotate(layers, angles, x, True) ** 2).sum(-1, keepdims=True)


def rotate_gradients(
    layers: list[Layer], angles: np.ndarray, x: np.ndarray, g: np.ndarray, transpose: bool
) -> Gradients:
    """For f = Q x, or Qᵀ x. ⟨g, Qᵀx⟩ = ⟨Q g, x⟩, so x and g change places there."""
    wedge = _wedges(layers, angles, g, x) if transpose else _wedges(layers, angles, x, g)
    return Gradients(rotate(layers, angles, g, not transpose), wedge)


def symmetric_gradients(
    layers: list[Layer], angles: np.ndarray, d: np.ndarray, x: np.ndarray, g: np.ndarray
) -> Gradients:
    """For f = Q D Qᵀ x."""
    d, z, p = d.astype(WIDE), rotate(layers, angles, x, True), rotate(layers, angles, g, True)
    angle = _wedges(layers, angles, d * z, g) + _wedges(layers, angles, d * p, x)
    return Gradients(rotate(layers, angles, d * p, False), angle, (p * z).sum(0))


def quadratic_gradients(
    layers: list[Layer], angles: np.ndarray, d: np.ndarray, x: np.ndarray, g: np.ndarray
) -> Gradients:
    """For f = xᵀQ D Qᵀ x; g has shape (m, 1)."""
    d, z = d.astype(WIDE), rotate(layers, angles, x, True)
    w = 2 * g * d * z
    return Gradients(rotate(layers, angles, w, False), _wedges(layers, angles, w, x), (g * z * z).sum(0))


def dense(layers: list[Layer], angles: np.ndarray, n: int, number: type) -> np.ndarray:
    """Q by arithmetic in ``number``: what a user of a dense matrix would have."""
    Q = np.eye(n, dtype=number)
    for (i, j), theta in _steps(layers, angles, True):
        c, s = np.cos(theta).astype(number), np.sin(theta).astype(number)
        Q[:, i], Q[:, j] = Q[:, i] * c + Q[:, j] * s, Q[:, j] * c - Q[:, i] * s
    return Q


def _steps(layers, angles, forward):
    ends = np.cumsum([0, *(len(i) for i, _ in layers)])
    numbered = [
        (layer, angles[a:b].astype(WIDE)) for layer, a, b in zip(layers, ends, ends[1:], strict=False)
    ]
    return numbered if forward else numbered[::-1]


def _turn(y, i, j, theta, transpose):
    c, s = np.cos(theta), np.sin(theta)
    s = -s if transpose else s
    y[:, i], y[:, j] = c * y[:, i] - s * y[:, j], s * y[:, i] + c * y[:, j]


def _wedges(layers, angles, x, g):
    """The angles' gradients of Σ ⟨g, Q x⟩. Behind layer k: h_j v_i − h_i v_j, with v from the right and h from g."""
    v, h, out = rotate(layers, angles, x, False), np.array(g, WIDE), []
    for (i, j), theta in _steps(layers, angles, True):
        out.append((h[:, j] * v[:, i] - h[:, i] * v[:, j]).sum(0))
        _turn(v, i, j, theta, True)
        _turn(h, i, j, theta, True)
    return np.concatenate(out) if out else np.zeros(0, WIDE)

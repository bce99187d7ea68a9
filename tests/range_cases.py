"""Rotations, vectors and eigenvalues from the whole range of a dtype; oracles that share no code with the package."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from hypothesis import strategies as st

from swallowtail import Butterfly, Pairs

WIDE = np.longdouble


class Case(NamedTuple):
    """A rotation with vectors (m, n), eigenvalues (n,) and gradients (m, n), all in one dtype."""

    wiring: Butterfly | Pairs
    layers: list[list[tuple[int, int]]]
    angles: np.ndarray
    x: np.ndarray
    d: np.ndarray
    g: np.ndarray

    @property
    def tensors(self):
        """Angles, eigenvalues, vectors and gradients as the kernels take them."""
        return tuple(torch.from_numpy(a)[None] for a in (self.angles, self.d, self.x, self.g))


def butterfly_layers(n, depth, reverse):
    """Pair by pair, as the paper draws them."""
    bits = max(0, math.ceil(math.log2(n)))
    strides = [2**bit for bit in (range(bits) if reverse else reversed(range(bits)))] * depth
    return [[(i, i + p) for i in range(n - p) if not i & p] for p in strides]


def dense(layers, angles, n, number):
    """Q₁Q₂…Q_L by arithmetic in ``number``."""
    Q, k = np.eye(n, dtype=number), 0
    for layer in layers:
        for i, j in layer:
            c, s = np.cos(WIDE(angles[k])).astype(number), np.sin(WIDE(angles[k])).astype(number)
            Q[:, i], Q[:, j] = Q[:, i] * c + Q[:, j] * s, Q[:, j] * c - Q[:, i] * s
            k += 1
    return Q


def walk_back(layers, angles, y, g, transpose):
    """The gradient of Σ ⟨g, Q x⟩ for the angles, from y = Q x, or Qᵀ x, in extended precision."""
    y, g, numbered, k = y.astype(WIDE), g.astype(WIDE), [], 0
    for layer in layers:
        for i, j in layer:
            numbered.append((k, i, j))
            k += 1
    out = np.zeros(k, WIDE)
    for k, i, j in reversed(numbered) if transpose else numbered:
        c, s = np.cos(WIDE(angles[k])), np.sin(WIDE(angles[k]))
        out[k] = (g[:, j] * y[:, i] - g[:, i] * y[:, j]).sum()
        if transpose:
            out[k], s = -out[k], -s
        for z in (y, g):
            z[:, i], z[:, j] = c * z[:, i] + s * z[:, j], c * z[:, j] - s * z[:, i]
    return out


def some_angles(rng, kind, size):
    uniform = rng.uniform(-math.pi, math.pi, size)
    nearly_right = math.pi / 2 - 10.0 ** -rng.uniform(1, 17, size)
    kinds = {
        "uniform": uniform,
        "nearly right": nearly_right,
        "tiny": uniform * 1e-39,
        "large": 1e7 * uniform,
    }
    if kind == "mixed":
        return np.choose(rng.integers(0, 5, size), [*kinds.values(), np.zeros(size)])
    return kinds[kind]


def some_numbers(rng, kind, shape, number):
    """Normal numbers times powers of ten that reach from the subnormal to the largest numbers."""
    low, high = np.log10(WIDE(np.finfo(number).smallest_subnormal)), np.log10(WIDE(np.finfo(number).max))
    power = {
        "one": np.zeros(shape), "tiny": low + rng.uniform(0, 12), "huge": high - rng.uniform(0, 4),
        "any": rng.uniform(low, high), "spread": rng.uniform(low, high, shape),
        "zeros": np.where(rng.random(shape) < 0.5, -1e4, 0.0),
    }[kind]  # fmt: skip
    limit = WIDE(np.finfo(number).max)
    return np.clip(rng.normal(size=shape) * WIDE(10) ** power, -limit, limit).astype(number)


@st.composite
def cases(draw, numbers=(np.float32, np.float64)):
    """Any wiring, depths to 64 where n is small, every kind of angles, of vectors and of eigenvalues."""
    number = draw(st.sampled_from(numbers))
    n = draw(st.sampled_from([1, 2, 3, 4, 5, 7, 8, 13, 16, 33]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    if draw(st.booleans()):
        depth, reverse = draw(st.integers(1, 64 if n < 9 else 12)), draw(st.booleans())
        wiring, layers = Butterfly(n, depth, reverse=reverse), butterfly_layers(n, depth, reverse)
    else:
        order = [rng.permutation(n)[: n // 2 * 2].reshape(-1, 2) for _ in range(draw(st.integers(0, 64)))]
        wiring, layers = Pairs(n, order), [[tuple(p) for p in layer.tolist()] for layer in order]
    kind = draw(st.sampled_from(["uniform", "nearly right", "tiny", "large", "mixed"]))
    angles = some_angles(rng, kind, sum(map(len, layers))).astype(number)
    sizes = st.sampled_from(["one", "tiny", "huge", "any", "spread", "zeros"])
    x, d, g = (some_numbers(rng, draw(sizes), shape, number) for shape in ((3, n), (n,), (3, n)))
    return Case(wiring, layers, angles, x, d, g)


def norm(a):
    return np.sqrt((np.asarray(a, WIDE) ** 2).sum(-1))

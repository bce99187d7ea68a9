"""Random rotations, numbers from the whole range of a dtype, and vectors laid out in every way memory allows."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch

from soak.oracle import WIDE, Layer, butterfly_layers
from swallowtail import Butterfly, Grouped, Pairs
from swallowtail.wiring import Wiring

NUMPY = {torch.float64: np.float64, torch.float32: np.float32, torch.float16: np.float16}
SIZES = (1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 31, 33, 64, 65, 100, 130)


class Drawn(NamedTuple):
    """A rotation for the package and for the oracle, and its angles in float64."""

    wiring: Wiring
    layers: list[Layer]
    angles: np.ndarray


def wiring(rng: np.random.Generator, largest: int = 130) -> tuple[Wiring, list[Layer]]:
    """Butterflies of any depth and direction, free pairs, grouped rounds."""
    n = int(rng.choice([size for size in SIZES if size <= largest]))
    kind = rng.integers(5)
    if kind < 2:
        depth, reverse = int(rng.integers(1, 65 if n < 5 else 9 if n < 33 else 3)), bool(rng.integers(2))
        return Butterfly(n, depth, reverse=reverse), butterfly_layers(n, depth, reverse)
    count = int(rng.integers(0, 12))
    layers = [rng.permutation(n)[: 2 * int(rng.integers(0, n // 2 + 1))].reshape(-1, 2) for _ in range(count)]
    made: Wiring = Pairs(n, layers)
    if kind == 4 and n > 1:
        made = Grouped.from_wiring(made, size=int(rng.integers(2, 17)))
    return made, [(layer[:, 0], layer[:, 1]) for layer in layers]


def angles(rng: np.random.Generator, size: int) -> np.ndarray:
    """Uniform, near right angles, tiny, large, or some of each."""
    uniform = rng.uniform(-math.pi, math.pi, size)
    kinds = [
        uniform,
        math.pi / 2 - 10.0 ** -rng.uniform(1, 17, size),
        uniform * 1e-39,
        1e7 * uniform,
        rng.integers(-4, 5, size) * (math.pi / 2),
    ]
    kind = rng.integers(len(kinds) + 3)
    return np.choose(rng.integers(0, 5, size), kinds) if kind == len(kinds) else kinds[kind % len(kinds)]


def common_angle(rng: np.random.Generator, number: Any) -> float:
    """One angle for all rotations, whose roundings then all point the same way. Often each is as large as can be."""
    right, eps = rng.integers(-2, 3) * (math.pi / 2), float(np.finfo(number).eps)
    return float(
        rng.choice([rng.uniform(-math.pi, math.pi), right, right + eps * rng.uniform(0.1, 2), eps * 0.49])
    )


def numbers(rng: np.random.Generator, shape: Any, number: Any, mild: bool = False) -> np.ndarray:
    """Normal numbers times powers of ten: from the subnormal to the largest, or ``mild`` ones."""
    low, high = math.log10(float(np.finfo(number).tiny)), math.log10(float(np.finfo(number).max))
    subnormal = low + math.log10(float(np.finfo(number).eps))
    kinds = [
        np.zeros(shape),
        rng.uniform(-3, 3) if number is np.float16 else rng.uniform(-8, 8),
        subnormal + rng.uniform(0, 12),
        high - rng.uniform(0, 4),
        rng.uniform(subnormal, high),
        rng.uniform(subnormal, high, shape),
        np.where(rng.random(shape) < 0.5, -1e4, 0.0),
    ]
    power = kinds[int(rng.integers(2 if mild else len(kinds)))]
    limit = WIDE(np.finfo(number).max)
    return np.clip(rng.normal(size=shape) * WIDE(10) ** power, -limit, limit).astype(number)


def laid_out(rng: np.random.Generator, x: np.ndarray) -> tuple[str, Any]:
    """The rows x (m, n) as a tensor or an array that lies in memory in some way; and the name of the way."""
    m, n = x.shape
    ways = ("plain", "strided", "transposed", "misaligned", "negated", "conjugate", "frozen", "inference",
            "numpy", "reversed", "foreign", "read-only")  # fmt: skip
    way = str(rng.choice(ways))
    if way == "strided":
        room = np.full((m, 2 * n + 1), np.nan, x.dtype)
        room[:, : 2 * n : 2] = x
        return way, torch.from_numpy(room)[:, : 2 * n : 2]
    if way == "transposed":
        return way, torch.from_numpy(np.asfortranarray(x))
    if way == "misaligned":
        offset = int(rng.integers(1, 64))
        room = np.frombuffer(bytearray(x.nbytes + 64), np.uint8)
        moved = room[offset : offset + x.nbytes].view(x.dtype).reshape(x.shape)
        moved[:] = x
        return way, torch.from_numpy(moved)
    if way == "negated":
        return way, torch._neg_view(-torch.from_numpy(x.copy()))
    if way == "conjugate" and x.dtype != np.float16:
        part = torch.from_numpy(x.copy())
        return way, torch.complex(torch.full_like(part, 3.0), -part).conj().imag
    if way == "inference":
        with torch.inference_mode():
            return way, torch.from_numpy(x.copy())
    if way == "reversed":
        return way, x[::-1, ::-1].copy()[::-1, ::-1]
    if way == "foreign":
        return way, x.astype(x.dtype.newbyteorder(">"))
    if way == "read-only":
        frozen = x.copy()
        frozen.flags.writeable = False
        return way, frozen
    if way == "numpy":
        return way, x.copy()
    return way, torch.from_numpy(x.copy())

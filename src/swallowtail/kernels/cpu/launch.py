"""Kernels with their coefficients bound to them: functions of addresses, over threads where that is worth it.

An action is what a kernel does with a wiring that is not reversed: "to_basis" is Qᵀ x, "from_basis" Q x, "symmetric"
Q D Qᵀ x, and "unscaled" M x, which is Qᵀ x without its scales.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch

from swallowtail.kernels.cpu import butterfly as cpu_butterfly
from swallowtail.kernels.cpu import openmp
from swallowtail.kernels.cpu import pairs as cpu_pairs
from swallowtail.kernels.cpu.codegen import shapes as simd
from swallowtail.kernels.cpu.coefficients import Coefficients, Spare, aligned, plan_of, tile
from swallowtail.kernels.cpu.elementwise import multiply
from swallowtail.kernels.cpu.plan import program
from swallowtail.kernels.cpu.promotion import promotion
from swallowtail.kernels.cpu.threads import WORTH_A_THREAD, Rows, rows_on_threads, share
from swallowtail.wiring import Butterfly, Pairs, Wiring

KERNELS: dict[str, Any] = {
    "to_basis": cpu_butterfly.to_basis,
    "from_basis": cpu_butterfly.from_basis,
    "symmetric": cpu_butterfly.symmetric,
}
MODES = {
    "to_basis": cpu_pairs.TO_BASIS,
    "from_basis": cpu_pairs.FROM_BASIS,
    "symmetric": cpu_pairs.SYMMETRIC,
}

WORTH_TILES = 64  # vectors


def bound(wiring: Wiring, action: str, c: Coefficients) -> Rows:
    """A function of (x, y, m), the addresses of m contiguous rows of n, for one action on one rotation."""
    run: Rows | None = c.bound.get(action)
    if run is None:
        run = c.bound[action] = _make(wiring, action, c)
    return run


def _make(wiring: Wiring, action: str, c: Coefficients) -> Rows:
    if isinstance(wiring, Pairs):
        run = _pairs_run(wiring, action, c)
    else:
        assert isinstance(wiring, Butterfly)
        run = _butterfly_run(wiring, action, c)
    if action != "symmetric" or c.factor == 1.0:
        return run
    factor, like, n = c.factor, c.T, wiring.n

    def run_and_multiply(x: int, y: int, count: int) -> int:
        flags = run(x, y, count)
        multiply(y, count * n, factor, like)
        return flags

    return run_and_multiply


def _butterfly_run(wiring: Butterfly, action: str, c: Coefficients) -> Rows:
    rows, k = _butterfly_rows(wiring, action, c), wiring.n_rotations
    bytes_a_row = wiring.n * c.T.dtype.itemsize

    def run(x: int, y: int, count: int) -> int:
        if count * k < 2 * WORTH_A_THREAD or torch.get_num_threads() == 1:
            return rows(x, y, count)
        if openmp.available():
            return rows(x, y, count, *share(count, k))
        return rows_on_threads(rows, x, y, count, bytes_a_row, k)

    return run


def _pairs_run(wiring: Pairs, action: str, c: Coefficients) -> Rows:
    """Machine code where the wiring has earned it, and a loop over rotations until then."""
    promoted, k = promotion(wiring, action, c, _diagonal(action, c)), wiring.n_rotations
    bytes_a_row, made = wiring.n * c.T.dtype.itemsize, list[Rows]()
    arrays = _pairs_arrays(action, c)

    def run(x: int, y: int, count: int) -> int:
        kernel = promoted.kernel(count) if promoted is not None else None
        if kernel is not None:
            return kernel(x, y, count)
        if not made:
            made.append(_pairs_rows(wiring, action, arrays))
        if count * k < 2 * WORTH_A_THREAD or torch.get_num_threads() == 1:
            return made[0](x, y, count)
        return rows_on_threads(made[0], x, y, count, bytes_a_row, k)

    return run


def looped(wiring: Pairs, action: str, c: Coefficients) -> Rows:
    """The loop over rotations alone, on one thread."""
    return _pairs_rows(wiring, action, _pairs_arrays(action, c))


@lru_cache(maxsize=1024)
def _programs(
    wiring: Butterfly, number: np.dtype, family: str, plain: bytes, scaled: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The programs for one vector and for two."""
    plan, flags = plan_of(wiring, number), np.frombuffer(plain, np.bool_)
    single, double = (program(plan, family, flags, scaled, vectors) for vectors in (1, 2))
    return single, double


def _diagonal(action: str, c: Coefficients) -> np.ndarray:
    """What multiplies coordinates: S D S between the two rotations, or S at the end of one."""
    diagonal = c.middle if action == "symmetric" else c.stored_S
    assert diagonal is not None
    return diagonal


def _butterfly_rows(wiring: Butterfly, action: str, c: Coefficients) -> Any:
    number, n = c.T.dtype, wiring.n
    family = "to_basis" if action == "unscaled" else action
    kernel = KERNELS[family]
    diagonal = _diagonal(action, c)
    scaled = c.scaled and action != "unscaled"
    single, double = _programs(wiring, number, family, c.plain.tobytes(), scaled)
    T, P, shape = c.T, c.P, (2, c.T.shape[1])
    if family == "from_basis":
        T = aligned(c.T.shape, number)
        cpu_butterfly.turn(c.T, plan_of(wiring, number).strides, simd.lanes(number.itemsize * 8), T)
    unused = np.empty(shape, number)  # without padding nothing is kept there
    arrays = (single, double, T, P, diagonal)
    # Addresses, because Numba takes longer to unpack an array than a number.
    one, two, t, p, d = (array.ctypes.data for array in arrays)
    n_one, n_two = len(single), len(double)

    def rows(x: int, y: int, count: int, threads: int = 1, pieces: int = 1, alive: Any = arrays) -> int:
        if threads > 1:
            return openmp.run(
                family, number, threads, pieces, x, y, count, n, shape[1], one, n_one, two, n_two, t, p, d
            )  # fmt: skip
        room = unused if n == shape[1] else aligned(shape, number)
        flags: int = kernel(x, y, count, n, one, n_one, two, n_two, t, p, d, room)
        return flags

    return rows


@lru_cache(maxsize=64)
def _joined(wiring: Pairs) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    order: tuple[np.ndarray, np.ndarray, np.ndarray] = cpu_pairs.join(wiring.indices, wiring.n)
    return order


class _PairsArrays(NamedTuple):
    """What `_pairs_rows` needs of coefficients: those hold the kernels bound to them, so these must not hold them."""

    T: np.ndarray
    P: np.ndarray
    plain: np.ndarray
    diagonal: np.ndarray
    scaled: bool


def _pairs_arrays(action: str, c: Coefficients) -> _PairsArrays:
    scaled = action == "symmetric" or (c.scaled and action != "unscaled")
    return _PairsArrays(c.T, c.P, c.plain, _diagonal(action, c), scaled)


def _pairs_rows(wiring: Pairs, action: str, arrays: _PairsArrays) -> Rows:
    """Vectors one after another where there are few, and in tiles where there are many.

    Tiles wait until WORTH_TILES vectors came: ordering the rotations for them takes as long as rotating so many, and
    where nothing is compiled yet their kernels take two seconds more.
    """
    number, n = arrays.T.dtype, wiring.n
    mode, lanes = MODES["to_basis" if action == "unscaled" else action], simd.lanes(number.itemsize * 8)
    few = max(2, lanes // 4) if n >= lanes else None  # below this a tile's lanes are mostly idle
    alone = (n, mode, arrays.scaled, wiring.indices, arrays.T, arrays.P, arrays.plain, arrays.diagonal)
    made, came = list[Rows](), 0

    def rows(x: int, y: int, count: int) -> int:
        nonlocal came
        came += count
        if few is None or count < few or came < WORTH_TILES:
            flags: int = cpu_pairs.run_vectors(x, y, count, *alone)
            return flags
        if not made:
            made.append(_in_tiles(wiring, mode, arrays))
        return made[0](x, y, count)

    return rows


def _in_tiles(wiring: Pairs, mode: int, arrays: _PairsArrays) -> Rows:
    number, n, diagonal, scaled = arrays.T.dtype, wiring.n, arrays.diagonal, arrays.scaled
    order, joined, swapped = _joined(wiring)
    place = np.stack([swapped, ~swapped], 1).astype(np.int64)  # of the first coordinate, and of the second
    pairs, T, P = (
        np.take_along_axis(array[order], place, 1) for array in (wiring.indices, arrays.T, arrays.P)
    )
    plain = arrays.plain[order]
    joined = joined & ~plain & ~np.roll(plain, -1)

    spare = Spare(lambda: tile(n, number))

    def rows(x: int, y: int, count: int) -> int:
        room = spare.lend()
        if count % room.shape[1]:  # as `tile` says
            room[:] = 0
        flags: int = cpu_pairs.run_tiles(
            x, y, count, n, mode, scaled, pairs, T, P, plain, joined, diagonal, room
        )
        spare.give_back(room)
        return flags

    return rows

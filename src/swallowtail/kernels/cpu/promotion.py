"""Which wirings get machine code of their own, and when: those that have rotated many vectors."""

from __future__ import annotations

import warnings
from functools import lru_cache

import numpy as np
import torch

from swallowtail.kernels.cpu import openmp, straight
from swallowtail.kernels.cpu.codegen import shapes as simd
from swallowtail.kernels.cpu.coefficients import Coefficients, Spare, aligned
from swallowtail.kernels.cpu.threads import Rows, rows_on_threads, share
from swallowtail.wiring import Pairs

# Vectors that a wiring has rotated before code is made for it. Rotating so many takes as long as making the code.
WORTH_CODE = 4096
ALONE = 16  # vectors of a batch that take as long as one by itself
FEWEST, MOST = 32, 2**16  # rotations. Fewer are not worth it; more make code that does not stay in a cache.
CODE_WORTH_A_THREAD = 2**17  # rotations of single vectors, about 12 µs


class Promotion:
    """One action on one rotation. `kernel` is None until the wiring is worth machine code."""

    def __init__(self, wiring: Pairs, action: str, c: Coefficients, diagonal: np.ndarray) -> None:
        self._wiring, self._action = wiring, action
        self._history, self._plain = _history(wiring), c.plain.tobytes()
        self._numbers = [array.reshape(-1) for array in (c.T, c.P, diagonal[: wiring.n])]
        self._one: Rows | None = None
        self._many: Rows | None = None

    def kernel(self, count: int) -> Rows | None:
        """What rotates so many vectors, if it is there or due."""
        kernel = self._one if count == 1 else self._many
        if kernel is not None:
            return kernel
        self._history[0] += ALONE if count == 1 else count
        if self._history[0] < WORTH_CODE:
            return None
        try:
            if count == 1:
                self._one = self._make_one()
            else:
                self._many = self._make_many()
        except OSError as error:
            _warn(str(error))
            self._history[0] = -(2**62)  # do not ask again
        return self._one if count == 1 else self._many

    def _make_one(self) -> Rows:
        code, coefficients, outside, _ = self._code(scalar=True)
        like, n, run_vector = self._numbers[0], self._wiring.n, straight.run_vector
        addresses = code.address, coefficients.ctypes.data, outside.ctypes.data
        alive = code, coefficients, outside

        def run(x: int, y: int, count: int, alive: object = alive) -> int:
            flags: int = run_vector(x, y, n, *addresses, like)
            return flags

        return run

    def _make_many(self) -> Rows:
        code, coefficients, outside, kinds = self._code(scalar=False)
        like, n, k = self._numbers[0], self._wiring.n, self._wiring.n_rotations
        arrays = coefficients, outside, kinds
        shared = (code.address, *(array.ctypes.data for array in arrays))
        alive, bytes_a_row = (code, arrays), n * like.itemsize
        lanes = simd.lanes(like.itemsize * 8)
        tiles = Spare(lambda: aligned((n * lanes,), like.dtype))

        def rows(x: int, y: int, count: int) -> int:
            tile = tiles.lend()
            flags: int = straight.run_tiles(x, y, count, n, *shared, tile)
            tiles.give_back(tile)
            return flags

        def run(x: int, y: int, count: int, alive: object = alive) -> int:
            if count * k < 2 * CODE_WORTH_A_THREAD or torch.get_num_threads() == 1:
                return rows(x, y, count)
            if openmp.available():
                threads, pieces = share(count, k, worth=CODE_WORTH_A_THREAD)
                return openmp.run_tile_job(like.dtype, threads, pieces, x, y, count, n, *shared)
            return rows_on_threads(rows, x, y, count, bytes_a_row, k)

        return run

    def _code(self, scalar: bool) -> tuple[straight.Code, np.ndarray, np.ndarray, np.ndarray]:
        """Code, its coefficients, factors for coordinates that no rotation touches, and the kinds of squares."""
        T, P, diagonal = self._numbers
        double = T.dtype == np.float64
        code, source = straight.code_of(self._wiring, self._action, self._plain, double, scalar)
        coefficients = aligned((len(source),), T.dtype)
        np.take(np.concatenate([T, P, diagonal]), source, out=coefficients)
        touched = np.zeros(self._wiring.n, np.bool_)
        touched[self._wiring.pairs] = True
        outside = aligned((self._wiring.n,), T.dtype)
        # Other actions than this leave these coordinates as they are.
        outside[:] = np.where(touched, 1, diagonal) if self._action == "symmetric" else 1
        kinds = straight.kinds_of_squares(touched, simd.lanes(T.itemsize * 8))
        return code, coefficients, outside, kinds


def promotion(wiring: Pairs, action: str, c: Coefficients, diagonal: np.ndarray) -> Promotion | None:
    """For wirings that may get machine code, on processors for which we can write it."""
    wide = wiring.n >= simd.lanes(c.T.itemsize * 8)
    if straight.POSSIBLE and wide and FEWEST <= wiring.n_rotations <= MOST:
        return Promotion(wiring, action, c, diagonal)
    return None


@lru_cache(maxsize=256)
def _history(wiring: Pairs) -> list[int]:
    """How many vectors a wiring has rotated, in a list that can change."""
    return [0]


@lru_cache(maxsize=1)
def _warn(reason: str) -> None:
    """Once per process."""
    warnings.warn(f"swallowtail: {reason}; chosen pairs run at half speed", RuntimeWarning, stacklevel=2)

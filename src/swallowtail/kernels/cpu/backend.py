"""The CPU back end: the functions every back end has, over the Numba kernels and threads.

Shapes as in `reference`: x (B, m, n), angles (B, K), eigenvalues (B, n).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from swallowtail.kernels.cpu import butterfly as cpu_butterfly
from swallowtail.kernels.cpu import openmp as _openmp
from swallowtail.kernels.cpu import pairs as cpu_pairs
from swallowtail.kernels.cpu import parallel as cpu_threads
from swallowtail.kernels.cpu.backward import rotate_backward
from swallowtail.kernels.cpu.codegen import shapes as simd
from swallowtail.kernels.cpu.coefficients import (
    Coefficients,
    Prepared,
    Spare,
    aligned,
    in_arithmetic,
    multiply_adds,
    plan_of,
    prepare,
    tile,
)
from swallowtail.kernels.cpu.jit import announce_compilation, switched_off
from swallowtail.kernels.cpu.plan import program
from swallowtail.kernels.cpu.threads import WORTH_A_THREAD, over_rows, share
from swallowtail.wiring import Butterfly, Pairs, Wiring

__all__ = [
    "available",
    "bind",
    "multiply_adds",
    "prepare",
    "prepare_training",
    "quadratic",
    "rotate",
    "rotate_backward",
    "symmetric",
]


announce_compilation()
Rows = Callable[[int, int, int], None]  # (address of x, address of y, number of rows)


TAKES_ONE_ROTATION = True
COMPARES_ANGLES = True


def accepts(x: torch.Tensor) -> bool:
    """Vectors in the CPU's memory."""
    return x.device.type == "cpu"


def available() -> str | None:
    """None, or why nothing can be compiled; then a warning says that calls will be slow."""
    reason = switched_off()
    if reason is not None:
        warnings.warn(
            f"{reason}: the reference back end does the CPU's work, slowly", RuntimeWarning, stacklevel=2
        )
    return reason


def prepare_training(wiring: Wiring, angles: torch.Tensor, x: torch.Tensor) -> Prepared:
    """Coefficients for `rotate` and then `rotate_backward`."""
    return prepare(wiring, in_arithmetic(angles), training=True)


def rotate(
    wiring: Wiring,
    angles: torch.Tensor,
    x: torch.Tensor,
    transpose: bool = False,
    prepared: Prepared | None = None,
) -> torch.Tensor:
    """Q x, or Qᵀ x. One rotation, ``prepared``, takes vectors (*batch, n)."""
    prepared = prepared or prepare(wiring, in_arithmetic(angles))
    return _launch(wiring, "down" if transpose else "up", prepared, x)


def symmetric(
    wiring: Wiring,
    angles: torch.Tensor,
    eigenvalues: torch.Tensor,
    x: torch.Tensor,
    prepared: Prepared | None = None,
) -> torch.Tensor:
    """Q D Qᵀ x, each row read and written once."""
    prepared = prepared or prepare(wiring, in_arithmetic(angles), eigenvalues)
    if isinstance(wiring, Butterfly) and wiring.reverse:
        # The fused kernel goes down first; this wiring goes up first.
        w = _launch(wiring, "down", prepared, in_arithmetic(x))
        return _launch(wiring, "up", prepared, w * in_arithmetic(eigenvalues)[:, None]).to(x.dtype)
    return _launch(wiring, "symmetric", prepared, x)


def quadratic(
    wiring: Wiring,
    angles: torch.Tensor,
    eigenvalues: torch.Tensor,
    x: torch.Tensor,
    prepared: Prepared | None = None,
) -> torch.Tensor:
    """xᵀ Q D Qᵀ x, shape (B, m)."""
    prepared = prepared or prepare(wiring, in_arithmetic(angles), eigenvalues)
    z = in_arithmetic(x).contiguous()
    out = torch.empty(z.shape[:2], dtype=z.dtype)
    if isinstance(wiring, Butterfly) and wiring.reverse:
        # Its Qᵀ is the forward butterfly's Q, whose scales come first and are not part of D.
        w = _launch(wiring, "down", prepared, z)
        out = (w * w * eigenvalues.to(z.dtype)[:, None]).sum(-1)
    else:
        for b, c in enumerate(prepared):
            _bind_quadratic(wiring, c)(z[b], out[b])
    return out.to(x.dtype)


@lru_cache(maxsize=1024)
def _programs(
    wiring: Butterfly, number: np.dtype, family: str, plain: bytes, scaled: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The programs for one vector and for two."""
    plan, flags = plan_of(wiring, number), np.frombuffer(plain, np.bool_)
    single, double = (program(plan, family, flags, scaled, vectors) for vectors in (1, 2))
    return single, double


def _launch(wiring: Wiring, action: str, prepared: Prepared, x: torch.Tensor) -> torch.Tensor:
    """Run one kernel on (B, m, n): action "down", "up", "symmetric", or "unscaled" for M x alone."""
    if isinstance(wiring, Butterfly) and wiring.reverse:
        wiring, action = wiring.T, {"down": "up", "up": "down"}[action]
    if not x.numel():
        return x.new_empty(x.shape)
    number = prepared[0].T.dtype
    dtype = torch.float32 if number == np.float32 else torch.float64
    z = (x if x.dtype is dtype else x.to(dtype)).contiguous()
    y = torch.empty_like(z)
    count = z.numel() // (len(prepared) * wiring.n)
    apart = count * wiring.n * z.itemsize
    for b, c in enumerate(prepared):
        _bind(wiring, action, c)(z.data_ptr() + b * apart, y.data_ptr() + b * apart, count)
    return y if x.dtype is dtype else y.to(x.dtype)


def bind(wiring: Wiring, action: str, prepared: Prepared) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """The kernel with everything but x already looked up, for single small calls; None where there is none.

    It takes one contiguous tensor (*batch, n) of the coefficients' dtype, and checks nothing.
    """
    if len(prepared) != 1:
        return None
    action = {"from_basis": "up", "to_basis": "down"}.get(action, action)
    if isinstance(wiring, Butterfly) and wiring.reverse:
        if action not in ("up", "down"):
            return None
        wiring, action = wiring.T, "down" if action == "up" else "up"
    n = wiring.n
    if action == "quadratic":
        sums = _bind_quadratic(wiring, prepared[0])

        def call_quadratic(x: torch.Tensor) -> torch.Tensor:
            out = torch.empty(x.shape[:-1], dtype=x.dtype)
            sums(x, out)
            return out

        return call_quadratic
    run = _bind(wiring, action, prepared[0])

    def call(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        run(x.data_ptr(), y.data_ptr(), x.numel() // n)
        return y

    return call


def _bind(wiring: Wiring, action: str, c: Coefficients) -> Rows:
    """A function of (x, y, m), the addresses of m contiguous rows of n, for one action on one rotation."""
    run: Rows | None = c.bound.get(action)
    if run is None:
        run = c.bound[action] = _make(wiring, action, c)
    return run


def _make(wiring: Wiring, action: str, c: Coefficients) -> Rows:
    butterfly = isinstance(wiring, Butterfly)
    make_rows: Any = _butterfly_rows if butterfly else _pairs_rows
    rows = make_rows(wiring, action, c)
    n, k = wiring.n, wiring.n_rotations
    bytes_a_row = n * c.T.dtype.itemsize
    factor, like = c.factor if action == "symmetric" else 1.0, c.T

    def run(x: int, y: int, count: int) -> None:
        if count * k < 2 * WORTH_A_THREAD or torch.get_num_threads() == 1:
            rows(x, y, count)
        elif butterfly and _openmp.available():
            rows(x, y, count, *share(count, k))
        else:
            over_rows(lambda a, b: rows(x + a * bytes_a_row, y + a * bytes_a_row, b - a), count, k)
        if factor != 1.0:
            cpu_butterfly.multiply(y, count * n, factor, like)

    return run


def _bind_quadratic(wiring: Wiring, c: Coefficients) -> Callable[[torch.Tensor, torch.Tensor], None]:
    """A function of (x, out): Σ S D S (M x)², in blocks of rows whose rotated copies stay in cache."""
    run, n, factor = _bind(wiring, "unscaled", c), wiring.n, c.factor
    assert c.diagonal is not None
    weights, block = c.diagonal[:n], max(2, 2**17 // n)

    def quadratic(x: torch.Tensor, out: torch.Tensor) -> None:
        rows, sums = x.reshape(-1, n), out.reshape(-1)
        rotated = torch.empty(min(block, len(rows)), n, dtype=x.dtype)
        for start in range(0, len(rows), block):
            part = rows[start : start + block]
            run(part.data_ptr(), rotated.data_ptr(), len(part))
            cpu_butterfly.weighted_squares(rotated.numpy()[: len(part)], weights, sums.numpy()[start:])
        if factor != 1.0:
            out *= factor

    return quadratic


def _butterfly_rows(wiring: Butterfly, action: str, c: Coefficients) -> Callable[..., None]:
    number, n = c.T.dtype, wiring.n
    family = "down" if action == "unscaled" else action
    kernel = cpu_threads.KERNELS[family]
    diagonal = c.diagonal if action == "symmetric" else c.scale_stored
    scaled = c.scaled and action != "unscaled"
    single, double = _programs(wiring, number, family, c.plain.tobytes(), scaled)
    T, P, shape = c.T, c.P, (2, c.T.shape[1])
    if family == "up":
        T = aligned(c.T.shape, number)
        cpu_butterfly.turn(c.T, plan_of(wiring, number).strides, simd.lanes(number.itemsize * 8), T)
    unused = np.empty(shape, number)  # without padding nothing is kept there
    assert diagonal is not None
    arrays = (single, double, T, P, diagonal)
    # Numba takes longer over an array than over a number.
    one, two, t, p, d = (array.ctypes.data for array in arrays)
    n_one, n_two = len(single), len(double)

    def rows(x: int, y: int, count: int, threads: int = 1, pieces: int = 1, alive: Any = arrays) -> None:
        if threads > 1:
            cpu_threads.run(
                family, number, threads, pieces, x, y, count, n, shape[1], one, n_one, two, n_two, t, p, d
            )  # fmt: skip
        else:
            room = unused if n == shape[1] else aligned(shape, number)
            kernel(x, y, count, n, one, n_one, two, n_two, t, p, d, room)

    return rows


@lru_cache(maxsize=64)
def _joined(wiring: Pairs) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    order: tuple[np.ndarray, np.ndarray, np.ndarray] = cpu_pairs.join(wiring.pairs, wiring.n)
    return order


def _pairs_rows(wiring: Pairs, action: str, c: Coefficients) -> Callable[..., None]:
    number, n = c.T.dtype, wiring.n
    mode = {"down": cpu_pairs.DOWN, "unscaled": cpu_pairs.DOWN, "up": cpu_pairs.UP}.get(
        action, cpu_pairs.SYMMETRIC
    )
    diagonal = c.diagonal if action == "symmetric" else c.scale_stored
    scaled = action == "symmetric" or (c.scaled and action != "unscaled")
    order, joined, swapped = _joined(wiring)
    place = np.stack([swapped, ~swapped], 1).astype(np.int64)  # of the first coordinate, and of the second
    pairs, T, P = (np.take_along_axis(array[order], place, 1) for array in (wiring.pairs, c.T, c.P))
    plain = c.plain[order]
    joined = joined & ~plain & ~np.roll(plain, -1)

    nothing, spare = tile(0, number), Spare(lambda: tile(n, number))

    def rows(x: int, y: int, count: int) -> None:
        room = nothing if count == 1 else spare.lend()
        if count % room.shape[1]:  # as `tile` says
            room[:] = 0
        cpu_pairs.run(x, y, count, n, mode, scaled, pairs, T, P, plain, joined, diagonal, room)
        if count > 1:
            spare.give_back(room)

    return rows

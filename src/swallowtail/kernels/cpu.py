"""The CPU back end: the functions every back end has, over the Numba kernels and threads.

Shapes as in `reference`: x (B, m, n), angles (B, K), eigenvalues (B, n).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

import numpy as np
import torch

from swallowtail.kernels import cpu_butterfly, cpu_pairs, simd, simd_rows
from swallowtail.kernels._announce import announce_compilation
from swallowtail.kernels._threads import WORTH_A_THREAD, over_rows
from swallowtail.kernels.cpu_coefficients import (
    Coefficients,
    Prepared,
    aligned,
    forward_form,
    multiply_adds,
    plan_of,
    prepare,
)
from swallowtail.wiring import Butterfly, Pairs, Wiring

__all__ = [
    "available",
    "bind",
    "multiply_adds",
    "prepare",
    "quadratic",
    "rotate",
    "rotate_backward",
    "symmetric",
]


announce_compilation()


def available() -> str | None:
    """None: this back end runs wherever Numba does."""
    return None


def rotate(
    wiring: Wiring,
    angles: torch.Tensor,
    x: torch.Tensor,
    transpose: bool = False,
    prepared: Prepared | None = None,
) -> torch.Tensor:
    """Q x, or Qᵀ x."""
    prepared = prepared or prepare(wiring, _in_arithmetic(angles))
    return _launch(wiring, "down" if transpose else "up", prepared, x)


def symmetric(
    wiring: Wiring,
    angles: torch.Tensor,
    eigenvalues: torch.Tensor,
    x: torch.Tensor,
    prepared: Prepared | None = None,
) -> torch.Tensor:
    """Q D Qᵀ x, each row read and written once."""
    prepared = prepared or prepare(wiring, _in_arithmetic(angles), eigenvalues)
    if isinstance(wiring, Butterfly) and wiring.reverse:
        # The fused kernel goes down first; this wiring goes up first.
        w = _launch(wiring, "down", prepared, _in_arithmetic(x))
        return _launch(wiring, "up", prepared, w * _in_arithmetic(eigenvalues)[:, None]).to(x.dtype)
    return _launch(wiring, "symmetric", prepared, x)


def quadratic(
    wiring: Wiring,
    angles: torch.Tensor,
    eigenvalues: torch.Tensor,
    x: torch.Tensor,
    prepared: Prepared | None = None,
) -> torch.Tensor:
    """xᵀ Q D Qᵀ x, shape (B, m)."""
    prepared = prepared or prepare(wiring, _in_arithmetic(angles), eigenvalues)
    z = _in_arithmetic(x).contiguous()
    out = torch.empty(z.shape[:2], dtype=z.dtype)
    if isinstance(wiring, Butterfly) and wiring.reverse:
        # Its Qᵀ is the forward butterfly's Q, whose scales come first and are not part of D.
        w = _launch(wiring, "down", prepared, z)
        out = (w * w * eigenvalues.to(z.dtype)[:, None]).sum(-1)
    else:
        for b, c in enumerate(prepared):
            _bind_quadratic(wiring, c)(z[b], out[b])
    return out.to(x.dtype)


def rotate_backward(
    wiring: Wiring,
    angles: torch.Tensor,
    y: torch.Tensor,
    grad: torch.Tensor,
    transpose: bool = False,
    prepared: Prepared | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of ⟨grad, Q x⟩ for x and the angles, from y = Q x: the activations are rebuilt."""
    storage, y, grad = y.dtype, _in_arithmetic(y).contiguous(), _in_arithmetic(grad).contiguous()
    forward_wiring, forward_angles, reverse = forward_form(wiring, _in_arithmetic(angles))
    transpose = transpose != reverse
    plain = prepare(forward_wiring, forward_angles, fast=False)
    grad_x = torch.empty_like(grad)
    # Long sums are worth float64; short ones are not worth a gradient of twice the size.
    sums = torch.float64 if y.shape[1] > LONG_SUM else forward_angles.dtype
    grad_angles = torch.zeros(forward_angles.shape, dtype=sums)
    wedge: Any = _wedge_butterfly if isinstance(forward_wiring, Butterfly) else _wedge_pairs
    for b, c in enumerate(plain):
        wedge(forward_wiring, c, (y[b], grad[b], grad_x[b]), transpose, grad_angles[b])
    if reverse:
        order = torch.from_numpy(forward_wiring.transpose_order)
        grad_angles = -grad_angles[:, order]
    return grad_x.to(storage), grad_angles.to(_in_arithmetic(angles).dtype)


def _in_arithmetic(x: torch.Tensor) -> torch.Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


@lru_cache(maxsize=1024)
def _programs(
    wiring: Butterfly, number: np.dtype, family: str, plain: bytes, scaled: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The programs for one vector and for two."""
    plan = plan_of(wiring, number, family.endswith("wedge"))
    flags = np.frombuffer(plain, np.bool_)
    if family.endswith("wedge"):  # other passes than forward, all of them plain
        flags = np.ones(len(plan.passes), np.bool_)
    single, double = (cpu_butterfly.program(plan, family, flags, scaled, vectors) for vectors in (1, 2))
    return single, double


def _launch(wiring: Wiring, action: str, prepared: Prepared, x: torch.Tensor) -> torch.Tensor:
    """Run one kernel on (B, m, n): action "down", "up", "symmetric", or "unscaled" for M x alone."""
    if isinstance(wiring, Butterfly) and wiring.reverse:
        wiring, action = wiring.T, {"down": "up", "up": "down"}[action]
    if not x.numel():
        return x.new_empty(x.shape)
    number = prepared[0].T.dtype
    z = x.to(torch.float32 if number == np.float32 else torch.float64).contiguous()
    y = torch.empty_like(z)
    for b, c in enumerate(prepared):
        _bind(wiring, action, c)(z[b], y[b])
    return y.to(x.dtype)


def bind(wiring: Wiring, action: str, prepared: Prepared) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """The kernel with everything but x already looked up, for single small calls; None where there is none.

    It takes one contiguous tensor (*batch, n) of the coefficients' dtype, and checks nothing.
    """
    if len(prepared) != 1:
        return None
    if isinstance(wiring, Butterfly) and wiring.reverse:
        if action not in ("up", "down"):
            return None
        wiring, action = wiring.T, "down" if action == "up" else "up"
    quadratic = action == "quadratic"
    run = _bind_quadratic(wiring, prepared[0]) if quadratic else _bind(wiring, action, prepared[0])

    def call(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty(x.shape[:-1], dtype=x.dtype) if quadratic else torch.empty_like(x)
        run(x, y)
        return y

    return call


def _bind(wiring: Wiring, action: str, c: Coefficients) -> Callable[[torch.Tensor, torch.Tensor], None]:
    """A function of (x, y), both contiguous with rows of n, for one action on one rotation."""
    make_rows: Any = _butterfly_rows if isinstance(wiring, Butterfly) else _pairs_rows
    rows: Rows = make_rows(wiring, action, c)
    n, k = wiring.n, wiring.n_rotations
    bytes_a_row = n * c.T.dtype.itemsize
    factor = c.factor if action == "symmetric" else 1.0

    def run(x: torch.Tensor, y: torch.Tensor) -> None:
        count, at_x, at_y = x.numel() // n, x.data_ptr(), y.data_ptr()
        if count * k < 2 * WORTH_A_THREAD:
            rows(at_x, at_y, count)
        else:
            over_rows(lambda a, b: rows(at_x + a * bytes_a_row, at_y + a * bytes_a_row, b - a), count, k)
        if factor != 1.0:
            y *= factor

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
            run(part, rotated)
            cpu_butterfly.weighted_squares(rotated.numpy()[: len(part)], weights, sums.numpy()[start:])
        if factor != 1.0:
            out *= factor

    return quadratic


LONG_SUM = 4096  # rows
Batches = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # y, grad and grad_x, each (m, n)
Rows = Callable[[int, int, int], None]  # (address of x, address of y, number of rows)


def _butterfly_rows(wiring: Butterfly, action: str, c: Coefficients) -> Rows:
    number, n = c.T.dtype, wiring.n
    family = "down" if action == "unscaled" else action
    kernel = {"down": cpu_butterfly.down, "up": cpu_butterfly.up, "symmetric": cpu_butterfly.symmetric}[
        family
    ]
    diagonal = c.diagonal if action == "symmetric" else c.scale_stored
    scaled = c.scaled and action != "unscaled"
    single, double = _programs(wiring, number, family, c.plain.tobytes(), scaled)
    T, P, shape = c.T, c.P, (2, c.T.shape[1])
    make = np.empty if n == shape[1] else aligned  # without padding it is not used, only looked at
    return lambda x, y, count: kernel(x, y, count, n, single, double, T, P, diagonal, make(shape, number))


def _pairs_rows(wiring: Pairs, action: str, c: Coefficients) -> Rows:
    number, n = c.T.dtype, wiring.n
    mode = {"down": cpu_pairs.DOWN, "unscaled": cpu_pairs.DOWN, "up": cpu_pairs.UP}.get(
        action, cpu_pairs.SYMMETRIC
    )
    diagonal = c.diagonal if action == "symmetric" else c.scale_stored
    scaled = action == "symmetric" or (c.scaled and action != "unscaled")
    pairs, T, P, plain = wiring.pairs, c.T, c.P, c.plain
    return lambda x, y, count: cpu_pairs.run(
        x, y, count, n, mode, scaled, pairs, T, P, plain, diagonal, _tile(n if count > 1 else 0, number)
    )


def _tile(n: int, number: np.dtype) -> np.ndarray:
    # Zeros: lanes past the end of a batch are computed, and must not meet slow or trapping numbers.
    tile = aligned((n, simd_rows.ROW_REGISTERS * simd.lanes(number.itemsize * 8)), number)
    tile[:] = 0
    return tile


def _wedge_butterfly(
    wiring: Butterfly, c: Coefficients, batches: Batches, transpose: bool, out: torch.Tensor
) -> None:
    number, n = c.T.dtype, wiring.n
    plan = plan_of(wiring, number)
    family = "up wedge" if transpose else "down wedge"
    kernel = cpu_butterfly.up_wedge if transpose else cpu_butterfly.down_wedge
    programs = _programs(wiring, number, family, b"", False)
    row = n * number.itemsize
    pointers = [batch.data_ptr() for batch in batches]
    gradient, sign = out.numpy(), -1.0 if transpose else 1.0

    def rows(start: int, stop: int) -> np.ndarray:
        total = np.zeros(wiring.n_rotations)
        for first in range(start, stop, 512):  # sums of 512 rows in the kernel's dtype, the rest in float64
            accumulator, scratch = aligned(c.T.shape, number), aligned((4, plan.padded), number)
            accumulator[:] = 0
            at = [p + first * row for p in pointers]
            kernel(*at, min(512, stop - first), n, *programs, c.T, c.P, accumulator, scratch)
            cpu_butterfly.collect(accumulator, plan.strides, n, sign, total)
        return total

    for total in over_rows(rows, len(batches[0]), wiring.n_rotations):
        gradient += total


def _wedge_pairs(
    wiring: Pairs, c: Coefficients, batches: Batches, transpose: bool, out: torch.Tensor
) -> None:
    number, n = c.T.dtype, wiring.n
    row = n * number.itemsize
    pointers = [batch.data_ptr() for batch in batches]
    gradient, kernel = out.numpy(), cast(Any, cpu_pairs.run_wedge)

    def rows(start: int, stop: int) -> np.ndarray:
        total = np.zeros(wiring.n_rotations)
        at = [p + start * row for p in pointers]
        y, g = _tile(n, number), _tile(n, number)
        kernel(*at, stop - start, n, transpose, wiring.pairs, c.T, c.P, y, g, total)
        return total

    for total in over_rows(rows, len(batches[0]), wiring.n_rotations):
        gradient += -total if transpose else total

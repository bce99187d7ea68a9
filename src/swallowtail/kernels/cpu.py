"""The CPU back end: coefficients for the Numba kernels, threads, and the launchers every back end has.

Shapes as in `reference`: x (B, m, n), angles (B, K), eigenvalues (B, n).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch

from swallowtail.kernels import cpu_butterfly, cpu_pairs, simd, simd_rows
from swallowtail.kernels._threads import WORTH_A_THREAD, compiled, compiling, over_rows
from swallowtail.wiring import Butterfly, Pairs, Wiring

# (smallest cosine, smallest running scale) of a fast rotation: S² D must stay far from the smallest normal number.
_RANGE = {torch.float32: (2.0**-24, 2.0**-48), torch.float64: (2.0**-60, 2.0**-400)}
_NUMPY = {torch.float32: np.float32, torch.float64: np.float64}


class Coefficients(NamedTuple):
    """What the kernels read for one rotation, Qᵀ = S·M (see `cpu_butterfly`), and for one diagonal."""

    T: np.ndarray
    P: np.ndarray
    plain: np.ndarray  # for each pass, or for each rotation of Pairs
    scale: np.ndarray  # S in float64
    scale_stored: np.ndarray  # S in the kernel's dtype
    scaled: bool  # whether S differs from 1
    diagonal: np.ndarray | None = None  # S D S, divided by `factor`
    factor: float = 1.0  # a power of two


Prepared = tuple[Coefficients, ...]  # one for each of the B rotations


def available() -> str | None:
    """None: this back end runs wherever Numba does."""
    return None


def prepare(
    wiring: Wiring,
    angles: torch.Tensor,
    eigenvalues: torch.Tensor | None = None,
    *,
    fast: bool = True,
    rotation: Prepared | None = None,
) -> Prepared:
    """Coefficients of the rotations (and of the diagonals), good as long as the angles do not change.

    Args:
        wiring: who meets whom.
        angles: shape (B, K), float32 or float64; the kernels will work in this dtype.
        eigenvalues: shape (B, n), if Q D Qᵀ is wanted.
        fast: two multiply-adds a rotation where the range of the scales allows it.
        rotation: the result of an earlier call with the same angles, to add eigenvalues to.
    """
    if rotation is None:
        wiring, angles, _ = _forward(wiring, angles)
        theta = angles.detach().to("cpu", torch.float64)
        cos, sin = torch.cos(theta).numpy(), torch.sin(theta).numpy()
        pack = _pack_butterfly if isinstance(wiring, Butterfly) else _pack_pairs
        rotation = tuple(pack(wiring, angles.dtype, c, s, fast) for c, s in zip(cos, sin, strict=True))
    if eigenvalues is None:
        return rotation
    d = eigenvalues.detach().to("cpu", torch.float64).numpy()
    return tuple(_with_diagonal(c, row) for c, row in zip(rotation, d, strict=True))


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
    z = _in_arithmetic(x)
    out = torch.empty(z.shape[:2], dtype=z.dtype)
    block = max(2, 2**16 // max(1, z.shape[2]))  # rows whose rotated copies stay in cache
    reverse = isinstance(wiring, Butterfly) and wiring.reverse
    for b, c in enumerate(prepared):
        weights = c.diagonal
        if reverse:
            weights = eigenvalues[b].detach().to(z.dtype).contiguous().numpy()
        for start in range(0, z.shape[1], block):
            rows = slice(start, start + block)
            w = _launch(wiring, "down" if reverse else "unscaled", (c,), z[b : b + 1, rows])
            cpu_butterfly.weighted_squares(w[0].numpy(), weights[: z.shape[2]], out[b, rows].numpy())
        if not reverse and c.factor != 1.0:
            out[b] *= c.factor
    return out.to(x.dtype)


def rotate_backward(
    wiring: Wiring,
    angles: torch.Tensor,
    y: torch.Tensor,
    grad: torch.Tensor,
    transpose: bool = False,
    prepared: Prepared | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of ⟨grad, Q x⟩ for x and the angles from y = Q x; nothing stored on the way forward is needed."""
    storage, y, grad = y.dtype, _in_arithmetic(y).contiguous(), _in_arithmetic(grad).contiguous()
    forward_wiring, forward_angles, reverse = _forward(wiring, _in_arithmetic(angles))
    transpose = transpose != reverse
    plain = prepare(forward_wiring, forward_angles, fast=False)
    grad_x = torch.empty_like(grad)
    grad_angles = torch.zeros(forward_angles.shape, dtype=torch.float64)
    wedge = _wedge_butterfly if isinstance(forward_wiring, Butterfly) else _wedge_pairs
    for b, c in enumerate(plain):
        wedge(forward_wiring, c, y[b], grad[b], grad_x[b], transpose, grad_angles[b])
    if reverse:
        order = torch.from_numpy(forward_wiring.transpose_order)
        grad_angles = -grad_angles[:, order]
    return grad_x.to(storage), grad_angles.to(_in_arithmetic(angles).dtype)


def multiply_adds(wiring: Wiring, prepared: Prepared, form: str = "rotate") -> int:
    """Multiply-adds of one vector in the kernel that runs: form "rotate", "symmetric" or "quadratic"."""
    c = prepared[0]
    if isinstance(wiring, Butterfly):
        plan = _plan(wiring, c.T.dtype)
        bounds = [p.layer for p in plan.passes] + [len(plan.strides)]
        sizes = np.array([_rotations(wiring.n, plan.strides[a:b]) for a, b in zip(bounds, bounds[1:], strict=False)])
    else:
        sizes = np.ones(wiring.n_rotations, np.int64)
    steps = int((sizes * np.where(c.plain, 4, 2)).sum())
    if form == "symmetric":
        return 2 * steps + wiring.n * (2 if c.factor != 1.0 else 1)
    return steps + (2 * wiring.n if form == "quadratic" else wiring.n * c.scaled)


def _in_arithmetic(x: torch.Tensor) -> torch.Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _forward(wiring: Wiring, angles: torch.Tensor) -> tuple[Wiring, torch.Tensor, bool]:
    """A reversed butterfly is the transpose of a plain one; the kernels know only the plain one."""
    if isinstance(wiring, Butterfly) and wiring.reverse:
        order = torch.from_numpy(wiring.transpose_order).to(angles.device)
        return wiring.T, -angles[:, order], True
    return wiring, angles, False


def _plan(wiring: Butterfly, dtype: np.dtype | type) -> cpu_butterfly.Plan:
    return cpu_butterfly.make_plan(wiring.n, wiring.depth, simd.lanes(np.dtype(dtype).itemsize * 8))


def _rotations(n: int, strides: np.ndarray) -> int:
    return sum(n // (2 * p) * p + max(0, n % (2 * p) - p) for p in strides.tolist())


def _pack_butterfly(wiring: Butterfly, dtype: torch.dtype, cos: np.ndarray, sin: np.ndarray, fast: bool) -> Coefficients:
    number = _NUMPY[dtype]
    plan = _plan(wiring, number)
    shape = (len(plan.strides), plan.padded)
    T, scale = np.empty(shape, number), np.empty(plan.padded)
    plain = np.zeros(len(plan.passes), np.bool_)
    bounds = np.array([p.layer for p in plan.passes] + [len(plan.strides)])
    with compiling("coefficients", dtype):
        # Most rotations need no plain pass and so no P: try without, and allocate it if one turns up.
        for rows in (0, shape[0]) if fast else (shape[0],):
            P = np.empty((rows, plan.padded), number)
            if cpu_butterfly.pack(cos, sin, plan.strides, bounds, wiring.n, fast, *_RANGE[dtype], T, P, scale, plain):
                break
    return Coefficients(T, P, plain, scale, scale.astype(number), not plain[-1])


def _pack_pairs(wiring: Pairs, dtype: torch.dtype, cos: np.ndarray, sin: np.ndarray, fast: bool) -> Coefficients:
    number = _NUMPY[dtype]
    T, P = np.empty((wiring.n_rotations, 2), number), np.empty((wiring.n_rotations, 2), number)
    scale, plain = np.empty(wiring.n), np.zeros(wiring.n_rotations, np.bool_)
    with compiling("coefficients", dtype):
        cpu_pairs.pack(cos, sin, wiring.pairs, fast, *_RANGE[dtype], T, P, scale, plain)
    return Coefficients(T, P, plain, scale, scale.astype(number), bool(fast and (scale != 1).any()))


def _with_diagonal(c: Coefficients, eigenvalues: np.ndarray) -> Coefficients:
    """S D S; divided by a power of two where float32 could not hold it to full precision."""
    number = c.T.dtype
    diagonal = np.ones(len(c.scale))
    diagonal[: len(eigenvalues)] = eigenvalues
    largest, smallest = np.abs(eigenvalues).max(), np.abs(c.scale).min()
    factor = 1.0
    if number == np.float32 and 0 < largest * smallest**2 < 2.0**-100:
        factor = 2.0 ** np.floor(np.log2(largest))
    return c._replace(diagonal=(diagonal / factor * c.scale**2).astype(number), factor=factor)


@lru_cache(maxsize=1024)
def _program(wiring: Butterfly, number: np.dtype, family: str, plain: bytes, scaled: bool, vectors: int) -> np.ndarray:
    flags = np.frombuffer(plain, np.bool_)
    return cpu_butterfly.program(_plan(wiring, number), family, flags, scaled, vectors)


def _launch(wiring: Wiring, action: str, prepared: Prepared, x: torch.Tensor) -> torch.Tensor:
    """Run one kernel on (B, m, n): action "down", "up", "symmetric", or "unscaled" for M x alone."""
    if isinstance(wiring, Butterfly) and wiring.reverse:
        wiring, action = wiring.T, {"down": "up", "up": "down"}[action]
    number = prepared[0].T.dtype
    z = x.to(torch.float32 if number == np.float32 else torch.float64).contiguous()
    y = torch.empty_like(z)
    for b, c in enumerate(prepared):
        _bind(wiring, action, c)(z[b], y[b])
    return y.to(x.dtype)


def bind(wiring: Wiring, action: str, prepared: Prepared) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """The kernel with everything but x already looked up, for single small calls; None where there is none.

    It takes one contiguous float32 or float64 tensor (*batch, n) of the coefficients' dtype, and checks nothing.
    """
    if len(prepared) != 1 or (isinstance(wiring, Butterfly) and wiring.reverse):
        return None
    run = _bind(wiring, action, prepared[0])

    def call(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        run(x, y)
        return y

    return call


def _bind(wiring: Wiring, action: str, c: Coefficients) -> Callable[[torch.Tensor, torch.Tensor], None]:
    """A function of (x, y), both contiguous with rows of n, for one action on one rotation."""
    rows = _butterfly_rows(wiring, action, c) if isinstance(wiring, Butterfly) else _pairs_rows(wiring, action, c)
    n, k = wiring.n, wiring.n_rotations
    name, number = action if isinstance(wiring, Butterfly) else "pairs", c.T.dtype
    bytes_a_row = n * number.itemsize
    factor = c.factor if action == "symmetric" else 1.0

    def run(x: torch.Tensor, y: torch.Tensor) -> None:
        count, at_x, at_y = x.numel() // n, x.data_ptr(), y.data_ptr()
        if count * k < 2 * WORTH_A_THREAD and (name, number) in compiled:
            rows(at_x, at_y, count)
        else:
            with compiling(name, number):
                over_rows(lambda a, b: rows(at_x + a * bytes_a_row, at_y + a * bytes_a_row, b - a), count, k)
        if factor != 1.0:
            y *= factor

    return run


Rows = Callable[[int, int, int], None]  # (address of x, address of y, number of rows)


def _butterfly_rows(wiring: Butterfly, action: str, c: Coefficients) -> Rows:
    number, n = c.T.dtype, wiring.n
    family = "down" if action == "unscaled" else action
    kernel = {"down": cpu_butterfly.down, "up": cpu_butterfly.up, "symmetric": cpu_butterfly.symmetric}[family]
    diagonal = c.diagonal if action == "symmetric" else c.scale_stored
    scaled = c.scaled and action != "unscaled"
    single, double = (_program(wiring, number, family, c.plain.tobytes(), scaled, v) for v in (1, 2))
    T, P, shape = c.T, c.P, (2, c.T.shape[1])
    return lambda x, y, count: kernel(x, y, count, n, single, double, T, P, diagonal, np.empty(shape, number))


def _pairs_rows(wiring: Pairs, action: str, c: Coefficients) -> Rows:
    number, n = c.T.dtype, wiring.n
    mode = {"down": cpu_pairs.DOWN, "unscaled": cpu_pairs.DOWN, "up": cpu_pairs.UP}.get(action, cpu_pairs.SYMMETRIC)
    diagonal = c.diagonal if action == "symmetric" else c.scale_stored
    scaled = action == "symmetric" or (c.scaled and action != "unscaled")
    pairs, T, P, plain = wiring.pairs, c.T, c.P, c.plain
    return lambda x, y, count: cpu_pairs.run(
        x, y, count, n, mode, scaled, pairs, T, P, plain, diagonal, _tile(n if count > 1 else 0, number)
    )


def _tile(n: int, number: np.dtype) -> np.ndarray:
    # Zeros: lanes past the end of a batch are computed, and must not meet slow or trapping numbers.
    return np.zeros((n, simd_rows.ROW_REGISTERS * simd.lanes(number.itemsize * 8)), number)


def _wedge_butterfly(wiring: Butterfly, c: Coefficients, y, grad, grad_x, transpose: bool, out: torch.Tensor) -> None:
    number, n = c.T.dtype, wiring.n
    plan = _plan(wiring, number)
    family = "up wedge" if transpose else "down wedge"
    kernel = cpu_butterfly.up_wedge if transpose else cpu_butterfly.down_wedge
    program = _program(wiring, number, family, c.plain.tobytes(), False, 2)
    row = n * number.itemsize
    pointers = y.data_ptr(), grad.data_ptr(), grad_x.data_ptr()
    gradient, sign = out.numpy(), -1.0 if transpose else 1.0

    def rows(start: int, stop: int) -> np.ndarray:
        total = np.zeros(wiring.n_rotations)
        for first in range(start, stop, 512):  # sums of 512 rows in the kernel's dtype, the rest in float64
            accumulator, scratch = np.zeros(c.T.shape, number), np.empty((2, plan.padded), number)
            at = [p + first * row for p in pointers]
            kernel(*at, min(512, stop - first), n, program, c.T, c.P, accumulator, scratch)
            cpu_butterfly.collect(accumulator, plan.strides, n, sign, total)
        return total

    with compiling(family, number):
        for total in over_rows(rows, len(y), wiring.n_rotations):
            gradient += total


def _wedge_pairs(wiring: Pairs, c: Coefficients, y, grad, grad_x, transpose: bool, out: torch.Tensor) -> None:
    number, n = c.T.dtype, wiring.n
    row = n * number.itemsize
    pointers = y.data_ptr(), grad.data_ptr(), grad_x.data_ptr()
    gradient = out.numpy()

    def rows(start: int, stop: int) -> np.ndarray:
        total = np.zeros(wiring.n_rotations)
        at = [p + start * row for p in pointers]
        tiles = _tile(n, number), _tile(n, number)
        cpu_pairs.run_wedge(*at, stop - start, n, transpose, wiring.pairs, c.T, c.P, c.plain, *tiles, total)
        return total

    with compiling("pairs backward", number):
        for total in over_rows(rows, len(y), wiring.n_rotations):
            gradient += -total if transpose else total

"""Butterflies on the GPU: tables of coefficients and launches of `gpu_butterfly_kernels`."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch

from swallowtail.kernels import gpu_butterfly_kernels
from swallowtail.wiring import Butterfly

# The fast form multiplies by tan θ and carries the cosines as scales. It loses no accuracy, only range: below
# these bounds the plain form is used. Scales of 2^-50, squared, leave float32 room for data and eigenvalues.
MIN_COSINE = 2.0**-20
MIN_SCALE = {torch.float32: 2.0**-50, torch.float64: 2.0**-200}
EIGENVALUE_RANGE = {torch.float32: (2.0**-20, 2.0**40), torch.float64: (2.0**-200, 2.0**200)}
# Bound on the scratch between two passes. Chunks that would stay in the L2 cache (32 MiB) were slower on an
# H200: their launches take longer than their work.
CHUNK_BYTES = 1 << 30
SUMS_BYTES = 64 << 20  # bound on the per-program sums of angle gradients


class Pass(NamedTuple):
    """A launch over the stages with strides 2^first … 2^(first + bits − 1); see `gpu_butterfly_kernels`."""

    first: int
    bits: int
    cols: int  # neighbouring coordinates a tile takes along (1 where the tile itself is contiguous)
    groups: int


class PreparedButterfly(NamedTuple):
    """Tables (B, depth, tiles, bits, N/2) of each pass, and what the fast form multiplies by."""

    fast: bool
    passes: tuple[Pass, ...]
    tables: tuple[tuple[torch.Tensor, torch.Tensor], ...]
    scales: torch.Tensor  # shape: (B, depth, n); empty in the plain form
    middle: torch.Tensor | None  # shape: (B, n): eigenvalues; in the fast form times the last scales squared


def _passes(n: int) -> tuple[Pass, ...]:
    """Passes from the lowest stride up. One while a tile of a few whole vectors fits into registers.

    Beyond that, 2^10 neighbours and then strided passes of at most 7 stages: a strided pass of four or fewer
    is a single group, which exchanges nothing between threads.
    """
    bits = (n - 1).bit_length()
    if bits <= 12:
        return (Pass(0, bits, 1, GROUPS[bits]),)
    rest = bits - 10
    strided = -(-rest // 7)
    passes, first = [Pass(0, 10, 1, GROUPS[10])], 10
    for index in range(strided):
        size = rest // strided + (index < rest % strided)
        passes.append(Pass(first, size, 64 if size == 4 else 128, -(-size // 4)))
        first += size
    return tuple(passes)


# Groups of a contiguous pass of so many stages: 2 to 4 stages a group, so many that M is at least the number
# of threads. With M smaller, a group's threads would share positions and exchange data at every stage.
GROUPS = {1: 1, 2: 1, 3: 1, 4: 1, 5: 2, 6: 2, 7: 2, 8: 3, 9: 3, 10: 4, 11: 4, 12: 4}

# Vectors and warps of a program, by stages. From 8 stages up (backward: at 10) the fastest on an H200 of what
# was tried with 16 to 64 numbers a thread; the others were not compared. More vectors share each load of
# coefficients; more numbers a thread leave room for fewer programs.
TILES = {
    "one way": {
        1: (512, 4), 2: (256, 4), 3: (256, 4), 4: (128, 4), 5: (64, 4), 6: (32, 4), 7: (16, 4), 8: (4, 2),
        9: (8, 4), 10: (8, 8), 11: (8, 8), 12: (4, 4),
    },
    "both ways": {
        1: (512, 4), 2: (256, 4), 3: (256, 4), 4: (128, 4), 5: (64, 4), 6: (32, 4), 7: (16, 4), 8: (8, 2),
        9: (8, 2), 10: (4, 4), 11: (4, 4), 12: (4, 4),
    },
    "backward": {
        1: (256, 4), 2: (128, 4), 3: (128, 4), 4: (64, 4), 5: (32, 4), 6: (16, 4), 7: (8, 4), 8: (4, 2),
        9: (4, 4), 10: (2, 4), 11: (2, 8), 12: (1, 8),
    },
}  # fmt: skip
BACKWARD_PROGRAMS = 8  # a multiprocessor, each with sums of its own


def _tile(p: Pass, kind: str, dtype: torch.dtype, storage: torch.dtype) -> tuple[int, int]:
    """Vectors and warps of a program."""
    rows, warps = TILES[kind][p.bits] if p.cols == 1 else (max(1, 32 >> p.bits), 2 if p.cols == 64 else 4)
    if dtype == torch.float64:
        return max(1, rows // 2), warps
    # Half precision leaves the memory idle half the time: 64 numbers a thread and few warps save
    # coefficients.
    return (rows // 2, warps // 4) if storage.itemsize == 2 and warps == 8 else (rows, warps)


@lru_cache(maxsize=32)
def _places(wiring: Butterfly, device: torch.device) -> torch.Tensor | None:  # shape: (K,)
    """Where each angle stands among the bits · 2^bits / 2 of a sweep; None where no pair is missing."""
    bits = (wiring.n - 1).bit_length()
    if wiring.n == 1 << bits:
        return None
    parts = []
    for layer, stride in enumerate(wiring.strides):
        i = wiring.layer(layer)[:, 0]
        bit = stride.bit_length() - 1
        row = (layer // bits) * bits + bit
        parts.append((row << (bits - 1)) + ((i >> (bit + 1)) << bit) + (i & (stride - 1)))
    return torch.as_tensor(np.concatenate(parts), device=device)


def _dense_angles(wiring: Butterfly, angles: torch.Tensor) -> torch.Tensor:
    """(B, K) → (B, depth, bits, 2^bits / 2), bit by bit, with 0 where a pair is missing."""
    bits = (wiring.n - 1).bit_length()
    shape = (len(angles), wiring.depth, bits, 1 << (bits - 1))
    places = _places(wiring, angles.device)
    if places is None:
        dense = angles.reshape(shape)
        return dense if wiring.reverse else dense.flip(2)
    return (
        angles.new_zeros(len(angles), shape[1] * shape[2] * shape[3])
        .index_copy(1, places, angles)
        .view(shape)
    )


def _tiles(n: int, p: Pass) -> int:
    outer = -(-n >> (p.first + p.bits)) if n else 0
    return outer * max(1, (1 << p.first) // p.cols)


def _group_shapes(n: int, p: Pass) -> list[tuple[int, int, tuple[int, ...]]]:
    """For each group: its first bit, its radix, and the natural order of a stage's pairs as a shape."""
    outer = -(-n // (1 << (p.first + p.bits)))
    shapes, first = [], 0
    for group in range(p.groups):
        r = p.bits // p.groups + (group < p.bits % p.groups)
        half = 1 << (r - 1)
        wide = min(4, half)
        cols = p.cols if p.first else 1
        shape = (
            outer,
            1 << (p.bits - first - r),
            half // wide,
            wide,
            1 << first,
            (1 << p.first) // cols,
            cols,
        )
        shapes.append((first, r, shape))
        first += r
    return shapes


def _to_table(dense: torch.Tensor, n: int, p: Pass) -> torch.Tensor:
    """(B, depth, bits, 2^bits / 2) → (B, depth, tiles, stages of the pass, N/2), as `gpu_butterfly_kernels`
    reads it.
    """
    parts = []
    for first, r, shape in _group_shapes(n, p):
        stages = dense[:, :, p.first + first : p.first + first + r]
        needed = shape[0] << (p.first + p.bits - 1)
        stages = stages[..., :needed].reshape(*stages.shape[:3], *shape)
        # (B, depth, stage, outer, high, h, wide, low, block, col) → (B, depth, outer, block, stage, h, high,
        # low, col, wide)
        stages = stages.permute(0, 1, 3, 8, 2, 5, 4, 7, 9, 6)
        parts.append(stages.reshape(len(dense), dense.shape[1], shape[0] * shape[5], r, -1))
    return torch.cat(parts, 3).contiguous()


@lru_cache(maxsize=64)
def _angle_index(wiring: Butterfly, device: torch.device) -> tuple[torch.Tensor, ...]:
    """For each pass, which angle (counted from 1) each place of its table holds; 0 where a pair is missing."""
    numbers = torch.arange(1, wiring.n_rotations + 1, dtype=torch.float64, device=device)[None]
    dense = _dense_angles(wiring, numbers)
    return tuple(_to_table(dense, wiring.n, p)[0].long() for p in _passes(wiring.n))


TABLE_BLOCK = 1024  # entries a program of the table kernel
COLLECT_BLOCK, COLLECT_SLOTS = (
    32,
    64,
)  # entries a program of the collecting kernel, and slots it reads at a time


def prepare_plain(
    wiring: Butterfly, angles: torch.Tensor, eigenvalues: torch.Tensor | None, dtype: torch.dtype
) -> PreparedButterfly:
    """Cosines and sines; nothing waits for the device, and a training step spends one launch a pass on it."""
    middle = None if eigenvalues is None else eigenvalues.to(dtype).contiguous()
    if not wiring.n_rotations:
        return PreparedButterfly(False, (), (), angles.new_empty(0), middle)
    tables = []
    angles = angles.contiguous()
    for index in _angle_index(wiring, angles.device):
        u, v = torch.empty(2, len(angles), *index.shape, dtype=dtype, device=angles.device)
        blocks = -(-index.numel() // TABLE_BLOCK)
        gpu_butterfly_kernels.table_kernel[(blocks, len(angles))](
            angles, index, u, v, wiring.n_rotations, index.numel(), BLOCK=TABLE_BLOCK
        )
        tables.append((u, v))
    return PreparedButterfly(
        False, _passes(wiring.n), tuple(tables), angles.new_empty(0, dtype=dtype), middle
    )


def prepare_fast(
    wiring: Butterfly, angles: torch.Tensor, eigenvalues: torch.Tensor | None, dtype: torch.dtype
) -> PreparedButterfly | None:
    """Qᵀ = S M sweep by sweep, with M free of cosines; None where the scales S would leave the safe range.

    A coordinate that stands for σ times its value turns c a + s b into c σa (a' + tan θ (σb/σa) b'), so the
    cosine joins the scale and two multiply-adds are left. Scales are followed in float64.
    """
    n, bits = wiring.n, (wiring.n - 1).bit_length()
    dense = _dense_angles(wiring, angles.double())
    c, t = torch.cos(dense), torch.tan(dense)
    u, v = torch.empty_like(t), torch.empty_like(t)
    scale = dense.new_ones(*dense.shape[:2], 1 << bits)
    for bit in range(bits) if wiring.reverse else reversed(range(bits)):
        pairs = scale.view(*dense.shape[:2], -1, 2, 1 << bit)
        ratio = (pairs[..., 1, :] / pairs[..., 0, :]).flatten(2)
        u[:, :, bit] = t[:, :, bit] * ratio
        v[:, :, bit] = t[:, :, bit] / ratio
        scale = (pairs * c[:, :, bit].view(*dense.shape[:2], -1, 1, 1 << bit)).view(scale.shape)
    scale = scale[..., :n]
    checks = [c.abs().amin() / MIN_COSINE, scale.abs().amin() / MIN_SCALE[dtype]]
    middle = None
    if eigenvalues is not None:
        d = eigenvalues.double()
        largest = d.abs().amax()
        checks += [
            largest / EIGENVALUE_RANGE[dtype][0] + (largest == 0),
            EIGENVALUE_RANGE[dtype][1] / largest,
        ]
        middle = (scale[:, -1] ** 2 * d).to(dtype).contiguous()
    if not bool(torch.stack(checks).amin() >= 1):  # also false when something is not a number
        return None
    passes = _passes(n)
    tables = tuple((_to_table(u.to(dtype), n, p), _to_table(v.to(dtype), n, p)) for p in passes)
    return PreparedButterfly(True, passes, tables, scale.to(dtype).contiguous(), middle)


class _Step(NamedTuple):
    """One launch: pass ``index``, sweep ``sweep`` (all sweeps if None)."""

    index: int
    sweep: int | None
    to_basis: bool
    from_basis: bool
    middle: torch.Tensor | None


def _steps(
    wiring: Butterfly,
    prepared: PreparedButterfly,
    to_basis: bool,
    from_basis: bool,
    middle: torch.Tensor | None,
) -> list[_Step]:
    """The launches of Qᵀ, of Q or of both with a diagonal in the middle; where the two meet, one launch does
    both.
    """
    depth, count = wiring.depth, len(prepared.passes)
    both = middle is not None
    if count == 1:
        if not both and prepared.fast:
            middle = prepared.scales[:, -1]
        return [_Step(0, None, to_basis, from_basis, middle)]
    order = list(range(count)) if wiring.reverse else list(reversed(range(count)))  # of Qᵀ
    down, up = [], []
    for d in range(depth):
        scale = prepared.scales[:, d] if prepared.fast else None
        if to_basis:
            down += [_Step(i, d, True, False, scale if i == order[-1] else None) for i in order]
        if from_basis:
            up = [_Step(i, d, False, True, scale if i == order[-1] else None) for i in reversed(order)] + up
    if both:
        turn = _Step(order[-1], depth - 1, True, from_basis, middle)
        return [*down[:-1], turn, *up[1:]]
    return down + up


def launch(
    wiring: Butterfly,
    prepared: PreparedButterfly,
    x: torch.Tensor,
    to_basis: bool,
    from_basis: bool,
    middle: torch.Tensor | None,
    quadratic: bool = False,
) -> torch.Tensor:
    x = x.contiguous()
    batch, m, n = x.shape
    steps = _steps(wiring, prepared, to_basis, from_basis, middle)
    wide = prepared.tables[0][0].dtype
    if quadratic:
        tiles = _tiles(n, prepared.passes[steps[-1].index])
        y = torch.empty(batch, m, tiles, dtype=wide, device=x.device)
    else:
        y = torch.empty_like(x)
    rows = m if len(steps) == 1 else max(1, min(m, CHUNK_BYTES // (batch * n * wide.itemsize)))
    scratch = None
    if len(steps) > 1 and (quadratic or x.dtype != wide):
        scratch = torch.empty(batch, rows, n, dtype=wide, device=x.device)
    for start in range(0, m, rows):
        stop = min(m, start + rows)
        source, target = x[:, start:stop], y[:, start:stop]
        between = target if scratch is None else scratch[:, : stop - start]
        for k, step in enumerate(steps):
            last = k == len(steps) - 1
            _launch_step(
                wiring, prepared, step, source, target if last else between, quadratic and last, stop - start
            )  # fmt: skip
            source = between
    return y.sum(-1).to(x.dtype) if quadratic else y


def _launch_step(
    wiring: Butterfly,
    prepared: PreparedButterfly,
    step: _Step,
    x: torch.Tensor,
    y: torch.Tensor,
    quadratic: bool,
    rows: int,
) -> None:
    p, (u, v) = prepared.passes[step.index], prepared.tables[step.index]
    batch, n = len(x), wiring.n
    if step.sweep is not None:
        u, v = u[:, step.sweep], v[:, step.sweep]
    middle = u if step.middle is None else step.middle
    scales = prepared.scales if prepared.fast else u
    tile_rows, warps = _tile(
        p, "both ways" if step.to_basis and step.from_basis else "one way", u.dtype, x.dtype
    )
    row_blocks, tiles = -(-rows // tile_rows), _tiles(n, p)
    gpu_butterfly_kernels.rotate_kernel[(batch * row_blocks * tiles,)](
        x, y, u, v, u, v, scales, middle, n, rows, row_blocks, tiles, x.stride(0), y.stride(0), u.stride(0),
        scales.stride(0), middle.stride(0),
        TO_BASIS=step.to_basis, FROM_BASIS=step.from_basis, MIDDLE=step.middle is not None,
        QUADRATIC=quadratic,
        UP=not wiring.reverse, FAST=prepared.fast, DEPTH=wiring.depth if step.sweep is None else 1,
        EVEN=n % (1 << (p.first + p.bits)) == 0, DIRECT=x.dtype.itemsize >= 4,
        GROUPS=p.groups, BITS=p.bits, COLS=p.cols, STRIDE=1 << p.first, ROWS=tile_rows, num_warps=warps,
    )  # fmt: skip


def launch_backward(
    wiring: Butterfly, prepared: PreparedButterfly, y: torch.Tensor, grad: torch.Tensor, transpose: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    batch, m, n = y.shape
    wide = prepared.tables[0][0].dtype
    # Walking back from Q x is Qᵀ, and the other way round.
    steps = _steps(wiring, prepared, not transpose, transpose, None)
    tiles_of = [_tile(p, "backward", wide, wide) for p in prepared.passes]
    grad_x = torch.empty_like(y)
    rows = m if len(steps) == 1 else max(1, min(m, CHUNK_BYTES // (2 * batch * n * wide.itemsize)))
    sums = [_sums(u, size, rows) for (u, _), (size, _) in zip(prepared.tables, tiles_of, strict=True)]
    y_work = torch.empty(batch, rows, n, dtype=wide, device=y.device) if len(steps) > 1 else y
    g_work = torch.empty_like(y_work) if len(steps) > 1 else grad
    for start in range(0, m, rows):
        stop = min(m, start + rows)
        y_in, g_in, target = y[:, start:stop], grad[:, start:stop], grad_x[:, start:stop]
        for k, step in enumerate(steps):
            last = k == len(steps) - 1
            y_out, g_out = y_work[:, : stop - start], target if last else g_work[:, : stop - start]
            p, (u, v), total = prepared.passes[step.index], prepared.tables[step.index], sums[step.index]
            tile_rows, warps = tiles_of[step.index]
            if step.sweep is not None:
                u, v = u[:, step.sweep], v[:, step.sweep]
            slots, row_blocks, tiles = total.shape[1], -(-(stop - start) // tile_rows), _tiles(n, p)
            depth = wiring.depth if step.sweep is None else 1
            target_sums = total if step.sweep is None else total[:, :, step.sweep]
            gpu_butterfly_kernels.backward_kernel[(batch * slots * tiles,)](
                y_in, g_in, y_out, g_out, u, v, target_sums, n, stop - start, row_blocks, tiles, slots,
                y_in.stride(0), g_in.stride(0), y_out.stride(0), g_out.stride(0), u.stride(0),
                target_sums.stride(0), target_sums.stride(1), int(start > 0),
                KEEP_Y=not last, TRANSPOSE=not transpose, UP=wiring.reverse != transpose, DEPTH=depth,
                EVEN=n % (1 << (p.first + p.bits)) == 0, DIRECT=y.dtype.itemsize >= 4,
                GROUPS=p.groups, BITS=p.bits, COLS=p.cols, STRIDE=1 << p.first, ROWS=tile_rows,
                num_warps=warps,
            )  # fmt: skip
            y_in, g_in = y_out, g_out
    grad_angles = torch.empty(batch, wiring.n_rotations, dtype=wide, device=y.device)
    for index, total in zip(_angle_index(wiring, y.device), sums, strict=True):
        gpu_butterfly_kernels.collect_kernel[(-(-index.numel() // COLLECT_BLOCK), batch)](
            total, index, grad_angles, wiring.n_rotations, index.numel(), total.shape[1],
            SIGN=-1 if transpose else 1, SLOTS=COLLECT_SLOTS, BLOCK=COLLECT_BLOCK,
        )  # fmt: skip
    return grad_x, grad_angles


def _sums(table: torch.Tensor, tile_rows: int, rows: int) -> torch.Tensor:
    """Room for each program's own sums, (B, slots, depth, tiles, bits, N/2): no more slots than blocks of rows in a
    launch, so that each is written.
    """
    blocks = -(-rows // tile_rows)
    wanted = -(-BACKWARD_PROGRAMS * multiprocessors(table.device) // (len(table) * table.shape[2]))
    slots = max(1, min(blocks, wanted, SUMS_BYTES // (table.numel() * table.itemsize)))
    return table.new_empty(len(table), slots, *table.shape[1:])


@lru_cache(maxsize=8)
def multiprocessors(device: torch.device) -> int:
    """Multiprocessors of a device; the interpreter pretends to a small one."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 2

"""Butterflies on the GPU: launches of `gpu_butterfly_kernels`, pass by pass."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch

from swallowtail.kernels.gpu.gluon import backward as gpu_backward_held
from swallowtail.kernels.gpu.gluon import rotate as gpu_rotate_held
from swallowtail.kernels.gpu.launch import launch as start
from swallowtail.kernels.gpu.tables import (
    HELD,
    WHOLE,
    Pass,
    PreparedButterfly,
    angle_index,
    in_warps_of_32,
    tiles_of,
)
from swallowtail.kernels.gpu.triton import backward
from swallowtail.kernels.gpu.triton import butterfly as kernels
from swallowtail.wiring import Butterfly

# Bound on the scratch between two passes. Chunks that would stay in the L2 cache (32 MiB) were slower on an
# H200: their launches take longer than their work.
CHUNK_BYTES = 1 << 30
SUMS_BYTES = 64 << 20  # bound on the per-program sums of angle gradients


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
        9: (4, 4), 10: (2, 2), 11: (2, 8), 12: (1, 8),
    },
}  # fmt: skip
BACKWARD_PROGRAMS = 4  # a multiprocessor, each with sums of its own
HELD_WARPS = 2  # of a program of `gpu_backward_held`
HELD_TILES = {"one way": (8, 4), "both ways": (4, 4)}  # as in TILES, for `gpu_rotate_held`
# Entries of a program that collects them, slots it reads at a time, its warps; the fastest of eight on an H200.
COLLECT_BLOCK, COLLECT_SLOTS, COLLECT_WARPS = 16, 256, 8


def _tile(p: Pass, kind: str, dtype: torch.dtype, storage: torch.dtype) -> tuple[int, int]:
    """Vectors and warps of a program."""
    if p == HELD:
        return 8, 4  # the forward pass before its gradient
    rows, warps = TILES[kind][p.bits] if p.cols == 1 else (max(1, 32 >> p.bits), 2 if p.cols == 64 else 4)
    if dtype == torch.float64:
        return max(1, rows // 2), warps
    # Half precision leaves the memory idle half the time: 64 numbers a thread and few warps save
    # coefficients.
    return (rows // 2, warps // 4) if storage.itemsize == 2 and warps == 8 else (rows, warps)


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
        tiles = tiles_of(n, prepared.passes[steps[-1].index])
        y = torch.empty(batch, m, tiles, dtype=wide, device=x.device)
    else:
        y = torch.empty_like(x)
    rows = m if len(steps) == 1 else max(1, min(m, CHUNK_BYTES // (batch * n * wide.itemsize)))
    scratch = None
    if len(steps) > 1 and (quadratic or x.dtype != wide):
        scratch = torch.empty(batch, rows, n, dtype=wide, device=x.device)
    for first in range(0, m, rows):
        count = min(rows, m - first)
        source, target = _rows(x, first, count), _rows(y, first, count)
        between = target if scratch is None else _rows(scratch, 0, count)
        for k, step in enumerate(steps):
            last = k == len(steps) - 1
            _launch_step(
                wiring, prepared, step, source, target if last else between, quadratic and last, count
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
    strides = (x.stride(0), y.stride(0), u.stride(0), scales.stride(0), middle.stride(0))
    depth, tiles = wiring.depth if step.sweep is None else 1, tiles_of(n, p)
    form = {
        "TO_BASIS": step.to_basis, "FROM_BASIS": step.from_basis, "MIDDLE": step.middle is not None,
        "UP": not wiring.reverse, "FAST": prepared.fast, "DEPTH": depth,
        "EVEN": n % (1 << (p.first + p.bits)) == 0,
    }  # fmt: skip
    kind = "both ways" if step.to_basis and step.from_basis else "one way"
    if p == WHOLE and tiles == 1 and not quadratic and _better_held(kind, u, x):
        tile_rows, warps = HELD_TILES[kind]
        row_blocks = -(-rows // tile_rows)
        start(
            gpu_rotate_held.rotate_kernel, (batch * row_blocks,),
            x, y, u, v, u, v, scales, middle, n, rows, row_blocks, *strides,
            **form, GROUPS=p.groups, BITS=p.bits, ROWS=tile_rows, WARPS=warps, warps=warps,
        )  # fmt: skip
        return
    tile_rows, warps = _tile(p, kind, u.dtype, x.dtype)
    row_blocks = -(-rows // tile_rows)
    start(
        kernels.rotate_kernel, (batch * row_blocks * tiles,),
        x, y, u, v, u, v, scales, middle, n, rows, row_blocks, tiles, *strides,
        **form, QUADRATIC=quadratic, DIRECT=x.dtype.itemsize >= 4,
        GROUPS=p.groups, BITS=p.bits, COLS=p.cols, STRIDE=1 << p.first, ROWS=tile_rows, warps=warps,
    )  # fmt: skip


def _better_held(kind: str, table: torch.Tensor, x: torch.Tensor) -> bool:
    """Whether `gpu_rotate_held` can and should take whole vectors: one way in float32 Triton's kernel is as fast as
    memory and sooner compiled.
    """
    wanted = kind == "both ways" or x.dtype.itemsize == 2
    return wanted and table.dtype == torch.float32 and in_warps_of_32(x)


def launch_backward(
    wiring: Butterfly, prepared: PreparedButterfly, y: torch.Tensor, grad: torch.Tensor, transpose: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    batch, m, n = y.shape
    wide = prepared.tables[0][0].dtype
    if prepared.passes == (HELD,):
        grad_x, total = _launch_held(wiring, prepared, y, grad, transpose)
        return grad_x, _collect(wiring, prepared, [total], transpose)
    # Walking back from Q x is Qᵀ, and the other way round.
    steps = _steps(wiring, prepared, not transpose, transpose, None)
    shapes = [_tile(p, "backward", wide, wide) for p in prepared.passes]
    grad_x = torch.empty_like(y)
    rows = m if len(steps) == 1 else max(1, min(m, CHUNK_BYTES // (2 * batch * n * wide.itemsize)))
    sums = [_sums(u, size, rows) for (u, _), (size, _) in zip(prepared.tables, shapes, strict=True)]
    y_work = torch.empty(batch, rows, n, dtype=wide, device=y.device) if len(steps) > 1 else y
    g_work = torch.empty_like(y_work) if len(steps) > 1 else grad
    for first in range(0, m, rows):
        count = min(rows, m - first)
        y_in, g_in, target = (_rows(t, first, count) for t in (y, grad, grad_x))
        for k, step in enumerate(steps):
            last = k == len(steps) - 1
            y_out, g_out = _rows(y_work, 0, count), target if last else _rows(g_work, 0, count)
            p, (u, v), total = prepared.passes[step.index], prepared.tables[step.index], sums[step.index]
            tile_rows, warps = shapes[step.index]
            if step.sweep is not None:
                u, v = u[:, step.sweep], v[:, step.sweep]
            slots, row_blocks, tiles = total.shape[1], -(-count // tile_rows), tiles_of(n, p)
            depth = wiring.depth if step.sweep is None else 1
            target_sums = total if step.sweep is None else total[:, :, step.sweep]
            start(
                backward.backward_kernel, (batch * slots * tiles,),
                y_in, g_in, y_out, g_out, u, v, target_sums, n, count, row_blocks, tiles, slots,
                y_in.stride(0), g_in.stride(0), y_out.stride(0), g_out.stride(0), u.stride(0),
                target_sums.stride(0), target_sums.stride(1), int(first > 0),
                KEEP_Y=not last, TRANSPOSE=not transpose, UP=wiring.reverse != transpose, DEPTH=depth,
                EVEN=n % (1 << (p.first + p.bits)) == 0, DIRECT=y.dtype.itemsize >= 4,
                GROUPS=p.groups, BITS=p.bits, COLS=p.cols, STRIDE=1 << p.first, ROWS=tile_rows,
                warps=warps,
            )  # fmt: skip
            y_in, g_in = y_out, g_out
    return grad_x, _collect(wiring, prepared, sums, transpose)


def _launch_held(
    wiring: Butterfly, prepared: PreparedButterfly, y: torch.Tensor, grad: torch.Tensor, transpose: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradient for x and each program's sums, by `gpu_backward_held`."""
    batch, m, n = y.shape
    p, (u, v), grad_x = prepared.passes[0], prepared.tables[0], torch.empty_like(y)
    sums = _sums(u, 2, m)
    start(
        gpu_backward_held.backward_kernel, (batch * sums.shape[1],),
        y, grad, grad_x, u, v, sums, n, m, -(-m // 2), sums.shape[1], y.stride(0), grad.stride(0), grad_x.stride(0),
        u.stride(0), sums.stride(0), sums.stride(1),
        TRANSPOSE=not transpose, UP=wiring.reverse != transpose, EVEN=n == 1 << p.bits, GROUPS=p.groups, BITS=p.bits,
        WARPS=HELD_WARPS, warps=HELD_WARPS,
    )  # fmt: skip
    return grad_x, sums


def _collect(
    wiring: Butterfly, prepared: PreparedButterfly, sums: list[torch.Tensor], transpose: bool
) -> torch.Tensor:
    """The programs' sums of each pass, (B, slots, …), added up to angle gradients (B, K)."""
    grad_angles = sums[0].new_empty(len(sums[0]), wiring.n_rotations)
    for index, total in zip(angle_index(wiring, grad_angles.device, prepared.passes), sums, strict=True):
        start(
            backward.collect_kernel, (-(-index.numel() // COLLECT_BLOCK), len(total)),
            total, index, grad_angles, wiring.n_rotations, index.numel(), total.shape[1],
            SIGN=-1 if transpose else 1, SLOTS=COLLECT_SLOTS, BLOCK=COLLECT_BLOCK, warps=COLLECT_WARPS,
        )  # fmt: skip
    return grad_angles


def _rows(t: torch.Tensor, first: int, count: int) -> torch.Tensor:
    """t[:, first : first + count], for nothing where that is all of it."""
    return t if count == t.shape[1] else t[:, first : first + count]


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

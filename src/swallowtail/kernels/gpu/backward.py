"""Gradients of butterflies on the GPU: y and its gradient walk back through the passes together.

Each program adds up the gradients of its own vectors per angle. `_collect` then adds up the programs' sums, in a fixed
order, so that the result has the same bits every time.
"""

from __future__ import annotations

import torch

from swallowtail.kernels.gpu import device, plan, tables
from swallowtail.kernels.gpu.butterfly import rows_of, steps
from swallowtail.kernels.gpu.gluon.backward import whole_backward_kernel
from swallowtail.kernels.gpu.launch import launch
from swallowtail.kernels.gpu.tables import PreparedButterfly, angle_index
from swallowtail.kernels.gpu.triton.backward import backward_kernel, collect_kernel
from swallowtail.wiring import Butterfly

VECTORS = 2  # that `whole_backward_kernel` takes at a time
PROGRAMS = 4  # per multiprocessor, each with its own sums: enough to keep it busy, few enough to add up
# Entries per program of the collecting kernel, slots it reads at a time, its warps; the fastest of eight on an H200.
COLLECT_BLOCK, COLLECT_SLOTS, COLLECT_WARPS = 16, 256, 8


def walk_back(
    wiring: Butterfly, prepared: PreparedButterfly, y: torch.Tensor, grad: torch.Tensor, transpose: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients for x (B, m, n) and the angles (B, K), given y = Q x (or Qᵀ x) and its gradient, both contiguous."""
    whole = plan.TRAINING.get(prepared.passes[0].bits)
    if whole is not None and prepared.passes == (whole.whole,) and _keeps_sums(wiring, prepared, y):
        grad_x, total = _walk_back_whole(wiring, prepared, whole, y, grad, transpose)
        return grad_x, _collect(wiring, prepared, [total], transpose)
    batch, m, n = y.shape
    wide = prepared.tables[0].u.dtype
    # Walking back from Q x is Qᵀ, and the other way round.
    launches = steps(wiring, prepared, not transpose, transpose, None)
    shapes = [plan.tile_of(p, "backward", wide, wide) for p in prepared.passes]
    grad_x = torch.empty_like(y)
    one = len(launches) == 1
    rows = m if one else max(1, min(m, device.SCRATCH_BYTES // (2 * batch * n * wide.itemsize)))
    sums = [
        _sums(table.u, tile.rows, rows, PROGRAMS) for table, tile in zip(prepared.tables, shapes, strict=True)
    ]
    y_work = y if one else torch.empty(batch, rows, n, dtype=wide, device=y.device)
    g_work = grad if one else torch.empty_like(y_work)
    for first in range(0, m, rows):
        count = min(rows, m - first)
        y_in, g_in, target = (rows_of(t, first, count) for t in (y, grad, grad_x))
        for k, step in enumerate(launches):
            last = k == len(launches) - 1
            y_out, g_out = rows_of(y_work, 0, count), target if last else rows_of(g_work, 0, count)
            p, (u, v), total = prepared.passes[step.number], prepared.tables[step.number], sums[step.number]
            tile_rows, warps = shapes[step.number]
            if step.sweep is not None:
                u, v = u[:, step.sweep], v[:, step.sweep]
            slots, row_blocks, tiles = total.shape[1], -(-count // tile_rows), plan.tiles_of(n, p)
            depth = wiring.depth if step.sweep is None else 1
            target_sums = total if step.sweep is None else total[:, :, step.sweep]
            launch(
                backward_kernel, (batch * slots * tiles,),
                y_in, g_in, y_out, g_out, u, v, target_sums, n, count, row_blocks, tiles, slots,
                y_in.stride(0), g_in.stride(0), y_out.stride(0), g_out.stride(0), u.stride(0),
                target_sums.stride(0), target_sums.stride(1), int(first > 0),
                KEEP_Y=not last, TRANSPOSE=not transpose, GROWING=wiring.reverse != transpose, DEPTH=depth,
                EVEN=n % (1 << (p.first + p.bits)) == 0, DIRECT=y.dtype.itemsize >= 4,
                GROUPS=p.groups, BITS=p.bits, COLS=p.cols, STRIDE=1 << p.first, ROWS=tile_rows,
                warps=warps,
            )  # fmt: skip
            y_in, g_in = y_out, g_out
    return grad_x, _collect(wiring, prepared, sums, transpose)


def _keeps_sums(wiring: Butterfly, prepared: PreparedButterfly, y: torch.Tensor) -> bool:
    """Whether `whole_backward_kernel` can take what was prepared: one sweep, in float32 arithmetic."""
    return wiring.depth == 1 and prepared.tables[0].u.dtype == torch.float32 and device.runs_gluon(y)


def _walk_back_whole(
    wiring: Butterfly,
    prepared: PreparedButterfly,
    whole: plan.Training,
    y: torch.Tensor,
    grad: torch.Tensor,
    transpose: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradient for x and each program's sums, by `whole_backward_kernel`."""
    batch, m, n = y.shape
    p, (u, v), grad_x = prepared.passes[0], prepared.tables[0], torch.empty_like(y)
    sums, warps, packed = _sums(u, VECTORS, m, whole.programs), whole.warps, _packed(y)
    words = packed and whole.words
    if words:
        u = tables.packed(prepared.tables[0])
    slots, row_blocks = sums.shape[1], -(-m // VECTORS)
    launch(
        whole_backward_kernel, (batch * slots,),
        y, grad, grad_x, u, v, sums, n, m, row_blocks, slots, y.stride(0), grad.stride(0), grad_x.stride(0),
        u.stride(0), sums.stride(0), sums.stride(1),
        TRANSPOSE=not transpose, GROWING=wiring.reverse != transpose, EVEN=n == 1 << p.bits, GROUPS=p.groups,
        BITS=p.bits, PACKED=packed, WORDS=words, WARPS=warps, warps=warps,
    )  # fmt: skip
    return grad_x, sums


def _packed(y: torch.Tensor) -> bool:
    """Whether threads may exchange numbers as bf16, on a device that rounds two of them in one instruction.

    For vectors in bf16 that doubles the error at most. Vectors in fp16 would lose three bits that they have.
    """
    return y.dtype == torch.bfloat16 and device.multiplies_half_blocks(y.device)


def _collect(
    wiring: Butterfly, prepared: PreparedButterfly, sums: list[torch.Tensor], transpose: bool
) -> torch.Tensor:
    """The programs' sums of each pass, (B, slots, …), added up to angle gradients (B, K)."""
    grad_angles = sums[0].new_empty(len(sums[0]), wiring.n_rotations)
    for index, total in zip(angle_index(wiring, grad_angles.device, prepared.passes), sums, strict=True):
        launch(
            collect_kernel, (-(-index.numel() // COLLECT_BLOCK), len(total)),
            total, index, grad_angles, wiring.n_rotations, index.numel(), total.shape[1],
            SIGN=-1 if transpose else 1, SLOTS=COLLECT_SLOTS, BLOCK=COLLECT_BLOCK, warps=COLLECT_WARPS,
        )  # fmt: skip
    return grad_angles


def _sums(table: torch.Tensor, tile_rows: int, rows: int, programs: int) -> torch.Tensor:
    """Memory for each program's own sums, (B, slots, depth, tiles, bits, N/2).

    There are no more slots than blocks of rows in a launch, so that each slot is written.
    """
    blocks = -(-rows // tile_rows)
    programs *= device.multiprocessors(table.device)
    wanted = -(-programs // (len(table) * table.shape[2]))
    slots = max(1, min(blocks, wanted, device.SUMS_BYTES // (table.numel() * table.itemsize)))
    return table.new_empty(len(table), slots, *table.shape[1:])

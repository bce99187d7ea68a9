"""Products with butterflies on the GPU: Q x, Qᵀ x, Q D Qᵀ x and xᵀ Q D Qᵀ x as launches, pass by pass."""

from __future__ import annotations

from typing import NamedTuple

import torch

from swallowtail.kernels.gpu import device, plan
from swallowtail.kernels.gpu.gluon.rotate import whole_rotate_kernel
from swallowtail.kernels.gpu.launch import launch
from swallowtail.kernels.gpu.tables import PreparedButterfly
from swallowtail.kernels.gpu.triton.butterfly import rotate_kernel
from swallowtail.wiring import Butterfly


class Step(NamedTuple):
    """One launch."""

    number: int  # of its pass
    sweep: int | None  # which of the depth sweeps; None: all of them
    to_basis: bool
    from_basis: bool
    # A diagonal after the part to the basis, before the part from it. Shape: (B, n).
    middle: torch.Tensor | None


def steps(
    wiring: Butterfly,
    prepared: PreparedButterfly,
    to_basis: bool,
    from_basis: bool,
    middle: torch.Tensor | None,
) -> list[Step]:
    """The launches of Qᵀ (to basis), of Q (from basis), or of both with a diagonal in the middle.

    Where Qᵀ and Q meet, one launch does the innermost pass of both.
    """
    depth, count = wiring.depth, len(prepared.passes)
    both = middle is not None
    if count == 1:
        if not both and prepared.fast:
            middle = prepared.scale[:, -1, 0]
        return [Step(0, None, to_basis, from_basis, middle)]
    order = list(range(count)) if wiring.reverse else list(reversed(range(count)))  # of the passes of Qᵀ
    inner = order[-1]
    into: list[Step] = []
    out: list[Step] = []
    for d in range(depth):
        scale = [prepared.scale[:, d, i] if prepared.fast else None for i in range(count)]
        if to_basis:
            into += [Step(i, d, True, False, scale[i]) for i in order]
        if from_basis:
            out = [Step(i, d, False, True, scale[i]) for i in reversed(order)] + out
    if both:
        return [*into[:-1], Step(inner, depth - 1, True, from_basis, middle), *out[1:]]
    return into + out


def apply(
    wiring: Butterfly,
    prepared: PreparedButterfly,
    x: torch.Tensor,
    to_basis: bool,
    from_basis: bool,
    middle: torch.Tensor | None,
    quadratic: bool = False,
) -> torch.Tensor:
    """Qᵀ (to basis), a diagonal ``middle`` (B, n), then Q (from basis), each optional, on x (B, m, n).

    With ``quadratic`` it stops in the middle and returns Σ middle · (Qᵀ x)², shape (B, m).
    """
    x = x.contiguous()
    batch, m, n = x.shape
    launches = steps(wiring, prepared, to_basis, from_basis, middle)
    wide = prepared.tables[0].u.dtype
    if quadratic:
        tiles = plan.tiles_of(n, prepared.passes[launches[-1].number])
        y = torch.empty(batch, m, tiles, dtype=x.dtype if tiles == 1 else wide, device=x.device)
    else:
        y = torch.empty_like(x)
    rows = m if len(launches) == 1 else max(1, min(m, device.SCRATCH_BYTES // (batch * n * wide.itemsize)))
    scratch = None
    if len(launches) > 1 and (quadratic or x.dtype != wide):
        scratch = torch.empty(batch, rows, n, dtype=wide, device=x.device)
    for first in range(0, m, rows):
        count = min(rows, m - first)
        source, target = rows_of(x, first, count), rows_of(y, first, count)
        between = target if scratch is None else rows_of(scratch, 0, count)
        for k, step in enumerate(launches):
            last = k == len(launches) - 1
            _launch_step(
                wiring, prepared, step, source, target if last else between, quadratic and last, count
            )  # fmt: skip
            source = between
    if not quadratic:
        return y
    return y.view(batch, m) if y.shape[2] == 1 else y.sum(-1).to(x.dtype)


def rows_of(t: torch.Tensor, first: int, count: int) -> torch.Tensor:
    """``t[:, first : first + count]``, without making a view where that is all of it."""
    return t if count == t.shape[1] else t[:, first : first + count]


def _launch_step(
    wiring: Butterfly,
    prepared: PreparedButterfly,
    step: Step,
    x: torch.Tensor,
    y: torch.Tensor,
    quadratic: bool,
    rows: int,
) -> None:
    p, (u, v) = prepared.passes[step.number], prepared.tables[step.number]
    batch, n = len(x), wiring.n
    if step.sweep is not None:
        u, v = u[:, step.sweep], v[:, step.sweep]
    # A kernel needs some pointer even for what it does not read.
    middle = u if step.middle is None else step.middle
    scale = prepared.scale if prepared.fast else u
    strides = (x.stride(0), y.stride(0), u.stride(0), scale.stride(0), middle.stride(0))
    depth, tiles = wiring.depth if step.sweep is None else 1, plan.tiles_of(n, p)
    form = {
        "TO_BASIS": step.to_basis, "FROM_BASIS": step.from_basis, "MIDDLE": step.middle is not None,
        "GROWING": not wiring.reverse, "FAST": prepared.fast, "DEPTH": depth,
        "EVEN": n % (1 << (p.first + p.bits)) == 0,
    }  # fmt: skip
    kind: plan.Kind = "both ways" if step.to_basis and step.from_basis else "one way"
    if p == plan.WHOLE and tiles == 1 and not quadratic and _prefers_gluon(kind, u, x):
        tile_rows, warps = plan.WHOLE_TILES[kind]
        row_blocks = -(-rows // tile_rows)
        launch(
            whole_rotate_kernel, (batch * row_blocks,),
            x, y, u, v, u, v, scale, middle, n, rows, row_blocks, *strides,
            **form, GROUPS=p.groups, BITS=p.bits, ROWS=tile_rows, WARPS=warps, warps=warps,
        )  # fmt: skip
        return
    tile_rows, warps = plan.tile_of(p, kind, u.dtype, x.dtype)
    row_blocks = -(-rows // tile_rows)
    launch(
        rotate_kernel, (batch * row_blocks * tiles,),
        x, y, u, v, u, v, scale, middle, n, rows, row_blocks, tiles, *strides,
        **form, QUADRATIC=quadratic, DIRECT=x.dtype.itemsize >= 4,
        GROUPS=p.groups, BITS=p.bits, COLS=p.cols, STRIDE=1 << p.first, ROWS=tile_rows, LIVE=False, warps=warps,
    )  # fmt: skip


def _prefers_gluon(kind: plan.Kind, table: torch.Tensor, x: torch.Tensor) -> bool:
    """Whether `whole_rotate_kernel` can and should take whole vectors.

    One way in float32, Triton's kernel is as fast as memory, and it compiles sooner.
    """
    wanted = kind == "both ways" or x.dtype.itemsize == 2
    return wanted and table.dtype == torch.float32 and device.runs_gluon(x)

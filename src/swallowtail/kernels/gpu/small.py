"""A small batch by one launch that makes its coefficients from the angles itself.

At batch 16 a second launch, for tables, would take the host longer than the device works.
"""

from __future__ import annotations

import torch

from swallowtail.kernels.gpu import device, plan
from swallowtail.kernels.gpu.launch import launch
from swallowtail.kernels.gpu.plan import Tile
from swallowtail.kernels.gpu.tables import angle_index
from swallowtail.kernels.gpu.triton.butterfly import rotate_kernel
from swallowtail.wiring import Butterfly

PROGRAMS = 2  # per multiprocessor, at most: each makes all coefficients again


def tile_of(bits: int) -> Tile:
    """Vectors and warps of a program. Few vectors: the time is that of one program, and most of it is coefficients.

    More warps mean less code, which compiles in less time.
    """
    return plan.TILES["one way"][bits] if bits <= 8 else Tile(2, {9: 4, 10: 8, 11: 8, 12: 16}[bits])


def suits(wiring: Butterfly, x: torch.Tensor, angles: torch.Tensor) -> bool:
    """Whether one launch should do everything: for a few whole vectors x (1, m, n), in float32 arithmetic."""
    bits = (wiring.n - 1).bit_length()
    if len(x) != 1 or bits > plan.MAX_BITS or torch.float64 in (angles.dtype, x.dtype):
        return False
    return x.shape[1] <= PROGRAMS * device.multiprocessors(x.device) * tile_of(bits).rows


def apply(
    wiring: Butterfly, angles: torch.Tensor, eigenvalues: torch.Tensor | None, x: torch.Tensor, form: str
) -> torch.Tensor:
    """One of `protocol.FORMS` for angles (1, K), eigenvalues (1, n) and x (1, m, n)."""
    (p,) = plan.passes_of(wiring.n)
    x, angles, m, n = x.contiguous(), angles.contiguous(), x.shape[1], wiring.n
    rows, warps = tile_of(p.bits)
    blocks = -(-m // rows)
    both, quadratic = form == "symmetric", form == "quadratic"
    y = torch.empty((1, m), dtype=x.dtype, device=x.device) if quadratic else torch.empty_like(x)
    (index,) = angle_index(wiring, x.device, (p,))
    middle = angles if eigenvalues is None else eigenvalues.float().contiguous()
    launch(
        rotate_kernel, (blocks,), x, y, index, angles, index, angles, angles, middle,
        n, m, blocks, 1, 0, 0, 0, 0, 0,  # one tile, and strides between rotations: there is one
        TO_BASIS=form != "from_basis", FROM_BASIS=both or form == "from_basis", MIDDLE=both,
        GROWING=not wiring.reverse, FAST=False, DEPTH=wiring.depth, EVEN=n == 1 << p.bits, QUADRATIC=quadratic,
        DIRECT=x.dtype.itemsize >= 4, GROUPS=p.groups, BITS=p.bits, COLS=p.cols, STRIDE=1 << p.first, ROWS=rows,
        LIVE=True, warps=warps,
    )  # fmt: skip
    return y

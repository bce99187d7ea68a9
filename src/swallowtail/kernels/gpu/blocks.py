"""Products with butterflies in half precision on tensor cores, as launches: rounds of blocks, then strided passes."""

from __future__ import annotations

from functools import lru_cache

import torch

from swallowtail.checks import HALF
from swallowtail.kernels.gpu import device, half_rounds
from swallowtail.kernels.gpu.block_plan import STRIDED_TILES, STRIDED_WARPS, Form, block_plan, strided_passes
from swallowtail.kernels.gpu.block_tables import Made, goes_by_rounds
from swallowtail.kernels.gpu.gluon.blocks import blocks_kernel
from swallowtail.kernels.gpu.gluon.strided import strided_kernel
from swallowtail.kernels.gpu.gluon.thirds import thirds_kernel
from swallowtail.kernels.gpu.half_rounds import MadeHalf
from swallowtail.kernels.gpu.launch import launch
from swallowtail.kernels.gpu.plan import tiles_of
from swallowtail.kernels.gpu.triton.dense import dense_kernel
from swallowtail.wiring import Butterfly

MANY = 1 << 20  # numbers from which several launches take less time than the one of other kernels


def suits(wiring: Butterfly, x: torch.Tensor, form: Form) -> bool:
    """Whether these kernels take vectors x (1, m, n); the others take any."""
    if x.dtype not in HALF or len(x) != 1:
        return False
    launches = _launches(wiring, form, x.dtype, x.device)
    return (
        (launches == 1 or (launches > 1 and x.numel() >= MANY))
        and device.multiplies_half_blocks(x.device)
        and x.is_contiguous()
        and x.data_ptr() % 16 == 0  # accesses have 16 bytes
    )


def suits_live(wiring: Butterfly, x: torch.Tensor, angles: torch.Tensor, form: Form) -> bool:
    """Whether they should take vectors although the matrices, of angles (1, K), have to be made first."""
    return x.numel() >= MANY and len(angles) == 1 and suits(wiring, x, form)


@lru_cache(maxsize=256)
def _launches(wiring: Butterfly, form: Form, dtype: torch.dtype, where: torch.device) -> int:
    """How many launches a product takes; 0 if these kernels do not take it."""
    if goes_by_rounds(wiring, form, dtype, where):
        return 1
    chosen = block_plan(wiring.n, form, wiring.reverse, dtype) if wiring.depth == 1 else None
    if chosen is None:
        return 0
    return 1 + len(strided_passes(wiring.n, chosen.width)) * (2 if form == "symmetric" else 1)


def apply(wiring: Butterfly, made: Made | MadeHalf, x: torch.Tensor, form: Form) -> torch.Tensor:
    """Q x, Qᵀ x or Q D Qᵀ x on x (1, m, n), rounded to half precision between rounds and passes.

    In fp16 a number between two rounds can exceed the range although the result does not: up to √32 times the largest
    number of x.
    """
    if isinstance(made, MadeHalf):
        return half_rounds.apply(made, x)
    growing = (form == "from_basis") != wiring.reverse  # the order of strides
    both = form == "symmetric"
    y = x
    if not growing or both:
        for index in reversed(range(len(made.strided))):
            y = _strided(wiring, made, index, y, y is x, form != "from_basis", growing=False, gain=False)
    if made.inner is not None:
        y = half_rounds.apply(made.inner, y, keep=y is x)
    else:
        y = _rounds(wiring, made, y, y is x, both) if made.plan.rows else _multiply(made, y)
    if growing or both:
        for index in range(len(made.strided)):
            last = index == len(made.strided) - 1
            y = _strided(
                wiring,
                made,
                index,
                y,
                False,
                form == "to_basis",
                growing=True,
                gain=made.gain is not None and last,
            )
    return y


def _multiply(made: Made, x: torch.Tensor) -> torch.Tensor:
    """One dense matrix per column block, by PyTorch's own product."""
    matrices = made.rounds[0][:, 0]
    m, n = x.shape[1:]
    with torch.no_grad():
        if len(matrices) == 1:
            return torch.matmul(x, matrices[0, :n, :n])
        y = torch.empty_like(x)
        columns = lambda t: t.view(m, len(matrices), -1).transpose(0, 1)
        torch.bmm(columns(x), matrices, out=columns(y))
        return y


def _rounds(wiring: Butterfly, made: Made, x: torch.Tensor, keep: bool, both: bool) -> torch.Tensor:
    """The rounds of all column blocks; the result replaces x, unless that is to be kept."""
    y = torch.empty_like(x) if keep else x
    p, n, rows = made.plan, wiring.n, x.shape[1]
    tiles = -(-rows // p.rows)
    programs = device.multiprocessors(x.device) * p.programs
    gain = made.gain is not None and not made.strided  # the last launch applies it
    factor = made.rounds[0] if made.gain is None else made.gain  # a kernel needs some pointer
    if p.high == 1:
        programs = min(tiles, programs)
        launch(
            dense_kernel, (programs,), x, y, made.rounds[0], factor, rows, n // 8, tiles, programs,
            GAIN=gain, EVEN=n == p.low, N=p.low, ROWS=p.rows, STAGES=p.stages, warps=p.warps,
        )  # fmt: skip
        return y
    if p.thirds:
        programs = min(tiles, programs)
        launch(
            thirds_kernel, (programs,), x, y, *made.rounds, rows, tiles, programs,
            LOW_FIRST=made.low_first, FULL=rows % p.rows == 0, ROWS=p.rows, STAGES=p.stages, WARPS=p.warps,
            warps=p.warps,
        )  # fmt: skip
        return y
    columns = -(-n // p.width)
    workers = min(tiles, max(1, programs // columns))
    launch(
        blocks_kernel, (columns * workers,),
        x, y, made.rounds[0], made.rounds[1], made.rounds[-1], factor, rows, tiles, workers,
        LOW_FIRST=made.low_first, BOTH=both, GAIN=gain, FULL=rows % p.rows == 0, LENGTH=n, A=p.high,
        B=p.low, ROWS=p.rows, STAGES=p.stages, SHARED=p.shared, NEIGHBOURS=p.neighbours, WARPS=p.warps,
        warps=p.warps,
    )  # fmt: skip
    return y


def _strided(
    wiring: Butterfly,
    made: Made,
    index: int,
    x: torch.Tensor,
    keep: bool,
    transpose: bool,
    growing: bool,
    gain: bool,
) -> torch.Tensor:
    """One strided pass; the result replaces x, unless that is to be kept."""
    y = torch.empty_like(x) if keep else x
    p, (u, v) = made.strided[index]
    tile, tiles, rows = STRIDED_TILES[p.bits], tiles_of(wiring.n, p), x.shape[1]
    workers = min(rows, max(1, device.multiprocessors(x.device) * tile.programs // tiles))
    factor = u if made.gain is None else made.gain  # a kernel needs some pointer
    launch(
        strided_kernel, (tiles * workers,), x, y, u, v, factor, rows, wiring.n // 8, workers,
        TRANSPOSE=transpose, GROWING=growing, GAIN=gain, EVEN=wiring.n % (1 << (p.first + p.bits)) == 0,
        FIRST=p.first, BITS=p.bits, STAGES=tile.stages, WARPS=STRIDED_WARPS, warps=STRIDED_WARPS,
    )  # fmt: skip
    return y

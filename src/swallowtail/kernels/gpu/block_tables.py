"""Small matrices for the tensor cores, made from the angles on the device.

A butterfly on N = high · low coordinates is a low round and a high round (`gluon.blocks` has the letters). Their
matrices are made in float32 and rounded once. Nothing waits for the device.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch

from swallowtail.kernels.gpu import butterfly, half_rounds, round_matrices, tables
from swallowtail.kernels.gpu.block_plan import BlockPlan, Form, block_plan, by_rounds, strided_passes
from swallowtail.kernels.gpu.half_rounds import MadeHalf
from swallowtail.kernels.gpu.plan import Pass
from swallowtail.wiring import Butterfly


class Made(NamedTuple):
    """The tables of one form in one dtype.

    Attributes:
        plan: how the rounds go.
        rounds: the matrices of each round, (column blocks, blocks, to, from). Those for PyTorch's product: from, to.
        low_first: the first round is the low one.
        gain: shape (1,), a power of two that the matrices lack. In fp16 it brings eigenvalues into range; else None.
        strided: the passes beyond the column blocks, in order of growing strides.
        inner: the column blocks' products by rounds of groups, in place of ``rounds``; else None.
    """

    plan: BlockPlan
    rounds: tuple[torch.Tensor, ...]
    low_first: bool
    gain: torch.Tensor | None
    strided: tuple[tuple[Pass, tables.Coefficients], ...]
    inner: MadeHalf | None = None


def goes_by_rounds(wiring: Butterfly, form: Form, dtype: torch.dtype, where: torch.device) -> bool:
    """Whether a product is done by rounds of groups."""
    return by_rounds(wiring.n, wiring.depth, form) and half_rounds.suits(wiring, dtype, where)


class BlockTables:
    """Makes tables when they are first asked for, and keeps them as long as the angles are valid.

    Args:
        wiring: a butterfly.
        angles: shape (1, K).
        eigenvalues: shape (1, n), or None.
    """

    def __init__(self, wiring: Butterfly, angles: torch.Tensor, eigenvalues: torch.Tensor | None) -> None:
        self._wiring = wiring
        self._angles = angles.detach()
        self._eigenvalues = None if eigenvalues is None else eigenvalues.detach()
        self._made: dict[tuple[Form, torch.dtype], Made | MadeHalf] = {}

    def get(self, form: Form, dtype: torch.dtype) -> Made | MadeHalf:
        """The tables of a form for vectors of a half-precision dtype."""
        kept = self._made.get((form, dtype))
        if kept is None:
            kept = make(self._wiring, self._angles, self._eigenvalues, form, dtype)
            self._made[form, dtype] = kept
        return kept

    def has(self, form: Form, dtype: torch.dtype) -> bool:
        """Whether these tables are made already. They cannot be made while a CUDA graph is recorded."""
        return (form, dtype) in self._made


def make(
    wiring: Butterfly,
    angles: torch.Tensor,
    eigenvalues: torch.Tensor | None,
    form: Form,
    dtype: torch.dtype,
    once: bool = False,
) -> Made | MadeHalf:
    """The tables for Q x, Qᵀ x or Q D Qᵀ x; ``once``: for one call.

    Q D Qᵀ x has three rounds: the outer half of the stages to the basis, one symmetric matrix per block that holds the
    inner half with D, and the outer half from the basis.
    """
    if goes_by_rounds(wiring, form, dtype, angles.device):
        return half_rounds.make(wiring, angles, eigenvalues, form, dtype)
    chosen = block_plan(wiring.n, form, wiring.reverse, dtype, once)
    assert chosen is not None  # `blocks.suits` asked before
    low_first = (form == "from_basis") != wiring.reverse
    passes = strided_passes(wiring.n, chosen.width)
    strided = tuple(zip(passes, tables.cosines_and_sines(wiring, angles, torch.float32, passes), strict=True))
    if form != "symmetric":
        return Made(chosen, _rounds(wiring, angles, chosen, form, dtype), low_first, None, strided)
    assert eigenvalues is not None
    eigenvalues, angles, gain = eigenvalues.float(), angles.float(), None
    if dtype == torch.float16:  # bf16 has the range of float32
        gain = power_of_two(eigenvalues)
        eigenvalues = eigenvalues / gain
    # In fp16 the matrices of groups have two parts, and a dense one is as fast.
    if (
        strided
        and dtype == torch.bfloat16
        and half_rounds.suits(Butterfly(chosen.width), dtype, angles.device)
    ):
        by_rounds = _column_blocks(wiring, chosen.width, angles, eigenvalues, dtype)
        return Made(chosen, (), low_first, gain, strided, by_rounds)
    round_of = lambda stride, size, d: _matrices(wiring, angles, d, stride, size, chosen.width)
    if chosen.high == 1:
        rounds = [round_of(1, chosen.low, eigenvalues)]  # symmetric: as PyTorch's product wants them, too
    else:
        low = round_of(1, chosen.low, None if wiring.reverse else eigenvalues)
        high = round_of(chosen.low, chosen.high, eigenvalues if wiring.reverse else None)
        outer, inner = (low, high) if wiring.reverse else (high, low)
        rounds = [_transposed(outer), inner, outer]
    rounds = [matrices.to(dtype, memory_format=torch.contiguous_format) for matrices in rounds]
    return Made(chosen, tuple(rounds), low_first, gain, strided)


def _column_blocks(
    wiring: Butterfly, width: int, angles: torch.Tensor, eigenvalues: torch.Tensor, dtype: torch.dtype
) -> MadeHalf:
    """Q D Qᵀ of every column block, by the stages inside it. Each is a butterfly of its own."""
    columns, half = wiring.n // width, width // 2
    begin = int(wiring.offsets[wiring.strides.index(half)])
    own = angles[0, begin:].view(-1, columns, half).transpose(0, 1).reshape(columns, -1)
    return half_rounds.make(Butterfly(width), own, eigenvalues.view(columns, width), "symmetric", dtype)


def _rounds(
    wiring: Butterfly, angles: torch.Tensor, chosen: BlockPlan, form: Form, dtype: torch.dtype
) -> tuple[torch.Tensor, ...]:
    """The matrices of Q x or Qᵀ x, one launch per round."""
    transpose = form == "to_basis"

    def made(stride: int, size: int, transpose: bool = transpose, thirds: bool = False) -> torch.Tensor:
        return round_matrices.matrices(
            wiring, angles, dtype, stride, size, chosen.width, transpose, thirds=thirds
        )

    if chosen.high == 1:
        # cuBLAS is faster with its right factor in the order from, to.
        return (made(1, chosen.low, transpose=transpose == bool(chosen.rows)),)
    rounds = [made(1, chosen.low), made(chosen.low, chosen.high)]
    if chosen.thirds:
        rounds.append(made(128, 16, thirds=True))
    return tuple(rounds if (form == "from_basis") != wiring.reverse else reversed(rounds))


def _matrices(
    wiring: Butterfly,
    angles: torch.Tensor,
    eigenvalues: torch.Tensor | None,
    stride: int,
    size: int,
    width: int,
) -> torch.Tensor:  # shape: (column blocks, blocks, to, from)
    """The matrices of the stages with strides from ``stride`` to below ``stride · size``, float32.

    They are the images of a few probe vectors under these stages alone: the existing kernels apply them with all other
    angles set to zero. With eigenvalues, symmetric ones: these stages' Q D Qᵀ. Coordinates beyond n are zero.
    """
    n = wiring.n
    alone = torch.where(_between(wiring, stride, stride * size, angles.device), angles, 0.0)
    prepared = tables.prepare_plain(wiring, alone, eigenvalues, torch.float32)
    probes = _probes(n, stride, size, angles.device)
    y = butterfly.apply(wiring, prepared, probes, eigenvalues is not None, True, prepared.middle)[0]
    columns = -(-n // width)
    if n < columns * width:
        y = torch.nn.functional.pad(y, (0, columns * width - n))
    y = y.view(size, columns, width // (size * stride), size, stride)
    # (from, column blocks, above, to, below) → (column blocks, above, below, to, from)
    return y.permute(1, 2, 4, 3, 0).reshape(columns, width // size, size, size)


def power_of_two(eigenvalues: torch.Tensor) -> torch.Tensor:  # shape: (1,)
    """The largest one not above the largest eigenvalue: divided by it, eigenvalues are exact and at most 2."""
    largest = eigenvalues.abs().amax().clamp(2.0**-100, 2.0**100)
    return torch.exp2(torch.floor(torch.log2(largest))).view(1)


def _transposed(matrices: torch.Tensor) -> torch.Tensor:
    return matrices.transpose(-1, -2)


@lru_cache(maxsize=32)
def _between(
    wiring: Butterfly, low: int, high: int, device: torch.device
) -> torch.Tensor:  # shape: (1, K), bool
    """Which angles belong to stages with strides from low to below high."""
    strides = np.repeat(wiring.strides, np.diff(wiring.offsets))
    return torch.as_tensor((strides >= low) & (strides < high), device=device)[None]


@lru_cache(maxsize=32)
def _probes(n: int, stride: int, size: int, device: torch.device) -> torch.Tensor:  # shape: (1, size, n)
    """Probe i is 1 at the coordinates that are i-th in their block, and 0 elsewhere."""
    index = torch.arange(n, device=device) // stride % size
    return (index == torch.arange(size, device=device)[:, None]).float()[None]

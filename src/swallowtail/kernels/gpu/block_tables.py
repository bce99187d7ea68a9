"""Small matrices for the tensor cores, made from the angles on the device.

A butterfly on N = high · low coordinates is a low round and a high round (`gluon.blocks` has the letters). The matrices
of a round are the images of a few probe vectors under its stages alone: the existing kernels apply them in float32 with
all other angles set to zero. They are rounded once. Nothing waits for the device.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch

from swallowtail.kernels.gpu import butterfly, tables
from swallowtail.kernels.gpu.block_plan import BlockPlan, Form, block_plan, strided_passes
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
    """

    plan: BlockPlan
    rounds: tuple[torch.Tensor, ...]
    low_first: bool
    gain: torch.Tensor | None
    strided: tuple[tuple[Pass, tables.Coefficients], ...]


class BlockTables:
    """Makes tables when they are first asked for, and keeps them as long as the angles are valid.

    Args:
        wiring: a butterfly of depth 1.
        angles: shape (1, K).
        eigenvalues: shape (1, n), or None.
    """

    def __init__(self, wiring: Butterfly, angles: torch.Tensor, eigenvalues: torch.Tensor | None) -> None:
        self._wiring = wiring
        self._angles = angles.detach()
        self._eigenvalues = None if eigenvalues is None else eigenvalues.detach()
        self._made: dict[tuple[Form, torch.dtype], Made] = {}

    def get(self, form: Form, dtype: torch.dtype) -> Made:
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
) -> Made:
    """The tables for Q x, Qᵀ x or Q D Qᵀ x.

    Q D Qᵀ x has three rounds: the outer half of the stages to the basis, one symmetric matrix per block that holds the
    inner half with D, and the outer half from the basis.
    """
    chosen = block_plan(wiring.n, form, wiring.reverse, dtype)
    assert chosen is not None  # `blocks.suits` asked before
    angles = angles.float()
    gain = None
    if form == "symmetric":
        assert eigenvalues is not None
        eigenvalues = eigenvalues.float()
        if dtype == torch.float16:  # bf16 has the range of float32
            gain = power_of_two(eigenvalues)
            eigenvalues = eigenvalues / gain
    round_of = lambda stride, size, d=None: _matrices(wiring, angles, d, stride, size, chosen.width)
    low_first = (form == "from_basis") != wiring.reverse
    if chosen.high == 1:
        rounds = [round_of(1, chosen.low, eigenvalues if form == "symmetric" else None)]
        if form == "to_basis":
            rounds = [_transposed(rounds[0])]
    elif form == "symmetric":
        low = round_of(1, chosen.low, None if wiring.reverse else eigenvalues)
        high = round_of(chosen.low, chosen.high, eigenvalues if wiring.reverse else None)
        outer, inner = (low, high) if wiring.reverse else (high, low)
        rounds = [_transposed(outer), inner, outer]
    else:
        rounds = [round_of(1, chosen.low), round_of(chosen.low, chosen.high)]
        if chosen.thirds:
            rounds.append(_high_third(wiring, angles))
        if not low_first:
            rounds.reverse()
        if form == "to_basis":
            rounds = [_transposed(matrices) for matrices in rounds]
    if not chosen.rows:  # cuBLAS is faster with its right factor in this order
        rounds = [_transposed(rounds[0])]
    passes = strided_passes(wiring.n, chosen.width)
    coefficients = tables.cosines_and_sines(wiring, angles, torch.float32, passes)
    return Made(
        chosen,
        tuple(matrices.to(dtype, memory_format=torch.contiguous_format) for matrices in rounds),
        low_first,
        gain,
        tuple(zip(passes, coefficients, strict=True)),
    )


def _matrices(
    wiring: Butterfly,
    angles: torch.Tensor,
    eigenvalues: torch.Tensor | None,
    stride: int,
    size: int,
    width: int,
    done: int = 0,
) -> torch.Tensor:  # shape: (column blocks, blocks, to, from)
    """The matrices of the stages with strides from ``stride`` to below ``stride · size``, float32.

    The first ``done`` of these stages are left out. With eigenvalues, symmetric ones: these stages' Q D Qᵀ. Coordinates
    beyond n are zero.
    """
    n = wiring.n
    alone = torch.where(_between(wiring, stride << done, stride * size, angles.device), angles, 0.0)
    prepared = tables.prepare_plain(wiring, alone, eigenvalues, torch.float32)
    probes = _probes(n, stride, size, angles.device)
    y = butterfly.apply(wiring, prepared, probes, eigenvalues is not None, True, prepared.middle)[0]
    columns = -(-n // width)
    if n < columns * width:
        y = torch.nn.functional.pad(y, (0, columns * width - n))
    y = y.view(size, columns, width // (size * stride), size, stride)
    # (from, column blocks, above, to, below) → (column blocks, above, below, to, from)
    return y.permute(1, 2, 4, 3, 0).reshape(columns, width // size, size, size)


def _high_third(wiring: Butterfly, angles: torch.Tensor) -> torch.Tensor:  # shape: (1, 128, 16, 16)
    """The high round of `gluon.thirds`, whose blocks are counted by bits 0–2, 4–6 and 3 of a coordinate."""
    matrices = _matrices(wiring, angles, None, 128, 16, wiring.n, done=1)
    return matrices.view(8, 2, 8, 16, 16).permute(2, 0, 1, 3, 4).reshape(matrices.shape)


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

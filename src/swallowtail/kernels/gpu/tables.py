"""Tables of coefficients for the butterfly kernels, in the order in which these read them.

Four letters, here and in all GPU kernels. Of a pair (a, b) with angle θ:

    plain  u = cos θ                  v = sin θ                  Q: (u a − v b, v a + u b)    Qᵀ: (u a + v b, u b − v a)
    fast   u = tan θ · σb/σa          v = tan θ · σa/σb          Q: (a − v b, b + u a)        Qᵀ: (a + u b, b − v a)

``scale`` belongs to the fast form: σ, one number per coordinate, is the product of the cosines that the coordinate has
met in a pass of Qᵀ. In the fast form each pass of Qᵀ ends with a multiplication by its σ, and each pass of Q begins
with it. ``middle`` is the diagonal between Qᵀ and Q in Q D Qᵀ: the eigenvalues D; in the fast form σ D σ, with the σ of
the innermost pass.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch

from swallowtail.kernels.gpu import plan
from swallowtail.kernels.gpu.device import constant, runs_gluon
from swallowtail.kernels.gpu.launch import launch
from swallowtail.kernels.gpu.plan import Pass
from swallowtail.kernels.gpu.triton.tables import pack_kernel, table_kernel
from swallowtail.wiring import Butterfly

# The fast form loses no accuracy, only range: below these bounds the plain form is used. Scales of 2^-50, squared,
# leave float32 room for vectors near 1, which kernels make of all others (`triton.ranges`), and for eigenvalues.
MIN_COSINE = 2.0**-20
MIN_SCALE = {torch.float32: 2.0**-50, torch.float64: 2.0**-200}
EIGENVALUE_RANGE = {torch.float32: (2.0**-20, 2.0**40), torch.float64: (2.0**-200, 2.0**200)}
TABLE_BLOCK = 1024  # entries per program of the table kernel


class Coefficients(NamedTuple):
    """The tables of one pass; both have the shape (B, depth, tiles, bits, N/2), N being the numbers of a tile."""

    u: torch.Tensor
    v: torch.Tensor


class PreparedButterfly(NamedTuple):
    """What the kernels read; the module's docstring explains the letters."""

    fast: bool
    passes: tuple[Pass, ...]
    tables: tuple[Coefficients, ...]  # one per pass
    scale: torch.Tensor  # shape: (B, depth, passes, n); empty in the plain form
    middle: torch.Tensor | None  # shape: (B, n); None if there were no eigenvalues
    blocks: Any = None  # `block_tables.BlockTables`, for half precision on tensor cores


@lru_cache(maxsize=32)
def _places(wiring: Butterfly, device: torch.device) -> torch.Tensor | None:  # shape: (K,)
    """Where each angle stands in `_dense_angles`; None where no pair is missing."""
    bits = (wiring.n - 1).bit_length()
    if wiring.n == 1 << bits:
        return None
    parts = []
    for layer, stride in enumerate(wiring.strides):
        i = wiring.layer(layer)[:, 0]
        bit = stride.bit_length() - 1
        row = (layer // bits) * bits + bit
        parts.append((row << (bits - 1)) + ((i >> (bit + 1)) << bit) + (i & (stride - 1)))
    return constant(np.concatenate(parts), device)


def _dense_angles(wiring: Butterfly, angles: torch.Tensor) -> torch.Tensor:
    """(B, K) → (B, depth, bits, 2^bits / 2): stages in order of growing strides, 0 where a pair is missing."""
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


class _Axes(NamedTuple):
    """The pairs of one stage in the order of their coordinates, as the sizes of seven axes, the slowest first."""

    outer: int  # blocks of coordinates that the pass treats alike
    high: int  # positions of the group above its stages
    quads: int  # pairs of a position: quads · quad, of which a thread loads a quad at once
    quad: int
    low: int  # positions of the group below its stages
    block: int  # column blocks side by side between two strides of the pass
    col: int  # columns of a tile


def _axes(n: int, p: Pass, first: int, stages: int) -> _Axes:
    """The axes of the group of so many stages of a pass, from stage ``first`` on."""
    half = 1 << (stages - 1)
    quad = min(4, half)
    cols = p.cols if p.first else 1
    outer = -(-n // (1 << (p.first + p.bits)))
    high = 1 << (p.bits - first - stages)
    return _Axes(outer, high, half // quad, quad, 1 << first, (1 << p.first) // cols, cols)


def _to_table(dense: torch.Tensor, n: int, p: Pass) -> torch.Tensor:
    """(B, depth, bits, 2^bits / 2) → (B, depth, tiles, stages of the pass, N/2), the order of `triton.groups`."""
    batch, depth = dense.shape[:2]
    parts = []
    first = 0
    for group in range(p.groups):
        r = p.bits // p.groups + (group < p.bits % p.groups)  # as `triton.groups.radix`
        axes = _axes(n, p, first, r)
        needed = axes.outer << (p.first + p.bits - 1)
        stages = dense[:, :, p.first + first : p.first + first + r, :needed].reshape(batch, depth, r, *axes)
        # (B, depth, stage, outer, high, quads, quad, low, block, col) →
        # (B, depth, outer, block, stage, quads, high, low, col, quad)
        stages = stages.permute(0, 1, 3, 8, 2, 5, 4, 7, 9, 6)
        parts.append(stages.reshape(batch, depth, axes.outer * axes.block, r, -1))
        first += r
    return torch.cat(parts, 3).contiguous()


@cache  # never dropped: recorded launches (`optim.adam.replay`) go on reading it
def angle_index(
    wiring: Butterfly, device: torch.device, passes: tuple[Pass, ...]
) -> tuple[torch.Tensor, ...]:
    """For each pass, which angle (counted from 1) belongs to each place of its tables; 0 where a pair is missing."""
    numbers = torch.from_numpy(np.arange(1, wiring.n_rotations + 1, dtype=np.int32))[None]
    dense = _dense_angles(wiring, numbers)
    return tuple(constant(_to_table(dense, wiring.n, p)[0].numpy(), device) for p in passes)


def prepare_plain(
    wiring: Butterfly,
    angles: torch.Tensor,
    eigenvalues: torch.Tensor | None,
    dtype: torch.dtype,
    training: bool = False,
) -> PreparedButterfly:
    """The plain form. Nothing waits for the device, and there is one launch per pass.

    With ``training`` the tables suit a call and its gradient: the fastest gradient kernel has other groups.
    """
    middle = None if eigenvalues is None else eigenvalues.to(dtype).contiguous()
    if not wiring.n_rotations:
        return PreparedButterfly(False, (), (), angles.new_empty(0), middle)
    passes = plan.passes_of(wiring.n)
    found = plan.TRAINING.get((wiring.n - 1).bit_length()) if training and wiring.depth == 1 else None
    if found is not None and dtype == torch.float32 and runs_gluon(angles):
        passes = (found.whole,)
    tables = cosines_and_sines(wiring, angles, dtype, passes)
    return PreparedButterfly(False, passes, tables, angles.new_empty(0, dtype=dtype), middle)


def cosines_and_sines(
    wiring: Butterfly, angles: torch.Tensor, dtype: torch.dtype, passes: tuple[Pass, ...]
) -> tuple[Coefficients, ...]:
    """The plain tables of some passes."""
    angles = angles.contiguous()
    return tuple(table_of(angles, index, dtype) for index in angle_index(wiring, angles.device, passes))


def table_of(angles: torch.Tensor, index: torch.Tensor, dtype: torch.dtype) -> Coefficients:
    """Cosines and sines of contiguous angles (B, K), each where the index, of any shape, has its number."""
    batch, K = angles.shape
    u = torch.empty((batch, *index.shape), dtype=dtype, device=angles.device)
    v = torch.empty_like(u)
    size = index.numel()
    launch(table_kernel, (-(-size // TABLE_BLOCK), batch), angles, index, u, v, K, size, BLOCK=TABLE_BLOCK)
    return Coefficients(u, v)


def packed(table: Coefficients) -> torch.Tensor:  # int32, in the table's shape
    """Both coefficients as fp16 numbers in one word: half the bytes, and errors far below those of bf16 vectors."""
    words = torch.empty_like(table.u, dtype=torch.int32)
    size = words.numel()
    launch(pack_kernel, (-(-size // TABLE_BLOCK),), table.u, table.v, words, size, BLOCK=TABLE_BLOCK)
    return words


def prepare_fast(
    wiring: Butterfly, angles: torch.Tensor, eigenvalues: torch.Tensor | None, dtype: torch.dtype
) -> PreparedButterfly | None:
    """The fast form, or None where its scales would leave the safe range. Choosing waits for the device once.

    Write a coordinate as σ times a stored number: a = σa a'. Then c a + s b = c σa (a' + tan θ (σb/σa) b'). The cosine
    joins the scale, and two multiply-adds are left. Scales are computed in float64.
    """
    n, bits, passes = wiring.n, (wiring.n - 1).bit_length(), plan.passes_of(wiring.n)
    dense = _dense_angles(wiring, angles.double())
    c, t = torch.cos(dense), torch.tan(dense)
    u, v = torch.empty_like(t), torch.empty_like(t)
    scales = []
    for p in passes:
        scale = dense.new_ones(*dense.shape[:2], 1 << bits)
        stages = range(p.first, p.first + p.bits)
        for bit in stages if wiring.reverse else reversed(stages):
            pairs = scale.view(*dense.shape[:2], -1, 2, 1 << bit)
            ratio = (pairs[..., 1, :] / pairs[..., 0, :]).flatten(2)
            u[:, :, bit] = t[:, :, bit] * ratio
            v[:, :, bit] = t[:, :, bit] / ratio
            scale = (pairs * c[:, :, bit].view(*dense.shape[:2], -1, 1, 1 << bit)).view(scale.shape)
        scales.append(scale[..., :n])
    scale = torch.stack(scales, 2)
    checks = [c.abs().amin() / MIN_COSINE, scale.abs().amin() / MIN_SCALE[dtype]]
    middle = None
    if eigenvalues is not None:
        d = eigenvalues.double()
        largest = d.abs().amax()
        checks += [
            largest / EIGENVALUE_RANGE[dtype][0] + (largest == 0),
            EIGENVALUE_RANGE[dtype][1] / largest,
        ]
        inner = len(passes) - 1 if wiring.reverse else 0  # the last pass of Qᵀ
        middle = (scale[:, -1, inner] ** 2 * d).to(dtype).contiguous()
    if not bool(torch.stack(checks).amin() >= 1):  # also false when something is not a number
        return None
    tables = tuple(Coefficients(_to_table(u.to(dtype), n, p), _to_table(v.to(dtype), n, p)) for p in passes)
    return PreparedButterfly(True, passes, tables, scale.to(dtype).contiguous(), middle)


def prepare(
    wiring: Butterfly,
    angles: torch.Tensor,
    eigenvalues: torch.Tensor | None,
    dtype: torch.dtype,
    fast: bool,
) -> PreparedButterfly:
    """The fast form where it is allowed and holds, else the plain one."""
    prepared = prepare_fast(wiring, angles, eigenvalues, dtype) if fast and wiring.n_rotations else None
    return prepare_plain(wiring, angles, eigenvalues, dtype) if prepared is None else prepared


def with_middle(
    wiring: Butterfly, angles: torch.Tensor, eigenvalues: torch.Tensor, prepared: PreparedButterfly
) -> PreparedButterfly:
    """What was prepared without eigenvalues, with them; the fast form has to look at their range first."""
    if prepared.middle is not None:
        return prepared
    dtype = prepared.tables[0].u.dtype
    if prepared.fast:
        return prepare(wiring, angles, eigenvalues, dtype, fast=True)
    return prepared._replace(middle=eigenvalues.to(dtype).contiguous(), blocks=None)

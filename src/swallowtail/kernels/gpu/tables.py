"""Tables of coefficients for the butterfly kernels on the GPU, laid out as `gpu_butterfly_kernels` reads them."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
import torch

from swallowtail.kernels.gpu.launch import launch as start
from swallowtail.kernels.gpu.triton import butterfly as kernels
from swallowtail.wiring import Butterfly

# The fast form multiplies by tan θ and carries the cosines as scales. It loses no accuracy, only range: below
# these bounds the plain form is used. Scales of 2^-50, squared, leave float32 room for data and eigenvalues.
MIN_COSINE = 2.0**-20
MIN_SCALE = {torch.float32: 2.0**-50, torch.float64: 2.0**-200}
EIGENVALUE_RANGE = {torch.float32: (2.0**-20, 2.0**40), torch.float64: (2.0**-200, 2.0**200)}


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
GROUPS = {1: 1, 2: 1, 3: 1, 4: 1, 5: 2, 6: 2, 7: 2, 8: 3, 9: 3, 10: 4, 11: 4, 12: 3}
WHOLE = Pass(0, 10, 1, GROUPS[10])  # vectors of 513 to 1024 numbers
HELD = Pass(0, 10, 1, 3)  # the same for training in float32 with one sweep: for `gpu_backward_held`


def in_warps_of_32(x: torch.Tensor) -> bool:
    """Whether the Gluon kernels, which are written for such warps, can run where x is."""
    return x.is_cuda and torch.version.hip is None


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


def tiles_of(n: int, p: Pass) -> int:
    outer = -(-n >> (p.first + p.bits)) if n else 0
    return outer * max(1, (1 << p.first) // p.cols)


def _group_shapes(n: int, p: Pass) -> list[tuple[int, int, tuple[int, ...]]]:
    """For each group: its first bit, its radix, and the natural order of a stage's pairs as a shape."""
    outer = -(-n // (1 << (p.first + p.bits)))
    shapes: list[tuple[int, int, tuple[int, ...]]] = []
    first = 0
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


@cache  # recorded launches go on reading it
def angle_index(
    wiring: Butterfly, device: torch.device, passes: tuple[Pass, ...]
) -> tuple[torch.Tensor, ...]:
    """For each pass, which angle (counted from 1) each place of its table holds; 0 where a pair is missing."""
    numbers = torch.arange(1, wiring.n_rotations + 1, dtype=torch.float64, device=device)[None]
    dense = _dense_angles(wiring, numbers)
    return tuple(_to_table(dense, wiring.n, p)[0].long() for p in passes)


TABLE_BLOCK = 1024  # entries a program of the table kernel


def prepare_plain(
    wiring: Butterfly,
    angles: torch.Tensor,
    eigenvalues: torch.Tensor | None,
    dtype: torch.dtype,
    training: bool = False,
) -> PreparedButterfly:
    """Cosines and sines; nothing waits for the device, and a training step spends one launch a pass on it.

    With ``training`` they are laid out for a gradient, where its fastest kernel wants them differently.
    """
    middle = None if eigenvalues is None else eigenvalues.to(dtype).contiguous()
    if not wiring.n_rotations:
        return PreparedButterfly(False, (), (), angles.new_empty(0), middle)
    passes = _passes(wiring.n)
    one_sweep = passes == (WHOLE,) and wiring.depth == 1
    if training and one_sweep and dtype == torch.float32 and in_warps_of_32(angles):
        passes = (HELD,)
    tables = []
    angles = angles.contiguous()
    for index in angle_index(wiring, angles.device, passes):
        u = torch.empty((len(angles), *index.shape), dtype=dtype, device=angles.device)
        v = torch.empty_like(u)
        blocks = -(-index.numel() // TABLE_BLOCK)
        start(
            kernels.table_kernel, (blocks, len(angles)), angles, index, u, v, wiring.n_rotations, index.numel(),
            BLOCK=TABLE_BLOCK,
        )  # fmt: skip
        tables.append((u, v))
    return PreparedButterfly(False, passes, tuple(tables), angles.new_empty(0, dtype=dtype), middle)


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

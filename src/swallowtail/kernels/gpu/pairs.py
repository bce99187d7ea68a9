"""Any pairs on the GPU: rotations in chunks that may run together, their tables, and the launches.

A kernel keeps one row of numbers per coordinate that a rotation touches, and one lane per vector. Here u = cos θ and
v = sin θ throughout: there is no fast form.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch

from swallowtail.kernels.gpu import device
from swallowtail.kernels.gpu.gluon.pairs import ROW_WORDS, WARP_LANES, shared_pairs_kernel
from swallowtail.kernels.gpu.launch import launch
from swallowtail.kernels.gpu.tables import table_of
from swallowtail.kernels.gpu.triton.pairs import pairs_backward_kernel, pairs_kernel
from swallowtail.wiring import Pairs

SLOTS = 16  # pairs per chunk: so many loads may be in flight together
LANES = 64  # vectors per program, at most
WARPS = 8  # per program
COLS = 32  # coordinates that a program copies at a time
PROGRAMS = 8  # per multiprocessor
PACKED_ROWS = 1 << 15  # row numbers that fit into half of an int32


class Schedule(NamedTuple):
    """Where the rotations stand in chunks of disjoint pairs."""

    place: np.ndarray  # shape: (K,): chunk · slots + slot of each rotation, Q₁'s first
    chunks: int


class Layout(NamedTuple):
    """A wiring's tables on a device; places are (chunks · SLOTS,)."""

    first: torch.Tensor  # per place: the row of the pair's first coordinate; −1 where a place is empty
    second: torch.Tensor
    coordinate: torch.Tensor  # shape: (touched,): the coordinate of each row
    row_of: torch.Tensor  # shape: (n,): the row of each coordinate; −1 where no rotation touches it
    place: torch.Tensor  # shape: (K,): the place of each angle
    angle: torch.Tensor  # per place: the number of its angle, from 1; 0 where a place is empty
    # Per place, first + 2^16 second, for `shared_pairs_kernel`; empty places name two spare rows.
    packed: torch.Tensor


class PreparedPairs(NamedTuple):
    """What the kernels read; u and v are (B, chunks · SLOTS)."""

    layout: Layout
    u: torch.Tensor
    v: torch.Tensor
    middle: torch.Tensor | None  # shape: (B, n): the eigenvalues; None if there were none
    groups: Any = None  # `group_tables.GroupTables`, where Q is block-diagonal
    rounds: Any = None  # `rounds.RoundTables`, where these kernels can run


class Grid(NamedTuple):
    """How a launch shares out the vectors of one rotation."""

    lanes: int  # vectors per block
    blocks: int
    programs: int  # each takes every programs-th block


@lru_cache(maxsize=32)
def schedule(wiring: Pairs, slots: int) -> Schedule:
    """Put each rotation into the first chunk with room after those that it must follow."""
    ready = np.zeros(wiring.n, np.int64)
    filled: list[int] = []
    place = np.empty(wiring.n_rotations, np.int64)
    for k, (i, j) in enumerate(wiring.pairs.tolist()):
        chunk = max(int(ready[i]), int(ready[j]))
        while chunk < len(filled) and filled[chunk] == slots:
            chunk += 1
        if chunk == len(filled):
            filled.append(0)
        place[k] = chunk * slots + filled[chunk]
        filled[chunk] += 1
        ready[i] = ready[j] = chunk + 1
    return Schedule(place, len(filled))


def _layout(wiring: Pairs, where: torch.device) -> Layout:
    """Made once per wiring and device. It lasts as long as the wiring: recorded launches go on reading it."""
    found: Layout | None = wiring.derived.get((_layout, where))
    if found is None:
        found = wiring.derived[_layout, where] = _make_layout(wiring, where)
    return found


def _make_layout(wiring: Pairs, where: torch.device) -> Layout:
    place, chunks = schedule(wiring, SLOTS)
    coordinate = np.unique(wiring.pairs)
    row_of = np.full(wiring.n, -1, np.int32)
    row_of[coordinate] = np.arange(len(coordinate), dtype=np.int32)
    sides = np.full((2, chunks * SLOTS), -1, np.int32)
    sides[:, place] = row_of[wiring.pairs.T]
    # Two spare rows stand in the empty places, so that no lane has to ask whether there is a pair.
    spare = np.where(sides < 0, len(coordinate) + np.arange(2, dtype=np.int32)[:, None], sides)
    packed = spare[0] | spare[1] << 16 if len(coordinate) < PACKED_ROWS else sides[0]
    angle = np.zeros(chunks * SLOTS, np.int32)
    angle[place] = np.arange(1, wiring.n_rotations + 1)
    arrays = (sides[0], sides[1], coordinate.astype(np.int32), row_of, place, angle, packed)
    return Layout(*(device.constant(a, where) for a in arrays))


def prepare(
    wiring: Pairs, angles: torch.Tensor, eigenvalues: torch.Tensor | None, dtype: torch.dtype
) -> PreparedPairs:
    """The tables of a wiring with angles (B, K), for arithmetic in ``dtype``."""
    layout = _layout(wiring, angles.device)
    middle = None if eigenvalues is None else eigenvalues.to(dtype).contiguous()
    return PreparedPairs(layout, *table_of(angles.contiguous(), layout.angle, dtype), middle)


def _grid(prepared: PreparedPairs, batch: int, m: int, copies: int) -> Grid:
    """The grid for m vectors of each of ``batch`` rotations, with so many scratch buffers per program."""
    row_bytes = batch * len(prepared.layout.coordinate) * copies * prepared.u.itemsize  # per lane
    lanes = min(LANES, 1 << (m - 1).bit_length())
    while lanes > 1 and lanes * row_bytes > device.SCRATCH_BYTES:
        lanes //= 2
    blocks = -(-m // lanes)
    room = device.SCRATCH_BYTES // (lanes * row_bytes)
    wanted = -(-PROGRAMS * device.multiprocessors(prepared.u.device) // batch)
    return Grid(lanes, blocks, max(1, min(blocks, room, wanted)))


def apply(
    prepared: PreparedPairs,
    x: torch.Tensor,
    to_basis: bool,
    from_basis: bool,
    eigenvalues: torch.Tensor | None,
) -> torch.Tensor:
    """Qᵀ (to basis), the eigenvalues (B, n), then Q (from basis), each optional, on x (B, m, n)."""
    x = x.contiguous()
    batch, m, n = x.shape
    layout, u, v = prepared[:3]
    y = torch.empty_like(x)
    # A kernel needs some pointer even for what it does not read.
    middle = u if eigenvalues is None else eigenvalues.to(u.dtype).contiguous()
    touched, chunks = len(layout.coordinate), len(layout.first) // SLOTS
    form = {"TO_BASIS": to_basis, "FROM_BASIS": from_basis, "MIDDLE": eigenvalues is not None, "SLOTS": SLOTS}
    if _fits_shared(prepared, x):
        blocks = -(-m // WARP_LANES)
        launch(
            shared_pairs_kernel, (batch * blocks,), x, y, layout.packed, u, v, layout.row_of, middle,
            n, touched, chunks, m, blocks, **form, ALLOCATED=_shared_lines(layout), warps=1,
        )  # fmt: skip
        return y
    lanes, blocks, programs = _grid(prepared, batch, m, 1)
    work = torch.empty(batch * programs * touched * lanes, dtype=u.dtype, device=x.device)
    launch(
        pairs_kernel, (batch * programs,), x, y, work, layout.first, layout.second, u, v, layout.coordinate,
        layout.row_of, middle, n, touched, chunks, m, blocks, programs, **form, LANES=lanes, COLS=COLS, warps=WARPS,
    )  # fmt: skip
    return y


def _fits_shared(prepared: PreparedPairs, x: torch.Tensor) -> bool:
    """Whether `shared_pairs_kernel` can run: in float32, where a row per touched coordinate fits into shared memory."""
    if not device.runs_gluon(x) or prepared.u.dtype != torch.float32:
        return False
    line = 4 * WARP_LANES  # bytes
    return line * _shared_lines(prepared.layout) <= min(device.shared_memory(x.device), line * PACKED_ROWS)


def _shared_lines(layout: Layout) -> int:
    """Shared memory of a program in units of 32 words; two rows are spare."""
    return -(-(len(layout.coordinate) + 2) * ROW_WORDS // WARP_LANES)


def walk_back(
    prepared: PreparedPairs, y: torch.Tensor, grad: torch.Tensor, transpose: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients for x (B, m, n) and the angles (B, K), given y = Q x (or Qᵀ x) and its gradient, both contiguous."""
    batch, m, n = y.shape
    layout, u, v = prepared[:3]
    lanes, blocks, programs = _grid(prepared, batch, m, 2)
    programs = max(1, min(programs, device.SUMS_BYTES // (u.numel() * u.itemsize)))
    touched = len(layout.coordinate)
    grad_x = torch.empty_like(y)
    work = torch.empty(batch * programs * 2 * touched * lanes, dtype=u.dtype, device=y.device)
    sums = torch.zeros(batch, programs, len(layout.first), dtype=u.dtype, device=y.device)
    launch(
        pairs_backward_kernel, (batch * programs,), y, grad, grad_x, work, sums, layout.first, layout.second, u, v,
        layout.coordinate, layout.row_of, n, touched, len(layout.first) // SLOTS, m, blocks, programs,
        TRANSPOSE=not transpose, SLOTS=SLOTS, LANES=lanes, COLS=COLS, warps=WARPS,
    )  # fmt: skip
    total = sums.sum(1)[:, layout.place]
    return grad_x, -total if transpose else total

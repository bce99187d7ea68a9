"""Any pairs on the GPU: the schedule, tables and launches of `gpu_pairs_kernels` and `gpu_pairs_shared`."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch

from swallowtail.kernels.gpu.butterfly import SUMS_BYTES, multiprocessors
from swallowtail.kernels.gpu.gluon import pairs as gpu_pairs_shared
from swallowtail.kernels.gpu.triton import pairs as gpu_pairs_kernels
from swallowtail.wiring import Pairs

PAIRS_SLOTS, PAIRS_LANES, PAIRS_WARPS, PAIRS_COLS, PAIRS_PROGRAMS = 16, 64, 8, 32, 8
SHARED_ROWS = 1 << 15  # rows that fit into half of a packed pair
WORK_BYTES = 1 << 30  # bound on the scratch of the pairs kernels


class PreparedPairs(NamedTuple):
    """Chunks of disjoint pairs in rows of the scratch, (chunks, slots), with their cosines and sines (B,
    …).
    """

    first: torch.Tensor
    second: torch.Tensor
    cos: torch.Tensor
    sin: torch.Tensor
    coordinate: torch.Tensor  # shape: (touched,): the coordinate of each row of the scratch
    row_of: torch.Tensor  # shape: (n,): and back; −1 where no rotation touches a coordinate
    place: torch.Tensor  # shape: (K,): where each angle stands in the chunks
    packed: torch.Tensor  # shape: (chunks · slots,): first + 2^16 second, as `gpu_pairs_shared` reads it


@lru_cache(maxsize=32)
def schedule(wiring: Pairs, slots: int) -> tuple[np.ndarray, int]:
    """Put each rotation into the first chunk after those it must follow that has room.

    Returns:
        The place (chunk · slots + slot) of each of the K rotations, Q₁'s first, and the number of chunks.
    """
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
    return place, len(filled)


@lru_cache(maxsize=32)
def _pairs_tables(wiring: Pairs, device: torch.device) -> tuple[torch.Tensor, ...]:
    place, chunks = schedule(wiring, PAIRS_SLOTS)
    coordinate = np.unique(wiring.pairs)
    row_of = np.full(wiring.n, -1, np.int32)
    row_of[coordinate] = np.arange(len(coordinate), dtype=np.int32)
    sides = np.full((2, chunks * PAIRS_SLOTS), -1, np.int32)
    sides[:, place] = row_of[wiring.pairs.T]
    # Two spare rows take the empty places, so that no lane asks whether there is a pair.
    spare = np.where(sides < 0, len(coordinate) + np.arange(2, dtype=np.int32)[:, None], sides)
    packed = spare[0] | spare[1] << 16 if len(coordinate) < SHARED_ROWS else sides[0]
    arrays = (sides[0], sides[1], coordinate.astype(np.int32), row_of, place, packed)
    return tuple(torch.as_tensor(a, device=device) for a in arrays)


def prepare(wiring: Pairs, angles: torch.Tensor, dtype: torch.dtype) -> PreparedPairs:
    first, second, coordinate, row_of, place, packed = _pairs_tables(wiring, angles.device)
    chunked = angles.new_zeros(len(angles), len(first), dtype=torch.float64)
    chunked = chunked.index_copy(1, place, angles.double())
    cos, sin = torch.cos(chunked).to(dtype), torch.sin(chunked).to(dtype)
    return PreparedPairs(first, second, cos, sin, coordinate, row_of, place, packed)


def _pairs_grid(prepared: PreparedPairs, batch: int, m: int, tiles: int) -> tuple[int, int, int]:
    """Lanes, blocks of lanes, and programs for each of the ``batch`` rotations."""
    touched, itemsize = len(prepared.coordinate), prepared.cos.itemsize
    lanes = min(PAIRS_LANES, 1 << (m - 1).bit_length())
    while lanes > 1 and batch * touched * lanes * tiles * itemsize > WORK_BYTES:
        lanes //= 2
    blocks = -(-m // lanes)
    room = WORK_BYTES // (batch * touched * lanes * tiles * itemsize)
    wanted = -(-PAIRS_PROGRAMS * multiprocessors(prepared.cos.device) // batch)
    return lanes, blocks, max(1, min(blocks, room, wanted))


def launch(
    prepared: PreparedPairs,
    x: torch.Tensor,
    to_basis: bool,
    from_basis: bool,
    eigenvalues: torch.Tensor | None,
) -> torch.Tensor:
    x = x.contiguous()
    if _fits_shared(prepared, x.device):
        return _launch_shared(prepared, x, to_basis, from_basis, eigenvalues)
    batch, m, n = x.shape
    lanes, blocks, programs = _pairs_grid(prepared, batch, m, 1)
    touched, slots = len(prepared.coordinate), PAIRS_SLOTS
    y = torch.empty_like(x)
    work = torch.empty(batch * programs * touched * lanes, dtype=prepared.cos.dtype, device=x.device)
    middle = work if eigenvalues is None else eigenvalues.to(work.dtype).contiguous()
    gpu_pairs_kernels.pairs_kernel[(batch * programs,)](
        x, y, work, prepared.first, prepared.second, prepared.cos, prepared.sin, prepared.coordinate,
        prepared.row_of, middle, n, touched, len(prepared.first) // slots, m, blocks, programs,
        TO_BASIS=to_basis, FROM_BASIS=from_basis, MIDDLE=eigenvalues is not None, SLOTS=slots, LANES=lanes,
        COLS=PAIRS_COLS, num_warps=PAIRS_WARPS,
    )  # fmt: skip
    return y


def _fits_shared(prepared: PreparedPairs, device: torch.device) -> bool:
    """Whether a row for each touched coordinate fits into shared memory (and this is a GPU of NVIDIA's, in float32)."""
    if device.type != "cuda" or torch.version.hip is not None or prepared.cos.dtype != torch.float32:
        return False
    return 128 * _shared_lines(prepared) <= min(_shared_memory(device), 128 * SHARED_ROWS)


def _shared_lines(prepared: PreparedPairs) -> int:
    """Shared memory of a program in units of 32 words; two rows are spare."""
    return -(-(len(prepared.coordinate) + 2) * gpu_pairs_shared.PITCH // gpu_pairs_shared.LANES)


@lru_cache(maxsize=8)
def _shared_memory(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).shared_memory_per_block_optin


def _launch_shared(
    prepared: PreparedPairs,
    x: torch.Tensor,
    to_basis: bool,
    from_basis: bool,
    eigenvalues: torch.Tensor | None,
) -> torch.Tensor:
    batch, m, n = x.shape
    y = torch.empty_like(x)
    slots, lane_blocks = PAIRS_SLOTS, -(-m // gpu_pairs_shared.LANES)
    middle = prepared.cos if eigenvalues is None else eigenvalues.to(prepared.cos.dtype).contiguous()
    gpu_pairs_shared.shared_pairs_kernel[(batch * lane_blocks,)](
        x, y, prepared.packed, prepared.cos, prepared.sin, prepared.row_of, middle,
        n, len(prepared.coordinate), len(prepared.first) // slots, m, lane_blocks,
        TO_BASIS=to_basis, FROM_BASIS=from_basis, MIDDLE=eigenvalues is not None, SLOTS=slots,
        ALLOCATED=_shared_lines(prepared), num_warps=1,
    )  # fmt: skip
    return y


def launch_backward(
    wiring: Pairs, prepared: PreparedPairs, y: torch.Tensor, grad: torch.Tensor, transpose: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    batch, m, n = y.shape
    lanes, blocks, programs = _pairs_grid(prepared, batch, m, 2)
    programs = max(1, min(programs, SUMS_BYTES // (prepared.cos.numel() * prepared.cos.itemsize)))
    touched, slots = len(prepared.coordinate), PAIRS_SLOTS
    grad_x = torch.empty_like(y)
    work = torch.empty(batch * programs * 2 * touched * lanes, dtype=prepared.cos.dtype, device=y.device)
    sums = torch.zeros(batch, programs, len(prepared.first), dtype=work.dtype, device=y.device)
    gpu_pairs_kernels.pairs_backward_kernel[(batch * programs,)](
        y, grad, grad_x, work, sums, prepared.first, prepared.second, prepared.cos, prepared.sin,
        prepared.coordinate, prepared.row_of, n, touched, len(prepared.first) // slots, m, blocks, programs,
        TRANSPOSE=not transpose, SLOTS=slots, LANES=lanes, COLS=PAIRS_COLS, num_warps=PAIRS_WARPS,
    )  # fmt: skip
    total = sums.sum(1)[:, prepared.place]
    return grad_x, -total if transpose else total

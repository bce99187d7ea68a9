"""Launches of `_gpu_kernels`: a matrix's whole step in three kernels, a Jacobi pass in one for every few layers.

Four passes of rotations, Adam and the update would read and write the matrix some twenty times as separate
operations; here it is eleven: rotate (2), Adam between rotations (6), rotate and update (3).
Imported only where a GPU is used, since Triton takes a while to import.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from swallowtail.kernels.gpu import backend as gpu
from swallowtail.kernels.gpu import tables as gpu_tables
from swallowtail.kernels.gpu.launch import launch
from swallowtail.optim.adam.gpu import kernels as _gpu_kernels
from swallowtail.wiring import Butterfly

SKETCH_BLOCK, VECTOR_BLOCK = 512, 1024
JACOBI_NUMBERS = 8192  # a program of the Jacobi kernel holds so many, or two rows
# Vectors and warps of a program for sides of 2^12; the fastest of seven on an H200. Shorter sides take half as many
# numbers a program, which compiles in half the time.
ROWS, WARPS = 4, 8


class Fused:
    """Q_L and Q_R of one matrix (m, n), prepared for the kernels; angles (K,) each."""

    def __init__(self, left: Tensor, right: Tensor, sizes: tuple[int, int], depth: int) -> None:
        self.angles = right[None]
        self.wirings = tuple(Butterfly(n, depth) for n in sizes)
        # Plain tables take one launch to make; fast ones hundreds, for a step that memory bounds anyway.
        self.left, self.right = (
            gpu_tables.prepare_plain(wiring, angles[None], None, torch.float32)
            for wiring, angles in zip(self.wirings, (left, right), strict=True)
        )
        self.tensors = [table for side in (self.left, self.right) for table in side.tables[0]]

    def step(
        self, G: Tensor, p: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, beta1: float, beta2: float, numbers: Tensor
    ) -> Tensor:  # fmt: skip
        """kept · p − lr · Q_L Adam(Q_Lᵀ G Q_R) Q_Rᵀ; the moments, laid out (n, m), move on in place.

        Shapes: G (m, n), exp_avg and exp_avg_sq (n, m), p any that can be seen as (m, n). ``numbers`` is a
        `Numbers.row`.
        """
        m, n = G.shape
        x = gpu.rotate(self.wirings[1], self.angles, G[None], True, prepared=self.right)
        y = torch.empty_like(exp_avg)
        options, grid = self._options(0, n)
        u, v = self.left.tables[0]
        launch(
            _gpu_kernels.adam_kernel, grid, x, y, exp_avg, exp_avg_sq, u, v, u, v, numbers, m, n,
            1 - beta1, beta2, 1 - beta2, warps=WARPS, **options,
        )  # fmt: skip
        new = torch.empty(p.shape, dtype=torch.float32, device=p.device)
        options, grid = self._options(1, m)
        u, v = self.right.tables[0]
        launch(
            _gpu_kernels.update_kernel, grid, y, p.contiguous(), new, u, v, numbers, n, m, warps=WARPS, **options
        )  # fmt: skip
        return new.to(p.dtype)

    def carry_over(self, old: Fused, Z: Tensor) -> None:
        """Z ← the same matrix in these bases instead of the old ones; laid out (n, m), in place."""
        n, m = Z.shape
        for side, (before, after) in enumerate(((old.left, self.left), (old.right, self.right))):
            options, grid = self._options(side, (n, m)[side])
            launch(
                _gpu_kernels.carry_kernel, grid, Z, *before.tables[0], *after.tables[0], (m, n)[side], (n, m)[side],
                warps=WARPS, **options | {"TURNED": side == 1},
            )  # fmt: skip

    def _options(self, side: int, n_rows: int) -> tuple[dict[str, int | bool], tuple[int, int]]:
        wiring, prepared = self.wirings[side], (self.left, self.right)[side]
        (p,) = prepared.passes
        rows = ROWS if p.bits == 12 else ROWS // 2 << (12 - max(p.bits, 5))
        options: dict[str, int | bool] = {
            "TURNED": True, "DEPTH": wiring.depth, "EVEN": wiring.n == 1 << p.bits, "DIRECT": True,
            "GROUPS": p.groups, "BITS": p.bits, "ROWS": rows,
        }  # fmt: skip
        return options, (-(-n_rows // rows), 1)


def vector_step(
    G: Tensor, p: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, beta1: float, beta2: float, numbers: Tensor
) -> Tensor:
    """kept · p − lr · Adam(G), entry by entry; float32 moments move on in place."""
    new = torch.empty(p.shape, dtype=torch.float32, device=p.device)
    launch(
        _gpu_kernels.vector_kernel, (-(-G.numel() // VECTOR_BLOCK),), G.contiguous(), p.contiguous(), new, exp_avg,
        exp_avg_sq, numbers, G.numel(), 1 - beta1, beta2, 1 - beta2, BLOCK=VECTOR_BLOCK,
    )  # fmt: skip
    return new.to(p.dtype)


def sketch(G: Tensor, record: Tensor, numbers: Tensor, side: int) -> None:
    """Every so many-th column (side 0) or row (1) of G (m, n) into the record (slots, columns, side)."""
    n, other = G.shape[side], G.shape[1 - side]
    columns = record.shape[1]
    launch(
        _gpu_kernels.sketch_kernel, (-(-n // SKETCH_BLOCK), columns), G, record, numbers, 5 + side, n, columns,
        other // columns, G.stride(side), G.stride(1 - side), BLOCK=SKETCH_BLOCK,
    )  # fmt: skip


def jacobi_pass(samples: Tensor, wiring: Butterfly) -> tuple[Tensor, Tensor]:
    """As `_basis.jacobi_pass`: samples (B, n, r); angles (B, K) and Qᵀz."""
    z = samples.clone(memory_format=torch.contiguous_format)
    batch, n, r = z.shape
    cross, difference = z.new_empty(2, batch, wiring.n_rotations)
    columns = 1 << (r - 1).bit_length()
    most = max(1, (JACOBI_NUMBERS // columns).bit_length() - 1)
    layer, starts = 0, _starts(wiring, z.device)
    bits = wiring.n_layers // wiring.depth
    while layer < wiring.n_layers:
        stages = min(most, bits - layer % bits)
        low = wiring.strides[layer + stages - 1]
        programs = -(-n // (low << stages)) * low
        launch(
            _gpu_kernels.jacobi_kernel, (programs, batch), z, cross, difference, starts, layer, low, n, r,
            wiring.n_rotations, warps=WARPS, STAGES=stages, COLUMNS=columns,
        )  # fmt: skip
        layer += stages
    return 0.5 * torch.atan2(2 * cross + 0.0, difference), z  # − 0 would turn the other way than the kernel


@cache  # recorded launches go on reading it
def _starts(wiring: Butterfly, device: torch.device) -> Tensor:  # shape: (layers + 1,)
    return torch.from_numpy(wiring.offsets).to(device)

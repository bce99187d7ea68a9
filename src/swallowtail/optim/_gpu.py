"""Launches of `_gpu_kernels`: a matrix's whole step in three kernels, a Jacobi pass in one a layer.

Four passes of rotations, Adam and the update would read and write the matrix some twenty times as separate
operations; here it is eleven: rotate (2), Adam between rotations (6), rotate and update (3).
Imported only where a GPU is used, since Triton takes a while to import.
"""

from __future__ import annotations

import torch
from torch import Tensor

from swallowtail.kernels import gpu, gpu_tables
from swallowtail.optim import _gpu_kernels
from swallowtail.wiring import Butterfly

PAIRS = 4  # a program of the Jacobi kernel
# Vectors and warps of a program for sides of 2^12; the fastest of seven on an H200. Shorter sides take half as many
# numbers a program, which compiles in half the time.
ROWS, WARPS = 4, 8
TURNED = True  # read across: torch's transposing copy takes 3.5 times as long as a plain one on an H200


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

    def step(
        self, G: Tensor, p: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, *,
        t: int, beta1: float, beta2: float, eps: float, lr: float, kept: float,
    ) -> Tensor:  # fmt: skip
        """kept · p − lr · Q_L Adam(Q_Lᵀ G Q_R) Q_Rᵀ, shape (m, n); the moments, laid out (n, m), move on in place."""
        m, n = G.shape
        x = gpu.rotate(self.wirings[1], self.angles, G[None], True, prepared=self.right)[0]
        x = x if TURNED else x.mT.contiguous()
        y, root = torch.empty_like(exp_avg), (1 - beta2**t) ** 0.5
        options, grid = self._options(0, n)
        u, v = self.left.tables[0]
        _gpu_kernels.adam_kernel[grid](
            x, y, exp_avg, exp_avg_sq, u, v, u, v, m, n, 1 - beta1, beta2, 1 - beta2, eps * root,
            root / (1 - beta1**t), **options,
        )  # fmt: skip
        y = y if TURNED else y.mT.contiguous()
        new = torch.empty_like(p, dtype=torch.float32)
        options, grid = self._options(1, m)
        u, v = self.right.tables[0]
        _gpu_kernels.update_kernel[grid](y, p, new, u, v, n, m, kept, lr, **options)
        return new.to(p.dtype)

    def _options(self, side: int, n_rows: int) -> tuple[dict[str, int | bool], tuple[int, int]]:
        wiring, prepared = self.wirings[side], (self.left, self.right)[side]
        (p,) = prepared.passes
        rows = ROWS if p.bits == 12 else ROWS // 2 << (12 - max(p.bits, 5))
        options: dict[str, int | bool] = {
            "TURNED": TURNED, "DEPTH": wiring.depth, "EVEN": wiring.n == 1 << p.bits, "DIRECT": True,
            "GROUPS": p.groups, "BITS": p.bits, "ROWS": rows, "num_warps": WARPS,
        }  # fmt: skip
        return options, (-(-n_rows // rows), 1)


def jacobi_pass(samples: Tensor, layers: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """As `_basis.jacobi_pass`: samples (B, n, r) and the index pairs of each layer; angles (B, K) and Qᵀz."""
    z = samples.clone(memory_format=torch.contiguous_format)
    batch, n, r = z.shape
    counts = [len(i) for i, _ in layers]
    sums = [z.new_empty(2, batch, count) for count in counts]
    columns = 1 << (r - 1).bit_length()
    for (i, j), (cross, difference), count in zip(layers, sums, counts, strict=True):
        if count:
            _gpu_kernels.jacobi_layer_kernel[(-(-count // PAIRS), batch)](
                z, i, j, cross, difference, count, n, r, PAIRS=PAIRS, COLUMNS=columns
            )
    cross, difference = torch.cat([z.new_empty(2, batch, 0), *sums], -1)
    return 0.5 * torch.atan2(2 * cross + 0.0, difference), z  # − 0 would turn the other way than the kernel

"""Launches of the kernels of butterflies: the step of a matrix in three, a Jacobi pass in one for every few layers.

As separate operations, four passes of rotations, Adam and the update would read and write the matrix some twenty
times. Here it is eleven: rotate (2), Adam between rotations (6), rotate and update (3).

`gpu_for` imports this module, where a GPU is used.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from swallowtail.kernels.gpu import backend, tables
from swallowtail.kernels.gpu.launch import launch
from swallowtail.optim.adam.gpu import kernels
from swallowtail.optim.adam.gpu.grouped import FusedStep, takes
from swallowtail.optim.adam.state import DeviceNumbers, Side
from swallowtail.optim.closed_form import noise_in_samples
from swallowtail.wiring import Butterfly

__all__ = ["FusedBases", "FusedStep", "angles_from_samples", "sketch", "takes"]

SKETCH_BLOCK = 512  # entries per program; the kernel waits for memory either way
JACOBI_NUMBERS = 8192  # a program of the Jacobi kernel holds at most this many in registers, or two rows
# Vectors and warps per program for sides of 2^12; the fastest of seven on an H200. Shorter sides take half as many
# numbers per program, which compiles in half the time.
ROWS, WARPS = 4, 8
LONGEST_BITS, SHORTEST_BITS = 12, 5  # a program takes no more vectors for sides below 2^5 than for those


class _Side(NamedTuple):
    """Q of one side, prepared for the kernels."""

    wiring: Butterfly
    angles: Tensor  # shape: (1, K)
    prepared: tables.PreparedButterfly

    @property
    def tables(self) -> tuple[Tensor, Tensor]:
        """u and v of the one pass."""
        return self.prepared.tables[0]

    def options(self, n_rows: int, turned: bool) -> dict[str, int | bool]:
        """The kernels' constants for n_rows vectors."""
        (p,) = self.prepared.passes
        return {
            "TURNED": turned, "DEPTH": self.wiring.depth, "EVEN": self.wiring.n == 1 << p.bits, "DIRECT": True,
            "GROUPS": p.groups, "BITS": p.bits, "ROWS": self._rows(p.bits),
        }  # fmt: skip

    def grid(self, n_rows: int) -> tuple[int, int]:
        (p,) = self.prepared.passes
        return -(-n_rows // self._rows(p.bits)), 1

    @staticmethod
    def _rows(bits: int) -> int:
        return ROWS if bits == LONGEST_BITS else ROWS // 2 << (LONGEST_BITS - max(bits, SHORTEST_BITS))


class FusedBases:
    """Q_L and Q_R of one matrix (m, n); angles (K,) each."""

    def __init__(self, wirings: tuple[Butterfly, Butterfly], angles: tuple[Tensor, Tensor]) -> None:
        # Plain tables take one launch to make; fast ones hundreds, for a step that memory bounds anyway.
        self.left, self.right = (
            _Side(wiring, theta[None], tables.prepare_plain(wiring, theta[None], None, torch.float32))
            for wiring, theta in zip(wirings, angles, strict=True)
        )

    @property
    def tensors(self) -> list[Tensor]:
        """What kernels read, for `Bases.assign`."""
        return [*self.left.tables, *self.right.tables]

    def step(
        self, G: Tensor, p: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, numbers: DeviceNumbers,
        *, beta1: float, beta2: float,
    ) -> Tensor:  # fmt: skip
        """kept · p − lr · Q_L Adam(Q_Lᵀ G Q_R) Q_Rᵀ; the moments, laid out (n, m), move on in place.

        Shapes: G (m, n), exp_avg and exp_avg_sq (n, m), p any that can be seen as (m, n).
        """
        m, n = G.shape
        left, right = self.left, self.right
        x = backend.rotate(right.wiring, right.angles, G[None], True, prepared=right.prepared)
        y = torch.empty_like(exp_avg)
        launch(
            kernels.adam_kernel, left.grid(n), x, y, exp_avg, exp_avg_sq, *left.tables, *left.tables, numbers.row,
            m, n, 1 - beta1, beta2, 1 - beta2, warps=WARPS, **left.options(n, turned=True),
        )  # fmt: skip
        new = torch.empty(p.shape, dtype=torch.float32, device=p.device)
        launch(
            kernels.update_kernel, right.grid(m), y, p.contiguous(), new, *right.tables, numbers.row, n, m,
            warps=WARPS, **right.options(m, turned=True),
        )  # fmt: skip
        return new.to(p.dtype)

    def carry_over(self, old: FusedBases, Z: Tensor) -> None:
        """Z ← the same matrix in these bases instead of the old ones; laid out (n, m), in place."""
        n, m = Z.shape
        launch(
            kernels.carry_kernel, self.left.grid(n), Z, *old.left.tables, *self.left.tables, m, n,
            warps=WARPS, **self.left.options(n, turned=False),
        )  # fmt: skip
        launch(
            kernels.carry_kernel, self.right.grid(m), Z, *old.right.tables, *self.right.tables, n, m,
            warps=WARPS, **self.right.options(m, turned=True),
        )  # fmt: skip


def sketch(G: Tensor, record: Tensor, side: Side, numbers: DeviceNumbers) -> None:
    """Equally spaced columns (left side) or rows (right side) of G (m, n) into the record (slots, columns, side)."""
    n, other = G.shape[side.axis], G.shape[1 - side.axis]
    columns = record.shape[1]
    launch(
        kernels.sketch_kernel, (-(-n // SKETCH_BLOCK), columns), G, record, numbers.row,
        DeviceNumbers.index(side.start), n, columns, other // columns, G.stride(side.axis), G.stride(1 - side.axis),
        BLOCK=SKETCH_BLOCK,
    )  # fmt: skip


def angles_from_samples(samples: Tensor, wiring: Butterfly) -> tuple[Tensor, Tensor]:
    """As `closed_form.angles_from_samples`: samples (B, n, r), float32; angles (B, K) and Qᵀz."""
    z = samples.clone(memory_format=torch.contiguous_format)
    batch, n, r = z.shape
    cross, difference = z.new_empty(2, batch, wiring.n_rotations)
    columns = 1 << (r - 1).bit_length()
    most = max(1, (JACOBI_NUMBERS // columns).bit_length() - 1)
    layer, starts, noise = 0, _starts(wiring, z.device), noise_in_samples(z)
    bits = wiring.n_layers // wiring.depth
    while layer < wiring.n_layers:
        stages = min(most, bits - layer % bits)
        low = wiring.strides[layer + stages - 1]
        programs = -(-n // (low << stages)) * low
        launch(
            kernels.jacobi_kernel, (programs, batch), z, cross, difference, starts, noise, layer, low, n, r,
            wiring.n_rotations, warps=WARPS, STAGES=stages, COLUMNS=columns,
        )  # fmt: skip
        layer += stages
    return 0.5 * torch.atan2(2 * cross + 0.0, difference), z  # − 0 would turn the other way than the kernel


@cache  # recorded launches go on reading it
def _starts(wiring: Butterfly, device: torch.device) -> Tensor:  # shape: (layers + 1,)
    """Where each layer's angles begin."""
    return torch.from_numpy(wiring.offsets.copy()).to(device)

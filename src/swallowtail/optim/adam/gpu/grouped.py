"""Launches of the kernels of dense groups and of vectors. All tensors of a stack share a launch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from swallowtail.kernels.gpu.launch import launch
from swallowtail.optim.adam.gpu import group_kernels as kernels
from swallowtail.optim.adam.state import GROUP_COLUMNS, DeviceNumbers, Side

WARPS = 8
QR_WARPS = 4  # the fastest of three on an H200, where a program waits for its reductions
LEAST = 16  # the smallest matrix that tensor cores multiply
UNTURNED = 64  # rows or columns of a tile on a side without a basis
BLOCK = 1024  # entries of a vector per program
MOST_TABLES = 4096  # that are kept


class _Cut(NamedTuple):
    """How a side is cut into tiles."""

    turned: bool
    size: int
    tiles: int

    @classmethod
    def of(cls, blocks: Tensor | None, length: int) -> _Cut:
        """A side with groups (B, k, s, s), or without a basis."""
        if blocks is None:
            return cls(False, UNTURNED, -(-length // UNTURNED))
        return cls(True, blocks.shape[2], blocks.shape[1])

    @property
    def power(self) -> int:
        return _size(self.size)


class FusedGroups:
    """The step of B matrices (m, n). A side has groups (B, k, s, s), float32, or None: no basis."""

    def __init__(self, left: Tensor | None, right: Tensor | None) -> None:
        self.left, self.right = left, right

    def step(
        self, gradients: list[Tensor], params: list[Tensor], exp_avgs: list[Tensor], exp_avg_sqs: list[Tensor],
        numbers: DeviceNumbers, taken: Tensor, *, beta1: float, beta2: float, maximize: bool,
    ) -> None:  # fmt: skip
        """p ← kept · p − lr · Q_L Adam(Q_Lᵀ G Q_R) Q_Rᵀ if ``taken``; moments, (n, m), move on if numbers are used."""
        n, m = exp_avgs[0].shape
        launch(
            kernels.step_groups_kernel, self._grid(m, n, len(params)), gradients[0], params[0], exp_avgs[0],
            exp_avg_sqs[0], _offsets([gradients, params, exp_avgs, exp_avg_sqs]), *self._blocks(exp_avgs[0]),
            numbers.row, taken, *self._sizes(m, n), 1 - beta1, beta2, 1 - beta2, -1.0 if maximize else 1.0,
            warps=WARPS, **self._constants(m, n),
        )  # fmt: skip

    def carry_over(self, old: FusedGroups, exp_avgs: list[Tensor]) -> None:
        """First moments (n, m) from the old bases to these, in place."""
        n, m = exp_avgs[0].shape
        change = FusedGroups(*(
            None if new is None or before is None else before.mT @ new
            for before, new in ((old.left, self.left), (old.right, self.right))
        ))  # fmt: skip
        launch(
            kernels.carry_groups_kernel, self._grid(m, n, len(exp_avgs)), exp_avgs[0],
            _offsets([exp_avgs] * kernels.OFFSETS), *change._blocks(exp_avgs[0]), *self._sizes(m, n),
            warps=WARPS, **self._constants(m, n),
        )  # fmt: skip

    def _sides(self, m: int, n: int) -> tuple[_Cut, _Cut]:
        return _Cut.of(self.left, m), _Cut.of(self.right, n)

    def _grid(self, m: int, n: int, batch: int) -> tuple[int, int, int]:
        left, right = self._sides(m, n)
        return left.tiles, right.tiles, batch

    def _sizes(self, m: int, n: int) -> tuple[int, ...]:
        left, right = self._sides(m, n)
        return m, n, left.size, right.size, left.tiles, right.tiles

    def _blocks(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """A kernel needs some pointer even for what it does not read."""
        return (like if self.left is None else self.left), (like if self.right is None else self.right)

    def _constants(self, m: int, n: int) -> dict[str, Any]:
        left, right = self._sides(m, n)
        even = all(
            side.size == side.power and length == side.size * side.tiles
            for side, length in ((left, m), (right, n))
        )
        return {
            "LEFT": left.turned, "RIGHT": right.turned, "EVEN": even, "ROWS": left.power, "COLUMNS": right.power,
        }  # fmt: skip


def vectors_step(
    gradients: list[Tensor], params: list[Tensor], exp_avgs: list[Tensor], exp_avg_sqs: list[Tensor],
    numbers: DeviceNumbers, *, beta1: float, beta2: float, maximize: bool,
) -> Tensor:  # shape: (B, length)  # fmt: skip
    """kept · p − lr · Adam(g) for B contiguous tensors of one length; float32 moments move on in place."""
    p, size = params[0], params[0].numel()
    new = torch.empty(len(params), size, dtype=p.dtype, device=p.device)
    launch(
        kernels.vectors_kernel, (-(-size // BLOCK), len(params)), gradients[0], p, exp_avgs[0], exp_avg_sqs[0],
        _offsets([gradients, params, exp_avgs, exp_avg_sqs]), new, numbers.row, size, 1 - beta1, beta2, 1 - beta2,
        -1.0 if maximize else 1.0, BLOCK=BLOCK,
    )  # fmt: skip
    return new


def commit(params: list[Tensor], new: Tensor, taken: Tensor) -> None:
    """Contiguous parameters become ``new`` (B, length) if a step is taken."""
    size = params[0].numel()
    launch(
        kernels.commit_kernel, (-(-size // BLOCK), len(params)), new, params[0],
        _offsets([params] * kernels.OFFSETS), taken, size, BLOCK=BLOCK,
    )  # fmt: skip


def add_to_moments(
    moments: list[Tensor], side: Side, gradients: list[Tensor], numbers: DeviceNumbers, decay: float
) -> None:
    """As `groups.add_to_moments`, for gradients (m, n): the device knows which columns it is the turn of."""
    k, s, _ = moments[0].shape
    other = gradients[0].shape[1 - side.axis]
    columns = min(GROUP_COLUMNS, other)
    along, across = gradients[0].stride(side.axis), gradients[0].stride(1 - side.axis)
    launch(
        kernels.moments_kernel, (k, len(moments)), gradients[0], moments[0],
        _offsets([gradients, *[moments] * (kernels.OFFSETS - 1)]), numbers.row, DeviceNumbers.index(side.start),
        s, columns, other // columns, along, across, decay, 1 - decay,
        warps=WARPS, SIZE=_size(s), COLUMNS=_size(columns),
    )  # fmt: skip


def orthogonal(x: Tensor) -> Tensor:
    """The Q of the QR decompositions of x (*batch, s, s), float32."""
    x = x.contiguous()
    s, found = x.shape[-1], torch.empty_like(x)
    launch(kernels.orthogonal_kernel, (x.numel() // s**2,), x, found, s, warps=QR_WARPS, SIZE=_size(s))
    return found


def _size(s: int) -> int:
    return max(LEAST, 1 << (s - 1).bit_length())


def aligned(tensors: Sequence[Tensor]) -> bool:
    """Whether kernels can find tensors like these from the first of their kind."""
    return all(
        t.data_ptr() % (kernels.ALIGNMENT * t.element_size()) == 0 and t.is_contiguous() for t in tensors
    )


def _offsets(owned: list[list[Tensor]]) -> Tensor:  # shape: (B, kinds)
    """Where the tensors of B matrices lie, in entries from those of the first."""
    columns = (
        [(t.data_ptr() - tensors[0].data_ptr()) // t.element_size() for t in tensors] for tensors in owned
    )
    rows, device = tuple(zip(*columns, strict=True)), owned[0][0].device
    return (_kept if _kept.cache_info().currsize < MOST_TABLES else _on_device)(rows, device)


def _on_device(rows: tuple[tuple[int, ...], ...], device: torch.device) -> Tensor:
    table = torch.tensor(rows, dtype=torch.int64)
    return table.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else table


# Recorded launches go on reading a table, and a recording cannot make one. Gradients that are somewhere else in every
# step are not recorded for long, but their tables would fill the memory.
_kept = cache(_on_device)

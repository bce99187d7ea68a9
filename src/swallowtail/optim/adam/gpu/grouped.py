"""Launches of the kernels of dense groups. All matrices of a stack share a launch."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from swallowtail.kernels.gpu.launch import launch
from swallowtail.optim.adam.gpu import group_kernels as kernels
from swallowtail.optim.adam.state import GROUP_COLUMNS, DeviceNumbers, Side

TILE, WARPS = 64, 8  # vectors per tile, warps per program
QR_WARPS = 4  # the fastest of three on an H200, where a program waits for its reductions
PROGRAMS = 512  # wanted per launch, several for each multiprocessor; what is left over becomes more tiles per program
LEAST = 16  # the smallest matrix that tensor cores multiply
COMMIT_BLOCK = 4096  # entries per program


class FusedGroups:
    """The step of B matrices (m, n) whose sides both have groups. Blocks: (B, k, s, s), float32."""

    def __init__(self, left: Tensor, right: Tensor) -> None:
        self.left, self.right = left, right

    def step(
        self, G: Tensor, params: list[Tensor], exp_avgs: list[Tensor], exp_avg_sqs: list[Tensor],
        numbers: DeviceNumbers, *, beta1: float, beta2: float,
    ) -> Tensor:  # fmt: skip
        """kept · p − lr · Q_L Adam(Q_Lᵀ G Q_R) Q_Rᵀ, (B, m, n); the moments, laid out (n, m), move on in place."""
        batch, m, n = G.shape
        (k_left, s_left), (k_right, s_right) = self.left.shape[1:3], self.right.shape[1:3]
        offsets = _offsets([params, exp_avgs, exp_avg_sqs])
        x, y = torch.empty_like(G), torch.empty_like(G)
        new = torch.empty(batch, m, n, dtype=params[0].dtype, device=G.device)
        grid, tiles = _grid(m, k_right, batch)
        on_right = {"SIZE": _size(s_right), "TILE": TILE}
        launch(
            kernels.right_groups_kernel, grid, G.contiguous(), self.right, x, m, n, s_right, k_right, tiles,
            warps=WARPS, **on_right,
        )  # fmt: skip
        left_grid, left_tiles = _grid(n, k_left, batch)
        launch(
            kernels.adam_groups_kernel, left_grid, x, y, exp_avgs[0], exp_avg_sqs[0], offsets, self.left,
            numbers.row, m, n, s_left, k_left, left_tiles, 1 - beta1, beta2, 1 - beta2,
            warps=WARPS, SIZE=_size(s_left), TILE=TILE,
        )  # fmt: skip
        launch(
            kernels.update_groups_kernel, grid, y, new, params[0], offsets, self.right, numbers.row,
            m, n, s_right, k_right, tiles, warps=WARPS, **on_right,
        )  # fmt: skip
        return new


def add_to_moments(
    moments: list[Tensor], side: Side, G: Tensor, numbers: DeviceNumbers, decay: float
) -> None:
    """As `groups.add_to_moments`, for gradients G (B, m, n): the device knows which columns it is the turn of."""
    k, s, _ = moments[0].shape
    other = G.shape[2 - side.axis]
    columns = min(GROUP_COLUMNS, other)
    along, across = G.stride(1 + side.axis), G.stride(2 - side.axis)
    launch(
        kernels.moments_kernel, (k, len(moments)), G, moments[0], _offsets([moments] * kernels.OFFSETS),
        numbers.row, DeviceNumbers.index(side.start), s, columns, other // columns, along, across, G.stride(0),
        decay, 1 - decay, warps=WARPS, SIZE=_size(s), COLUMNS=_size(columns),
    )  # fmt: skip


def orthogonal(x: Tensor) -> Tensor:
    """The Q of the QR decompositions of x (*batch, s, s), float32."""
    x = x.contiguous()
    s, found = x.shape[-1], torch.empty_like(x)
    launch(kernels.orthogonal_kernel, (x.numel() // s**2,), x, found, s, warps=QR_WARPS, SIZE=_size(s))
    return found


def commit(params: list[Tensor], new: Tensor, taken: Tensor) -> None:
    """The parameters become ``new`` (B, …) if a step is taken."""
    size = params[0].numel()
    launch(
        kernels.commit_kernel, (-(-size // COMMIT_BLOCK), len(params)), new, params[0],
        _offsets([params] * kernels.OFFSETS), taken, size, warps=WARPS, BLOCK=COMMIT_BLOCK,
    )  # fmt: skip


def _grid(vectors: int, groups: int, batch: int) -> tuple[tuple[int, int, int], int]:
    """Programs for so many vectors, and the tiles that each of them takes."""
    wanted = -(-vectors // TILE)
    tiles = max(1, min(8, wanted * groups * batch // PROGRAMS))
    return (-(-wanted // tiles), groups, batch), tiles


def _size(s: int) -> int:
    return max(LEAST, 1 << (s - 1).bit_length())


def aligned(tensors: list[Tensor]) -> bool:
    """Whether kernels can find tensors like these from the first of their kind."""
    return all(
        t.data_ptr() % (kernels.ALIGNMENT * t.element_size()) == 0 and t.is_contiguous() for t in tensors
    )


def _offsets(owned: list[list[Tensor]]) -> Tensor:  # shape: (B, kinds)
    """Where the tensors of B matrices lie, in entries from those of the first."""
    columns = (
        [(t.data_ptr() - tensors[0].data_ptr()) // t.element_size() for t in tensors] for tensors in owned
    )
    return _on_device(tuple(zip(*columns, strict=True)), owned[0][0].device)


@cache  # recorded launches go on reading it, and a recording cannot make it
def _on_device(rows: tuple[tuple[int, ...], ...], device: torch.device) -> Tensor:
    return torch.tensor(rows, dtype=torch.int64, device=device)

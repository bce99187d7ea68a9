"""Launches for matrices with groups: tables of all of them, their steps, moments and fits."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from swallowtail.kernels.gpu.device import runs_gluon
from swallowtail.kernels.gpu.launch import launch
from swallowtail.optim.adam.gpu import fit_kernels, group_kernels
from swallowtail.optim.adam.gpu.device_tables import on_device, place
from swallowtail.optim.adam.gpu.orthogonal import gram_schmidt_kernel
from swallowtail.optim.adam.state import FIRST_ITERATIONS, GROUP_COLUMNS, SIDES, DeviceNumbers, Side, State

WARPS = 8
LEAST = 16  # the smallest matrix that tensor cores multiply
UNTURNED = 64  # rows or columns of a tile on a side without a basis
COLUMNS = 32  # of a product as exact as float32 that a program makes: more would not fit into shared memory


class Member(NamedTuple):
    """A tensor with its gradient, its state, and the number of its stack."""

    p: Tensor
    g: Tensor
    state: State
    row: int


class CutSide(NamedTuple):
    """How a side of a matrix is cut."""

    groups: Tensor | None  # shape: (k, s, s)
    size: int
    tiles: int
    even: bool  # it has a basis, and groups of a power of two that tensor cores take

    @classmethod
    def of(cls, state: State, side: Side, sizes: tuple[int, int]) -> CutSide:
        groups, length = state.get(side.groups), sizes[side.axis]
        if groups is None:
            return cls(None, UNTURNED, -(-length // UNTURNED), False)
        k, s, _ = groups.shape
        return cls(groups, s, k, s == power(s))


class Matrices:
    """Matrices whose parameters have one dtype. ``even``: all sides have groups of one size, a power of two."""

    def __init__(self, even: bool) -> None:
        self.members: list[tuple[Member, tuple[int, int]]] = []
        self._even = even

    def observe(self, rows: Tensor) -> None:
        if self._groups():
            member, size = self.members[0][0], self._size()
            launch(
                group_kernels.moments_kernel, (len(self._groups()),), member.g, self._first("group_moments"),
                self._group_table(), rows, warps=WARPS, MOST=GROUP_COLUMNS, SIZE=size,
            )  # fmt: skip

    def refit(self, rows: Tensor, first: bool) -> None:
        count, size = len(self._groups()), self._size()
        if not count:
            return
        product, new = torch.empty(2, count, size, size, device=rows.device)
        own, moments = self._first("groups"), self._first("group_moments")
        table, columns = self._group_table(), min(size, COLUMNS)
        for k in range(FIRST_ITERATIONS if first else 1):
            launch(
                fit_kernels.multiply_kernel, (count, size // columns), own, moments, new, product, table, rows,
                warps=WARPS, FURTHER=k > 0, SIZE=size, COLS=columns,
            )  # fmt: skip
            orthogonal(product, new, table, rows, further=k > 0)
        launch(
            fit_kernels.change_kernel, (count, size // columns), own, new, product, table, rows,
            warps=WARPS, SIZE=size, COLS=columns,
        )  # fmt: skip
        launch(fit_kernels.replace_kernel, (count,), own, new, table, rows, warps=WARPS, SIZE=size)
        tiles, state = self._tiles(), self.members[0][0].state
        launch(
            group_kernels.carry_kernel, (len(tiles),), state["exp_avg"], state["exp_avg_sq"], product,
            self._matrix_table(), on_device(tiles, rows.device), rows, warps=WARPS, EVEN=self._even, SIZE=size,
        )  # fmt: skip

    def write(self, rows: Tensor, taken: Tensor) -> None:
        tiles, member = self._tiles(), self.members[0][0]
        launch(
            group_kernels.step_kernel, (len(tiles),), member.g, member.p, member.state["exp_avg"],
            member.state["exp_avg_sq"], self._first("groups"), self._matrix_table(),
            on_device(tiles, rows.device), rows, taken,
            warps=WARPS, EVEN=self._even, HALF=runs_gluon(rows), SIZE=self._size(),
        )  # fmt: skip

    def _sides(self) -> list[tuple[CutSide, CutSide]]:
        return [
            (CutSide.of(member.state, SIDES[0], sizes), CutSide.of(member.state, SIDES[1], sizes))
            for member, sizes in self.members
        ]

    def _size(self) -> int:
        return max(power(side.size) for sides in self._sides() for side in sides)

    def _first(self, name: str) -> Tensor:
        """The tensor that places of this kind are counted from; a kernel needs one even if it reads none."""
        keys = [getattr(side, name) for side in SIDES]
        found = (m.state[key] for m, _ in self.members for key in keys if key in m.state)
        return next(found, self.members[0][0].state["exp_avg"])

    def _groups(self) -> list[tuple[Member, Side, tuple[int, int], int]]:
        """Every group: whose it is, on which side, and its number there."""
        return [
            (member, side, sizes, k)
            for member, sizes in self.members
            for side in SIDES
            if side.groups in member.state
            for k in range(len(member.state[side.groups]))
        ]

    def _group_table(self) -> Tensor:
        own, moments = self._first("groups"), self._first("group_moments")
        gradient = self.members[0][0].g
        table = []
        for member, side, sizes, k in self._groups():
            groups, C = member.state[side.groups], member.state[side.group_moments]
            s, other = groups.shape[1], sizes[1 - side.axis]
            columns = min(GROUP_COLUMNS, other)
            along, across = (sizes[1], 1) if side.axis == 0 else (1, sizes[1])
            table.append((
                place(groups, own) + k * s * s, place(C, moments) + k * s * s, s, member.row,
                place(member.g, gradient) + k * s * along, along, across, columns, other // columns,
                DeviceNumbers.index(side.start),
            ))  # fmt: skip
        return on_device(tuple(table), own.device)

    def _matrix_table(self) -> Tensor:
        own, member = self._first("groups"), self.members[0][0]
        table, count = [], 0
        for (each, (m, n)), sides in zip(self.members, self._sides(), strict=True):
            groups, firsts = [], []
            for side in sides:
                groups.append(0 if side.groups is None else place(side.groups, own))
                firsts.append(-1 if side.groups is None else count)
                count += 0 if side.groups is None else side.tiles
            state = each.state
            table.append((
                place(each.g, member.g), place(each.p, member.p), place(state["exp_avg"], member.state["exp_avg"]),
                place(state["exp_avg_sq"], member.state["exp_avg_sq"]), *groups, m, n, sides[0].size,
                sides[1].size, each.row, *firsts,
            ))  # fmt: skip
        return on_device(tuple(table), own.device)

    def _tiles(self) -> tuple[tuple[int, ...], ...]:
        return _tiles_of(tuple((left.tiles, right.tiles) for left, right in self._sides()))


@cache
def _tiles_of(counts: tuple[tuple[int, int], ...]) -> tuple[tuple[int, ...], ...]:
    """Every tile: its matrix, and its place on both sides."""
    return tuple(
        (b, i, j) for b, (left, right) in enumerate(counts) for i in range(left) for j in range(right)
    )


def orthogonal(x: Tensor, q: Tensor, table: Tensor, rows: Tensor, further: bool = False) -> None:
    """q becomes the Q of the QR decompositions of x (groups, size, size), where groups are fitted."""
    count, size, _ = x.shape
    if runs_gluon(x):
        launch(
            gram_schmidt_kernel, (count,), x, q, table, rows, size, warps=max(1, size // 16),
            FURTHER=further, SIZE=size, WARPS=max(1, size // 16),
        )  # fmt: skip
    else:
        launch(
            fit_kernels.householder_kernel, (count,), x, q, table, rows, warps=4, FURTHER=further, SIZE=size
        )


def power(s: int) -> int:
    """The size of a group as a power of two that tensor cores take."""
    return max(LEAST, 1 << (s - 1).bit_length())

"""One step of GivensAdam on a GPU, for all matrices with groups and all tensors without a basis.

Tables say where everything lies (`group_kernels`, `vector_kernels`). They are made anew when a tensor has moved.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from swallowtail.kernels.gpu.device import runs_gluon
from swallowtail.kernels.gpu.launch import launch
from swallowtail.optim.adam.gpu import group_kernels as kernels
from swallowtail.optim.adam.gpu.orthogonal import gram_schmidt_kernel
from swallowtail.optim.adam.gpu.vector_kernels import vectors_kernel
from swallowtail.optim.adam.state import (
    FIRST_ITERATIONS,
    GROUP_COLUMNS,
    MOMENTS,
    SIDES,
    DeviceNumbers,
    Side,
    Stack,
    State,
)

WARPS = 8
LEAST = 16  # the smallest matrix that tensor cores multiply
UNTURNED = 64  # rows or columns of a tile on a side without a basis
COLUMNS = 32  # of a product as exact as float32 that a program makes: more would not fit into shared memory
BLOCK = 1024  # entries of a vector per program
MOST_TABLES = 4096  # that are kept


class Member(NamedTuple):
    """A tensor with its gradient, its state, and the number of its stack."""

    p: Tensor
    g: Tensor
    state: State
    row: int


class FusedStep:
    """A step of stacks on one device, all of which have numbers there."""

    def __init__(self, stacks: list[Stack]) -> None:
        self.stacks = stacks
        self._rows = _numbers(stacks[0]).rows
        self._matrices: dict[Hashable, _Matrices] = {}
        self._vectors: dict[Hashable, list[Member]] = {}
        self._copies: list[tuple[Tensor, Tensor]] = []  # of parameters that kernels cannot find, and these
        for stack in stacks:
            members = [
                Member(self._parameter(p.detach()), in_line(g), state, _numbers(stack).number)
                for p, g, state in zip(stack.params, stack.given(), stack.states, strict=True)
            ]
            # Pointers have one dtype in a launch.
            dtype = members[0].p.dtype
            if stack.sizes is None:
                self._vectors.setdefault(dtype, []).extend(members)
            else:
                even = all(_Side.of(stack.states[0], side, stack.sizes).even for side in SIDES)
                found = self._matrices.setdefault((dtype, even), _Matrices(even))
                found.members += [(member, stack.sizes) for member in members]

    def observe(self) -> None:
        """Add the gradients to the moments of groups."""
        for found in self._matrices.values():
            found.observe(self._rows)

    def refit(self, first: bool) -> None:
        """New bases where the numbers say so; ``first``: for some of them perhaps for the first time."""
        for found in self._matrices.values():
            found.refit(self._rows, first)

    def write(self, taken: Tensor) -> None:
        """Take the step; parameters are written if ``taken``."""
        for found in self._matrices.values():
            found.write(self._rows, taken)
        for members in self._vectors.values():
            _write_vectors(members, self._rows, taken)
        for copy, p in self._copies:
            p.copy_(copy)

    def _parameter(self, p: Tensor) -> Tensor:
        found = in_line(p)
        if found is not p:
            self._copies.append((found, p))
        return found


def _numbers(stack: Stack) -> DeviceNumbers:
    assert stack.on_device is not None
    return stack.on_device


class _Side(NamedTuple):
    """How a side of a matrix is cut."""

    groups: Tensor | None  # shape: (k, s, s)
    size: int
    tiles: int
    even: bool  # it has a basis, and groups of a power of two that tensor cores take

    @classmethod
    def of(cls, state: State, side: Side, sizes: tuple[int, int]) -> _Side:
        groups, length = state.get(side.groups), sizes[side.axis]
        if groups is None:
            return cls(None, UNTURNED, -(-length // UNTURNED), False)
        k, s, _ = groups.shape
        return cls(groups, s, k, s == power(s))


class _Matrices:
    """Matrices whose parameters have one dtype. EVEN: both sides of all have groups of `size` coordinates."""

    def __init__(self, even: bool) -> None:
        self.members: list[tuple[Member, tuple[int, int]]] = []
        self._even = even

    def observe(self, rows: Tensor) -> None:
        if self._groups():
            member, size = self.members[0][0], self._size()
            launch(
                kernels.moments_kernel, (len(self._groups()),), member.g, self._first("group_moments"),
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
                kernels.multiply_kernel, (count, size // columns), own, moments, new, product, table, rows,
                warps=WARPS, FURTHER=k > 0, SIZE=size, COLS=columns,
            )  # fmt: skip
            orthogonal(product, new, table, rows, further=k > 0)
        launch(
            kernels.change_kernel, (count, size // columns), own, new, product, table, rows,
            warps=WARPS, SIZE=size, COLS=columns,
        )  # fmt: skip
        launch(kernels.replace_kernel, (count,), own, new, table, rows, warps=WARPS, SIZE=size)
        tiles, state = self._tiles(), self.members[0][0].state
        launch(
            kernels.carry_kernel, (len(tiles),), state["exp_avg"], state["exp_avg_sq"], product,
            self._matrix_table(), on_device(tiles, rows.device), rows, warps=WARPS, EVEN=self._even, SIZE=size,
        )  # fmt: skip

    def write(self, rows: Tensor, taken: Tensor) -> None:
        tiles, member = self._tiles(), self.members[0][0]
        launch(
            kernels.step_kernel, (len(tiles),), member.g, member.p, member.state["exp_avg"],
            member.state["exp_avg_sq"], self._first("groups"), self._matrix_table(),
            on_device(tiles, rows.device), rows, taken, warps=WARPS, EVEN=self._even, SIZE=self._size(),
        )  # fmt: skip

    def _sides(self) -> list[tuple[_Side, _Side]]:
        return [
            (_Side.of(member.state, SIDES[0], sizes), _Side.of(member.state, SIDES[1], sizes))
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
                _place(groups, own) + k * s * s, _place(C, moments) + k * s * s, s, member.row,
                _place(member.g, gradient) + k * s * along, along, across, columns, other // columns,
                DeviceNumbers.index(side.start),
            ))  # fmt: skip
        return on_device(tuple(table), own.device)

    def _matrix_table(self) -> Tensor:
        own, member = self._first("groups"), self.members[0][0]
        table, count = [], 0
        for (each, (m, n)), sides in zip(self.members, self._sides(), strict=True):
            groups, firsts = [], []
            for side in sides:
                groups.append(0 if side.groups is None else _place(side.groups, own))
                firsts.append(-1 if side.groups is None else count)
                count += 0 if side.groups is None else side.tiles
            state = each.state
            table.append((
                _place(each.g, member.g), _place(each.p, member.p), _place(state["exp_avg"], member.state["exp_avg"]),
                _place(state["exp_avg_sq"], member.state["exp_avg_sq"]), *groups, m, n, sides[0].size,
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


def _write_vectors(members: list[Member], rows: Tensor, taken: Tensor) -> None:
    first, table, pieces = members[0], [], []
    for number, each in enumerate(members):
        owned = (
            (each.g, first.g), (each.p, first.p), (each.state["exp_avg"], first.state["exp_avg"]),
            (each.state["exp_avg_sq"], first.state["exp_avg_sq"]),
        )  # fmt: skip
        table.append((*(_place(*pair) for pair in owned), each.p.numel(), each.row))
        pieces += [(number, k) for k in range(-(-each.p.numel() // BLOCK))]
    launch(
        vectors_kernel, (len(pieces),), first.g, first.p, first.state["exp_avg"], first.state["exp_avg_sq"],
        on_device(tuple(table), rows.device), on_device(tuple(pieces), rows.device), rows, taken, BLOCK=BLOCK,
    )  # fmt: skip


def orthogonal(x: Tensor, q: Tensor, table: Tensor, rows: Tensor, further: bool = False) -> None:
    """q becomes the Q of the QR decompositions of x (groups, size, size), where groups are fitted."""
    count, size, _ = x.shape
    if runs_gluon(x):
        launch(
            gram_schmidt_kernel, (count,), x, q, table, rows, size, warps=max(1, size // 16),
            FURTHER=further, SIZE=size, WARPS=max(1, size // 16),
        )  # fmt: skip
    else:
        launch(kernels.householder_kernel, (count,), x, q, table, rows, warps=4, FURTHER=further, SIZE=size)


def power(s: int) -> int:
    """The size of a group as a power of two that tensor cores take."""
    return max(LEAST, 1 << (s - 1).bit_length())


def takes(state: State) -> bool:
    """Whether `FusedStep` takes a tensor with this state: float32, with groups or without a basis."""
    names = {"step", *MOMENTS, *(key for side in SIDES for key in (side.groups, side.group_moments))}
    if state["exp_avg"].dtype != torch.float32 or not names.issuperset(state):
        return False
    return aligned(value for key, value in state.items() if key != "step")


def aligned(tensors: Iterable[Tensor]) -> bool:
    """Whether kernels can find tensors like these from the first of their kind."""
    return all(
        t.data_ptr() % (kernels.ALIGNMENT * t.element_size()) == 0 and t.is_contiguous() for t in tensors
    )


def in_line(t: Tensor) -> Tensor:
    """The tensor if kernels can find it, else a copy."""
    return t if aligned([t]) else t.clone(memory_format=torch.contiguous_format)


def _place(t: Tensor, first: Tensor) -> int:
    """Where a tensor begins, in entries from the first of its kind."""
    return (t.data_ptr() - first.data_ptr()) // t.element_size()


def on_device(table: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """A table in a GPU's memory.

    Recorded launches go on reading it, and a recording cannot make one, so it is kept. Gradients that are somewhere
    else in every step are not recorded for long; their tables would fill the memory.
    """
    return (_kept if _kept.cache_info().currsize < MOST_TABLES else _made)(table, device)


def _made(table: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    host = torch.from_numpy(np.array(table, np.int64))
    return host.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else host


_kept = cache(_made)

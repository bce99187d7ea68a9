"""One step of GivensAdam on a GPU, for all matrices with groups and all tensors without a basis.

Tables say where everything lies (`group_kernels`, `vector_kernels`). They are made anew when a tensor has moved.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import torch
from torch import Tensor

from swallowtail.kernels.gpu.launch import launch
from swallowtail.optim.adam.gpu.device_tables import on_device, place
from swallowtail.optim.adam.gpu.group_kernels import ALIGNMENT
from swallowtail.optim.adam.gpu.matrices import CutSide, Matrices, Member
from swallowtail.optim.adam.gpu.vector_kernels import vectors_kernel
from swallowtail.optim.adam.state import MOMENTS, SIDES, DeviceNumbers, Stack, State

BLOCK = 1024  # entries of a vector per program


class FusedStep:
    """A step of stacks on one device, all of which have numbers there."""

    def __init__(self, stacks: list[Stack]) -> None:
        self.stacks = stacks
        self._rows = _numbers(stacks[0]).rows
        self._matrices: dict[Hashable, Matrices] = {}
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
                left, right = (CutSide.of(stack.states[0], side, stack.sizes) for side in SIDES)
                even = left.even and right.even and left.size == right.size
                key = (dtype, left.size if even else None)
                found = self._matrices.setdefault(key, Matrices(even))
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


def _write_vectors(members: list[Member], rows: Tensor, taken: Tensor) -> None:
    first, table, pieces = members[0], [], []
    for number, each in enumerate(members):
        owned = (
            (each.g, first.g), (each.p, first.p), (each.state["exp_avg"], first.state["exp_avg"]),
            (each.state["exp_avg_sq"], first.state["exp_avg_sq"]),
        )  # fmt: skip
        table.append((*(place(*pair) for pair in owned), each.p.numel(), each.row))
        pieces += [(number, k) for k in range(-(-each.p.numel() // BLOCK))]
    launch(
        vectors_kernel, (len(pieces),), first.g, first.p, first.state["exp_avg"], first.state["exp_avg_sq"],
        on_device(tuple(table), rows.device), on_device(tuple(pieces), rows.device), rows, taken, BLOCK=BLOCK,
    )  # fmt: skip


def takes(state: State) -> bool:
    """Whether `FusedStep` takes a tensor with this state: float32, with groups or without a basis."""
    names = {"step", *MOMENTS, *(key for side in SIDES for key in (side.groups, side.group_moments))}
    if state["exp_avg"].dtype != torch.float32 or not names.issuperset(state):
        return False
    return aligned(value for key, value in state.items() if key != "step")


def aligned(tensors: Iterable[Tensor]) -> bool:
    """Whether kernels can find tensors like these from the first of their kind."""
    return all(t.data_ptr() % (ALIGNMENT * t.element_size()) == 0 and t.is_contiguous() for t in tensors)


def in_line(t: Tensor) -> Tensor:
    """The tensor if kernels can find it, else a copy."""
    return t if aligned([t]) else t.clone(memory_format=torch.contiguous_format)

"""Dense groups: a side is cut into equal groups of neighbouring coordinates, each with a rotation matrix of its own.

A matrix of a group of s coordinates is the product of up to s (s − 1)/2 Givens rotations, written out: on a GPU, and
for narrow sides on a CPU, one dense product is quicker than as many rotations. A side of at most `LONGEST`
coordinates is one group, and its matrix holds all eigenvectors. Longer sides have what meets within a group.

Each group's matrix follows the eigenvectors of the second moments of its coordinates, a moving average. A fit is a step
of orthogonal iteration, as in SOAP: the QR decomposition of moments times matrix. That keeps the order of the columns,
so Adam's second moments stay where they belong. The first fit takes several such steps from the identity.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from swallowtail.optim.adam.state import FIRST_ITERATIONS, SHIFT, Side, State

# On an H200, 128 × 128 matrices keep tensor cores busy and fit a multiprocessor's registers. 256 learned a little
# faster per step, but take twice the memory.
LONGEST = 128
SHORTEST = 16  # groups of a side that is cut; a side without such a divisor (a prime) gets a butterfly


def group_size(n: int) -> int | None:
    """The size of the groups of a side of length n: its largest divisor up to `LONGEST`. None: there is none."""
    if n <= LONGEST:
        return n
    return next((s for s in range(LONGEST, SHORTEST - 1, -1) if n % s == 0), None)


def new_groups(side: Side, n: int, like: Tensor) -> State:
    """A side of groups that do not turn yet, and their empty moments."""
    size = group_size(n)
    assert size is not None
    shape = (n // size, size, size)
    identity = torch.eye(size, dtype=like.dtype, device=like.device)
    return {side.groups: identity.expand(shape).clone(), side.group_moments: like.new_zeros(shape)}


class GroupedSide:
    """Q of one side of B matrices, blocks on the diagonal."""

    def __init__(self, states: list[State], side: Side) -> None:
        self.blocks = torch.stack([state[side.groups] for state in states])  # shape: (B, k, s, s)

    def tensors(self) -> list[Tensor]:
        return [self.blocks]

    def to_basis(self, x: Tensor) -> Tensor:
        """Rows x (B, rows, n) ↦ x Q."""
        return _by_groups(x, self.blocks)

    def from_basis(self, x: Tensor) -> Tensor:
        """Rows x (B, rows, n) ↦ x Qᵀ."""
        return _by_groups(x, self.blocks.mT)


def _by_groups(x: Tensor, blocks: Tensor) -> Tensor:
    batch, k, s, _ = blocks.shape
    if k == 1:
        return torch.bmm(x, blocks[:, 0])
    parts = x.reshape(batch, -1, k, s).transpose(1, 2)  # shape: (B, k, rows, s)
    return (parts @ blocks).transpose(1, 2).reshape(x.shape)


def add_to_moments(states: list[State], side: Side, seen: Tensor, decay: float) -> None:
    """Move the averages on by vectors of B matrices on rows: ``seen`` (B, columns, n)."""
    for state, rows in zip(states, seen, strict=True):
        moments = state[side.group_moments]
        k, s, _ = moments.shape
        parts = rows.reshape(-1, k, s).transpose(0, 1)  # shape: (k, columns, s)
        moments.baddbmm_(parts.mT, parts, beta=decay, alpha=1 - decay)


class Due(NamedTuple):
    """A side of B matrices whose groups are to be fitted."""

    states: list[State]
    side: Side
    first: bool


def refit_groups(sides: Iterable[Due]) -> None:
    """New matrices for groups, from their moments. Groups of one size are decomposed together."""
    alike: dict[tuple[Hashable, ...], list[tuple[Tensor, Tensor]]] = {}
    for due in sides:
        for state in due.states:
            found = state[due.side.groups], state[due.side.group_moments]
            key = (due.first, found[0].shape[1:], found[0].device, found[0].dtype)
            alike.setdefault(key, []).append(found)
    for (first, *_), members in alike.items():
        blocks, moments = ([each[k] for each in members] for k in (0, 1))
        new, shifted = torch.cat(blocks), _shifted(torch.cat(moments))
        for _ in range(FIRST_ITERATIONS if first else 1):
            new = torch.linalg.qr(shifted @ new)[0]
        torch._foreach_copy_(blocks, list(new.split([len(block) for block in blocks])))


def _shifted(moments: Tensor) -> Tensor:
    """The moments (k, s, s) and a little of the identity.

    Eigenvectors stay the same. But where there are no gradients, any vectors are eigenvectors: without the shift,
    rounding errors would choose them, and other ones on other machines.
    """
    diagonal = moments.diagonal(dim1=-2, dim2=-1)
    return moments + torch.diag_embed((SHIFT * diagonal.mean(-1, keepdim=True)).expand_as(diagonal))

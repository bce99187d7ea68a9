"""The two-sided bases Q_L and Q_R: into them, out of them, from one to the next, and for how long they are kept.

A gradient G (m, n) is looked at as Z = Q_Lᵀ G Q_R. Its layout in memory is Zᵀ, (n, m). Rotations act on contiguous
rows, so one transposition leads from rows of length n to rows of length m, and another leads back.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from swallowtail import ops
from swallowtail.ops import PreparedCache
from swallowtail.optim.adam.fit import butterfly, has_pairs, pairs_of, refit_stacks
from swallowtail.optim.adam.gpu import gpu_for
from swallowtail.optim.adam.groups import GroupedSide
from swallowtail.optim.adam.state import LEFT, RIGHT, Side, Stack, State, is_grouped, stacked
from swallowtail.wiring import Butterfly, Pairs, Wiring

FUSED_FROM = 1 << 14  # entries; smaller matrices of one shape are better off stacked
FUSED_UP_TO = 4096  # the longest side: a fused kernel holds whole vectors


class Bases:
    """Q_L and Q_R of B matrices that share their wirings."""

    def __init__(
        self, states: list[State], sizes: tuple[int, int], depth: int | None, shards: Any = None
    ) -> None:
        # From rows of G to rows of Gᵀ and back; where the matrix is cut over processes, they send each other parts.
        self.turn = _transposed if shards is None else shards.turn
        self.turn_back = _transposed if shards is None else shards.turn_back
        self.left, self.right = (_side_basis(states, side, sizes[side.axis], depth) for side in (LEFT, RIGHT))
        # One large matrix between two butterflies on a GPU: its whole step in three kernels.
        self.fused: Any = None
        left, right = _wiring(self.left), _wiring(self.right)
        if (
            shards is None
            and len(states) == 1
            and isinstance(left, Butterfly)
            and isinstance(right, Butterfly)
        ):
            angles = [side.angles for side in (self.left, self.right) if isinstance(side, _RotatedSide)]
            if is_fused(angles[0], sizes):
                self.fused = gpu_for(angles[0]).FusedBases((left, right), tuple(angles))

    def to_basis(self, G: Tensor) -> Tensor:
        """(B, m, n) ↦ (Q_Lᵀ G Q_R)ᵀ, (B, n, m)."""
        return self.left.to_basis(self.turn(self.right.to_basis(G)))

    def from_basis(self, Z: Tensor) -> Tensor:
        """(B, n, m) ↦ Q_L Zᵀ Q_Rᵀ, (B, m, n)."""
        return self.right.from_basis(self.turn_back(self.left.from_basis(Z)))

    def assign(self, other: Bases) -> bool:
        """Become ``other``, in place: a recorded step reads tensors where they were. False if that cannot be."""
        mine, theirs = (
            self.left.tensors() + self.right.tensors(),
            other.left.tensors() + other.right.tensors(),
        )
        if (self.fused is None) != (other.fused is None):
            return False
        if self.fused is not None:
            mine, theirs = mine + self.fused.tensors, theirs + other.fused.tensors
        torch._foreach_copy_(mine, theirs)
        return True


class _UnturnedSide:
    """Q = I."""

    def tensors(self) -> list[Tensor]:
        return []

    def to_basis(self, x: Tensor) -> Tensor:
        return x

    def from_basis(self, x: Tensor) -> Tensor:
        return x


class _RotatedSide:
    """Q of one side as a product of rotations."""

    def __init__(self, states: list[State], side: Side, n: int, depth: int | None) -> None:
        self.wiring: Wiring
        if side.pairs in states[0]:
            self.wiring, K = pairs_of(states[0], side, n)
        else:
            self.wiring = butterfly(n, depth)
            K = self.wiring.n_rotations
        angles = torch.stack([state[side.angles][:K] for state in states])
        # shape: (K,) for one matrix, (B, 1, K) for more
        self.angles: Tensor = angles[0].clone() if len(states) == 1 else angles[:, None, :].contiguous()
        # On a GPU, tables that are quick to make again beat those that are quick to use.
        self._cache = PreparedCache() if angles.is_cpu else None

    def tensors(self) -> list[Tensor]:
        return [self.angles]

    def to_basis(self, x: Tensor) -> Tensor:
        return ops.rotate_transpose(x, self.wiring, self.angles, cache=self._cache)

    def from_basis(self, x: Tensor) -> Tensor:
        return ops.rotate(x, self.wiring, self.angles, cache=self._cache)


_SideBasis = _UnturnedSide | _RotatedSide | GroupedSide


def _side_basis(states: list[State], side: Side, n: int, depth: int | None) -> _SideBasis:
    if side.groups in states[0]:
        return GroupedSide(states, side)
    return _RotatedSide(states, side, n, depth) if side.angles in states[0] else _UnturnedSide()


def _wiring(side: _SideBasis) -> Wiring | None:
    return side.wiring if isinstance(side, _RotatedSide) else None


class KeptBases:
    """The bases of stacks, which last from one fit to the next.

    ``on_replacement`` is called when tensors that earlier steps read are no longer those that later steps will.
    """

    def __init__(self, on_replacement: Callable[[], None]) -> None:
        self._bases: dict[tuple[int, ...], Bases] = {}
        self._on_replacement = on_replacement

    def of(self, stack: Stack) -> Bases:
        """The bases of a stack of matrices."""
        assert stack.sizes is not None
        if stack.members not in self._bases:
            self._bases[stack.members] = Bases(stack.states, stack.sizes, stack.group["depth"], stack.shards)
            self._on_replacement()
        return self._bases[stack.members]

    def refit(self, stacks: list[Stack]) -> None:
        """Fit new bases where it is time; the moments go over to them."""
        due = [stack for stack in stacks if stack.refit]
        old = [None if stack.t == 1 else self.of(stack) for stack in due]
        refit_stacks(due)
        for stack, last in zip(due, old, strict=True):
            self._replace(stack, last)

    def _replace(self, stack: Stack, old: Bases | None) -> None:
        assert stack.sizes is not None
        new = Bases(stack.states, stack.sizes, stack.group["depth"], stack.shards)
        if old is not None:
            if stack.first_fit:
                torch._foreach_zero_([moment for both in stack.moments() for moment in both])
            else:
                carry_over(old, new, stack.states)
            if stack.on_device is not None and not has_pairs(stack.states[0]) and old.assign(new):
                new = old
        # Where these parameters were stacked with others, their bases are out of date as well.
        key = stack.members
        self.forget(stack.params, but=key)
        if self._bases.get(key) is not new:
            self._on_replacement()
        self._bases[key] = new

    def forget(self, params: list[Tensor], but: tuple[int, ...] | None = None) -> None:
        """Drop the bases of stacks that these parameters are in, except one stack."""
        members = set(map(id, params))
        outdated = [key for key in self._bases if key != but and not members.isdisjoint(key)]
        for key in outdated:
            del self._bases[key]
        if outdated:
            self._on_replacement()


def carry_over(old: Bases, new: Bases, states: list[State]) -> None:
    """Take the moments of B matrices from one basis to another.

    The first moment is linear in the gradients, so this is exact. The second becomes Σ R_ij² v_j, R the change of
    basis; that is right if the gradient's entries were uncorrelated in the old basis, which was chosen for that. Only
    pairs need it: each fit chooses others, perhaps in another order. A butterfly sorts by size, so its coordinates
    keep their meaning, and mixing them was found to lose more than it gains.
    """
    first = [state["exp_avg"] for state in states]
    if old.fused is not None and new.fused is not None:
        new.fused.carry_over(old.fused, first[0])
        return
    torch._foreach_copy_(first, list(new.to_basis(old.from_basis(stacked(first))).unbind()))
    for state in states:
        v = state["exp_avg_sq"]  # shape: (n, m)
        if isinstance(_wiring(new.left), Pairs):
            v = v @ _change_of_basis(old.left, new.left, v).square_()
        if isinstance(_wiring(new.right), Pairs):
            rows = new.turn_back(v[None])[0]  # shape: (m, n)
            v = new.turn((rows @ _change_of_basis(old.right, new.right, rows).square_())[None])[0]
        state["exp_avg_sq"].copy_(v)


def _transposed(x: Tensor) -> Tensor:
    return x.mT.contiguous()


def _change_of_basis(old: _SideBasis, new: _SideBasis, like: Tensor) -> Tensor:  # shape: (n, n)
    """For rows of length n, as those of ``like``."""
    identity = torch.eye(like.shape[1], dtype=like.dtype, device=like.device)
    return new.to_basis(old.from_basis(identity))


def is_fused(like: Tensor, sizes: tuple[int, int]) -> bool:
    """Whether a matrix with state like this takes the fused step."""
    if math.prod(sizes) < FUSED_FROM or max(sizes) > FUSED_UP_TO or like.dtype != torch.float32:
        return False
    return gpu_for(like) is not None


def stands_alone(state: State) -> bool:
    """Whether a matrix is better not stacked with others: it has pairs of its own, or takes the fused step."""
    n, m = state["exp_avg"].shape
    return has_pairs(state) or (not is_grouped(state) and is_fused(state["exp_avg"], (m, n)))

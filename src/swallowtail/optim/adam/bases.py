"""Bases for the two sides of a gradient matrix: what is kept of past gradients, the fit, the change of basis.

A gradient G (m, n) is looked at as Z = Q_Lᵀ G Q_R. Its layout in memory is Zᵀ, (n, m): rotations act on
contiguous rows, so one transposition leads from rows of length n to rows of length m and none is needed to go back.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from swallowtail import ops
from swallowtail.fitting.core.growth import parallel_jacobi
from swallowtail.fitting.core.product import MATRIX, layered
from swallowtail.kernels import select_backend
from swallowtail.ops import PreparedCache
from swallowtail.optim.adam.state import SIDES, Numbers, State, set_if
from swallowtail.optim.basis import jacobi_pass, jacobi_pass_matrix
from swallowtail.wiring import Butterfly, Pairs, Wiring

PAIRS_LIMIT = 128  # "auto": pairs up to this side; beyond, choosing them takes tens of milliseconds a fit
THRESHOLD = 0.1  # of `parallel_jacobi`: a layer takes pairs down to this share of the largest
DEPTHS = {
    "pairs": 4,
    "butterfly": 2,
    "random": 2,
}  # by default; pairs gain more from depth than it costs there
FUSED_FROM = 1 << 14  # entries; smaller matrices of one shape are better off together
FUSED_UP_TO = 4096  # a side; a kernel holds whole vectors
Q_KINDS = ("auto", "pairs", "butterfly", "random", "identity")


def matrix_shape(shape: torch.Size) -> tuple[int, int] | None:
    """The matrix a tensor is treated as: (out, everything else); None for scalars, vectors and what is as thin."""
    if len(shape) < 2:
        return None
    m, n = shape[0], math.prod(shape[1:])
    return (m, n) if min(m, n) > 1 else None


def kind_of(wiring: str, n: int, max_side: int, device: torch.device) -> str:
    """What a side of length n gets: "pairs", "butterfly", "random" or "identity"."""
    if n > max_side or n < 2:
        return "identity"
    if wiring != "auto":
        return wiring
    # Elsewhere than on a CPU the fit of pairs would wait for the device, and applying them costs several times more.
    return "pairs" if n <= PAIRS_LIMIT and device.type == "cpu" else "butterfly"


def new_side(name: str, n: int, kind: str, other: int, group: dict[str, Any], like: Tensor) -> State:
    """State of one side: angles (and pairs), and the record of gradients they are fitted to."""
    if kind == "identity":
        return {}
    wiring = Butterfly(n, group["depth"] or DEPTHS[kind])
    state = {f"{name}_angles": like.new_zeros(wiring.n_rotations)}
    if kind == "random":
        generator = torch.Generator().manual_seed(0)
        draws = torch.rand(wiring.n_rotations, generator=generator, dtype=torch.float64)
        state[f"{name}_angles"].copy_((2 * draws - 1) * math.pi)
        return state
    if kind == "pairs":
        state[f"{name}_pairs"] = torch.zeros(0, 2, dtype=torch.int64)
        state[f"{name}_offsets"] = torch.zeros(1, dtype=torch.int64)
        state[f"{name}_angles"] = like.new_zeros(0)
    # Pairs are chosen from the n×n matrix anyway.
    if group["statistics"] == "covariance" or (group["statistics"] == "auto" and kind == "pairs"):
        state[f"{name}_covariance"] = like.new_zeros(n, n)
    else:
        state[f"{name}_sketch"] = like.new_zeros(
            group["sketch_steps"], min(group["sketch_columns"], other), n
        )
    return state


def observe(states: list[State], G: Tensor, numbers: Numbers, group: dict[str, Any]) -> None:
    """Add the gradients G (B, m, n) to the records of both sides."""
    for index, side in enumerate(SIDES):
        if f"{side}_covariance" in states[0]:
            seen, weight = G @ G.mT if side == "left" else G.mT @ G, 1 - group["statistics_decay"]
            for state, covariance in zip(states, seen, strict=True):
                mean = state[f"{side}_covariance"]
                if numbers.row is None:
                    mean.lerp_(covariance, weight)
                else:
                    set_if(numbers.row, mean, torch.lerp(mean, covariance, weight))
        elif f"{side}_sketch" in states[0]:
            for state, gradient in zip(states, G, strict=True):
                _sketch(gradient, state[f"{side}_sketch"], numbers, index)


def _sketch(G: Tensor, record: Tensor, numbers: Numbers, side: int) -> None:
    if numbers.row is not None:
        from swallowtail.optim.adam.gpu import launch as _gpu  # it needs Triton

        _gpu.sketch(G, record, numbers.row, side)
        return
    rows = G if side else G.mT  # shape: (other, side)
    every = len(rows) // record.shape[1]
    record[numbers.slot].copy_(rows[numbers[5 + side] :: every][: record.shape[1]])


def refit(states: list[State], sizes: tuple[int, int], group: dict[str, Any]) -> None:
    """New angles for both sides from what was observed."""
    for side, n in zip(SIDES, sizes, strict=True):
        first = states[0]
        if f"{side}_pairs" in first:
            for state in states:
                _fit_pairs(state, side, n, group)
            continue
        wiring = Butterfly(n, group["depth"] or DEPTHS["butterfly"])
        if f"{side}_covariance" in first:
            angles = jacobi_pass_matrix(torch.stack([s[f"{side}_covariance"] for s in states]), wiring)
        elif f"{side}_sketch" in first:
            samples = torch.stack([s[f"{side}_sketch"].flatten(0, 1).T for s in states])  # shape: (B, n, r)
            angles, _ = jacobi_pass(samples, wiring)
        else:
            continue
        for state, theta in zip(states, angles, strict=True):
            state[f"{side}_angles"].copy_(theta)


def _fit_pairs(state: State, side: str, n: int, group: dict[str, Any]) -> None:
    """Truncated Jacobi on the second moment, pairs chosen by their weight, n ⌈lg n⌉/2 · depth of them."""
    if f"{side}_covariance" in state:
        A = state[f"{side}_covariance"].double().cpu().numpy().copy()
    else:
        Z = state[f"{side}_sketch"].flatten(0, 1)
        A = (Z.mT @ Z).double().cpu().numpy()
    budget = n * (n - 1).bit_length() // 2 * (group["depth"] or DEPTHS["pairs"])
    least = 1e-30 * float(np.square(np.diag(A)).sum())  # below it, a pair is rounding
    pairs, angles = parallel_jacobi(A, budget, THRESHOLD, MATRIX, 0.0, least)
    wiring, theta = layered(n, pairs, angles)
    like = state[f"{side}_angles"]
    state[f"{side}_angles"] = torch.from_numpy(theta).to(like)
    state[f"{side}_pairs"] = torch.from_numpy(wiring.pairs.copy())
    state[f"{side}_offsets"] = torch.from_numpy(wiring.offsets.copy())


class Bases:
    """Q_L and Q_R of B matrices that share their wirings: into the bases and back."""

    def __init__(self, states: list[State], sizes: tuple[int, int], depth: int | None) -> None:
        depth = depth or DEPTHS["butterfly"]
        self.left, self.right = (_Side(states, side, n, depth) for side, n in zip(SIDES, sizes, strict=True))
        # One large matrix between two butterflies on a GPU: its whole step in three kernels.
        self.fused: Any = None
        butterflies = all(isinstance(side.wiring, Butterfly) for side in (self.left, self.right))
        if len(states) == 1 and butterflies and fusable(self.left.angles, sizes):
            from swallowtail.optim.adam.gpu import launch as _gpu  # it needs Triton

            self.fused = _gpu.Fused(self.left.angles, self.right.angles, sizes, depth)

    def take(self, other: Bases) -> None:
        """Become ``other``, with the same wirings, in place: a recorded step reads tensors where they were."""
        torch._foreach_copy_(self._tensors(), other._tensors())

    def could_take(self, other: Bases) -> bool:
        return (self.fused is None) == (other.fused is None)

    def _tensors(self) -> list[Tensor]:
        angles = [side.angles for side in (self.left, self.right) if side.wiring is not None]
        return angles + (self.fused.tensors if self.fused is not None else [])

    def into(self, G: Tensor) -> Tensor:
        """(B, m, n) ↦ (Q_Lᵀ G Q_R)ᵀ, (B, n, m)."""
        return self.left.turn(self.right.turn(G, ops.rotate_transpose).mT.contiguous(), ops.rotate_transpose)

    def back(self, Z: Tensor) -> Tensor:
        """(B, n, m) ↦ Q_L Zᵀ Q_Rᵀ, (B, m, n)."""
        return self.right.turn(self.left.turn(Z, ops.rotate).mT.contiguous(), ops.rotate)


def carry_over(old: Bases, new: Bases, states: list[State]) -> None:
    """Take the moments of B matrices from one basis to another.

    The first is linear in the gradients and is carried over exactly. The second would be Σ R_ij² v_j, R the change of
    basis, if the gradient's entries were uncorrelated in the old one, which is what that was chosen for. Pairs are
    chosen anew at each fit and may come in another order, so there it matters; a butterfly sorts by size, its
    coordinates keep their meaning, and mixing them was found to lose more than it gains.
    """
    first = [s["exp_avg"] for s in states]
    if old.fused is not None and new.fused is not None:
        new.fused.carry_over(old.fused, first[0])
        return
    torch._foreach_copy_(first, list(new.into(old.back(stacked(first))).unbind()))
    for state in states:
        v = state["exp_avg_sq"]  # shape: (n, m)
        for before, after, n in ((old.left, new.left, v.shape[1]), (old.right, new.right, v.shape[0])):
            if isinstance(after.wiring, Pairs):
                identity = torch.eye(n, dtype=v.dtype, device=v.device)
                R = after.turn(before.turn(identity, ops.rotate), ops.rotate_transpose)
                v = v @ R.square_() if after is new.left else R.square_().mT @ v
        state["exp_avg_sq"].copy_(v)


def fusable(like: Tensor, sizes: tuple[int, int]) -> bool:
    """Whether a matrix with state like this is worth the fused step, and has it."""
    if math.prod(sizes) < FUSED_FROM or select_backend(like) != "gpu":
        return False
    return like.dtype == torch.float32 and max(sizes) <= FUSED_UP_TO


def stands_alone(state: State) -> bool:
    """Whether a matrix is better not stacked with others: it has pairs of its own, or is large on a GPU."""
    moments = state["exp_avg"]
    return has_pairs(state) or fusable(moments, (len(moments), moments.shape[-1]))


def has_pairs(state: State) -> bool:
    """Whether a side has pairs, which are chosen on the CPU and are others after each fit."""
    return "left_pairs" in state or "right_pairs" in state


def stacked(matrices: list[Tensor]) -> Tensor:  # shape: (B, m, n)
    """As `torch.stack`; one matrix is not copied."""
    return matrices[0][None] if len(matrices) == 1 else torch.stack(matrices)


class _Side:
    def __init__(self, states: list[State], side: str, n: int, depth: int) -> None:
        self.wiring: Wiring | None = None
        if f"{side}_angles" not in states[0]:
            return
        if f"{side}_pairs" in states[0]:
            # Pairs on the CPU: wirings are data the kernels read there, whatever device the angles are on.
            pairs, offsets = (states[0][f"{side}_{key}"].cpu().numpy() for key in ("pairs", "offsets"))
            self.wiring = Pairs.from_flat(n, pairs, offsets)
        else:
            self.wiring = Butterfly(n, depth)
        angles = torch.stack([s[f"{side}_angles"] for s in states])  # shape: (B, K)
        self.angles = angles[0].clone() if len(states) == 1 else angles[:, None, :].contiguous()
        # On a GPU, tables that are quick to make again beat those that are quick to use.
        self.cache = PreparedCache() if angles.is_cpu else None

    def turn(self, x: Tensor, action: Any) -> Tensor:
        return x if self.wiring is None else action(x, self.wiring, self.angles, cache=self.cache)

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
from swallowtail.fitting._conjugate import MATRIX, layered
from swallowtail.fitting._growth import parallel_jacobi
from swallowtail.kernels import PreparedCache
from swallowtail.optim._basis import jacobi_pass, jacobi_pass_matrix
from swallowtail.wiring import Butterfly, Pairs, Wiring

State = dict[str, Tensor]
SIDES = ("left", "right")
PAIRS_LIMIT = 512  # "auto": pairs up to this side, butterflies beyond, where choosing pairs would cost more
THRESHOLD = 0.1  # of `parallel_jacobi`: a layer takes pairs down to this share of the largest
DEPTHS = {"pairs": 3, "butterfly": 2, "random": 2}  # by default; a third helps pairs more than it costs there
Q_KINDS = ("auto", "pairs", "butterfly", "random", "identity")


def matrix_shape(shape: torch.Size) -> tuple[int, int] | None:
    """The matrix a tensor is treated as: (out, everything else); None for scalars, vectors and what is as thin."""
    if len(shape) < 2:
        return None
    m, n = shape[0], math.prod(shape[1:])
    return (m, n) if min(m, n) > 1 else None


def kind_of(wiring: str, n: int, max_side: int) -> str:
    """What a side of length n gets: "pairs", "butterfly", "random" or "identity"."""
    if n > max_side or n < 2:
        return "identity"
    return wiring if wiring != "auto" else ("pairs" if n <= PAIRS_LIMIT else "butterfly")


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
    if group["statistics"] == "covariance":
        state[f"{name}_covariance"] = like.new_zeros(n, n)
    else:
        state[f"{name}_sketch"] = like.new_zeros(
            group["sketch_steps"], min(group["sketch_columns"], other), n
        )
    return state


def observe(states: list[State], G: Tensor, step: int, group: dict[str, Any]) -> None:
    """Add the gradients G (B, m, n) to the records of both sides."""
    for side, axis in (("left", -2), ("right", -1)):
        if f"{side}_covariance" in states[0]:
            covariance = G @ G.mT if side == "left" else G.mT @ G
            torch._foreach_lerp_(
                [s[f"{side}_covariance"] for s in states],
                list(covariance.unbind()),
                1 - group["statistics_decay"],
            )
        elif f"{side}_sketch" in states[0]:
            # Every so many-th column (row), another set each step: all of them come round, and no random
            # numbers are needed, so processes agree and a resumed run repeats itself.
            other = G.shape[-1] if side == "left" else G.shape[-2]
            slots, columns = states[0][f"{side}_sketch"].shape[:2]
            index = (step + torch.arange(columns, device=G.device) * (other // columns)) % other
            taken = G.index_select(-1 if axis == -2 else -2, index)
            taken = taken.mT if side == "left" else taken  # shape: (B, columns, side)
            torch._foreach_copy_(
                [s[f"{side}_sketch"][(step - 1) % slots] for s in states], list(taken.unbind())
            )


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
            state[f"{side}_angles"] = theta.clone()


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
        self.left, self.right = (
            _Side(states, side, n, depth or DEPTHS["butterfly"]) for side, n in zip(SIDES, sizes, strict=True)
        )

    def into(self, G: Tensor) -> Tensor:
        """(B, m, n) ↦ (Q_Lᵀ G Q_R)ᵀ, (B, n, m)."""
        return self.left.turn(self.right.turn(G, ops.rotate_transpose).mT.contiguous(), ops.rotate_transpose)

    def back(self, Z: Tensor) -> Tensor:
        """(B, n, m) ↦ Q_L Zᵀ Q_Rᵀ, (B, m, n)."""
        return self.right.turn(self.left.turn(Z, ops.rotate).mT.contiguous(), ops.rotate)


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
        self.cache = PreparedCache()

    def turn(self, x: Tensor, action: Any) -> Tensor:
        return x if self.wiring is None else action(x, self.wiring, self.angles, cache=self.cache)

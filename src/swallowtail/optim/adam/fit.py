"""Which basis a side of a matrix gets, and its fit to what is kept of past gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from swallowtail.fitting.core.growth import parallel_jacobi
from swallowtail.fitting.core.product import MATRIX, layered
from swallowtail.optim.adam.gpu import gpu_for
from swallowtail.optim.adam.groups import Due, group_size, new_groups, refit_groups
from swallowtail.optim.adam.state import SIDES, Side, Stack, State, is_grouped
from swallowtail.optim.adam.statistics import covariances, new_statistics, samples
from swallowtail.optim.closed_form import angles_from_moments, angles_from_samples
from swallowtail.wiring import Butterfly, Pairs

WIRINGS = ("auto", "grouped", "pairs", "butterfly", "random", "identity")
PAIRS_DEPTH, BUTTERFLY_DEPTH = 4, 2  # by default; pairs gain more from depth than it costs on narrow sides
THRESHOLD = 0.1  # of `parallel_jacobi`: a layer takes pairs down to this share of the largest
NO_PAIR = -1  # fills the rows of a list of pairs that are not used
LEAST_WEIGHT = 1e-30  # of Σ Aᵢᵢ²: pairs with less are the rounding errors of float64 moments, squared


def matrix_shape(shape: torch.Size) -> tuple[int, int] | None:
    """The matrix a tensor is treated as: (out, everything else); None for scalars, vectors and what is as thin."""
    if len(shape) < 2:
        return None
    m, n = shape[0], math.prod(shape[1:])
    return (m, n) if min(m, n) > 1 else None


def turns(groups: list[dict[str, Any]]) -> dict[Tensor, int]:
    """When each matrix has its turn to be fitted, modulo ``refresh``: they are numbered through all groups.

    So fits are spread over steps. The numbers depend on nothing that a checkpoint, a missing gradient or another
    process could change, and parameters that join later come after the others.
    """
    matrices = (p for group in groups for p in group["params"] if matrix_shape(p.shape) is not None)
    return {p: turn for turn, p in enumerate(matrices)}


def kind_of(wiring: str, n: int, max_side: int) -> str:
    """What a side of length n gets: "grouped", "pairs", "butterfly", "random" or "identity"."""
    if n > max_side or n < 2:
        return "identity"
    if wiring not in ("auto", "grouped"):
        return wiring
    return "butterfly" if group_size(n) is None else "grouped"


def new_side(side: Side, kind: str, sizes: tuple[int, int], group: dict[str, Any], like: Tensor) -> State:
    """State of a side of matrices of these sizes: angles (and pairs), and the record that they are fitted to."""
    if kind == "identity":
        return {}
    if kind == "grouped":
        return new_groups(side, sizes[side.axis], like)
    K = butterfly(sizes[side.axis], group["depth"]).n_rotations
    if kind == "random":
        draws = torch.rand(K, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        return {side.angles: like.new_zeros(K).copy_((2 * draws - 1) * math.pi)}
    state = {side.angles: like.new_zeros(K)}
    if kind == "pairs":
        K = most_pairs(sizes[side.axis], group["depth"])
        state[side.angles] = like.new_zeros(K)
        state[side.pairs] = torch.full((K, 2), NO_PAIR)
    return {**state, **new_statistics(side, kind, sizes, group, like)}


def most_pairs(n: int, depth: int | None) -> int:
    """How many pairs a side of length n may have. State has room for all: checkpoints want sizes that stay."""
    return n * (n - 1).bit_length() // 2 * (depth or PAIRS_DEPTH)


def pairs_of(state: State, side: Side, n: int) -> tuple[Pairs, int]:
    """The wiring of a side with pairs, and its number of rotations. Wirings are read on the CPU."""
    pairs = state[side.pairs].cpu().numpy()
    pairs = pairs[pairs[:, 0] != NO_PAIR]
    wiring, _ = layered(n, pairs, np.zeros(len(pairs)))  # they are stored layer by layer: the order stays
    return wiring, len(pairs)


def has_pairs(state: State) -> bool:
    """Whether a side has pairs. They are chosen on the CPU, and each fit chooses others."""
    return any(side.pairs in state for side in SIDES)


def fit_waits(state: State) -> bool:
    """Whether a fit on a GPU waits for it: pairs are chosen on the CPU, and PyTorch's QR decomposition waits."""
    if is_grouped(state):
        gpu = gpu_for(state["exp_avg"])
        return gpu is None or not gpu.takes(state)
    return has_pairs(state)


def butterfly(n: int, depth: int | None) -> Butterfly:
    """The wiring of a side that has no pairs of its own."""
    return Butterfly(n, depth or BUTTERFLY_DEPTH)


def refit_stacks(stacks: list[Stack]) -> None:
    """New bases for stacks of matrices, from what was observed."""
    refit_groups(
        Due(stack.states, side, stack.first_fit)
        for stack in stacks
        for side in SIDES
        if side.groups in stack.states[0]
    )
    for stack in stacks:
        assert stack.sizes is not None
        refit(stack.states, stack.sizes, stack.group["depth"])


def refit(states: list[State], sizes: tuple[int, int], depth: int | None) -> None:
    """New angles for both sides of B matrices that share their wirings, from what was observed."""
    for side in SIDES:
        n = sizes[side.axis]
        if side.pairs in states[0]:
            for state in states:
                _fit_pairs(state, side, n, depth)
        elif side.covariance in states[0]:
            _set_angles(states, side, angles_from_moments(covariances(states, side), butterfly(n, depth)))
        elif side.sketch in states[0]:
            _set_angles(states, side, _angles(samples(states, side), butterfly(n, depth)))


def _angles(z: Tensor, wiring: Butterfly) -> Tensor:  # shape: (B, K)
    gpu = gpu_for(z) if z.dtype == torch.float32 else None
    angles, _ = angles_from_samples(z, wiring) if gpu is None else gpu.angles_from_samples(z, wiring)
    return angles


def _set_angles(states: list[State], side: Side, angles: Tensor) -> None:
    for state, theta in zip(states, angles, strict=True):
        state[side.angles].copy_(theta)


def _fit_pairs(state: State, side: Side, n: int, depth: int | None) -> None:
    """Truncated Jacobi on the second moment, pairs chosen by their weight: at most n ⌈lg n⌉/2 · depth rotations."""
    if side.covariance in state:
        A = state[side.covariance].double().cpu().numpy().copy()
    else:
        Z = state[side.sketch].flatten(0, 1)
        A = (Z.mT @ Z).double().cpu().numpy()
    least = LEAST_WEIGHT * float(np.square(np.diag(A)).sum())
    pairs, angles = parallel_jacobi(A, most_pairs(n, depth), THRESHOLD, MATRIX, 0.0, least, 0)
    wiring, theta = layered(n, pairs, angles)
    state[side.angles].zero_()[: len(theta)] = torch.from_numpy(theta)
    state[side.pairs].fill_(NO_PAIR)[: len(theta)] = torch.from_numpy(wiring.pairs.copy())

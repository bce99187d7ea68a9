"""Products of rotations on the rows of a matrix where it lies: by Triton kernels on a GPU, by PyTorch elsewhere.

PyTorch's version is the definition; tests compare the kernels with it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from swallowtail.fitting.core.product import layered

STEP = 16  # rotations that share no row, taken together
GRADIENT, DERIVATIVES = 1, 9  # sums per rotation
WARP_NUMBERS = 128  # numbers of a step that a warp takes


class Steps(NamedTuple):
    """A sequence of rotations in steps of `STEP` that share no row."""

    first: Tensor  # i, or −1, shape: (n_steps · STEP,), int32
    second: Tensor  # j
    place: Tensor  # where rotation k of the sequence stands, shape: (K,)

    @staticmethod
    def of(n: int, pairs: np.ndarray, device: torch.device) -> Steps:
        """The steps of pairs (K, 2) on n rows."""
        wiring, order = layered(n, pairs, np.arange(len(pairs)))
        sizes = np.diff(wiring.offsets)
        begins = np.concatenate([[0], np.cumsum(-(-sizes // STEP) * STEP)])
        place = np.arange(len(pairs)) + np.repeat(begins[:-1] - wiring.offsets[:-1], sizes)
        both = np.full((2, int(begins[-1])), -1, np.int32)
        both[:, place] = wiring.pairs.T
        where = np.empty(len(pairs), np.int64)
        where[order] = place
        first, second = torch.from_numpy(both).to(device)
        return Steps(first, second, torch.from_numpy(where).to(device))

    def coefficients(self, angles: np.ndarray | Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosines and sines (n_steps · STEP,) of angles (K,)."""
        theta = torch.zeros(len(self.first), dtype=torch.float64, device=self.first.device)
        theta[self.place] = torch.as_tensor(angles, dtype=torch.float64, device=theta.device)
        return torch.cos(theta).to(dtype), torch.sin(theta).to(dtype)


def rotate(X: Tensor, steps: Steps, c: Tensor, s: Tensor, back: bool = False) -> None:
    """X ← Qᵀ X in place, or Q X with ``back``; X (n, m) contiguous."""
    if by_kernels(X):
        from swallowtail.fitting.device.kernels import rotate_kernel

        width, warps, grid = _shape(X.shape[1])
        n_steps = len(steps.first) // STEP
        rotate_kernel[(grid,)](
            X, steps.first, steps.second, c, s, n_steps, X.shape[1], BACK=back, STEP=STEP, WIDTH=width,
            num_warps=warps, num_stages=1,
        )  # fmt: skip
        return
    for at, i, j in reversed(_listed(steps)) if back else _listed(steps):
        a, b, ck, sk = X[i], X[j], c[at][:, None], (-s if back else s)[at][:, None]
        X[i], X[j] = ck * a + sk * b, ck * b - sk * a


def walk_back(
    V: Tensor,
    X: Tensor,
    d: Tensor,
    steps: Steps,
    c: Tensor,
    s: Tensor,
    sums: int,
    block: Tensor | None = None,
) -> Tensor:  # shape: (sums, n_steps · STEP), float64
    """V ← Q V, X ← Q X in place, and sums per rotation.

    Args:
        V, X: QᵀHQ and 1, shape (n, n).
        d: the diagonal of QᵀHQ, shape (n,).
        steps, c, s: the rotations.
        sums: `GRADIENT` or `DERIVATIVES`.
        block: M_ii, M_ij, M_jj of every rotation, shape (3, n_steps · STEP): what taking it out costs is then the sum.
    """
    if by_kernels(V):
        from swallowtail.fitting.device.kernels import walk_kernel

        width, warps, grid = _shape(V.shape[1])
        out = torch.empty((grid, sums, len(steps.first)), dtype=V.dtype, device=V.device)
        n_steps = len(steps.first) // STEP
        walk_kernel[(grid,)](
            V, X, d, out if block is None else block, steps.first, steps.second, c, s, out, n_steps, V.shape[1],
            SUMS=sums, LOSSES=block is not None, STEP=STEP, WIDTH=width, num_warps=warps, num_stages=1,
        )  # fmt: skip
        return out.sum(0, dtype=torch.float64)
    found = torch.zeros((sums, len(steps.first)), dtype=torch.float64)
    for at, i, j in reversed(_listed(steps)):
        ck, sk = c[at][:, None], s[at][:, None]
        g, h = X[i], X[j]
        a, b, x, y = ck * V[i] - sk * V[j], sk * V[i] + ck * V[j], ck * g - sk * h, sk * g + ck * h
        V[i], V[j], X[i], X[j] = a, b, x, y
        if block is not None:
            m, (u, v) = block[:, at, None], (g - x, h - y)
            change = 2 * (u * a + v * b) + u * u * m[0] + 2 * u * v * m[1] + v * v * m[2]
            found[0, at] = -(change * (2 * d + change)).sum(1, dtype=torch.float64)
            continue
        turn, f = b * x - a * y, 2 * d
        terms = [f * turn]
        if sums == DERIVATIVES:
            terms += [2 * turn**2, f * (a * x + b * y), a * x, a * y, b * y, f * x * x, f * x * y, f * y * y]
        for q, term in enumerate(terms):
            found[q, at] = term.sum(1, dtype=torch.float64)
    return found


def by_kernels(X: Tensor) -> bool:
    """Whether Triton's kernels do the work; PyTorch does elsewhere."""
    return X.is_cuda


def _shape(n_columns: int) -> tuple[int, int, int]:
    """Columns and warps per program, and the number of programs: about as many as a GPU has multiprocessors."""
    width = 16 if n_columns <= 2048 else 32 if n_columns <= 4096 else 128
    return width, min(8, STEP * width // WARP_NUMBERS), -(-n_columns // width)


def _listed(steps: Steps) -> list[Any]:
    """Places, i and j of every step, without those that are empty."""
    found = []
    for at in torch.arange(len(steps.first)).split(STEP):
        at = at[steps.first[at] >= 0]
        found.append((at, steps.first[at].long(), steps.second[at].long()))
    return found


def conjugated(H: Tensor, pairs: np.ndarray, angles: np.ndarray) -> Tensor:  # shape: (n, n)
    """QᵀHQ for symmetric H (n, n)."""
    A = H.clone()
    if not len(pairs):
        return A
    steps = Steps.of(len(H), pairs, H.device)
    c, s = steps.coefficients(angles, H.dtype)
    rotate(A, steps, c, s)
    A = A.T.contiguous()
    rotate(A, steps, c, s)
    return A

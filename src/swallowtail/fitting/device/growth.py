"""Which rotations to add, chosen on the device: greedy layers at the end of Q, and Newton's anywhere.

The entries stay where they are. A layer needs the largest entry of every row: n numbers and n indices travel to the
host, which picks disjoint pairs as `core.growth` and `core.newton` do, and sends those back.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from swallowtail.fitting.core.newton import CANDIDATES, LONGEST_TURN
from swallowtail.fitting.core.product import compiled
from swallowtail.fitting.device.walks import Steps, by_kernels, rotate

SCAN, ROW, PAIRS = 1024, 1024, 64  # columns or pairs that a program of the kernels takes at a time
ALIGNED = 4  # int32 in 16 bytes: Triton compiles kernels for such addresses, and again for others
NEAREST, ROWS = 40, 2048  # entries of a row that a matching may take; rows that are looked at together
TIES = 1e-3  # weights that differ relatively by less count as equal, see `favour`


class Residual(NamedTuple):
    """QᵀHQ, its diagonal apart."""

    rest: Tensor  # zeros on the diagonal, shape: (n, n)
    diagonal: Tensor  # shape: (n,)

    @staticmethod
    def of(A: Tensor) -> Residual:
        """Of a matrix, which it takes over."""
        diagonal = A.diagonal().clone()
        A.fill_diagonal_(0.0)
        return Residual(A, diagonal)


def _disjoint(weight: np.ndarray, partner: np.ndarray, least: float, most: int) -> np.ndarray:  # shape: (m,)
    """The i of disjoint pairs (i, partner of i), largest weight first, while it is at least ``least``."""
    chosen = np.empty(min(most, len(weight) // 2), np.int64)
    count = _choose(np.argsort(-weight), weight, partner, np.zeros(len(weight), np.bool_), least, chosen)
    return chosen[:count]


@compiled
def _choose(
    order: np.ndarray,
    weight: np.ndarray,
    partner: np.ndarray,
    taken: np.ndarray,
    least: float,
    chosen: np.ndarray,
) -> int:
    m = 0
    for k in range(len(order)):
        i = order[k]
        j = partner[i]
        if weight[i] < least or m == len(chosen):
            break
        if j != i and not taken[i] and not taken[j]:
            taken[i] = taken[j] = True
            chosen[m] = i
            m += 1
    return m


def grow_layers(
    A: Residual, n_rotations: int, threshold: float, least: float, enough: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """`core.growth.parallel_jacobi` on the device, for the target "matrix": A ← QᵀAQ in place; pairs and angles."""
    pairs, k = [np.zeros((0, 2), np.int64)], 0
    tangents = [torch.zeros(0, dtype=torch.float64, device=A.rest.device)]
    while k < n_rotations and not 0 < enough <= k:
        largest, partner = _largest(A.rest)
        weight = largest**2
        if not weight.max() > least:
            break
        i = _disjoint(weight, partner, threshold * float(weight.max()), n_rotations - k)
        chosen = np.sort(np.stack([i, partner[i]], 1), axis=1)
        tangents.append(_turn(A, *_sent(chosen, A.rest.device)))
        pairs.append(chosen)
        k += len(chosen)
    return np.concatenate(pairs), np.arctan(torch.cat(tangents).cpu().numpy())


def grow_matching(A: Residual, n_rotations: int, least: float) -> tuple[np.ndarray, np.ndarray]:
    """A layer of disjoint pairs, largest entry first, that reaches as many coordinates as it can: A ← QᵀAQ in place."""
    n, pieces = len(A.rest), []
    for rows in A.rest.split(ROWS):  # no further n² numbers
        found = rows.abs().topk(min(NEAREST, n - 1), dim=1)
        pieces.append((found.values.double().cpu().numpy(), found.indices.cpu().numpy()))
    weight, partner = (np.concatenate([piece[k] for piece in pieces]).ravel() for k in range(2))
    order = np.argsort(-weight, kind="stable")
    order = order[weight[order] ** 2 > least]
    chosen = np.empty((min(n_rotations, n // 2), 2), np.int64)
    count = _match(order // min(NEAREST, n - 1), partner[order], np.zeros(n, np.bool_), chosen)
    chosen = chosen[:count]
    return chosen, np.arctan(_turn(A, *_sent(chosen, A.rest.device)).cpu().numpy())


@compiled
def _match(first: np.ndarray, second: np.ndarray, taken: np.ndarray, chosen: np.ndarray) -> int:
    m = 0
    for k in range(len(first)):
        i, j = min(first[k], second[k]), max(first[k], second[k])
        if m == len(chosen):
            break
        if i != j and not taken[i] and not taken[j]:
            taken[i] = taken[j] = True
            chosen[m, 0], chosen[m, 1] = i, j
            m += 1
    return m


def favour(i: Tensor, j: Tensor) -> Tensor:
    """What the weight of a pair is multiplied with, between 1 and 1 + `TIES`: the same for (i, j) and (j, i).

    Kernels on a grid have many equal entries. If every row takes the first of its largest, few choices are mutual. On
    an exponential kernel of 28 × 28 points such growth left 11 % more squared error.
    """
    mixed = (i + j) * 40503 + (i * j) * 30345
    return 1.0 + (mixed & 65535).double() * (TIES / 65536.0)


def _largest(rest: Tensor) -> tuple[np.ndarray, np.ndarray]:  # shape: (n,) each
    """The largest |entry| of every row, and its column; see `favour` for ties."""
    n = len(rest)
    if by_kernels(rest):
        from swallowtail.fitting.device.kernels import largest_kernel

        out = torch.empty((2, n), dtype=torch.float64, device=rest.device)
        largest_kernel[(n,)](rest, out, n, BLOCK=SCAN, num_warps=4)
        found = out.cpu().numpy()
        return found[0], found[1].astype(np.int64)
    i = torch.arange(n, dtype=torch.int32)
    values, where = (rest.abs() * favour(i[:, None], i).to(rest.dtype)).max(1)
    return values.double().numpy(), where.numpy()


def _sent(pairs: np.ndarray, device: torch.device) -> tuple[Tensor, Tensor]:
    """i and j of pairs (m, 2) on the device, int32, each at an address that `ALIGNED` numbers divide."""
    m = len(pairs)
    both = np.zeros((2, -(-m // ALIGNED) * ALIGNED), np.int32)
    both[:, :m] = pairs.T
    first, second = torch.from_numpy(both).to(device)
    return first[:m], second[:m]


def _turn(A: Residual, first: Tensor, second: Tensor) -> Tensor:  # shape: (m,), float64
    """One layer of Jacobi rotations on rows ``first`` and ``second`` (m,), in place; the tangents of their angles."""
    rest, d = A
    n, m = len(rest), len(first)
    if by_kernels(rest):
        from swallowtail.fitting.device.kernels import angles_kernel, turn_columns_kernel, turn_rows_kernel

        tangents = torch.empty(m, dtype=torch.float64, device=d.device)
        c, s = (torch.empty(m, dtype=d.dtype, device=d.device) for _ in range(2))
        blocks = -(-m // PAIRS)
        angles_kernel[(blocks,)](rest, d, first, second, tangents, c, s, n, m, BLOCK=PAIRS, num_warps=2)
        turn_rows_kernel[(m, -(-n // ROW))](rest, first, second, c, s, n, BLOCK=ROW, num_warps=4)
        turn_columns_kernel[(n, blocks)](rest, first, second, c, s, n, m, BLOCK=PAIRS, num_warps=2)
        return tangents
    i, j = first.long(), second.long()
    a, off, b = d[i].double(), rest[i, j].double(), d[j].double()
    gap = a - b
    tangents = torch.where(gap < 0.0, -2.0, 2.0) * off / (gap.abs() + torch.sqrt(gap**2 + 4.0 * off**2))
    c = 1.0 / torch.sqrt(1.0 + tangents**2)
    c, s = c.to(d.dtype), (c * tangents).to(d.dtype)
    d[i], d[j] = (a + off * tangents).to(d.dtype), (b - off * tangents).to(d.dtype)
    x, y = rest[i], rest[j]
    rest[i], rest[j] = c[:, None] * x + s[:, None] * y, c[:, None] * y - s[:, None] * x
    x, y = rest[:, i], rest[:, j]
    rest[:, i], rest[:, j] = c * x + s * y, c * y - s * x
    rest[i, j] = rest[j, i] = rest[i, i] = rest[j, j] = 0.0
    return tangents


def newton_layers(
    M: Tensor, B: Tensor, n_rotations: int, layers: int, threshold: float
) -> tuple[np.ndarray, np.ndarray]:
    """`core.newton.newton_rotations` on the device, for the target "matrix" and without groups.

    Args:
        M, B: AᵀHA and B of Q = A·B, shape (n, n); M is overwritten.
        n_rotations, layers, threshold: as there.
    """
    pairs, angles, k = [np.zeros((0, 2), np.int64)], [np.zeros(0)], 0
    for _ in range(layers):
        weight, partner, turn = (z.double().cpu().numpy() for z in _newton_turns(M, B))
        partner = partner.astype(np.int64)
        largest = float(weight.max(initial=0.0))
        i = _disjoint(weight, partner, max(threshold * largest, 1e-300), n_rotations - k)
        if not len(i):
            break
        chosen, by = np.stack([i, partner[i]], 1), np.clip(turn[i], -LONGEST_TURN, LONGEST_TURN)
        pairs.append(chosen)
        angles.append(by)
        k += len(i)
        if k == n_rotations or layers == 1:
            break
        M = conjugated(M, chosen, by)
    return np.concatenate(pairs), np.concatenate(angles)


def _newton_turns(M: Tensor, B: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of each row the best partner: its promise g²/|h|, the partner, and the turn g/|h|; see `core.newton`."""
    W = M @ B
    slope = 2.0 * (B * W).sum(0)
    sums = M.diagonal(), (B * W) @ slope, (B * B) @ slope
    rows, steep = torch.arange(len(M), device=M.device), B * slope
    parts = [_turns_of(piece, M, B, W, steep, slope, *sums) for piece in rows.split(ROWS)]
    weight, partner, turn = (torch.cat([part[k] for part in parts]) for k in range(3))
    return weight, partner, turn


def _turns_of(
    rows: Tensor,
    M: Tensor,
    B: Tensor,
    W: Tensor,
    steep: Tensor,
    slope: Tensor,
    m: Tensor,
    t: Tensor,
    e: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """The same for some rows: no further n² numbers."""
    b, w = B[rows], W[rows]
    g = 2.0 * (steep[rows] @ W.T - w @ steep.T)
    known = m[rows, None] * e + e[rows, None] * m - t[rows, None] - t
    promise = g * g / (2.0 * known.abs() + 1e-30)
    at = torch.arange(len(rows), device=M.device)
    promise[at, rows] = -1.0
    candidates = promise.topk(min(CANDIDATES, len(M) - 1), dim=1).indices
    weight = torch.full_like(b[:, 0], -1.0)
    partner, turn = torch.zeros_like(candidates[:, 0]), torch.zeros_like(weight)
    for j in candidates.T:
        rates = ((b * W[j] - B[j] * w) ** 2).sum(1)
        cross = (b * B[j]) @ slope
        h = 8.0 * rates - 2.0 * (t[rows] + t[j])
        h += 2.0 * (m[rows] * e[j] + m[j] * e[rows] - 2.0 * M[rows, j] * cross)
        gain, bend = g[at, j], h.abs() + 1e-30
        better = gain * gain / bend > weight
        weight = torch.where(better, gain * gain / bend, weight)
        partner, turn = torch.where(better, j, partner), torch.where(better, gain / bend, turn)
    return weight, partner, turn


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

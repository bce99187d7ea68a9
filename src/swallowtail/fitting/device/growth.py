"""Which rotations to add at the end of Q, chosen on the device: greedy layers.

The entries stay where they are. A layer needs the largest entry of every row: n numbers and n indices travel to the
host, which picks disjoint pairs as `core.growth` does, and sends those back.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from swallowtail.fitting.core.groups import Groups
from swallowtail.fitting.core.product import compiled
from swallowtail.fitting.device.walks import by_kernels

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


def disjoint(weight: np.ndarray, partner: np.ndarray, least: float, most: int) -> np.ndarray:  # shape: (m,)
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
        entry, partner = largest(A.rest)
        weight = entry**2
        if not weight.max() > least:
            break
        i = disjoint(weight, partner, threshold * float(weight.max()), n_rotations - k)
        chosen = np.sort(np.stack([i, partner[i]], 1), axis=1)
        tangents.append(turn(A, chosen))
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
    return chosen, np.arctan(turn(A, chosen).cpu().numpy())


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


def sent_groups(groups: Groups, device: torch.device) -> tuple[Tensor, Tensor]:
    """Each coordinate's label, and how many its group has, int32."""
    both = np.stack([groups.label, groups.sizes[groups.label]]).astype(np.int32)
    label, held = torch.from_numpy(both).to(device)
    return label, held


def largest(rest: Tensor, groups: Groups | None = None) -> tuple[np.ndarray, np.ndarray]:  # shape: (n,) each
    """The largest |entry| of every row, and its column; see `favour` for ties. With groups, of those that may meet."""
    n = len(rest)
    label, held = (None, None) if groups is None else sent_groups(groups, rest.device)
    if by_kernels(rest):
        from swallowtail.fitting.device.kernels import largest_kernel

        out = torch.empty((2, n), dtype=torch.float64, device=rest.device)
        some = rest if label is None else label  # a kernel needs some pointer
        largest_kernel[(n,)](
            rest, out, some, rest if held is None else held, n, 0 if groups is None else groups.size,
            GROUPED=groups is not None, BLOCK=SCAN, num_warps=4,
        )  # fmt: skip
        found = out.cpu().numpy()
        return found[0], found[1].astype(np.int64)
    i = torch.arange(n, dtype=torch.int32)
    weight = rest.abs() * favour(i[:, None], i).to(rest.dtype)
    if groups is not None:
        assert label is not None
        assert held is not None
        weight = torch.where(may_meet(i.long(), label, held, groups.size), weight, -1.0)
    values, where = weight.max(1)
    return values.double().numpy(), where.numpy()


def may_meet(rows: Tensor, label: Tensor, held: Tensor, size: int) -> Tensor:  # shape: (rows, n), bool
    return (label[rows, None] == label) | (held[rows, None] + held <= size)


def _sent(pairs: np.ndarray, device: torch.device) -> tuple[Tensor, Tensor]:
    """i and j of pairs (m, 2) on the device, int32, each at an address that `ALIGNED` numbers divide."""
    m = len(pairs)
    both = np.zeros((2, -(-m // ALIGNED) * ALIGNED), np.int32)
    both[:, :m] = pairs.T
    first, second = torch.from_numpy(both).to(device)
    return first[:m], second[:m]


def turn(A: Residual, pairs: np.ndarray) -> Tensor:  # shape: (m,), float64
    """One layer of Jacobi rotations on disjoint pairs (m, 2), in place; the tangents of their angles."""
    rest, d = A
    first, second = _sent(pairs, rest.device)
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

"""Rotations to put anywhere into Q, chosen on the device by what they promise to second order."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from swallowtail.fitting.core.groups import Groups
from swallowtail.fitting.core.newton import CANDIDATES, LONGEST_TURN, take
from swallowtail.fitting.device.growth import ROWS, disjoint, may_meet, sent_groups
from swallowtail.fitting.device.walks import conjugated


def newton_layers(
    M: Tensor, B: Tensor, n_rotations: int, layers: int, threshold: float, groups: Groups | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """`core.newton.newton_rotations` on the device, for the target "matrix".

    Args:
        M, B: AᵀHA and B of Q = A·B, shape (n, n).
        n_rotations, layers, threshold: as there.
        groups: all may meet without; else they are united where a rotation brings them together.
    """
    pairs, angles, k = [np.zeros((0, 2), np.int64)], [np.zeros(0)], 0
    for _ in range(layers if len(M) > 1 else 0):
        weight, partner, angle = (z.double().cpu().numpy() for z in _newton_turns(M, B, groups))
        partner = partner.astype(np.int64)
        least = max(threshold * float(weight.max(initial=0.0)), 1e-300)
        if groups is None:
            i = disjoint(weight, partner, least, n_rotations - k)
        else:
            i = take(np.argsort(-weight), weight, partner, least, n_rotations - k, *groups)
        if not len(i):
            break
        chosen, by = np.stack([i, partner[i]], 1), np.clip(angle[i], -LONGEST_TURN, LONGEST_TURN)
        pairs.append(chosen)
        angles.append(by)
        k += len(i)
        if k == n_rotations or layers == 1:
            break
        M = conjugated(M, chosen, by)
    return np.concatenate(pairs), np.concatenate(angles)


def _newton_turns(M: Tensor, B: Tensor, groups: Groups | None) -> tuple[Tensor, Tensor, Tensor]:
    """Of each row the best partner: its promise g²/|h|, the partner, and the turn g/|h|; see `core.newton`."""
    W = M @ B
    slope = 2.0 * (B * W).sum(0)
    sums = M.diagonal(), (B * W) @ slope, (B * B) @ slope
    rows, steep = torch.arange(len(M), device=M.device), B * slope
    parts = []
    for piece in rows.split(ROWS):
        allowed = None if groups is None else may_meet(piece, *sent_groups(groups, M.device), groups.size)
        parts.append(_turns_of(piece, M, B, W, steep, slope, *sums, allowed))
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
    allowed: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The same for some rows, and partners that are allowed: no further n² numbers."""
    b, w = B[rows], W[rows]
    g = 2.0 * (steep[rows] @ W.T - w @ steep.T)
    known = m[rows, None] * e + e[rows, None] * m - t[rows, None] - t
    promise = g * g / (2.0 * known.abs() + 1e-30)
    at = torch.arange(len(rows), device=M.device)
    promise[at, rows] = -1.0
    if allowed is not None:
        promise.masked_fill_(~allowed, -1.0)
    candidates = promise.topk(min(CANDIDATES, len(M) - 1), dim=1).indices
    weight = torch.full_like(b[:, 0], -1.0)
    partner, turn = torch.zeros_like(candidates[:, 0]), torch.zeros_like(weight)
    for j in candidates.T:
        rates = ((b * W[j] - B[j] * w) ** 2).sum(1)
        cross = (b * B[j]) @ slope
        h = 8.0 * rates - 2.0 * (t[rows] + t[j])
        h += 2.0 * (m[rows] * e[j] + m[j] * e[rows] - 2.0 * M[rows, j] * cross)
        gain, bend = g[at, j], h.abs() + 1e-30
        better = (gain * gain / bend > weight) & (promise[at, j] >= 0.0)
        weight = torch.where(better, gain * gain / bend, weight)
        partner, turn = torch.where(better, j, partner), torch.where(better, gain / bend, turn)
    return weight, partner, turn

"""Rounds of groups for a matrix on a device: `methods.grouped` with every O(n²) step where the matrix lies."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from swallowtail.fitting.core.groups import Groups, apart
from swallowtail.fitting.core.newton import take
from swallowtail.fitting.device.growth import Residual, largest, turn
from swallowtail.fitting.device.objective import DeviceObjective
from swallowtail.fitting.methods.grouped import Confined


class DeviceConfined(Confined, DeviceObjective):
    """A `DeviceObjective` in rounds of groups. Rounds begin with pairs; clusters would need the entries on the host."""

    starts = ("pairs",)

    def __init__(self, H: Tensor, n_rotations: int, size: int, n_rounds: int) -> None:
        DeviceObjective.__init__(self, H)
        self.confine(n_rotations, size, n_rounds)

    def grow(self, A: Any, count: int, threshold: float, enough: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """One round with its share of the rotations."""
        return self.grow_round(A, min(count, self.share), 0.0, apart(self.n, self.size))

    def begin(self, A: Any, start: str, count: int, enough: int) -> tuple[np.ndarray, np.ndarray]:
        return self.grow_round(A, count, 0.0, apart(self.n, self.size))

    def grow_round(
        self, A: Residual, count: int, threshold: float, groups: Groups
    ) -> tuple[np.ndarray, np.ndarray]:
        pairs, k = [np.zeros((0, 2), np.int64)], 0
        tangents = [torch.zeros(0, dtype=torch.float64, device=A.rest.device)]
        while k < count:
            entry, partner = largest(A.rest, groups)
            weight = np.maximum(entry, 0.0) ** 2
            if not weight.max() > self._least:
                break
            least = max(threshold * float(weight.max()), self._least)
            i = take(np.argsort(-weight), weight, partner, least, count - k, *groups)
            if not len(i):
                break
            chosen = np.sort(np.stack([i, partner[i]], 1), axis=1)
            tangents.append(turn(A, chosen))
            pairs.append(chosen)
            k += len(chosen)
        return np.concatenate(pairs), np.arctan(torch.cat(tangents).cpu().numpy())

"""‖H − QDQᵀ‖²_F / ‖H‖²_F for an H that lies on a device: all that `core.search` asks of an objective."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from swallowtail.fitting.core.curvature import LEAST
from swallowtail.fitting.core.groups import Groups
from swallowtail.fitting.core.matching import least_weight, sampled
from swallowtail.fitting.core.objectives import Objective
from swallowtail.fitting.core.product import MATRIX, power_of_two
from swallowtail.fitting.core.searchable import Diagonalised, Report
from swallowtail.fitting.device.growth import Residual, grow_layers, grow_matching
from swallowtail.fitting.device.newton import newton_layers
from swallowtail.fitting.device.polish import Evaluate, lbfgs
from swallowtail.fitting.device.walks import DERIVATIVES, GRADIENT, Steps, conjugated, rotate, walk_back

# A squared relative error that is rounding, by the precision of the entries.
ROUNDING = {torch.float32: 1e-11, torch.float64: 1e-15}
# For regrowth: at 1, a layer is one rotation, and a layer takes 0.2 ms whatever it has.
LARGEST_THRESHOLD = 0.2


class DeviceObjective(Diagonalised):
    """The target "matrix" on one symmetric matrix, where it lies.

    Entries and products have H's precision, float32 or float64. Sums over columns are float64.

    Args:
        H: symmetric, shape (n, n), float32 or float64; it is not changed.
    """

    starts = Objective.starts

    def __init__(self, H: Tensor) -> None:
        self.scale = power_of_two(np.array([float(H.max()), float(H.min())]))
        self.H = H if self.scale == 1.0 else H / self.scale
        self.n, self.target = len(H), MATRIX
        self.norm2 = float(torch.linalg.vector_norm(self.H, dtype=torch.float64)) ** 2 or 1.0
        self.rounding = ROUNDING[H.dtype]
        self._least = 1e-16 * self.rounding * self.norm2

    def residual(self, pairs: np.ndarray, angles: np.ndarray) -> Any:
        return Residual.of(conjugated(self.H, pairs, angles))

    def of_residual(self, A: Any) -> float:
        d = A.diagonal.double()
        return 1.0 - float(d @ d) / self.norm2

    def grow(self, A: Any, count: int, threshold: float, enough: int = 0) -> tuple[np.ndarray, np.ndarray]:
        return grow_layers(A, count, threshold, self._least, enough)

    def begin(self, A: Any, start: str, count: int, enough: int) -> tuple[np.ndarray, np.ndarray]:
        if start == "layers":
            return grow_layers(A, count, 0.0, self._least, enough)
        weights = A.rest[torch.from_numpy(sampled(self.n)).to(A.rest.device)].double() ** 2
        return grow_matching(A, count, max(self._least, least_weight(weights.cpu().numpy())))

    def newton(
        self,
        pairs: np.ndarray,
        angles: np.ndarray,
        at: int,
        count: int,
        layers: int,
        threshold: float,
        groups: Groups | None = None,
        report: Report | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        if report is not None:
            report()
        M = conjugated(self.H, pairs[:at], angles[:at]) if at else self.H
        B = self.product(pairs[at:], angles[at:])
        return newton_layers(M, B, count, layers, threshold, groups)

    def regrow(
        self,
        pairs: np.ndarray,
        angles: np.ndarray,
        count: int,
        threshold: float,
        generator: np.random.Generator | None,
    ) -> tuple[np.ndarray, np.ndarray]:
        return super().regrow(pairs, angles, count, min(threshold, LARGEST_THRESHOLD), generator)

    def product(self, pairs: np.ndarray, angles: np.ndarray) -> Tensor:  # shape: (n, n)
        """Q itself."""
        Q = torch.eye(self.n, dtype=self.H.dtype, device=self.H.device)
        steps = Steps.of(self.n, pairs, Q.device)
        rotate(Q, steps, *steps.coefficients(angles, Q.dtype), back=True)
        return Q

    def removal_losses(self, pairs: np.ndarray, angles: np.ndarray) -> np.ndarray:
        steps = Steps.of(self.n, pairs, self.H.device)
        _, sums = self._sums(steps, angles, DERIVATIVES)
        block = sums[3:6].to(self.H.dtype).contiguous()
        _, sums = self._sums(steps, angles, GRADIENT, block)
        return np.asarray(sums[0, steps.place].cpu().numpy()) / self.norm2

    def eigenvalues(self, pairs: np.ndarray, angles: np.ndarray) -> np.ndarray:  # shape: (n,)
        """The best D for this Q: diag(QᵀHQ)."""
        d = conjugated(self.H, pairs, angles).diagonal()
        return np.asarray(d.double().cpu().numpy()) * self.scale

    def __call__(self, pairs: np.ndarray, angles: np.ndarray) -> tuple[float, np.ndarray]:
        steps = Steps.of(self.n, pairs, self.H.device)
        value, gradient = self._evaluate(steps)(torch.from_numpy(angles).to(self.H.device))
        return float(value), np.asarray(gradient.cpu().numpy())

    def polish(
        self,
        pairs: np.ndarray,
        angles: np.ndarray,
        max_iterations: int = 200,
        tolerance: float = 1e-6,
        report: Callable[[np.ndarray, float], None] | None = None,
    ) -> tuple[np.ndarray, float]:
        if len(angles) == 0:
            return angles, self.of_residual(self.residual(pairs, angles))
        x = torch.from_numpy(np.array(angles, np.float64)).to(self.H.device)
        steps = Steps.of(self.n, pairs, self.H.device)
        value, sums = self._sums(steps, x, DERIVATIVES)
        wedge, steep, along, mii, mij, mjj, xx, xy, yy = sums[:, steps.place]
        bends = (4.0 * steep + 2.0 * (mii * yy - 2.0 * mij * xy + mjj * xx - along)).abs()
        scale = self.norm2 / torch.clamp(bends, min=LEAST * float(bends.max()) + 1e-300)
        start = x, 1.0 - float(value) / self.norm2, wedge * (-2.0 / self.norm2)
        x, f = lbfgs(self._evaluate(steps), *start, scale, max_iterations, tolerance, report)
        return np.asarray(x.cpu().numpy()), f

    def _evaluate(self, steps: Steps) -> Evaluate:
        def evaluate(x: Tensor) -> tuple[Tensor, Tensor]:
            value, sums = self._sums(steps, x, GRADIENT)
            return 1.0 - value / self.norm2, sums[0, steps.place] * (-2.0 / self.norm2)

        return evaluate

    def _sums(
        self, steps: Steps, angles: np.ndarray | Tensor, sums: int, block: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Σ dₖ² and the sums per rotation."""
        c, s = steps.coefficients(angles, self.H.dtype)
        V = self.H.clone()
        rotate(V, steps, c, s)
        V = V.T.contiguous()
        rotate(V, steps, c, s)
        d = V.diagonal().contiguous()
        found = walk_back(V, torch.eye(self.n, dtype=V.dtype, device=V.device), d, steps, c, s, sums, block)
        return d.double() @ d.double(), found

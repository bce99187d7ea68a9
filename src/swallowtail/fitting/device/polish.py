"""L-BFGS on the angles where everything but single numbers stays on a device: the iteration of `core.lbfgs`.

The two-loop recursion needs inner products of the remembered steps and gradients only. Two small products of matrices
give all of them, the recursion runs on the host in numbers, and a last product makes the direction. So an iteration
waits for the device four times, whatever the length of the memory.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from swallowtail.fitting.core.lbfgs import ARMIJO, FIRST, MEMORY, WOLFE

TRIES = 12  # of a line search; rounding may hide a decrease that exact arithmetic would find
Evaluate = Callable[[Tensor], tuple[Tensor, Tensor]]  # angles (K,) to the objective and its gradient (K,)


class Memory:
    """The last steps and changes of the gradient, oldest first."""

    def __init__(self, scale: Tensor) -> None:
        self.scale = scale  # of the first steps, relative to the gradient, shape: (K,)
        self.steps: list[Tensor] = []
        self.changes: list[Tensor] = []

    def add(self, step: Tensor, change: Tensor) -> None:
        self.steps, self.changes = [*self.steps, step][-MEMORY:], [*self.changes, change][-MEMORY:]

    def clear(self) -> None:
        self.steps, self.changes = [], []

    def direction(self, g: Tensor) -> Tensor:  # shape: (K,)
        """−(approximate inverse Hessian)·g, which starts from ``scale`` times what the last step suggests."""
        m = len(self.steps)
        if m == 0:
            return -self.scale * g
        S, Y = torch.stack(self.steps), torch.stack(self.changes)
        others = torch.cat([Y, g[None]]).T
        both = torch.stack([S @ others, (Y * self.scale) @ others]).cpu().numpy()
        (SY, YDY), (Sg, YDg) = both[:, :, :m], both[:, :, m]
        rho = 1.0 / np.diagonal(SY)
        alpha, beta = np.zeros(m), np.zeros(m)
        for k in range(m - 1, -1, -1):  # q = g − Σ α y
            alpha[k] = rho[k] * (Sg[k] - SY[k] @ alpha)
        size = 1.0 / (rho[-1] * YDY[-1, -1])
        for k in range(m):  # r = size · scale · q + Σ (α − β) s
            beta[k] = rho[k] * (size * (YDg[k] - YDY[k] @ alpha) + SY[:k, k] @ (alpha[:k] - beta[:k]))
        a, b = torch.from_numpy(np.stack([alpha, alpha - beta])).to(g.device, g.dtype)
        return -(size * self.scale * (g - a @ Y) + b @ S)


def lbfgs(
    evaluate: Evaluate,
    x: Tensor,
    f: float,
    g: Tensor,
    scale: Tensor,
    max_iterations: int,
    tolerance: float,
    report: Callable[[np.ndarray, float], None] | None = None,
) -> tuple[Tensor, float]:
    """Up to ``max_iterations`` steps of L-BFGS with a bisecting weak-Wolfe line search.

    Args:
        evaluate: the objective and its gradient.
        x, f, g: angles, objective and gradient at the start.
        scale: as in `core.lbfgs.lbfgs`.
        max_iterations, tolerance, report: as in `core.searchable.Searchable.polish`.

    Returns:
        The angles and their objective, never worse than the start.
    """
    memory, least = Memory(scale), tolerance * abs(f)
    for _ in range(max_iterations):
        p = memory.direction(g)
        slope, longest = torch.stack([g @ p, p.abs().max()]).tolist()
        if not slope < 0.0:
            if not memory.steps:
                break
            memory.clear()
            p = memory.direction(g)
            slope, longest = torch.stack([g @ p, p.abs().max()]).tolist()
        step = 1.0 if memory.steps else min(1.0, FIRST / max(longest, 1e-300))
        low, high = 0.0, 0.0
        for _ in range(TRIES):
            x_new = x + step * p
            value, g_new = evaluate(x_new)
            f_new, slope_new = torch.stack([value, g_new @ p]).tolist()
            if not f_new <= f + ARMIJO * step * slope:
                high = step
            elif slope_new < WOLFE * slope:
                low = step
            else:
                break
            step = 0.5 * (low + high) if high > 0.0 else 2.0 * low
        if not f_new < f:
            break
        gain, s, y = f - f_new, x_new - x, g_new - g
        sy, yy = torch.stack([s @ y, y @ y]).tolist()
        if sy > 1e-14 * yy:
            memory.add(s, y)
        x, f, g = x_new, f_new, g_new
        if report is not None:
            report(x.cpu().numpy(), f)
        if gain < least:
            break
    return x, f

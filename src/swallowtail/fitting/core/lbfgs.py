"""L-BFGS on the angles, compiled together with its objective.

At n = 64 a gradient takes 20 µs and SciPy's L-BFGS-B adds 170 µs per iteration around it; here the whole
loop is one compiled call, and the memory of past steps is handed in, so that it can be left and entered
again.
"""

from __future__ import annotations

import numpy as np

from swallowtail.fitting.core.product import MATRIX, compiled, inlined, inner, value_and_gradient
from swallowtail.fitting.core.trace import trace_parts

MEMORY = 12  # how many (step, change of gradient) are remembered
FIRST = 0.3  # radians that an angle may turn in a step without memory
ARMIJO, WOLFE = 1e-4, 0.9  # sufficient decrease; how much flatter the slope must have become


@inner
def _dot(x: np.ndarray, y: np.ndarray) -> float:
    total = 0.0
    for k in range(len(x)):
        total += x[k] * y[k]
    return total


@inner
def _sum(x: np.ndarray, a: float, y: np.ndarray) -> np.ndarray:  # shape: (K,)
    """x + a·y."""
    total = np.empty(len(x))
    for k in range(len(x)):
        total[k] = x[k] + a * y[k]
    return total


@inner
def _add(a: float, y: np.ndarray, x: np.ndarray) -> None:
    """x ← x + a·y."""
    for k in range(len(x)):
        x[k] += a * y[k]


@inlined
def _evaluate(
    tiles: np.ndarray,
    pairs: np.ndarray,
    x: np.ndarray,
    target: int,
    floor: float,
    unit: float,
    aligns: bool | None,
) -> tuple[float, np.ndarray]:
    """The objective to minimise, its gradient, over ``unit``: 1 − Σd²/‖H‖², Σ log d / n, 2 − 2 tr(QᵀR)/n."""
    if aligns is not None:
        value, gradient, _ = trace_parts(tiles, pairs, x)
        for k in range(len(x)):
            gradient[k] *= -2.0 / unit
        return 2.0 - 2.0 * value / unit, gradient
    value, gradient, _ = value_and_gradient(tiles, pairs, x, target, floor)
    for k in range(len(x)):
        gradient[k] *= -1.0 / unit
    return (1.0 if target == MATRIX else 0.0) - value / unit, gradient


@inlined
def _direction(
    g: np.ndarray, scale: np.ndarray, S: np.ndarray, Y: np.ndarray, rho: np.ndarray, count: int
) -> np.ndarray:
    """−(approximate inverse Hessian)·g: the two-loop recursion over the last ``count`` steps (a ring).

    The inverse Hessian that it starts from is diagonal: ``scale``, times what the last step suggests.
    """
    m = min(count, MEMORY)
    p, alpha = np.empty(len(g)), np.empty(MEMORY)
    for k in range(len(g)):
        p[k] = -g[k]
    for q in range(m):
        slot = (count - 1 - q) % MEMORY
        alpha[slot] = rho[slot] * _dot(S[slot], p)
        _add(-alpha[slot], Y[slot], p)
    last, bend = (count - 1) % MEMORY, 0.0
    for k in range(len(g)):
        p[k] *= scale[k]
        bend += Y[last, k] * scale[k] * Y[last, k]
    if m:
        for k in range(len(g)):
            p[k] *= 1.0 / (rho[last] * bend)
    for q in range(m - 1, -1, -1):
        slot = (count - 1 - q) % MEMORY
        _add(alpha[slot] - rho[slot] * _dot(Y[slot], p), S[slot], p)
    return p


@compiled
def lbfgs(
    tiles: np.ndarray,
    pairs: np.ndarray,
    x: np.ndarray,
    f: float,
    g: np.ndarray,
    target: int,
    floor: float,
    unit: float,
    aligns: bool | None,
    scale: np.ndarray,
    S: np.ndarray,
    Y: np.ndarray,
    rho: np.ndarray,
    count: int,
    iterations: int,
    tolerance: float,
) -> tuple[np.ndarray, float, np.ndarray, int, bool]:
    """Up to ``iterations`` steps of L-BFGS with a bisecting weak-Wolfe line search.

    Args:
        tiles, pairs, target, floor: as in `value_and_gradient`.
        x, f, g: angles (K,), objective and gradient there.
        unit: ‖H‖²_F, or n, what the objective is divided by.
        aligns: True for the target ROTATION, where ``tiles`` are those of R. Else None, not False: Numba leaves out
            the code behind a question whether None is something.
        scale: lengths of the first steps, relative to the gradient, shape (K,): see `core.curvature.steps`.
        S, Y, rho, count: the memory, (MEMORY, K), (MEMORY, K), (MEMORY,), and how many steps were ever
            stored.
        iterations: at most this many steps.
        tolerance: stop when a step gains less than this.

    Returns:
        x, f, g, count, and whether it has converged.
    """
    for _ in range(iterations):
        p = _direction(g, scale, S, Y, rho, count)
        slope = _dot(g, p)
        if not slope < 0.0:
            if count == 0:
                return x, f, g, count, True
            count = 0
            for k in range(len(p)):
                p[k] = -scale[k] * g[k]
            slope = _dot(g, p)
        # The curvature of each angle alone may mislead where many turn together: at most 0.3 in the first step.
        longest = 1e-300
        for k in range(len(p)):
            longest = max(longest, abs(p[k]))
        step = 1.0 if count else min(1.0, FIRST / longest)
        low, high = 0.0, 0.0  # high = 0: no upper end yet (fast arithmetic knows no infinity)
        x_new, f_new, g_new = x, f, g
        for _ in range(25):
            x_new = _sum(x, step, p)
            f_new, g_new = _evaluate(tiles, pairs, x_new, target, floor, unit, aligns)
            if not f_new <= f + ARMIJO * step * slope:
                high = step
            elif _dot(g_new, p) < WOLFE * slope:
                low = step
            else:
                break
            step = 0.5 * (low + high) if high > 0.0 else 2.0 * low
        if not f_new < f:
            return x, f, g, count, True
        gain = f - f_new
        s, y = _sum(x_new, -1.0, x), _sum(g_new, -1.0, g)
        sy = _dot(s, y)
        if sy > 1e-14 * _dot(y, y):
            slot = count % MEMORY
            for k in range(len(s)):
                S[slot, k], Y[slot, k] = s[k], y[k]
            rho[slot] = 1.0 / sy
            count += 1
        x, f, g = x_new, f_new, g_new
        if gain < tolerance:
            return x, f, g, count, True
    return x, f, g, count, False

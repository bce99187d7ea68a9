"""minimize_givens: GivensLBFGS as a method of scipy.optimize.minimize."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.optimize import OptimizeResult, OptimizeWarning, approx_fprime
from scipy.sparse.linalg import LinearOperator

from swallowtail import checks
from swallowtail.optim.base import number
from swallowtail.optim.quasi_newton import PRECONDITIONERS, Memory, Settings, direction, minimize, new_memory

_DIFFERENCE = float(np.sqrt(np.finfo(np.float64).eps))  # of forward differences, SciPy's own choice


def minimize_givens(
    fun: Callable[..., Any],
    x0: Any,
    args: tuple[Any, ...] = (),
    *,
    jac: Any = None,
    hess: Any = None,
    hessp: Any = None,
    bounds: Any = None,
    constraints: Any = (),
    callback: Callable[..., Any] | None = None,
    tol: float | None = None,
    maxiter: int = 15000,
    maxfun: int = 15000,
    maxcor: int = 10,
    gtol: float = 1e-5,
    ftol: float = 0.0,
    preconditioner: str = "rotated",
    refresh: int = 1,
    damping: float = 0.03,
    gate_decay: float = 0.9,
    disp: bool = False,
    **unknown: Any,
) -> OptimizeResult:
    """L-BFGS with a learned H₀ (see `GivensLBFGS`) in float64, called through SciPy:

        scipy.optimize.minimize(fun, x0, jac=True, method=swallowtail.optim.minimize_givens)

    Args:
        fun, x0, args, jac, callback, tol: as SciPy describes them. Without ``jac``, forward differences are taken,
            at n evaluations a gradient. ``hess`` and ``hessp`` are not needed and not used.
        bounds, constraints: not supported.
        maxiter, maxfun: limits on iterations and on evaluations.
        maxcor: pairs kept.
        gtol: stop when no gradient entry is larger; ``tol`` sets it.
        ftol: stop when neither x nor the value changed by more.
        preconditioner, refresh, damping, gate_decay: as in `GivensLBFGS`.
        disp: print how it ended.
        unknown: options of other methods; a warning, as SciPy's own methods give.

    Returns:
        An OptimizeResult; ``hess_inv`` is a LinearOperator, the L-BFGS matrix over the learned H₀.

    >>> from scipy.optimize import minimize, rosen, rosen_der
    >>> minimize(rosen, [1.3, 0.7, 0.8], jac=rosen_der, method=minimize_givens).x.round(4).tolist()
    [1.0, 1.0, 1.0]
    """
    if unknown:
        warnings.warn(f"Unknown solver options: {', '.join(sorted(unknown))}", OptimizeWarning, stacklevel=3)
    if bounds is not None or np.size(constraints):
        raise ValueError(
            "expected neither bounds nor constraints, got some; try method='L-BFGS-B' or 'SLSQP'"
        )
    for name, limit in (("maxiter", maxiter), ("maxfun", maxfun), ("maxcor", maxcor), ("refresh", refresh)):
        checks.integer(name, limit, at_least=1)
    number("gtol", gtol if tol is None else tol, at_least=0)
    number("ftol", ftol, at_least=0)
    checks.choice("preconditioner", preconditioner, PRECONDITIONERS)
    x = np.array(x0, dtype=np.float64).ravel()
    objective = _Objective(fun, jac, args)
    f, g = objective(torch.from_numpy(x))
    if not math.isfinite(f) or not bool(torch.isfinite(g).all()):
        raise ValueError(f"x0: expected a point where the function and its gradient are finite, got {f}")
    settings = Settings(
        max_iter=maxiter,
        max_eval=max(1, maxfun - 1),
        tolerance_grad=gtol if tol is None else tol,
        tolerance_change=ftol,
        history_size=maxcor,
        preconditioner=preconditioner,
        refresh=refresh,
        damping=damping,
        gate_decay=gate_decay,
    )
    memory = new_memory(torch.from_numpy(x), maxcor)
    end = minimize(objective, torch.from_numpy(x), f, g, memory, settings, _stopper(callback))
    if disp:
        print(
            f"{end.message}: f = {end.f:g} after {end.n_iterations} iterations, {objective.n_evaluations} evaluations"
        )
    return OptimizeResult(
        x=end.x.numpy(),
        fun=end.f,
        jac=end.gradient.numpy(),
        nit=end.n_iterations,
        nfev=objective.n_evaluations,
        njev=objective.n_gradients,
        status=end.status,
        success=end.status in (0, 1),
        message=end.message,
        hess_inv=InverseHessian(memory, settings),
    )


class InverseHessian(LinearOperator):
    """The L-BFGS approximation of the inverse Hessian, over H₀ = γ Q D⁻¹ Qᵀ, as it was at the end."""

    def __init__(self, memory: Memory, settings: Settings) -> None:
        self._memory = {key: value.clone() for key, value in memory.items()}
        self._settings = settings
        n = memory["steps"].shape[1]
        super().__init__(np.dtype(np.float64), (n, n))

    def _matvec(self, x: Any) -> Any:
        vector = torch.from_numpy(np.array(x, np.float64).ravel())
        return direction(self._memory, vector, self._settings).numpy()

    _rmatvec = _matvec  # it is symmetric


class _Objective:
    """The user's function and gradient on tensors, counted."""

    def __init__(self, fun: Callable[..., Any], jac: Any, args: tuple[Any, ...]) -> None:
        self.fun, self.jac, self.args = fun, jac, args
        self.n_evaluations = self.n_gradients = 0

    def __call__(self, point: torch.Tensor) -> tuple[float, torch.Tensor]:
        x = point.numpy().copy()
        self.n_evaluations += 1
        self.n_gradients += 1
        if self.jac is True:
            value, slope = self.fun(x, *self.args)
        elif callable(self.jac):
            value, slope = self.fun(x, *self.args), self.jac(x, *self.args)
        else:
            value = self.fun(x, *self.args)
            slope = approx_fprime(x, self.fun, _DIFFERENCE, *self.args)
            self.n_evaluations += len(x)
        if value is None or np.size(value) != 1:
            raise TypeError(
                f"fun: expected one number, got {value!r}; with a gradient beside it, try jac=True"
            )
        g = np.array(slope, dtype=np.float64).ravel()
        if g.shape != x.shape:
            raise ValueError(f"jac: expected {len(x)} numbers, one a variable, got shape {np.shape(slope)}")
        return float(np.asarray(value).item()), torch.from_numpy(g)


def _stopper(callback: Callable[..., Any] | None) -> Callable[[torch.Tensor, float], bool] | None:
    """SciPy's two manners of callback, callback(x) and callback(intermediate_result=…); StopIteration stops."""
    if callback is None:
        return None
    by_name = set(inspect.signature(callback).parameters) == {"intermediate_result"}

    def stop(x: torch.Tensor, f: float) -> bool:
        try:
            if by_name:
                callback(intermediate_result=OptimizeResult(x=x.numpy().copy(), fun=f))
            else:
                callback(x.numpy().copy())
        except StopIteration:
            return True
        return False

    return stop

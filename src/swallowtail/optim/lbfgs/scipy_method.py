"""minimize_givens: GivensLBFGS as a method of scipy.optimize.minimize."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy
import torch

from swallowtail import checks
from swallowtail.errors import ArgumentError
from swallowtail.optim.base import check_number
from swallowtail.optim.lbfgs.iteration import Point, direction, minimize
from swallowtail.optim.lbfgs.memory import Memory, new_memory
from swallowtail.optim.lbfgs.settings import Settings, check_learning

DIFFERENCE = float(np.sqrt(np.finfo(np.float64).eps))  # step of forward differences, SciPy's own choice


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
) -> scipy.optimize.OptimizeResult:
    """L-BFGS with a learned H₀ (see `GivensLBFGS`) in float64, called through SciPy:

        scipy.optimize.minimize(fun, x0, jac=True, method=swallowtail.optim.minimize_givens)

    Args:
        fun, x0, args, jac, callback, tol: as SciPy describes them. Without ``jac``, forward differences are taken,
            at n evaluations per gradient. ``hess`` and ``hessp`` are not needed and not used.
        bounds, constraints: not supported.
        maxiter, maxfun: limits on iterations and on evaluations.
        maxcor: samples (s, y) kept.
        gtol: stop when no gradient entry is larger; ``tol`` sets it.
        ftol: stop when neither an entry of x nor the value changed by more.
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
        warnings.warn(
            f"Unknown solver options: {', '.join(sorted(unknown))}",
            scipy.optimize.OptimizeWarning,
            stacklevel=3,
        )
    if bounds is not None or np.size(constraints):
        raise ArgumentError(
            "", "neither bounds nor constraints", "some", "try method='L-BFGS-B' or 'SLSQP' for these"
        )
    for name, limit in (("maxiter", maxiter), ("maxfun", maxfun), ("maxcor", maxcor)):
        checks.integer(name, limit, at_least=1)
    check_number("gtol", gtol if tol is None else tol, at_least=0)
    check_number("ftol", ftol, at_least=0)
    check_learning(preconditioner=preconditioner, refresh=refresh, damping=damping, gate_decay=gate_decay)
    x = torch.from_numpy(np.array(x0, dtype=np.float64).ravel())
    objective = _Objective(fun, jac, args)
    start = Point(x, *objective(x))
    if not math.isfinite(start.f) or not bool(torch.isfinite(start.gradient).all()):
        raise ArgumentError("x0", "a point where the function and its gradient are finite", start.f)
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
    memory = new_memory(x, maxcor)
    outcome = minimize(objective, start, memory, settings, _stopper(callback))
    end, n_iterations, n_evaluations = outcome.end, outcome.n_iterations, objective.n_evaluations
    message = outcome.status.message
    if disp:
        print(f"{message}: f = {end.f:g} after {n_iterations} iterations, {n_evaluations} evaluations")
    return scipy.optimize.OptimizeResult(
        x=end.x.numpy(),
        fun=end.f,
        jac=end.gradient.numpy(),
        nit=n_iterations,
        nfev=n_evaluations,
        njev=objective.n_gradients,
        status=int(outcome.status),
        success=outcome.status.converged,
        message=message,
        hess_inv=_inverse_hessian(memory, settings),
    )


def _inverse_hessian(memory: Memory, settings: Settings) -> scipy.sparse.linalg.LinearOperator:
    """The L-BFGS approximation of the inverse Hessian, over H₀ = γ Q D⁻¹ Qᵀ, as it was at the end."""
    kept, n = {key: value.clone() for key, value in memory.items()}, memory["steps"].shape[1]

    def product(x: Any) -> Any:
        return direction(kept, torch.from_numpy(np.array(x, np.float64).ravel()), settings).numpy()

    # It is symmetric.
    return scipy.sparse.linalg.LinearOperator((n, n), matvec=product, rmatvec=product, dtype=np.float64)


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
            slope = scipy.optimize.approx_fprime(x, self.fun, DIFFERENCE, *self.args)
            self.n_evaluations += len(x)
        if value is None or np.size(value) != 1:
            raise ArgumentError(
                "fun", "one number", repr(value), "if it returns its gradient as well, try jac=True"
            )
        g = np.array(slope, dtype=np.float64).ravel()
        if g.shape != x.shape:
            raise ArgumentError("jac", f"{len(x)} numbers, one per variable", f"shape {np.shape(slope)}")
        return float(np.asarray(value).item()), torch.from_numpy(g)


def _stopper(callback: Callable[..., Any] | None) -> Callable[[torch.Tensor, float], bool] | None:
    """SciPy's two forms of callback, callback(x) and callback(intermediate_result=…); StopIteration stops."""
    if callback is None:
        return None
    by_name = set(inspect.signature(callback).parameters) == {"intermediate_result"}

    def stop(x: torch.Tensor, f: float) -> bool:
        try:
            if by_name:
                callback(intermediate_result=scipy.optimize.OptimizeResult(x=x.numpy().copy(), fun=f))
            else:
                callback(x.numpy().copy())
        except StopIteration:
            return True
        return False

    return stop

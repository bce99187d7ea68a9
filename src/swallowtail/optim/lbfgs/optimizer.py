"""GivensLBFGS: L-BFGS that learns its H₀."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from swallowtail import checks
from swallowtail.errors import ArgumentError
from swallowtail.operators.symmetric import SymmetricOperator
from swallowtail.optim.base import (
    Closure,
    GivensOptimizer,
    check_number,
    check_same_in_all_groups,
    loss_of,
)
from swallowtail.optim.flat import FlatParameters
from swallowtail.optim.gradients import warn_skipped
from swallowtail.optim.lbfgs.iteration import Point, minimize
from swallowtail.optim.lbfgs.memory import Memory, initial_inverse, new_memory
from swallowtail.optim.lbfgs.settings import Settings, check_learning


class GivensLBFGS(GivensOptimizer):
    r"""L-BFGS with a rotated-diagonal initial inverse Hessian: the default for deterministic problems.

    .. math::
        u_{t+1} = u_t - \beta_t H_t g_t, \qquad H_t = \text{L-BFGS}(s, y; H_0), \qquad H_0 = γ Q D^{-1} Q^T

    A sample (s, y) is a step and the change of the gradient that it caused. Plain L-BFGS takes H₀ = γI. Here Q is a
    butterfly of Givens rotations, refitted every ``refresh`` samples by one closed-form Jacobi pass over the stored
    changes y. In that basis D_i = √(E y_i² / E s_i²). The learned H₀ is used only while it has been turning the
    changes towards the steps that caused them: a moving average of log cos(Py, s) − log cos(y, s), P = QD⁻¹Qᵀ, is
    above a limit that rises from 0.1 to 0.2. So a problem that it does not suit costs about what L-BFGS costs. β comes
    from a strong Wolfe line search.

    The closure clears the gradients, computes the loss, calls ``backward`` and returns the loss. All groups make
    one vector and must agree on their options. Under DistributedDataParallel gradients are averaged but
    losses are not. Return the mean over the processes; else their line searches take different steps.

    Args:
        params: parameters or groups.
        lr: the first step length a line search tries; the step length itself without one.
        max_iter: iterations per call of `step`.
        max_eval: closure calls per call of `step`; max_iter · 5 / 4 by default.
        tolerance_grad: stop when no gradient entry is larger.
        tolerance_change: stop when neither a parameter nor the loss changed by more.
        history_size: samples kept.
        line_search_fn: "strong_wolfe", or None for steps of length ``lr``.
        preconditioner: "rotated"; "diagonal" (Q = I), "random" (a fixed random Q) and "none" (γI) are for
            comparison.
        refresh: samples between two fits of Q and D.
        damping: the share of their mean that is added to the moments E y_i² and E s_i².
        gate_decay: of the moving average above.
        maximize: climb instead.

    >>> u = torch.nn.Parameter(torch.tensor([-1.2, 1.0]))
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = (1 - u[0]) ** 2 + 100 * (u[1] - u[0] ** 2) ** 2
    ...     loss.backward()
    ...     return loss
    >>> optimizer = GivensLBFGS([u], max_iter=100)
    >>> _ = optimizer.step(closure)
    >>> torch.allclose(u, torch.ones(2), atol=1e-3)
    True
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1.0,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 10,
        line_search_fn: str | None = "strong_wolfe",
        *,
        preconditioner: str = "rotated",
        refresh: int = 1,
        damping: float = 0.03,
        gate_decay: float = 0.9,
        maximize: bool = False,
    ) -> None:
        defaults = {
            "lr": lr, "max_iter": max_iter, "max_eval": max_eval, "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change, "history_size": history_size, "line_search_fn": line_search_fn,
            "preconditioner": preconditioner, "refresh": refresh, "damping": damping, "gate_decay": gate_decay,
            "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _check_group(self, group: dict[str, Any]) -> None:
        check_number("lr", group["lr"], at_least=0)
        for name in ("max_iter", "history_size"):
            checks.integer(name, group[name], at_least=1)
        if group["max_eval"] is not None:
            checks.integer("max_eval", group["max_eval"], at_least=1)
        for name in ("tolerance_grad", "tolerance_change"):
            check_number(name, group[name], at_least=0)
        check_learning(
            **{name: group[name] for name in ("preconditioner", "refresh", "damping", "gate_decay")}
        )
        if group["line_search_fn"] not in ("strong_wolfe", None):
            raise ArgumentError("line_search_fn", "'strong_wolfe' or None", repr(group["line_search_fn"]))
        checks.flag("maximize", group["maximize"])

    def _check_together(self, group: dict[str, Any], first: dict[str, Any]) -> None:
        for name in filter(group.__contains__, self.defaults):  # torch adds defaults of its own
            check_same_in_all_groups(name, group, first, "which make one vector")

    @torch.no_grad()
    def step(self, closure: Closure | None = None) -> Any:
        """Take up to ``max_iter`` iterations and return the loss at the start, as torch.optim.LBFGS does."""
        self._check_changes()
        evaluate = loss_of(closure, "its line search evaluates the loss at several points")
        group = self.param_groups[0]
        negate = group["maximize"]
        flat = FlatParameters(p for each in self.param_groups for p in each["params"])

        first_loss = evaluate()
        start = Point(flat.values(), _signed(first_loss, negate), flat.gradient(negate=negate))
        if not math.isfinite(start.f) or not bool(torch.isfinite(start.gradient).all()):
            warn_skipped("the closure gave a loss or gradient that is NaN or infinite")
            return first_loss

        def at(point: Tensor) -> tuple[float, Tensor]:
            flat.assign(point)
            return _signed(evaluate(), negate), flat.gradient(negate=negate)

        outcome = minimize(at, start, self._memory(flat), _settings(group))
        flat.assign(outcome.end.x)
        return first_loss

    @property
    def initial_inverse_hessian(self) -> SymmetricOperator:
        """H₀ = γ Q D⁻¹ Qᵀ as it is now, over all parameters in their order; γI while the gate is shut."""
        flat = FlatParameters(p for each in self.param_groups for p in each["params"])
        return initial_inverse(self._memory(flat))

    def _memory(self, flat: FlatParameters) -> Memory:
        """The state, kept under the first parameter; begun anew when groups were added."""
        state, size = self.state[flat.params[0]], self.param_groups[0]["history_size"]
        shapes = [p.numel() for p in flat.params]
        if state and state["shapes"].tolist() != shapes[: len(state["shapes"])]:
            raise ArgumentError(
                "parameters", f"the sizes of the last step, {state['shapes'].tolist()}", shapes,
                "try a new optimizer when shapes change",
            )  # fmt: skip
        if not state or state["steps"].shape != (size, flat.n):
            state.update(new_memory(flat.values(), size))
            state["shapes"] = torch.tensor(shapes)
        return state


def _signed(loss: Tensor, negate: bool) -> float:
    return -float(loss) if negate else float(loss)


def _settings(group: dict[str, Any]) -> Settings:
    limit = group["max_eval"]
    return Settings(
        lr=float(group["lr"]),
        max_iter=group["max_iter"],
        max_eval=group["max_iter"] * 5 // 4 if limit is None else limit,
        tolerance_grad=group["tolerance_grad"],
        tolerance_change=group["tolerance_change"],
        history_size=group["history_size"],
        line_search=group["line_search_fn"] is not None,
        preconditioner=group["preconditioner"],
        refresh=group["refresh"],
        damping=group["damping"],
        gate_decay=group["gate_decay"],
    )

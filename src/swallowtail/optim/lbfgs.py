"""GivensLBFGS: L-BFGS that learns its H₀."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from swallowtail import checks
from swallowtail.operators.symmetric import SymmetricOperator
from swallowtail.optim.base import Closure, FlatParameters, GivensOptimizer, loss_of, number, warn_skipped
from swallowtail.optim.quasi_newton import PRECONDITIONERS, Settings, initial_inverse, minimize, new_memory


class GivensLBFGS(GivensOptimizer):
    r"""L-BFGS with a rotated-diagonal initial inverse Hessian: the default for deterministic problems.

    .. math::
        u_{t+1} = u_t - \beta_t H_t g_t, \qquad H_t = \text{L-BFGS}(s, y; H_0), \qquad H_0 = γ Q D^{-1} Q^T

    Plain L-BFGS takes H₀ = γI. Here Q is a butterfly of Givens rotations, refitted every ``refresh`` pairs by
    one closed-form Jacobi pass over the stored changes y of the gradient, and in that basis
    D_i = √(E y_i² / E s_i²). It is used only while it has been turning the changes towards the steps that
    caused them (a moving average of log cos(Py, s) − log cos(y, s) is above 0.05), so a problem it does not suit
    costs about what L-BFGS costs. β comes from a strong Wolfe line search.

    The closure clears the gradients, computes the loss, calls ``backward`` and returns the loss. All groups make
    one vector and must agree on their options. Under DistributedDataParallel gradients are averaged but
    losses are not: return the mean over the processes, or line searches part ways.

    Args:
        params: parameters or groups.
        lr: the first step length a line search tries; the step length itself without one.
        max_iter: iterations a call of `step`.
        max_eval: closure calls a call of `step`; max_iter · 5 / 4 by default.
        tolerance_grad: stop when no gradient entry is larger.
        tolerance_change: stop when neither a parameter nor the loss changed by more.
        history_size: pairs kept.
        line_search_fn: "strong_wolfe", or None for steps of length ``lr``.
        preconditioner: "rotated"; "diagonal" (Q = I), "random" (a fixed random Q) and "none" (γI) for
            comparison.
        refresh: pairs between two fits of Q and D.
        damping: the share of the mean added to the moments D is made of.
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
        number("lr", group["lr"], at_least=0)
        for name in ("max_iter", "history_size", "refresh"):
            checks.integer(name, group[name], at_least=1)
        if group["max_eval"] is not None:
            checks.integer("max_eval", group["max_eval"], at_least=1)
        for name in ("tolerance_grad", "tolerance_change"):
            number(name, group[name], at_least=0)
        number("damping", group["damping"], above=0)
        number("gate_decay", group["gate_decay"], at_least=0, below=1)
        checks.choice("preconditioner", group["preconditioner"], PRECONDITIONERS)
        if group["line_search_fn"] not in ("strong_wolfe", None):
            raise ValueError(
                f"line_search_fn: expected 'strong_wolfe' or None, got {group['line_search_fn']!r}"
            )
        first = self.param_groups[0]
        for name, value in group.items():
            if name in self.defaults and value != first[name]:
                raise ValueError(
                    f"{name}: expected the same in all groups, which make one vector here, got {first[name]!r} and "
                    f"{value!r}; try it as an argument of GivensLBFGS"
                )

    @torch.no_grad()
    def step(self, closure: Closure | None = None) -> Any:
        """Take up to ``max_iter`` iterations and return the loss at the start, as torch.optim.LBFGS does."""
        evaluate = loss_of(closure, "its line search evaluates the loss at several points")
        group = self.param_groups[0]
        sign = -1.0 if group["maximize"] else 1.0
        flat = FlatParameters(p for each in self.param_groups for p in each["params"])

        first_loss = evaluate()
        x, f, gradient = flat.values(), sign * float(first_loss), flat.gradient(sign)
        if not math.isfinite(f) or not bool(torch.isfinite(gradient).all()):
            warn_skipped("the closure gave a loss or gradient that is NaN or infinite")
            return first_loss

        def at(point: Tensor) -> tuple[float, Tensor]:
            flat.assign(point)
            return sign * float(evaluate()), flat.gradient(sign)

        outcome = minimize(at, x, f, gradient, self._memory(flat), _settings(group))
        flat.assign(outcome.x)
        return first_loss

    @property
    def initial_inverse_hessian(self) -> SymmetricOperator:
        """H₀ = γ Q D⁻¹ Qᵀ as it is now, over all parameters in their order; γI while the gate is shut."""
        flat = FlatParameters(p for each in self.param_groups for p in each["params"])
        return initial_inverse(self._memory(flat))

    def _memory(self, flat: FlatParameters) -> dict[str, Tensor]:
        """The state, kept under the first parameter; begun anew when groups were added."""
        state, size = self.state[flat.params[0]], self.param_groups[0]["history_size"]
        if state and state["shapes"].tolist() != [p.numel() for p in flat.params[: len(state["shapes"])]]:
            raise ValueError(
                f"parameters: expected the sizes of the last step, {state['shapes'].tolist()}, "
                f"got {[p.numel() for p in flat.params]}; try a new optimizer when shapes change"
            )
        if not state or state["steps"].shape != (size, flat.n):
            state.update(new_memory(flat.values(), size))
            state["shapes"] = torch.tensor([p.numel() for p in flat.params])
        return state


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

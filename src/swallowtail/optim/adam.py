"""GivensAdam: Adam in a rotated basis per tensor."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from swallowtail import _checks
from swallowtail.optim._base import (
    Closure,
    GivensOptimizer,
    all_finite,
    dense_gradient,
    loss_of,
    number,
    warn_skipped,
)
from swallowtail.optim._two_sided import (
    Q_KINDS,
    SIDES,
    Bases,
    State,
    carry_over,
    kind_of,
    matrix_shape,
    new_side,
    observe,
    refit,
    stacked,
    stands_alone,
)


class GivensAdam(GivensOptimizer):
    r"""Adam in a two-sided Givens basis: the default for stochastic problems.

    Every matrix-shaped gradient G is looked at in the basis Z = Q_Lᵀ G Q_R, where its entries are less
    correlated, and Adam runs there:

    .. math::
        m ← β_1 m + (1 - β_1) Z, \quad v ← β_2 v + (1 - β_2) Z^2, \quad
        W ← (1 - ηλ) W - η\, Q_L \frac{m / (1 - β_1^t)}{\sqrt{v / (1 - β_2^t)} + ε} Q_R^T

    SOAP does this with the eigenvectors of E[GGᵀ] and E[GᵀG], at O(m³) a refresh and m² numbers a side. Here Q_L
    and Q_R are products of Givens rotations, fitted in closed form every ``refresh`` steps. On wide layers and on
    GPUs they are butterflies fitted to a sketch of recent gradients: O(m lg m) numbers a side, and a step is
    four passes of rotations over the matrix. On narrow sides pairs are chosen from the covariance, which comes
    nearer to the eigenvectors.

    Convolution kernels are matrices (out, everything else); scalars, vectors and sides longer than
    ``max_side`` (embeddings) stay in their own basis. State is float32 for half-precision parameters.

    Args:
        params: parameters or groups.
        lr: η.
        betas: β₁, β₂.
        eps: ε.
        weight_decay: λ, decoupled.
        wiring: "pairs" are chosen from the data; "butterfly" has fixed ones and costs less on wide layers and
            on GPUs; "auto" takes pairs up to sides of 128 on CPUs, and butterflies elsewhere. "random" (a fixed
            random Q) and "identity" (Adam) for comparison.
        depth: rotations a side, in units of n ⌈lg n⌉ / 2; None takes 4 for pairs and 2 for butterflies.
        refresh: steps between two fits; the first step fits as well.
        statistics: "sketch" keeps ``sketch_columns`` columns and rows of each of the last ``sketch_steps``
            gradients; "covariance" keeps moving averages of GGᵀ and GᵀG with ``statistics_decay``; "auto" takes
            covariances for pairs and sketches for butterflies.
        max_side: longer sides are not rotated.
        maximize: climb instead.
        foreach: update tensors of one shape together; None does so.

    >>> model = torch.nn.Linear(8, 4)
    >>> optimizer = GivensAdam(model.parameters(), lr=1e-2)
    >>> model(torch.ones(1, 8)).square().sum().backward()
    >>> optimizer.step()
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 3e-3,
        betas: tuple[float, float] = (0.9, 0.99),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        wiring: str = "auto",
        depth: int | None = None,
        refresh: int = 10,
        statistics: str = "auto",
        sketch_columns: int = 16,
        sketch_steps: int = 20,
        statistics_decay: float = 0.95,
        max_side: int = 8192,
        maximize: bool = False,
        foreach: bool | None = None,
    ) -> None:
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "wiring": wiring, "depth": depth,
            "refresh": refresh, "statistics": statistics, "sketch_columns": sketch_columns,
            "sketch_steps": sketch_steps, "statistics_decay": statistics_decay, "max_side": max_side,
            "maximize": maximize, "foreach": foreach,
        }  # fmt: skip
        self._bases: dict[tuple[int, ...], Bases] = {}
        super().__init__(params, defaults)

    def _check_group(self, group: dict[str, Any]) -> None:
        number("lr", group["lr"], at_least=0)
        if not isinstance(group["betas"], (tuple, list)) or len(group["betas"]) != 2:
            raise ValueError(f"betas: expected two numbers, got {group['betas']!r}; try (0.9, 0.99)")
        for index, beta in enumerate(group["betas"]):
            number(f"betas[{index}]", beta, at_least=0, below=1)
        number("eps", group["eps"], at_least=0)
        number("weight_decay", group["weight_decay"], at_least=0)
        number("statistics_decay", group["statistics_decay"], at_least=0, below=1)
        if group["depth"] is not None:
            _checks.integer("depth", group["depth"], at_least=1)
        for name in ("refresh", "sketch_columns", "sketch_steps"):
            _checks.integer(name, group[name], at_least=1)
        _checks.integer("max_side", group["max_side"], at_least=0)
        _checks.choice("wiring", group["wiring"], Q_KINDS)
        _checks.choice("statistics", group["statistics"], ("auto", "sketch", "covariance"))

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._bases = {}  # derived from the state, and not copied with it

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As `GivensOptimizer.load_state_dict`; the bases are built anew from what was loaded."""
        super().load_state_dict(state_dict)
        self._bases.clear()

    @torch.no_grad()
    def step(self, closure: Closure | None = None) -> Any:
        """Take one step; with a closure, evaluate it first and return its loss."""
        loss = None if closure is None else loss_of(closure, "")()
        active = [[p for p in g["params"] if p.grad is not None and p.numel()] for g in self.param_groups]
        if not all_finite([dense_gradient(p) for params in active for p in params]):
            warn_skipped("some gradient is NaN, infinite, or so large that its square overflows")
            return loss
        new: list[tuple[Tensor, Tensor]] = []
        for group, params in zip(self.param_groups, active, strict=True):
            for stack in self._stacks(group, params):
                new += zip(stack, self._updated(group, stack), strict=True)
        if not all_finite([value for _, value in new]):
            warn_skipped("some parameter would become NaN or infinite")
            return loss
        torch._foreach_copy_([p for p, _ in new], [value for _, value in new])
        return loss

    def _stacks(self, group: dict[str, Any], params: list[Tensor]) -> Iterable[list[Tensor]]:
        """Parameters to be updated together: as many steps behind them and, if matrices, one shape and wiring."""
        stacks: dict[Any, list[Tensor]] = defaultdict(list)
        for p in params:
            state = self.state[p]
            if not state:
                self._new_state(group, p)
            elif state["exp_avg"].numel() != p.numel():
                raise ValueError(
                    f"parameter: expected {state['exp_avg'].numel()} entries as in the last step, got shape "
                    f"{tuple(p.shape)}; try a new optimizer when shapes change"
                )
            shape, moments = matrix_shape(p.shape), state["exp_avg"]
            alone = group["foreach"] is False or (shape is not None and stands_alone(state))
            together = (shape, p.device, moments.dtype, float(state["step"]))
            stacks[id(p) if alone else together].append(p)
        return stacks.values()

    def _new_state(self, group: dict[str, Any], p: Tensor) -> None:
        dtype = torch.promote_types(p.dtype, torch.float32)
        like = torch.zeros((), dtype=dtype, device=p.device)
        state, shape = self.state[p], matrix_shape(p.shape)
        state["step"] = torch.zeros((), dtype=torch.float32)
        layout = tuple(p.shape) if shape is None else shape[::-1]
        state["exp_avg"], state["exp_avg_sq"] = like.new_zeros(layout), like.new_zeros(layout)
        for side, n, other in zip(SIDES, shape or (), (shape or ())[::-1], strict=False):
            kind = kind_of(group["wiring"], n, group["max_side"], p.device)
            state.update(new_side(side, n, kind, other, group, like))

    def _updated(self, group: dict[str, Any], stack: list[Tensor]) -> list[Tensor]:
        """What the parameters of a stack become, shaped as they are; their state moves on."""
        states: list[State] = [self.state[p] for p in stack]
        for state in states:
            state["step"] += 1
        t, sizes = int(states[0]["step"]), matrix_shape(stack[0].shape)
        first, second = ([s[name] for s in states] for name in ("exp_avg", "exp_avg_sq"))
        dtype = first[0].dtype
        gradients = [p.grad.to(dtype) for p in stack if p.grad is not None]
        if group["maximize"]:
            gradients = [-g for g in gradients]
        beta1, beta2 = (float(beta) for beta in group["betas"])
        how = {"t": t, "beta1": beta1, "beta2": beta2, "eps": group["eps"]}
        lr = float(group["lr"])
        kept = 1 - lr * group["weight_decay"]
        if sizes is None:
            update = adam(gradients, first, second, **how)
        else:
            G = stacked([g.reshape(sizes) for g in gradients])
            observe(states, G, t, group)
            if t == 1 or t % group["refresh"] == 0:
                self._refit(group, stack, states, sizes)
            bases = self._bases_of(group, stack, states, sizes)
            if bases.fused is not None:
                (p,) = stack
                W = p.detach().reshape(sizes).contiguous()
                new = bases.fused.step(G[0].contiguous(), W, first[0], second[0], lr=lr, kept=kept, **how)
                return [new.reshape(p.shape)]
            update = adam(list(bases.into(G).unbind()), first, second, **how)
            update = list(bases.back(stacked(update)).unbind())
        return [
            torch.add(p.to(dtype) * kept, u.reshape(p.shape), alpha=-lr).to(p.dtype)
            for p, u in zip(stack, update, strict=True)
        ]

    def _refit(
        self, group: dict[str, Any], stack: list[Tensor], states: list[State], sizes: tuple[int, int]
    ) -> None:
        """New bases; the moments are carried over."""
        old = self._bases_of(group, stack, states, sizes) if int(states[0]["step"]) > 1 else None
        refit(states, sizes, group)
        changed = set(map(id, stack))  # also where these tensors were stacked with others
        self._bases = {key: kept for key, kept in self._bases.items() if changed.isdisjoint(key)}
        if old is not None:
            carry_over(old, self._bases_of(group, stack, states, sizes), states)

    def _bases_of(
        self, group: dict[str, Any], stack: list[Tensor], states: list[State], sizes: tuple[int, int]
    ) -> Bases:
        key = tuple(map(id, stack))
        if key not in self._bases:
            self._bases[key] = Bases(states, sizes, group["depth"])
        return self._bases[key]


def adam(
    gradients: list[Tensor],
    exp_avgs: list[Tensor],
    exp_avg_sqs: list[Tensor],
    *,
    t: int,
    beta1: float,
    beta2: float,
    eps: float,
) -> list[Tensor]:
    """Adam's direction m̂ / (√v̂ + ε) after moving m and v on in place; all tensors at once."""
    torch._foreach_lerp_(exp_avgs, gradients, 1 - beta1)
    torch._foreach_mul_(exp_avg_sqs, beta2)
    torch._foreach_addcmul_(exp_avg_sqs, gradients, gradients, 1 - beta2)
    # m/(1 − β₁ᵗ) / (√(v/(1 − β₂ᵗ)) + ε), with the corrections taken out as numbers
    root = (1 - beta2**t) ** 0.5
    below = torch._foreach_sqrt(exp_avg_sqs)
    torch._foreach_add_(below, eps * root)
    update = torch._foreach_div(exp_avgs, below)
    torch._foreach_mul_(update, root / (1 - beta1**t))
    return list(update)

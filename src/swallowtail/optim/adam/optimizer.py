"""GivensAdam: Adam in a rotated basis per tensor."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from swallowtail import checks
from swallowtail.kernels import select_backend
from swallowtail.optim.adam.ahead import Ahead, UnderWay
from swallowtail.optim.adam.bases import Q_KINDS, has_pairs, kind_of, matrix_shape, new_side, stands_alone
from swallowtail.optim.adam.replay import Replay
from swallowtail.optim.adam.state import SIDES, Stack, State
from swallowtail.optim.adam.step import Updates
from swallowtail.optim.base import (
    BAD_GRADIENT,
    BAD_PARAMETER,
    Closure,
    GivensOptimizer,
    dense_gradient,
    largest_norm,
    loss_of,
    norm_limit,
    number,
    warn_skipped,
)

# Entries. A recording keeps a copy of the parameters and what a step needs for as long as it lives; with more of them
# the work outweighs the launches anyway.
RECORDED_UP_TO = 1 << 28


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
        lr: η; a tensor on a GPU makes every step wait for it.
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
        self._forget()
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
            checks.integer("depth", group["depth"], at_least=1)
        for name in ("refresh", "sketch_columns", "sketch_steps"):
            checks.integer(name, group[name], at_least=1)
        checks.integer("max_side", group["max_side"], at_least=0)
        checks.choice("wiring", group["wiring"], Q_KINDS)
        checks.choice("statistics", group["statistics"], ("auto", "sketch", "covariance"))

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._forget()

    def __getstate__(self) -> dict[str, Any]:
        self._under_way.settle()
        return super().__getstate__()

    def state_dict(self) -> dict[str, Any]:
        """As `Optimizer.state_dict`, after waiting for steps that are under way."""
        self._under_way.settle()
        return super().state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As `GivensOptimizer.load_state_dict`; the bases are built anew from what was loaded."""
        self._under_way.settle()
        super().load_state_dict(state_dict)
        self._forget()

    def _forget(self) -> None:
        """Drop what is derived from the state, and not copied with it."""
        self._replay = Replay()
        self._updates = Updates(on_replacement=self._replay.clear)
        self._under_way = UnderWay()
        # Of the last step that was launched ahead: where its tensors lie, and its stacks.
        self._last: tuple[Hashable, list[Stack]] = (None, [])

    @torch.no_grad()
    def step(self, closure: Closure | None = None) -> Any:
        """Take one step; with a closure, evaluate it first and return its loss.

        On a GPU the step is only launched. Should its gradients turn out not to be usable, nothing changes, and the
        warning comes with the next step or `state_dict`.
        """
        loss = None if closure is None else loss_of(closure, "")()
        active = [[p for p in g["params"] if p.grad is not None and p.numel()] for g in self.param_groups]
        params = [p for part in active for p in part]
        gradients = [dense_gradient(p) for p in params]
        if not params:
            return loss
        places = self._places(params)
        if places is None:
            self._under_way.settle()
            self._last = (None, [])
            self._step_now(active, gradients)
            return loss
        device = params[0].device
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            self._step_ahead(active, gradients, places)
        return loss

    def _step_now(self, active: list[list[Tensor]], gradients: list[Tensor]) -> None:
        if not _usable(gradients):
            return
        stacks = self._stacks(active)
        for stack in stacks:
            stack.count()
            moments = stack.states[0]["exp_avg"]
            if select_backend(moments) == "gpu":
                row = torch.tensor([*stack.numbers[:7], 1], dtype=torch.float64, device=moments.device)
                stack.numbers = stack.numbers._replace(row=row)
        new = self._updates.all(stacks)
        for state in _states(stacks):
            state["step"] += 1
        if float(largest_norm(new)) < norm_limit(new):
            torch._foreach_copy_(_params(stacks), new)
        else:
            warn_skipped(BAD_PARAMETER)

    def _step_ahead(self, active: list[list[Tensor]], gradients: list[Tensor], places: Hashable) -> None:
        """Launch a step, then see what came of the last one; see `_ahead`."""
        if places != self._last[0]:
            self._under_way.settle()
            self._last = (places, self._stacks(active))
        stacks = self._last[1]
        for stack in stacks:
            stack.count()
        if any(stack.refit for stack in stacks):
            # Counters decide on this, so they must be right; and kernels that fit do not look at the gradients.
            self._under_way.settle()
            if not _usable(gradients):
                return
            for stack in stacks:
                stack.count()
        ahead = self._under_way.ahead(len(stacks), gradients[0].device)
        ahead.send(stacks)
        if sum(map(torch.numel, gradients)) > RECORDED_UP_TO:
            self._launched(stacks, gradients, ahead)
        else:
            key = (places, id(ahead), *(stack.constants for stack in stacks))
            self._replay(key, lambda: self._launched(stacks, gradients, ahead))
        torch.autograd.graph.increment_version(_params(stacks))  # replaying does not
        self._under_way.add(ahead, _states(stacks))

    def _launched(self, stacks: list[Stack], gradients: list[Tensor], ahead: Ahead) -> None:
        """A whole step on the device, which only it knows to be taken."""
        usable = largest_norm(gradients) < norm_limit(gradients)
        for stack, row in zip(stacks, ahead.rows(usable), strict=True):
            stack.numbers = stack.numbers._replace(row=row)
        new = self._updates.all(stacks)
        taken = usable & (largest_norm(new) < norm_limit(new))
        for p, value in zip(_params(stacks), new, strict=True):
            torch.where(taken, value, p, out=p.detach())
        ahead.report(usable, taken)

    def _places(self, params: list[Tensor]) -> Hashable | None:
        """Where the tensors lie that a step reads; None where it cannot be launched without waiting."""
        places: list[Hashable] = []
        for p in params:
            state = self.state.get(p)
            # A first step is like no other, and pairs are chosen on the CPU.
            if not state or not p.is_cuda or p.device != params[0].device or has_pairs(state):
                return None
            g = dense_gradient(p)
            kept = (value.data_ptr() for value in state.values())
            places.append((p.data_ptr(), p.stride(), g.data_ptr(), g.dtype, g.stride(), *kept))
        return tuple(places) if select_backend(params[0]) == "gpu" else None

    def _stacks(self, active: list[list[Tensor]]) -> list[Stack]:
        """Parameters to be updated together: as many steps behind them and, if matrices, one shape and wiring."""
        stacks: dict[Any, Stack] = {}
        for index, (group, params) in enumerate(zip(self.param_groups, active, strict=True)):
            for p in params:
                state, sizes = self.state[p], matrix_shape(p.shape)
                if not state:
                    self._new_state(group, p)
                elif state["exp_avg"].numel() != p.numel():
                    raise ValueError(
                        f"parameter: expected {state['exp_avg'].numel()} entries as in the last step, got shape "
                        f"{tuple(p.shape)}; try a new optimizer when shapes change"
                    )
                alone = group["foreach"] is False or (sizes is not None and stands_alone(state))
                together = (index, sizes, p.device, state["exp_avg"].dtype, float(state["step"]))
                stack = stacks.setdefault(id(p) if alone else together, Stack(group, sizes))
                stack.params.append(p)
                stack.states.append(state)
        return list(stacks.values())

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


def _usable(gradients: list[Tensor]) -> bool:
    """Whether a step can be taken with them; a warning if not."""
    if float(largest_norm(gradients)) < norm_limit(gradients):
        return True
    warn_skipped(BAD_GRADIENT)
    return False


def _params(stacks: list[Stack]) -> list[Tensor]:
    return [p for stack in stacks for p in stack.params]


def _states(stacks: list[Stack]) -> list[State]:
    return [state for stack in stacks for state in stack.states]

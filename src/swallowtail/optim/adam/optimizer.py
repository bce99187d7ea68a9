"""GivensAdam: Adam in a rotated basis per tensor."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from swallowtail import checks
from swallowtail.errors import ArgumentError
from swallowtail.optim.adam.ahead import KnownPlaces, StepsAhead
from swallowtail.optim.adam.bases import KeptBases, stands_alone
from swallowtail.optim.adam.fit import WIRINGS, kind_of, matrix_shape, new_side, turns
from swallowtail.optim.adam.gpu import gpu_for
from swallowtail.optim.adam.sharded import Shards, all_agree, any_sharded, is_sharded, keep_state, local_state
from swallowtail.optim.adam.small import SmallStep
from swallowtail.optim.adam.state import SIDES, Stack, is_grouped
from swallowtail.optim.adam.statistics import STATISTICS
from swallowtail.optim.adam.step import step_now
from swallowtail.optim.base import Closure, GivensOptimizer, check_number, loss_of
from swallowtail.optim.gradients import (
    BAD_GRADIENT,
    dense_gradient,
    largest_norm,
    norm_limit,
    usable,
    warn_skipped,
)


class GivensAdam(GivensOptimizer):
    """Adam in a two-sided Givens basis: the default for stochastic problems.

    Every matrix-shaped gradient G is looked at in the basis Z = Q_Lᵀ G Q_R, where its entries are less
    correlated, and Adam runs there::

        m ← β₁ m + (1 − β₁) Z        v ← β₂ v + (1 − β₂) Z²
        u = m/(1 − β₁ᵗ) / (√(v/(1 − β₂ᵗ)) + ε)
        W ← (1 − ηλ) W − 2η Q_L [(1 + 6 min(|u|, 1)⁸) u] Q_Rᵀ

    SOAP does this with the eigenvectors of E[GGᵀ] and E[GᵀG]. They cost O(m³) per refresh and m² numbers per side.
    Here a side is cut into groups of at most 128 neighbouring coordinates. Each group has a dense rotation, a product
    of Givens rotations written out, which follows the eigenvectors of its own second moments. A side of up to 128
    coordinates has all eigenvectors, as in SOAP. A longer one costs O(m) numbers, and products that tensor cores do.

    The first ``refresh`` − 1 steps are Adam's own. After that no entry u is larger than Adam's can be. Where gradients
    agree from step to step, |u| is near 1 and the entry goes up to seven times as far. The factor 6 is warmed in, as m
    is.

    Convolution kernels are matrices (out, everything else). Scalars, vectors and sides longer than
    ``max_side`` (embeddings) stay in their own basis. State is float32 for half-precision parameters.

    **Tuning the learning rate.** Take Adam's. Bases allow for larger steps, so matrices move by 2η in them; with that,
    Adam's best rate was close to the best rate here, on language models and on small networks. So:

    1. Start from Adam's rate, with the schedule and the number of steps you mean to use.
    2. Try twice that rate, and half of it. Keep the rest as it is; ``weight_decay`` is multiplied by η, as in AdamW.

    A rate that is too small costs less than with Adam, thanks to the entries that go further. On networks that want
    0.01, the loss at torch's default of 1e-3 and at 3e-4 was lower than Adam's after 250 steps and after 1000. A rate
    that is too large costs more than with Adam: on one network 1.4 times the best rate was a little behind Adam. If the
    loss jumps, halve the rate.

    ``wiring="identity"`` is Adam with the same arguments, for comparison.

    Args:
        params: parameters or groups.
        lr: η; see above. A tensor on a GPU makes every step wait for it.
        betas: β₁, β₂.
        eps: ε.
        weight_decay: λ, decoupled.
        wiring: "auto" and "grouped" are as above; a side that has no divisor from 16 to 128 (a long prime) gets a
            butterfly. "butterfly" has angles fitted to a sketch of recent gradients, O(m lg m) numbers per side.
            "pairs" are chosen from the covariance, on the CPU. "random" (a fixed random Q) and "identity" (Adam)
            are for comparison.
        depth: rotations per side of butterflies and pairs, in units of n ⌈lg n⌉ / 2; None takes 4 for pairs and 2 for
            butterflies.
        refresh: steps between two fits of a matrix. On a CPU matrices take turns, so that no step has many fits.
        statistics: of butterflies and pairs. "sketch" keeps ``sketch_columns`` columns and rows of each of the last
            ``sketch_steps`` gradients. "covariance" keeps moving averages of GGᵀ and GᵀG. "auto" takes covariances for
            pairs and sketches for butterflies.
        statistics_decay: of moving averages of moments.
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
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.99),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        wiring: str = "auto",
        depth: int | None = None,
        refresh: int = 5,
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
        self._drop_derived()
        super().__init__(params, defaults)

    def _check_group(self, group: dict[str, Any]) -> None:
        check_number("lr", group["lr"], at_least=0)
        if not isinstance(group["betas"], (tuple, list)) or len(group["betas"]) != 2:
            raise ArgumentError("betas", "two numbers", repr(group["betas"]), "try (0.9, 0.99)")
        for index, beta in enumerate(group["betas"]):
            check_number(f"betas[{index}]", beta, at_least=0, below=1)
        check_number("eps", group["eps"], at_least=0)
        check_number("weight_decay", group["weight_decay"], at_least=0)
        check_number("statistics_decay", group["statistics_decay"], at_least=0, below=1)
        if group["depth"] is not None:
            checks.integer("depth", group["depth"], at_least=1)
        for name in ("refresh", "sketch_columns", "sketch_steps"):
            checks.integer(name, group[name], at_least=1)
        checks.integer("max_side", group["max_side"], at_least=0)
        checks.choice("wiring", group["wiring"], WIRINGS)
        checks.choice("statistics", group["statistics"], STATISTICS)
        checks.flag("maximize", group["maximize"])
        if group["foreach"] is not None:
            checks.flag("foreach", group["foreach"])

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._drop_derived()

    def __getstate__(self) -> dict[str, Any]:
        self._ahead.settle()
        return super().__getstate__()

    def state_dict(self) -> dict[str, Any]:
        """As `Optimizer.state_dict`, after waiting for steps that are under way."""
        self._ahead.settle()
        return super().state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As `GivensOptimizer.load_state_dict`; the bases are built anew from what was loaded."""
        self._ahead.settle()
        super().load_state_dict(state_dict)
        self._drop_derived()

    def _drop_derived(self) -> None:
        """Begin anew with what is derived from the state: it is not saved or copied with it."""
        self._ahead = StepsAhead()
        self._bases = KeptBases(on_replacement=self._ahead.replay.clear)
        self._known_places = KnownPlaces()
        self._shards: dict[Tensor, Shards] = {}
        self._small = SmallStep()

    @torch.no_grad()
    def step(self, closure: Closure | None = None) -> Any:
        """Take one step; with a closure, evaluate it first and return its loss.

        On a GPU the step is only launched. Should its gradients turn out not to be usable, nothing changes, and the
        warning comes with the next step or `state_dict`.
        """
        self._check_changes()
        loss = None if closure is None else loss_of(closure)()
        active = [[p for p in g["params"] if p.grad is not None and p.numel()] for g in self.param_groups]
        params = [p for part in active for p in part]
        if not params:
            return loss
        if any_sharded(params):
            self._step_sharded(active)
            return loss
        gradients = [dense_gradient(p) for p in params]
        places = self._places(params, gradients)
        if places is None:
            self._ahead.end()
            self._step_now(active)
            return loss
        device = params[0].device
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            self._ahead.step(gradients, places, lambda: self._stacks(active), self._bases)
        return loss

    def _step_now(self, active: list[list[Tensor]]) -> None:
        """A step that is over when this returns."""
        small = self._small
        small.begin(self.param_groups, active, self.state)
        gradients = [dense_gradient(p) for part in small.rest for p in part]
        if not small.usable():
            warn_skipped(BAD_GRADIENT)
        elif not gradients or usable(gradients):
            stacks = self._stacks(small.rest) if gradients else []
            step_now(stacks, self._bases, small)

    def _step_sharded(self, active: list[list[Tensor]]) -> None:
        """A step where processes hold parts of the parameters. All of them take it, or none does."""
        self._ahead.end()
        shards = {p: self._shards_of(p) for part in active for p in part if is_sharded(p)}
        gradients = {
            p: shards[p].gradient() if p in shards else dense_gradient(p) for part in active for p in part
        }
        local = list(gradients.values())
        if not all_agree(float(largest_norm(local)) < norm_limit(local), shards.values()):
            warn_skipped(BAD_GRADIENT)
            return
        for p, each in shards.items():
            each.begin_step(gradients[p])
        stacks = self._stacks(active)
        step_now(stacks, self._bases)
        for p, each in shards.items():
            each.end_step()
            keep_state(self.state[p], next(s.states[0] for s in stacks if s.shards is each))

    def _shards_of(self, p: Tensor) -> Shards:
        if p not in self._shards:
            self._shards[p] = Shards(p, matrix_shape(p.shape))
        return self._shards[p]

    def _places(self, params: list[Tensor], gradients: list[Tensor]) -> Hashable | None:
        return self._known_places.of(params, gradients, self.state)

    def _stacks(self, active: list[list[Tensor]]) -> list[Stack]:
        """Parameters to be updated together: in the same step and, if matrices, with one shape and wiring."""
        stacks: dict[Any, Stack] = {}
        turn_of = turns(self.param_groups)
        for index, (group, params) in enumerate(zip(self.param_groups, active, strict=True)):
            for p in params:
                state, sizes = self.state[p], matrix_shape(p.shape)
                if not state:
                    self._new_state(group, p)
                elif state["exp_avg"].numel() != p.numel():
                    raise ArgumentError(
                        "parameter", f"{state['exp_avg'].numel()} entries as in the last step",
                        f"shape {tuple(p.shape)}", "try a new optimizer when shapes change",
                    )  # fmt: skip
                shards = self._shards_of(p) if is_sharded(p) else None
                alone = shards is not None or group["foreach"] is False
                alone = alone or (sizes is not None and stands_alone(state))
                # On a GPU one launch fits all. There, and where angles are fitted, all have the same turn.
                spread = is_grouped(state) and p.device.type == "cpu" and gpu_for(state["exp_avg"]) is None
                turn = turn_of[p] % group["refresh"] if spread else 0
                together = (
                    index,
                    sizes,
                    p.device,
                    p.dtype,
                    state["exp_avg"].dtype,
                    float(state["step"]),
                    turn,
                )
                new = Stack(group, sizes, turn=turn, shards=shards)
                stack = stacks.setdefault(id(p) if alone else together, new)
                stack.params.append(p if shards is None else shards.part)
                stack.states.append(state if shards is None else local_state(state))
        return list(stacks.values())

    def _new_state(self, group: dict[str, Any], p: Tensor) -> None:
        dtype = torch.promote_types(p.dtype, torch.float32)
        like = torch.zeros((), dtype=dtype, device=p.device)
        state, sizes = self.state[p], matrix_shape(p.shape)
        state["step"] = torch.zeros((), dtype=torch.float32)
        layout = tuple(p.shape) if sizes is None else sizes[::-1]
        for moment in ("exp_avg", "exp_avg_sq"):
            cut = is_sharded(p)
            state[moment] = self._shards_of(p).zeros(layout, dtype) if cut else like.new_zeros(layout)
        if sizes is None:
            return
        for side in SIDES:
            kind = kind_of(group["wiring"], sizes[side.axis], group["max_side"])
            state.update(new_side(side, kind, sizes, group, like))

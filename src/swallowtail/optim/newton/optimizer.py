"""GivensNewton: the paper's Algorithm 2."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from swallowtail import checks
from swallowtail.operators.symmetric import SymmetricOperator
from swallowtail.optim.base import (
    Closure,
    GivensOptimizer,
    check_number,
    check_same_in_all_groups,
    loss_of,
)
from swallowtail.optim.gradients import BAD_PARAMETER, warn_skipped
from swallowtail.optim.newton.block import Block, both_rates, gradients_at_last_points, probe
from swallowtail.optim.newton.hessian import CRITERIA, as_operator

INVERSES = ("solve", "direct")
GRADIENTS = ("batch", "twice", "reuse")
PROBES = ("steps", "hessian")


class GivensNewton(GivensOptimizer):
    r"""Descend along Ĥ⁻¹g while learning Ĥ = Q D Qᵀ from the steps taken: Algorithm 2 of Mathieu & LeCun (2014).

    From Q = I, D = I, at each step t ≥ 1, with δu = u_t − u_{t−1} and δg = g_t − g_{t−1}:

    .. math::
        ω̃ &← ω̃ - α\, ∂L(ω̃, δu/‖δu‖, δg/‖δu‖)/∂ω̃, \qquad L = ‖Q D Q^T x - y‖^2 \\
        Q &← \text{the nearest rotations}, \quad D_i ← ε \text{ where } D_i < 0 \\
        u_{t+1} &= u_t - β\, Q \max(D, ε)^{-1} Q^T g_t

    The paper prints the last line with Ĥ for Ĥ⁻¹. Its text says Ĥ⁻¹, and that is what descends. Each group
    of parameters is one block with an Ĥ of its own, kept in float64 on the CPU.

    The paper's own algorithm is ``normalized_step=None`` with ``rate`` its α (or one for Q and one for D) and
    everything else by default. A good α is then proportional to 1/‖H‖². L-BFGS needs fewer gradients on every
    problem tried. This class is here to be the paper's method; `GivensLBFGS` and `GivensAdam` are what it leads to.

    Args:
        params: parameters or groups.
        lr: β.
        rate: α, or (α for Q, α for D). With ``normalized_step`` only their ratio counts.
        epsilon: ε.
        inverse: "solve" inverts D; "direct" learns the inverse itself from δu ≈ Ĥ⁻¹ δg, scaled by 1/‖δg‖.
        gradients: where δg comes from. "batch": the gradient of the last step is reused, for losses that stay
            the same. "twice": `step` calls its closure at u_{t−1} and at u_t, for a new minibatch each step. "reuse":
            each minibatch is shown ``reuse`` times running, and no sample is made across a change.
        reuse: how often each minibatch is shown with ``gradients="reuse"``.
        criterion: "least_squares" is the paper's; "psgd" is E[δgᵀPδg + δuᵀP⁻¹δu]; "logdet" is Σ log E(Qᵀδg)²_i.
            The last two have D in closed form, positive by construction.
        normalized_step: κ: steps lower the linearised least-squares loss by κ L, or turn the fastest angle by κ.
            None: plain steps of ``rate``.
        replay: learn from this many of the last samples each time.
        sweeps: steps of learning each time.
        damping: the share of their mean that is added to the moments of "psgd" and "logdet".
        probes: "steps" learns from δu; "hessian" from one product H v per step with a random v, independent of the
            path. `step` then needs a closure that returns the loss and does not call backward.
        seed: of the probes.
        momentum: μ: heavy ball along Ĥ⁻¹g.
        weight_decay: decoupled.
        maximize: climb instead.

    >>> u = torch.nn.Parameter(torch.tensor([1.0, 1.0]))
    >>> optimizer = GivensNewton([u], lr=0.5)
    >>> for _ in range(100):
    ...     optimizer.zero_grad()
    ...     (u[0] ** 2 + 0.1 * u[1] ** 2).backward()
    ...     optimizer.step()
    >>> bool(u.norm() < 1e-3)
    True
    """

    state_on_cpu = True

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 0.1,
        rate: float | tuple[float, float] = 0.1,
        epsilon: float = 1e-2,
        *,
        inverse: str = "solve",
        gradients: str = "batch",
        reuse: int = 4,
        criterion: str = "least_squares",
        normalized_step: float | None = 0.1,
        replay: int = 1,
        sweeps: int = 1,
        damping: float = 1e-3,
        probes: str = "steps",
        seed: int = 0,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        maximize: bool = False,
    ) -> None:
        defaults = {
            "lr": lr, "rate": rate, "epsilon": epsilon, "inverse": inverse, "gradients": gradients, "reuse": reuse,
            "criterion": criterion, "normalized_step": normalized_step, "replay": replay, "sweeps": sweeps,
            "damping": damping, "probes": probes, "seed": seed,
            "momentum": momentum, "weight_decay": weight_decay, "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _check_group(self, group: dict[str, Any]) -> None:
        check_number("lr", group["lr"], at_least=0)
        for rate in both_rates(group["rate"]):
            check_number("rate", rate, at_least=0)
        check_number("momentum", group["momentum"], at_least=0, below=1)
        check_number("epsilon", group["epsilon"], above=0)
        check_number("damping", group["damping"], above=0)
        check_number("weight_decay", group["weight_decay"], at_least=0)
        if group["normalized_step"] is not None:
            check_number("normalized_step", group["normalized_step"], above=0)
        for name in ("reuse", "replay", "sweeps"):
            checks.integer(name, group[name], at_least=1)
        checks.choice("inverse", group["inverse"], INVERSES)
        checks.choice("gradients", group["gradients"], GRADIENTS)
        checks.choice("criterion", group["criterion"], CRITERIA)
        checks.choice("probes", group["probes"], PROBES)
        checks.flag("maximize", group["maximize"])

    def _check_together(self, group: dict[str, Any], first: dict[str, Any]) -> None:
        for name in ("gradients", "probes", "maximize"):
            check_same_in_all_groups(name, group, first, "since they share the closure")

    @torch.no_grad()
    def step(self, closure: Closure | None = None) -> Any:
        """Take one step. A closure is needed for ``gradients="twice"`` and ``probes="hessian"``.

        Returns:
            The closure's loss at u_t, if there is a closure.
        """
        self._check_changes()
        first, loss = self.param_groups[0], None
        blocks = [self._block(group) for group in self.param_groups]
        blocks = [block for block in blocks if block.flat.n]
        old: list[Tensor | None] = [None] * len(blocks)
        if first["probes"] == "hessian":
            loss = probe(loss_of(closure, "Hessian products need the loss", keep_graph=True), blocks)
        elif first["gradients"] == "twice":
            evaluate = loss_of(closure, "each step takes two gradients on one minibatch")
            old = gradients_at_last_points(evaluate, blocks)
            loss = evaluate()
        elif closure is not None:
            loss = loss_of(closure)()
        if first["probes"] != "hessian":
            for block in blocks:
                block.gradient = block.current_gradient()
        if not all(bool(torch.isfinite(block.gradient).all()) for block in blocks):
            warn_skipped("some gradient is NaN or infinite")
            return loss
        moves = [block.learn_and_move(g) for block, g in zip(blocks, old, strict=True)]
        if not all(bool(torch.isfinite(new).all()) for new in moves):
            warn_skipped(BAD_PARAMETER)
            return loss
        for block, new in zip(blocks, moves, strict=True):
            block.flat.assign(new)
        return loss

    def hessian(self, group: int = 0) -> SymmetricOperator:
        """The tracked Ĥ of a group as it is now, over its parameters in their order; with "direct", Ĥ⁻¹."""
        return as_operator(self._block(self.param_groups[group]).state)

    def _block(self, group: dict[str, Any]) -> Block:
        # Under the first parameter, so that state_dict has it.
        return Block(group, self.state[group["params"][0]])

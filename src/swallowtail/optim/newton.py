"""GivensNewton: the paper's Algorithm 2."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from swallowtail import checks
from swallowtail.operators.symmetric import SymmetricOperator
from swallowtail.optim.base import Closure, FlatParameters, GivensOptimizer, loss_of, number, warn_skipped
from swallowtail.optim.tracking import CRITERIA, Tracking, new_tracking, newton_direction, operator, track

GRADIENTS = ("batch", "twice", "reuse")


class GivensNewton(GivensOptimizer):
    r"""Descend along Ĥ⁻¹g while learning Ĥ = Q D Qᵀ from the way gone: Algorithm 2 of Mathieu & LeCun (2014).

    From Q = I, D = I, at each step t ≥ 1, with δu = u_t − u_{t−1} and δg = g_t − g_{t−1}:

    .. math::
        ω̃ &← ω̃ - α\, ∂L(ω̃, δu/‖δu‖, δg/‖δu‖)/∂ω̃, \qquad L = ‖Q D Q^T x - y‖^2 \\
        Q &← \text{the nearest rotations}, \quad D_i ← ε \text{ where } D_i < 0 \\
        u_{t+1} &= u_t - β\, Q \max(D, ε)^{-1} Q^T g_t

    The paper prints the last line with Ĥ for Ĥ⁻¹; its text says Ĥ⁻¹ and that is what descends. Each group
    of parameters is one block with an Ĥ of its own, kept in float64 on the CPU.

    The paper's own algorithm is ``normalized_step=None`` with ``rate`` its α (or one for Q and one for D) and
    everything else as by default. α then scales with 1/‖H‖². L-BFGS needs fewer gradients on every problem
    tried: this is here to be the paper's method; `GivensLBFGS` and `GivensAdam` are what it leads to.

    Args:
        params: parameters or groups.
        lr: β.
        rate: α, or (α for Q, α for D). With ``normalized_step`` only their ratio counts.
        epsilon: ε.
        inverse: "solve" inverts D; "direct" learns the inverse itself from δu ≈ Ĥ⁻¹ δg, scaled by 1/‖δg‖.
        gradients: where δg comes from. "batch": the gradient of the last step is reused, for losses that stay
            the same. "twice": `step` calls its closure at u_{t−1} and at u_t, for a new minibatch each step. "reuse":
            each minibatch is shown ``reuse`` times running, and no pair is made across a change.
        reuse: of "reuse".
        criterion: "least_squares" is the paper's; "psgd" is E[δgᵀPδg + δuᵀP⁻¹δu]; "logdet" is Σ log E(Qᵀδg)²_i.
            The last two have D in closed form, positive by construction.
        normalized_step: κ: steps lower the linearised least-squares loss by κ L, or turn the fastest angle by κ.
            None: plain steps of ``rate``.
        replay: learn from the last so many pairs each time.
        sweeps: tracking steps each time.
        damping: the share of the mean added to the moments "psgd" and "logdet" are made of.
        probes: "steps" learns from δu; "hessian" from one product H v with a random v a step, independent of the
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
        number("lr", group["lr"], at_least=0)
        rates = group["rate"] if isinstance(group["rate"], (tuple, list)) else (group["rate"],) * 2
        if len(rates) != 2:
            raise ValueError(f"rate: expected one number, or one for Q and one for D, got {len(rates)}")
        for rate in rates:
            number("rate", rate, at_least=0)
        number("momentum", group["momentum"], at_least=0, below=1)
        number("epsilon", group["epsilon"], above=0)
        number("damping", group["damping"], above=0)
        number("weight_decay", group["weight_decay"], at_least=0)
        if group["normalized_step"] is not None:
            number("normalized_step", group["normalized_step"], above=0)
        for name in ("reuse", "replay", "sweeps"):
            checks.integer(name, group[name], at_least=1)
        checks.choice("inverse", group["inverse"], ("solve", "direct"))
        checks.choice("gradients", group["gradients"], GRADIENTS)
        checks.choice("criterion", group["criterion"], CRITERIA)
        checks.choice("probes", group["probes"], ("steps", "hessian"))
        for name in ("gradients", "probes", "maximize"):
            if group[name] != self.param_groups[0][name]:
                raise ValueError(
                    f"{name}: expected the same in all groups, since they share the closure, got "
                    f"{self.param_groups[0][name]!r} and {group[name]!r}"
                )

    @torch.no_grad()
    def step(self, closure: Closure | None = None) -> Any:
        """Take one step. A closure is needed for ``gradients="twice"`` and ``probes="hessian"``.

        Returns:
            The closure's loss at u_t, if there is a closure.
        """
        first, loss = self.param_groups[0], None
        blocks = [_Block(self, group) for group in self.param_groups]
        blocks = [block for block in blocks if block.flat.n]
        old: list[Tensor | None] = [None] * len(blocks)
        if first["probes"] == "hessian":
            loss = _probe(loss_of(closure, "Hessian products need the loss", keep_graph=True), blocks)
        elif first["gradients"] == "twice":
            evaluate = loss_of(closure, "two gradients a step are taken on one minibatch")
            old = _gradients_at_last_points(evaluate, blocks)
            loss = evaluate()
        elif closure is not None:
            loss = loss_of(closure, "")()
        if first["probes"] != "hessian":
            for block in blocks:
                block.gradient = block.flat.gradient(-1.0 if first["maximize"] else 1.0)
        if not all(bool(torch.isfinite(block.gradient).all()) for block in blocks):
            warn_skipped("some gradient is NaN or infinite")
            return loss
        moves = [block.learn_and_move(g) for block, g in zip(blocks, old, strict=True)]
        if not all(bool(torch.isfinite(new).all()) for new in moves):
            warn_skipped("some parameter would become NaN or infinite")
            return loss
        for block, new in zip(blocks, moves, strict=True):
            block.flat.assign(new)
        return loss

    def hessian(self, group: int = 0) -> SymmetricOperator:
        """The tracked Ĥ of a group as it is now, over its parameters in their order; with "direct", Ĥ⁻¹."""
        return operator(_Block(self, self.param_groups[group]).state)


class _Block:
    """One group as a vector, with its state and its gradient."""

    gradient: Tensor
    probe: tuple[Tensor, Tensor] | None = None

    def __init__(self, optimizer: GivensNewton, group: dict[str, Any]) -> None:
        self.group, self.flat = group, FlatParameters(group["params"])
        self.state: dict[str, Tensor] = optimizer.state[self.flat.params[0]]
        if not self.state:
            self.state.update(new_tracking(self.flat.n, group["replay"]))
            self.state["step"] = torch.zeros((), dtype=torch.float32)
        if len(self.state["eigenvalues"]) != self.flat.n:
            raise ValueError(
                f"parameters: expected {len(self.state['eigenvalues'])} numbers in this group as in the last step, "
                f"got {self.flat.n}; try a new optimizer when shapes change"
            )

    def learn_and_move(self, old_gradient: Tensor | None) -> Tensor:
        """Track, then u − β Ĥ⁻¹ g; ``old_gradient`` is this minibatch's at u_{t−1}, if it was taken."""
        group, state, t = self.group, self.state, int(self.state["step"])
        u = self.flat.values()
        fresh_batch = group["gradients"] == "reuse" and t % group["reuse"] == 0
        if self.probe is not None:
            self._track(*self.probe)
        elif t and not fresh_batch:
            before = state["last_gradient"].to(u) if old_gradient is None else old_gradient
            self._track(u - state["last_point"].to(u), self.gradient - before)
        state["last_point"], state["last_gradient"] = u.cpu(), self.gradient.cpu()
        state["step"] += 1
        lr, invert = float(group["lr"]), group["inverse"] == "solve"
        kept = 1 - lr * float(group["weight_decay"])
        direction = newton_direction(state, self.gradient, group["epsilon"], invert)
        if group["momentum"]:
            last = state.get("momentum", torch.zeros(())).to(u)
            direction = direction + group["momentum"] * last
            state["momentum"] = direction.cpu()
        return u * kept - lr * direction

    def _track(self, du: Tensor, dg: Tensor) -> None:
        group = self.group
        pair = [z.to("cpu", torch.float64) for z in (du, dg)]
        if group["inverse"] == "direct":
            pair.reverse()
        rates = group["rate"] if isinstance(group["rate"], (tuple, list)) else (group["rate"],) * 2
        how = Tracking(
            rate_q=float(rates[0]),
            rate_d=float(rates[1]),
            epsilon=group["epsilon"],
            criterion=group["criterion"],
            normalized_step=group["normalized_step"],
            replay=group["replay"],
            sweeps=group["sweeps"],
            damping=group["damping"],
        )
        if not track(self.state, pair[0], pair[1], how):
            warn_skipped("tracking diverged; try a smaller rate, or normalized_step=0.1")


def _gradients_at_last_points(evaluate: Any, blocks: list[_Block]) -> list[Tensor | None]:
    """The current minibatch's gradients at u_{t−1}; parameters are back at u_t afterwards."""
    if not all(int(block.state["step"]) for block in blocks):
        return [None] * len(blocks)
    here = [block.flat.values() for block in blocks]
    for block, u in zip(blocks, here, strict=True):
        block.flat.assign(block.state["last_point"].to(u))
    try:
        evaluate()
        return [block.flat.gradient(-1.0 if block.group["maximize"] else 1.0) for block in blocks]
    finally:
        for block, u in zip(blocks, here, strict=True):
            block.flat.assign(u)


def _probe(evaluate: Any, blocks: list[_Block]) -> Tensor:
    """Gradients, and H v for one random v a block, by differentiating twice: no graph is left behind."""
    with torch.enable_grad():
        loss = evaluate()
        params = [p for block in blocks for p in block.flat.params if p.requires_grad]
        sign = -1.0 if blocks[0].group["maximize"] else 1.0
        first = torch.autograd.grad(sign * loss, params, create_graph=True, allow_unused=True)
        grads = dict(zip(params, first, strict=True))
        for block in blocks:
            block.gradient = block.flat.join([grads.get(p) for p in block.flat.params])
            generator = torch.Generator().manual_seed(block.group["seed"] + int(block.state["step"]))
            v = torch.randn(block.flat.n, generator=generator, dtype=torch.float64).to(block.gradient)
            used = [
                (p, g, part)
                for p, part in zip(block.flat.params, block.flat.split(v), strict=True)
                if (g := grads.get(p)) is not None and g.requires_grad
            ]
            second: Any = ()
            if used:  # a loss linear in all of a block's parameters has H = 0
                along = [part.to(p) for p, _, part in used]
                second = torch.autograd.grad(
                    [g for _, g, _ in used],
                    [p for p, _, _ in used],
                    along,
                    retain_graph=True,
                    allow_unused=True,
                )
            products = {id(p): h for (p, _, _), h in zip(used, second, strict=True)}
            block.probe = v, block.flat.join([products.get(id(p)) for p in block.flat.params])
    return loss.detach()

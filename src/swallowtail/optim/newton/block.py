"""One parameter group of GivensNewton as a vector: where its samples come from, and how it moves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from swallowtail.errors import ArgumentError
from swallowtail.optim.flat import FlatParameters
from swallowtail.optim.gradients import warn_skipped
from swallowtail.optim.newton.hessian import Learning, State, learn, new_hessian, newton_direction


class Block:
    """One group as a vector u, with its state and its gradient g."""

    gradient: Tensor
    probe: tuple[Tensor, Tensor] | None = None  # v and H v, if they were asked for

    def __init__(self, group: dict[str, Any], state: State) -> None:
        self.group, self.flat, self.state = group, FlatParameters(group["params"]), state
        if not state:
            state.update(new_hessian(self.flat.n, group["replay"]))
            state["step"] = torch.zeros((), dtype=torch.float32)
        if len(state["eigenvalues"]) != self.flat.n:
            raise ArgumentError(
                "parameters", f"{len(state['eigenvalues'])} numbers in this group as in the last step",
                self.flat.n, "try a new optimizer when shapes change",
            )  # fmt: skip

    def current_gradient(self) -> Tensor:
        """The gradient that the parameters hold now, of what is minimised."""
        return self.flat.gradient(negate=self.group["maximize"])

    def learn_and_move(self, old_gradient: Tensor | None) -> Tensor:
        """Learn, then u − β Ĥ⁻¹ g; ``old_gradient`` is this minibatch's at u_{t−1}, if it was taken."""
        group, state, t = self.group, self.state, int(self.state["step"])
        u = self.flat.values()
        fresh_batch = group["gradients"] == "reuse" and t % group["reuse"] == 0
        if self.probe is not None:
            self._learn(*self.probe)
        elif t and not fresh_batch:
            before = state["last_gradient"].to(u) if old_gradient is None else old_gradient
            self._learn(u - state["last_point"].to(u), self.gradient - before)
        state["last_point"], state["last_gradient"] = u.cpu(), self.gradient.cpu()
        state["step"] += 1
        lr = float(group["lr"])
        kept = 1 - lr * float(group["weight_decay"])
        direction = newton_direction(
            state, self.gradient, group["epsilon"], invert=group["inverse"] == "solve"
        )
        if group["momentum"]:
            last = state.get("momentum", torch.zeros(())).to(u)
            direction = direction + group["momentum"] * last
            state["momentum"] = direction.cpu()
        return u * kept - lr * direction

    def _learn(self, du: Tensor, dg: Tensor) -> None:
        group = self.group
        x, y = (z.to("cpu", torch.float64) for z in (du, dg))
        if group["inverse"] == "direct":
            x, y = y, x
        rate_q, rate_d = both_rates(group["rate"])
        how = Learning(
            rate_q=float(rate_q),
            rate_d=float(rate_d),
            epsilon=group["epsilon"],
            criterion=group["criterion"],
            normalized_step=group["normalized_step"],
            replay=group["replay"],
            sweeps=group["sweeps"],
            damping=group["damping"],
        )
        if not learn(self.state, x, y, how):
            warn_skipped("tracking diverged; try a smaller rate, or normalized_step=0.1")


def both_rates(rate: Any) -> tuple[Any, Any]:
    """α for Q and for D."""
    rates = tuple(rate) if isinstance(rate, (tuple, list)) else (rate, rate)
    if len(rates) != 2:
        raise ArgumentError("rate", "one number, or one for Q and one for D", f"{len(rates)} numbers")
    return rates


def gradients_at_last_points(evaluate: Callable[[], Tensor], blocks: list[Block]) -> list[Tensor | None]:
    """The current minibatch's gradients at u_{t−1}; parameters are back at u_t afterwards."""
    if not all(int(block.state["step"]) for block in blocks):
        return [None] * len(blocks)
    here = [block.flat.values() for block in blocks]
    for block, u in zip(blocks, here, strict=True):
        block.flat.assign(block.state["last_point"].to(u))
    try:
        evaluate()
        return [block.current_gradient() for block in blocks]
    finally:
        for block, u in zip(blocks, here, strict=True):
            block.flat.assign(u)


def probe(evaluate: Callable[[], Tensor], blocks: list[Block]) -> Tensor:
    """Gradients, and H v for one random v per block, by differentiating twice: no graph is left behind."""
    with torch.enable_grad():
        loss = evaluate()
        params = [p for block in blocks for p in block.flat.params if p.requires_grad]
        signed = -loss if blocks[0].group["maximize"] else loss
        first = torch.autograd.grad(signed, params, create_graph=True, allow_unused=True)
        gradients = dict(zip(params, first, strict=True))
        for block in blocks:
            block.gradient = block.flat.join([gradients.get(p) for p in block.flat.params])
            generator = torch.Generator().manual_seed(block.group["seed"] + int(block.state["step"]))
            v = torch.randn(block.flat.n, generator=generator, dtype=torch.float64).to(block.gradient)
            block.probe = v, _hessian_product(block, gradients, v)
    return loss.detach()


def _hessian_product(block: Block, gradients: Mapping[Tensor, Tensor | None], v: Tensor) -> Tensor:
    """H v: the derivative of the gradients along v; zeros where they do not depend on a parameter."""
    params, outputs, along = [], [], []
    for p, part in zip(block.flat.params, block.flat.split(v), strict=True):
        g = gradients.get(p)
        if g is not None and g.requires_grad:
            params.append(p)
            outputs.append(g)
            along.append(part.to(p))
    second: Any = ()
    if params:  # a loss that is linear in all of a block's parameters has H = 0
        second = torch.autograd.grad(outputs, params, along, retain_graph=True, allow_unused=True)
    products = dict(zip(params, second, strict=True))
    return block.flat.join([products.get(p) for p in block.flat.params])

"""One step of GivensAdam: the update as a function, on all stacks, taken now or launched for the device to decide."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from swallowtail.optim.adam.bases import Bases, KeptBases
from swallowtail.optim.adam.direction import further
from swallowtail.optim.adam.gpu import gpu_for
from swallowtail.optim.adam.groups import LONGEST
from swallowtail.optim.adam.mailbox import Mailbox
from swallowtail.optim.adam.sharded import all_agree
from swallowtail.optim.adam.small import SmallStep
from swallowtail.optim.adam.state import DeviceNumbers, Numbers, Stack, params_of, stacked, states_of
from swallowtail.optim.adam.statistics import observe
from swallowtail.optim.gradients import BAD_PARAMETER, largest_norm, norm_limit, warn_skipped


def step_now(stacks: list[Stack], kept_bases: KeptBases, small: SmallStep | None = None) -> None:
    """Take a step with usable gradients; parameters that would not stay finite are not written.

    Args:
        stacks: parameters with state.
        kept_bases: theirs.
        small: further parameters, whose step has begun.
    """
    shards = [stack.shards for stack in stacks if stack.shards is not None]
    for stack in stacks:
        stack.begin_step()
    _send_numbers(stack for stack in stacks if stack.shards is None)
    proposed = propose(stacks, kept_bases, early=False)
    for state in states_of(stacks):
        state["step"] += 1
    finite = not stacks or all(map(bool, proposed.finite()))
    if small is not None:
        finite = small.propose(kept_bases) and finite
    taken = all_agree(finite, shards)
    proposed.write(taken)
    if not taken:
        warn_skipped(BAD_PARAMETER)
    elif small is not None:
        small.commit()


def _send_numbers(stacks: Iterable[Stack]) -> None:
    """The numbers of a step that is taken now to the GPUs whose own kernels take it."""
    there: dict[torch.device, list[Stack]] = {}
    for stack in stacks:
        moments = stack.states[0]["exp_avg"]
        if gpu_for(moments) is not None:
            there.setdefault(moments.device, []).append(stack)
    for device, members in there.items():
        rows = torch.tensor([stack.numbers for stack in members], dtype=torch.float64, device=device)
        for k, stack in enumerate(members):
            stack.on_device = DeviceNumbers(rows, k)


def launch_step(
    stacks: list[Stack], gradients: list[Tensor], kept_bases: KeptBases, mailbox: Mailbox, early: bool
) -> None:
    """A whole step on the device, which alone knows whether it is taken.

    ``early``: the last step may turn out not to count. Then this one fits bases if the one before was to.
    """
    usable = largest_norm(gradients) < norm_limit(gradients)
    for stack, numbers in zip(stacks, mailbox.numbers(usable), strict=True):
        stack.on_device = numbers
    proposed = propose(stacks, kept_bases, early)
    taken = torch.stack([usable, *proposed.finite()]).all()
    proposed.write(taken)
    mailbox.report(usable, taken)


def propose(stacks: list[Stack], kept_bases: KeptBases, early: bool) -> Proposed:
    """What the parameters of each stack become; statistics and bases move on, and moments with what is computed."""
    found = Proposed()
    rest = found.set_apart(stacks)
    for fused in found.fused:
        fits = [fit for stack in fused.stacks for fit in stack.fits(early)]
        if any(fits):
            fused.refit(first=2 in fits)
            kept_bases.forget(params_of(fused.stacks))
        # Groups are fitted to earlier gradients. Where these are few, a gradient that had been fitted to would have
        # nothing but rounding errors in most directions.
        fused.observe()
    refit = any(stack.refit for stack in rest)
    if refit:  # all bases together, so that those of many matrices share their launches
        for stack in rest:
            if stack.sizes is not None and not stack.grouped:
                observe(stack, stack.matrices())
        kept_bases.refit(rest)
    for stack in rest:
        if stack.sizes is None:
            gradients, bases = stack.gradients(), None
        else:
            gradients, bases = stack.matrices(), kept_bases.of(stack)
            if stack.grouped or not refit:
                observe(stack, gradients)
        found.now.append((stack.params, _separate_step(stack, bases, gradients)))
    return found


class Proposed:
    """What parameters may become: some are computed already, the others when they are written."""

    def __init__(self) -> None:
        self.now: list[tuple[list[Tensor], list[Tensor]]] = []  # parameters and their new values
        self.fused: list[Any] = []  # `FusedStep`, one for each device

    def set_apart(self, stacks: list[Stack]) -> list[Stack]:
        """Leave to kernels of their own the stacks that have such; the others."""
        there: dict[torch.device, list[Stack]] = {}
        rest = []
        for stack in stacks:
            moments = stack.states[0]["exp_avg"]
            if stack.on_device is not None and all(map(gpu_for(moments).takes, stack.states)):
                there.setdefault(moments.device, []).append(stack)
            else:
                rest.append(stack)
        self.fused = [gpu_for(m[0].states[0]["exp_avg"]).FusedStep(m) for m in there.values()]
        return rest

    def finite(self) -> list[Tensor]:
        """Whether all would be finite, on each device; nothing waits."""
        new = [v for _, values in self.now for v in values]
        checks = [largest_norm(new) < norm_limit(new)] if new else []
        return checks + [_stay_in_range(fused.stacks) for fused in self.fused]

    def write(self, taken: Tensor | bool) -> None:
        """The parameters become it, if the step is taken. What was left for later is computed in any case."""
        for members, values in self.now:
            params = [p.detach() for p in members]
            if isinstance(taken, Tensor):
                for p, value in zip(params, values, strict=True):
                    torch.where(taken, value, p, out=p)
            elif taken:
                torch._foreach_copy_(params, [v.view(p.shape) for p, v in zip(params, values, strict=True)])
        for fused in self.fused:
            where = fused.stacks[0].params[0].device
            fused.write(taken if isinstance(taken, Tensor) else torch.tensor(taken, device=where))


def _stay_in_range(stacks: list[Stack]) -> Tensor:  # shape: ()
    """Whether a step leaves all parameters finite, without taking it.

    An entry of a tile of the update is at most the norm of that tile in the basis, whose entries are bounded.
    """
    params = params_of(stacks)
    largest = largest_norm([p.detach() for p in params], torch.inf)
    numbers = [stack.on_device for stack in stacks if stack.on_device is not None]
    rows = numbers[0].rows  # other stacks may be among them: no step is larger for that
    names = ("kept", "lr", "bound", "gain")
    kept, lr, bound, gain = (rows[:, DeviceNumbers.index(name)] for name in names)
    limit = min(torch.finfo(p.dtype).max for p in params)
    return kept.abs().amax() * largest + (lr * _further(bound, gain)).amax() * LONGEST < 0.99 * limit


def _further(u: Tensor, gain: Tensor | float) -> Tensor:
    found: Tensor = further(u, u.square().clamp_(max=1), gain)
    return found


def _separate_step(stack: Stack, bases: Bases | None, gradients: list[Tensor]) -> list[Tensor]:
    beta1, beta2 = stack.betas
    return adam_update(
        stack.params, gradients, *stack.moments(), bases,
        beta1=beta1, beta2=beta2, numbers=stack.numbers, on_device=stack.on_device,
    )  # fmt: skip


def adam_update(
    params: list[Tensor],
    gradients: list[Tensor],
    exp_avgs: list[Tensor],
    exp_avg_sqs: list[Tensor],
    bases: Bases | None,
    *,
    beta1: float,
    beta2: float,
    numbers: Numbers,
    on_device: DeviceNumbers | None,
) -> list[Tensor]:
    """What parameters become: kept · W − lr · Q_L Adam(Q_Lᵀ G Q_R) Q_Rᵀ; the moments move on in place.

    Args:
        params: of any shape.
        gradients: matrices (m, n); without bases, shaped as the parameters.
        exp_avgs, exp_avg_sqs: moments, in the bases, (n, m); without bases, shaped as the parameters.
        bases: None for Q = I.
        beta1, beta2: the decays of the moments.
        numbers: the rest of the hyper-parameters, with the corrections of step t.
        on_device: the same in a GPU's memory. If given, it is used instead of ``numbers``.
    """
    moments = exp_avgs, exp_avg_sqs
    if on_device is not None and bases is not None and bases.fused is not None:
        return [
            bases.fused.step(G, p.detach(), m, v, on_device, beta1=beta1, beta2=beta2)
            for G, p, m, v in zip(gradients, params, *moments, strict=True)
        ]
    Z = gradients if bases is None else list(bases.to_basis(stacked(gradients)).unbind())
    if on_device is None:
        eps, factor = numbers.eps, numbers.factor
        update = _adam(Z, *moments, beta1=beta1, beta2=beta2, eps=eps, factor=factor)
    else:
        update = _adam_on_device(Z, *moments, on_device, beta1=beta1, beta2=beta2)
    if bases is not None:
        if on_device is None:
            torch._foreach_clamp_max_(update, numbers.bound)
            torch._foreach_clamp_min_(update, -numbers.bound)
        else:
            update = [u.clamp(-on_device.bound, on_device.bound) for u in update]
        directions, gain = stacked(update), numbers.gain if on_device is None else on_device.gain
        update = list(bases.from_basis(_further(directions, gain)).unbind())
    wide = [p.detach().to(u.dtype) for p, u in zip(params, update, strict=True)]
    update = [u.reshape(p.shape) for p, u in zip(params, update, strict=True)]
    if on_device is None:
        new = list(torch._foreach_mul(wide, numbers.kept))
        torch._foreach_add_(new, update, alpha=-numbers.lr)
    else:
        new = [p * on_device.kept - u * on_device.lr for p, u in zip(wide, update, strict=True)]
    return [value.to(p.dtype) for p, value in zip(params, new, strict=True)]


def _adam(
    gradients: list[Tensor],
    exp_avgs: list[Tensor],
    exp_avg_sqs: list[Tensor],
    *,
    beta1: float,
    beta2: float,
    eps: float,
    factor: float,
) -> list[Tensor]:
    """Adam's direction m̂ / (√v̂ + ε) after moving m and v on in place; all tensors at once.

    It is m/(1 − β₁ᵗ) / (√(v/(1 − β₂ᵗ)) + ε), with the corrections taken out as numbers.
    """
    torch._foreach_lerp_(exp_avgs, gradients, 1 - beta1)
    torch._foreach_mul_(exp_avg_sqs, beta2)
    torch._foreach_addcmul_(exp_avg_sqs, gradients, gradients, 1 - beta2)
    below = torch._foreach_sqrt(exp_avg_sqs)
    torch._foreach_add_(below, eps)
    update = torch._foreach_div(exp_avgs, below)
    torch._foreach_mul_(update, factor)
    return list(update)


def _adam_on_device(
    gradients: list[Tensor],
    exp_avgs: list[Tensor],
    exp_avg_sqs: list[Tensor],
    numbers: DeviceNumbers,
    *,
    beta1: float,
    beta2: float,
) -> list[Tensor]:
    """The same with numbers that are on the device. The foreach functions would wait for them to come to the host."""
    update = []
    for g, m, v in zip(gradients, exp_avgs, exp_avg_sqs, strict=True):
        numbers.assign(m, torch.lerp(m, g, 1 - beta1))
        numbers.assign(v, beta2 * v + (1 - beta2) * g * g)
        update.append(m / (v.sqrt() + numbers.eps) * numbers.factor)
    return update

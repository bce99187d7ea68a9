"""One step of GivensAdam: the update as a function, on all stacks, taken now or launched for the device to decide."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from swallowtail.optim.adam.bases import Bases, KeptBases
from swallowtail.optim.adam.gpu import gpu_for
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
        moments = stack.states[0]["exp_avg"]
        if stack.shards is None and gpu_for(moments) is not None:
            row = torch.tensor(stack.numbers, dtype=torch.float64, device=moments.device)
            stack.on_device = DeviceNumbers(row)
    new = [value for values in new_parameters(stacks, kept_bases) for value in values]
    for state in states_of(stacks):
        state["step"] += 1
    finite = not new or float(largest_norm(new)) < norm_limit(new)
    if small is not None:
        finite = small.propose(kept_bases) and finite
    if all_agree(finite, shards):
        params = params_of(stacks)
        if params:
            torch._foreach_copy_(params, [value.view(p.shape) for p, value in zip(params, new, strict=True)])
        if small is not None:
            small.commit()
    else:
        warn_skipped(BAD_PARAMETER)


def launch_step(
    stacks: list[Stack], gradients: list[Tensor], kept_bases: KeptBases, mailbox: Mailbox
) -> None:
    """A whole step on the device, which alone knows whether it is taken."""
    usable = largest_norm(gradients) < norm_limit(gradients)
    for stack, numbers in zip(stacks, mailbox.numbers(usable), strict=True):
        stack.on_device = numbers
    new = new_parameters(stacks, kept_bases)
    whole = [v for values in new for v in ([values] if isinstance(values, Tensor) else values)]
    taken = usable & (largest_norm(whole) < norm_limit(whole))
    for stack, values in zip(stacks, new, strict=True):
        if isinstance(values, Tensor):
            gpu_for(values).commit([p.detach() for p in stack.params], values, taken)
            continue
        for p, value in zip(stack.params, values, strict=True):
            torch.where(taken, value, p, out=p.detach())
    mailbox.report(usable, taken)


def new_parameters(stacks: list[Stack], kept_bases: KeptBases) -> list[Tensor | list[Tensor]]:
    """What the parameters of each stack become, one by one or as (B, m, n); statistics, bases and moments move on."""
    refit = any(stack.refit for stack in stacks)
    if refit:  # all bases together, so that those of many matrices share their launches
        for stack in stacks:
            if stack.sizes is not None and not stack.grouped:
                observe(stack, stack.matrices())
        kept_bases.refit(stacks)
    new: list[Tensor | list[Tensor]] = []
    for stack in stacks:
        beta1, beta2 = stack.betas
        gradients, bases = [], None
        if stack.sizes is None:
            gradients = stack.gradients()
        else:
            G = stack.matrices()
            if stack.grouped or not refit:
                # Groups are fitted to earlier gradients. Where these are few, a gradient that had been fitted to would
                # have nothing but rounding errors in most directions.
                observe(stack, G)
            gradients, bases = list(G.unbind()), kept_bases.of(stack)
            params, (first, second) = [p.detach() for p in stack.params], stack.moments()
            if bases.fused_groups is not None and gpu_for(G).aligned([*params, *first, *second]):
                step = bases.fused_groups.step
                new.append(step(G, params, first, second, stack.on_device, beta1=beta1, beta2=beta2))
                continue
        update = adam_update(
            stack.params, gradients, *stack.moments(), bases,
            beta1=beta1, beta2=beta2, numbers=stack.numbers, on_device=stack.on_device,
        )  # fmt: skip
        new.append(update)
    return new


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
    if on_device is not None:
        fused_step = _fused_step(gradients[0], bases)
        if fused_step is not None:
            return [
                fused_step(G, p.detach(), m, v, on_device, beta1=beta1, beta2=beta2)
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
        update = list(bases.from_basis(stacked(update)).unbind())
    wide = [p.detach().to(u.dtype) for p, u in zip(params, update, strict=True)]
    update = [u.reshape(p.shape) for p, u in zip(params, update, strict=True)]
    if on_device is None:
        new = list(torch._foreach_mul(wide, numbers.kept))
        torch._foreach_add_(new, update, alpha=-numbers.lr)
    else:
        new = [p * on_device.kept - u * on_device.lr for p, u in zip(wide, update, strict=True)]
    return [value.to(p.dtype) for p, value in zip(params, new, strict=True)]


def _fused_step(gradient: Tensor, bases: Bases | None) -> Any:
    """The GPU's own function for the whole update of one parameter; None if there is none."""
    if bases is not None:
        return None if bases.fused is None else bases.fused.step
    return gpu_for(gradient).vector_step if gradient.dtype == torch.float32 else None


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

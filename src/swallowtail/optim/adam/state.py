"""Parameters that GivensAdam updates together, the numbers their step depends on, and Adam on lists of tensors."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

State = dict[str, Tensor]
SIDES = ("left", "right")


class Numbers(NamedTuple):
    """What changes from step to step, and, where a GPU computes, where kernels find it."""

    eps: float  # ε √(1 − β₂ᵗ)
    factor: float  # √(1 − β₂ᵗ) / (1 − β₁ᵗ)
    lr: float
    kept: float  # 1 − ηλ
    slot: int  # of the sketches: where this gradient's columns and rows go
    left: int  # the first column
    right: int  # the first row
    # All of these on the device, and whether they are to be used (1, else 0); shape (8,), float64.
    row: Tensor | None = None

    @classmethod
    def of(cls, state: State, t: int, sizes: tuple[int, int] | None, group: dict[str, Any]) -> Numbers:
        """Those of step ``t``, counted from 1, of a matrix with this state and these sides (None: no matrix)."""
        beta1, beta2 = (float(beta) for beta in group["betas"])
        root, lr = (1 - beta2**t) ** 0.5, float(group["lr"])
        slot, starts = 0, [0, 0]
        for index, other in enumerate((sizes or ())[::-1]):
            record = state.get(f"{SIDES[index]}_sketch")
            if record is not None:
                # Every so many-th column (row), another set each step: all of them come round, and no random
                # numbers are needed, so processes agree and a resumed run repeats itself.
                slots, columns = record.shape[:2]
                slot, starts[index] = (t - 1) % slots, t % (other - other // columns * (columns - 1))
        factor, kept = root / (1 - beta1**t), 1 - lr * group["weight_decay"]
        return cls(group["eps"] * root, factor, lr, kept, slot, starts[0], starts[1])


NONE = Numbers(0.0, 0.0, 0.0, 0.0, 0, 0, 0)


@dataclass(eq=False)
class Stack:
    """Parameters that are updated together."""

    group: dict[str, Any]
    sizes: tuple[int, int] | None  # of the matrices they are treated as; None: vectors
    params: list[Tensor] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    t: int = 0  # which step this is, from 1
    numbers: Numbers = NONE

    def count(self) -> None:
        """Make this the next step."""
        self.t = int(self.states[0]["step"]) + 1
        self.numbers = self.numbers_of(self.t)

    def numbers_of(self, t: int) -> Numbers:
        return Numbers.of(self.states[0], t, self.sizes, self.group)

    @property
    def refit(self) -> bool:
        """Whether this step fits the bases anew."""
        return self.sizes is not None and (self.t == 1 or self.t % self.group["refresh"] == 0)

    @property
    def betas(self) -> tuple[float, float]:
        beta1, beta2 = self.group["betas"]
        return float(beta1), float(beta2)

    @property
    def constants(self) -> tuple[Hashable, ...]:
        """What launches are made with, besides tensors: who is stacked, and numbers."""
        members = tuple(map(id, self.params))
        return members, self.refit, self.betas, self.group["maximize"], self.group["statistics_decay"]

    def gradients(self) -> list[Tensor]:
        """Downhill, in the dtype of the moments."""
        dtype = self.states[0]["exp_avg"].dtype
        gradients = [p.grad.to(dtype) for p in self.params if p.grad is not None]
        return [-g for g in gradients] if self.group["maximize"] else gradients

    def moments(self) -> tuple[list[Tensor], list[Tensor]]:
        return [s["exp_avg"] for s in self.states], [s["exp_avg_sq"] for s in self.states]


def adam(stack: Stack, gradients: list[Tensor]) -> list[Tensor]:
    """Adam's direction m̂ / (√v̂ + ε) after moving m and v on in place; all tensors at once.

    It is m/(1 − β₁ᵗ) / (√(v/(1 − β₂ᵗ)) + ε), with the corrections taken out as numbers.
    """
    (first, second), (beta1, beta2) = stack.moments(), stack.betas
    if stack.numbers.row is not None:
        return _adam_on_device(stack, stack.numbers.row, gradients)
    torch._foreach_lerp_(first, gradients, 1 - beta1)
    torch._foreach_mul_(second, beta2)
    torch._foreach_addcmul_(second, gradients, gradients, 1 - beta2)
    below = torch._foreach_sqrt(second)
    torch._foreach_add_(below, stack.numbers.eps)
    update = torch._foreach_div(first, below)
    torch._foreach_mul_(update, stack.numbers.factor)
    return list(update)


def _adam_on_device(stack: Stack, row: Tensor, gradients: list[Tensor]) -> list[Tensor]:
    """The same with numbers that are on the device; foreach functions would fetch them, and wait."""
    beta1, beta2 = stack.betas
    eps, factor = row[0], row[1]
    update = []
    for g, m, v in zip(gradients, *stack.moments(), strict=True):
        set_if(row, m, torch.lerp(m, g, 1 - beta1))
        set_if(row, v, beta2 * v + (1 - beta2) * g * g)
        update.append(m / (v.sqrt() + eps) * factor)
    return update


def set_if(row: Tensor, target: Tensor, value: Tensor) -> None:
    """target ← value if the row is to be used."""
    target.copy_(torch.where(row[7] > 0, value, target))

"""GivensAdam's records: a side of a matrix, the numbers of a step, parameters that are updated together."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

State = dict[str, Tensor]  # of one parameter, as `Optimizer.state` keeps it


class Side(NamedTuple):
    """One side of gradient matrices (m, n), and the keys under which a parameter's state keeps what belongs to it."""

    name: str
    axis: int  # of the matrix

    @property
    def angles(self) -> str:
        return f"{self.name}_angles"

    @property
    def pairs(self) -> str:
        return f"{self.name}_pairs"

    @property
    def covariance(self) -> str:
        return f"{self.name}_covariance"

    @property
    def sketch(self) -> str:
        return f"{self.name}_sketch"

    @property
    def start(self) -> str:
        """The field of `Numbers` that says where this side's sketch begins in a gradient."""
        return f"{self.name}_start"


LEFT, RIGHT = Side("left", 0), Side("right", 1)
SIDES = (LEFT, RIGHT)


class Numbers(NamedTuple):
    """What changes from step to step. On a GPU the same fields lie in this order in memory: `DeviceNumbers`."""

    eps: float  # ε √(1 − β₂ᵗ)
    factor: float  # √(1 − β₂ᵗ) / (1 − β₁ᵗ)
    lr: float  # η
    kept: float  # 1 − ηλ, what weight decay leaves of a parameter
    slot: int  # where this gradient's columns and rows go in the sketches
    left_start: int  # the first column that goes into the left sketch
    right_start: int  # the first row that goes into the right sketch
    used: int = 1  # 0: the gradients are not usable, and all state stays as it is

    @classmethod
    def of_step(cls, t: int, state: State, sizes: tuple[int, int] | None, group: dict[str, Any]) -> Numbers:
        """The numbers of step ``t``, counted from 1, for matrices of these sizes (None: no matrix)."""
        beta1, beta2 = (float(beta) for beta in group["betas"])
        root, lr = (1 - beta2**t) ** 0.5, float(group["lr"])
        slot, starts = 0, [0, 0]
        for side, other in zip(SIDES, (sizes or ())[::-1], strict=False):
            sketch = state.get(side.sketch)
            if sketch is not None:
                # Equally spaced columns (rows), another set each step, so that all of them get their turn. No random
                # numbers are needed, so processes agree and a resumed run repeats itself.
                slots, columns = sketch.shape[:2]
                slot, starts[side.axis] = (t - 1) % slots, t % (other - other // columns * (columns - 1))
        factor, kept = root / (1 - beta1**t), 1 - lr * group["weight_decay"]
        return cls(group["eps"] * root, factor, lr, kept, slot, *starts)


@dataclass(frozen=True)
class DeviceNumbers:
    """`Numbers` in a GPU's memory: a recorded step reads new numbers there each time it is replayed."""

    row: Tensor  # the fields of `Numbers` in their order, shape (8,), float64

    @staticmethod
    def index(name: str) -> int:
        """Where a field lies in the row."""
        return Numbers._fields.index(name)

    @property
    def eps(self) -> Tensor:
        return self.row[self.index("eps")]

    @property
    def factor(self) -> Tensor:
        return self.row[self.index("factor")]

    @property
    def lr(self) -> Tensor:
        return self.row[self.index("lr")]

    @property
    def kept(self) -> Tensor:
        return self.row[self.index("kept")]

    def assign(self, target: Tensor, value: Tensor) -> None:
        """Target ← value, if the numbers are used; the host does not know and does not wait to hear."""
        target.copy_(torch.where(self.row[self.index("used")] > 0, value, target))


@dataclass(eq=False)
class Stack:
    """Parameters that are updated together."""

    group: dict[str, Any]
    sizes: tuple[int, int] | None  # (m, n) of the matrices they are treated as; None: vectors
    params: list[Tensor] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    t: int = 0  # which step this is, from 1
    numbers: Numbers = field(init=False)  # of step t
    on_device: DeviceNumbers | None = None  # the same, where a GPU computes
    shards: Any = (
        None  # a `Shards`, if the one parameter is cut over processes; params and states are then its parts
    )

    def begin_step(self) -> None:
        """Go on to the step after those that the state has counted."""
        self.t = int(self.states[0]["step"]) + 1
        self.numbers, self.on_device = self.numbers_of(self.t), None

    def numbers_of(self, t: int) -> Numbers:
        return Numbers.of_step(t, self.states[0], self.sizes, self.group)

    @property
    def refit(self) -> bool:
        """Whether this step fits the bases anew."""
        return self.sizes is not None and (self.t == 1 or self.t % self.group["refresh"] == 0)

    @property
    def betas(self) -> tuple[float, float]:
        beta1, beta2 = self.group["betas"]
        return float(beta1), float(beta2)

    @property
    def members(self) -> tuple[int, ...]:
        """Which parameters these are, as a key."""
        return tuple(map(id, self.params))

    @property
    def launch_constants(self) -> Hashable:
        """What kernels are launched with besides tensors; a recording serves only while it stays the same."""
        return self.members, self.refit, self.betas, self.group["maximize"], self.group["statistics_decay"]

    def gradients(self) -> list[Tensor]:
        """Uphill directions of what is minimised, in the dtype of the moments."""
        dtype = self.states[0]["exp_avg"].dtype
        gradients = [p.grad.to(dtype) for p in self.params if p.grad is not None]
        return [-g for g in gradients] if self.group["maximize"] else gradients

    def moments(self) -> tuple[list[Tensor], list[Tensor]]:
        """Adam's first and second moments."""
        return [s["exp_avg"] for s in self.states], [s["exp_avg_sq"] for s in self.states]


def params_of(stacks: list[Stack]) -> list[Tensor]:
    return [p for stack in stacks for p in stack.params]


def states_of(stacks: list[Stack]) -> list[State]:
    return [state for stack in stacks for state in stack.states]

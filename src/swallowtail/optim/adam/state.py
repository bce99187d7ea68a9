"""GivensAdam's records: a side of a matrix, the numbers of a step, parameters that are updated together."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from swallowtail.optim.adam.direction import direction_bound, gain_of

State = dict[str, Tensor]  # of one parameter, as `Optimizer.state` keeps it
# Matrices in groups move by this much of the rate. The best rates there were one to three times Adam's, so that Adam's
# own rate is close to the best one here.
RATE_IN_GROUPS = 2.0
FIRST_ITERATIONS = 4  # of the first fit of a group
SHIFT = 1e-4  # of the mean moment of a group; gradients a hundredth of the mean are still told from nothing
GROUP_COLUMNS = 64  # of a gradient that groups' moments take in per step; all of them gave no better bases


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
    def groups(self) -> str:
        return f"{self.name}_groups"

    @property
    def group_moments(self) -> str:
        return f"{self.name}_group_moments"

    @property
    def start(self) -> str:
        """The field of `Numbers` that says where this side's sketch begins in a gradient."""
        return f"{self.name}_start"


MOMENTS = ("exp_avg", "exp_avg_sq")
LEFT, RIGHT = Side("left", 0), Side("right", 1)
SIDES = (LEFT, RIGHT)


def columns_of(state: State, side: Side, other: int) -> int:
    """How many columns (rows) of a gradient a side's record takes in per step, the ``other`` side giving that many."""
    if side.sketch in state:
        return state[side.sketch].shape[1]
    return min(GROUP_COLUMNS, other) if side.group_moments in state else 0


def period_of(other: int, columns: int) -> int:
    """Step t takes equally spaced columns (rows) from column t modulo this on, so that all of them get their turn.

    No random numbers are needed, so processes agree and a resumed run repeats itself.
    """
    return other - other // columns * (columns - 1)


def is_grouped(state: State) -> bool:
    """Whether a side has dense groups."""
    return any(side.groups in state for side in SIDES)


def fit_of(t: int, grouped: bool, refresh: int, turn: int = 0) -> int:
    """Whether bases are fitted in step ``t``: 1, or 2 for the first time, or 0.

    Groups wait until their moments have seen some gradients. So the first steps are Adam's own, and its moments begin
    anew in the first basis. All matrices have their first fit in the same step, and then each in its ``turn``.
    """
    first = refresh if grouped else 1
    return 2 if t == first else int(t > first and (t - turn) % refresh == 0)


class Rates(NamedTuple):
    """What parameters of all shapes have in common in a step."""

    eps: float  # ε √(1 − β₂ᵗ), t counted from the first fit
    factor: float  # √(1 − β₂ᵗ) / (1 − β₁ᵗ)
    lr: float  # η; twice that in groups
    kept: float  # 1 − ηλ, what weight decay leaves of a parameter
    bound: float  # how large an entry of Adam's direction can be
    gain: float  # of entries that agree from step to step, see `direction.further`

    @classmethod
    def of_step(cls, t: int, grouped: bool, group: dict[str, Any]) -> Rates:
        """The rates of step ``t``, counted from 1."""
        beta1, beta2 = (float(beta) for beta in group["betas"])
        since, rate, gain, lr = t, 1.0, 0.0, float(group["lr"])
        if grouped and t >= group["refresh"]:
            since = t - group["refresh"] + 1  # the moments began anew in the first basis
            rate, gain = RATE_IN_GROUPS, gain_of(beta1, since)
        root = (1 - beta2**since) ** 0.5
        factor, kept = root / (1 - beta1**since), 1 - lr * group["weight_decay"]
        bound = direction_bound(beta1, beta2, since)
        return cls(group["eps"] * root, factor, rate * lr, kept, bound, gain)


class Numbers(NamedTuple):
    """What changes from step to step. On a GPU the same fields lie in this order in memory: `DeviceNumbers`."""

    eps: float  # this and the next three: as in `Rates`
    factor: float
    lr: float
    kept: float
    slot: int  # where this gradient's columns and rows go in the sketches
    left_start: int  # the first column that goes into the left sketch
    right_start: int  # the first row that goes into the right sketch
    bound: float  # this and the next: as in `Rates`
    gain: float
    fit: int  # 1: bases are fitted before the step, 2: for the first time
    new1: float  # 1 − β₁
    kept2: float  # β₂
    new2: float  # 1 − β₂
    sign: float  # −1 to climb
    decay: float  # of moments of groups
    used: int = 1  # 0: the gradients are not usable, and all state stays as it is

    @classmethod
    def of_step(
        cls, t: int, state: State, sizes: tuple[int, int] | None, group: dict[str, Any], turn: int = 0
    ) -> Numbers:
        """The numbers of step ``t``, counted from 1, for matrices of these sizes (None: no matrix)."""
        slot, starts = 0, [0, 0]
        for side, other in zip(SIDES, (sizes or ())[::-1], strict=False):
            columns = columns_of(state, side, other)
            if columns:
                starts[side.axis] = t % period_of(other, columns)
            if side.sketch in state:
                slot = (t - 1) % len(state[side.sketch])
        eps, factor, lr, kept, bound, gain = Rates.of_step(t, is_grouped(state), group)
        beta1, beta2 = (float(beta) for beta in group["betas"])
        sign, decay = -1.0 if group["maximize"] else 1.0, group["statistics_decay"]
        fit = 0 if sizes is None else fit_of(t, is_grouped(state), group["refresh"], turn)
        return cls(
            eps, factor, lr, kept, slot, starts[0], starts[1], bound, gain, fit, 1 - beta1, beta2, 1 - beta2, sign,
            decay,
        )  # fmt: skip


@dataclass(frozen=True)
class DeviceNumbers:
    """`Numbers` in a GPU's memory: a recorded step reads new numbers there each time it is replayed."""

    rows: Tensor  # those of all stacks, the fields of `Numbers` in their order, float64
    number: int  # which of them are these

    @property
    def row(self) -> Tensor:
        return self.rows[self.number]

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

    @property
    def bound(self) -> Tensor:
        return self.row[self.index("bound")]

    @property
    def gain(self) -> Tensor:
        return self.row[self.index("gain")]

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
    turn: int = 0  # of these among all matrices, see `fit_of`; 0 where a GPU fits all in one launch
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
        return Numbers.of_step(t, self.states[0], self.sizes, self.group, self.turn)

    @property
    def refit(self) -> bool:
        """Whether this step fits the bases anew."""
        return self.numbers.fit > 0

    @property
    def first_fit(self) -> bool:
        """Whether this step fits the bases for the first time."""
        return self.numbers.fit == 2

    def fits(self, early: bool) -> set[int]:
        """What `Numbers.fit` of this step can be; ``early``: the last step may turn out not to count.

        Only groups can decide on the device.
        """
        last = max(1, self.t - 1) if early and self.grouped else self.t
        return {self.numbers.fit, self.numbers_of(last).fit}

    @property
    def grouped(self) -> bool:
        return self.sizes is not None and is_grouped(self.states[0])

    @property
    def betas(self) -> tuple[float, float]:
        beta1, beta2 = self.group["betas"]
        return float(beta1), float(beta2)

    @property
    def members(self) -> tuple[int, ...]:
        """Which parameters these are, as a key."""
        return tuple(map(id, self.params))

    def launch_constants(self, early: bool) -> Hashable:
        """What kernels are launched with besides tensors; a recording serves only while it stays the same."""
        fits = self.refit, self.first_fit, frozenset(self.fits(early))
        return self.members, fits, self.betas, self.group["maximize"], self.group["statistics_decay"]

    def gradients(self) -> list[Tensor]:
        """Uphill directions of what is minimised, in the dtype of the moments."""
        dtype = self.states[0]["exp_avg"].dtype
        gradients = [p.grad.to(dtype) for p in self.params if p.grad is not None]
        return [-g for g in gradients] if self.group["maximize"] else gradients

    def given(self) -> list[Tensor]:
        """The gradients as they are, contiguous and in the dtype of their parameters."""
        return [p.grad.to(p.dtype).contiguous() for p in self.params if p.grad is not None]

    def matrices(self) -> list[Tensor]:
        """The gradients as matrices (m, n); of a matrix that is cut over processes, the rows of this one."""
        assert self.sizes is not None
        return [g.reshape(-1, self.sizes[1]) for g in self.gradients()]

    def moments(self) -> tuple[list[Tensor], list[Tensor]]:
        """Adam's first and second moments."""
        return [s["exp_avg"] for s in self.states], [s["exp_avg_sq"] for s in self.states]


def stacked(matrices: list[Tensor]) -> Tensor:  # shape: (B, m, n)
    """As `torch.stack`; one matrix is not copied."""
    return matrices[0][None] if len(matrices) == 1 else torch.stack(matrices)


def params_of(stacks: list[Stack]) -> list[Tensor]:
    return [p for stack in stacks for p in stack.params]


def states_of(stacks: list[Stack]) -> list[State]:
    return [state for stack in stacks for state in stack.states]

"""Steps that are launched without waiting for the one before.

Whether a gradient was usable is known on the device first. Waiting for the answer would leave a GPU idle while Python
prepares what comes next, for as long as the step itself takes; so kernels look at the answer themselves and leave
everything as it was where it is no, and the host hears of it one step later. Until then its counters may be one too
high: it sends the numbers of a step for both cases, and the device takes those that are right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from swallowtail.optim._stack import Stack, State


class Pending(NamedTuple):
    """A step whose outcome is not known yet."""

    states: list[State]
    flags: Tensor  # pinned; what `Ahead.report` was told, once the event has come
    event: torch.cuda.Event

    def outcome(self) -> tuple[bool, bool]:
        """Whether the gradients were usable, and whether the parameters took the step too; waits for it."""
        self.event.synchronize()
        usable, taken = self.flags.tolist()
        return usable, taken


class Ahead:
    """What host and device tell each other about ``n_stacks`` stacks; buffers take turns, for two steps at a time."""

    def __init__(self, n_stacks: int, device: torch.device) -> None:
        self._flags = torch.ones(2, dtype=torch.bool, device=device)
        self._rows = torch.ones(n_stacks, 2, 8, dtype=torch.float64, device=device)
        self._sent = torch.ones(2, n_stacks, 2, 8, dtype=torch.float64).pin_memory()
        self._heard = torch.ones(2, 2, dtype=torch.bool).pin_memory()
        self._turn = 0

    def serves(self, stacks: Sequence[Stack], device: torch.device) -> bool:
        return len(stacks) == len(self._rows) and device == self._rows.device

    def send(self, stacks: Sequence[Stack]) -> None:
        """The numbers of the next step, and of the same step if the last one turns out not to count."""
        self._turn = 1 - self._turn
        rows = [[stack.numbers[:7], stack.numbers_of(stack.t - 1)[:7]] for stack in stacks]
        self._sent[self._turn, ..., :7] = torch.tensor(rows, dtype=torch.float64)
        self._rows.copy_(self._sent[self._turn], non_blocking=True)

    def rows(self, usable: Tensor) -> Sequence[Tensor]:
        """On the device: each stack's row as `Numbers.row` describes it."""
        rows = torch.where(self._flags[0], self._rows[:, 0], self._rows[:, 1])
        rows[:, 7] = usable
        return rows.unbind()

    def report(self, usable: Tensor, taken: Tensor) -> None:
        """On the device: what came of the step."""
        torch.stack([usable, taken], out=self._flags)

    def fetch(self, states: list[State]) -> Pending:
        """Ask for the report of the step launched last."""
        heard = self._heard[self._turn]
        heard.copy_(self._flags, non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        return Pending(states, heard, event)

    def settled(self) -> None:
        """The host has heard everything: its counters are right."""
        self._flags.fill_(True)

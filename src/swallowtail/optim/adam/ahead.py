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

from swallowtail.optim.adam.state import Stack, State
from swallowtail.optim.base import BAD_GRADIENT, BAD_PARAMETER, warn_skipped


class Ahead:
    """What host and device tell each other about ``n_stacks`` stacks; buffers take turns, for two steps at a time."""

    def __init__(self, n_stacks: int, device: torch.device) -> None:
        self._flags = torch.ones(2, dtype=torch.bool, device=device)
        self._rows = torch.ones(n_stacks, 2, 8, dtype=torch.float64, device=device)
        self._sent = torch.ones(2, n_stacks, 2, 8, dtype=torch.float64).pin_memory()
        self._heard = torch.ones(2, 2, dtype=torch.bool).pin_memory()
        self._turn = 0

    def send(self, stacks: Sequence[Stack]) -> None:
        """The numbers of the next step, and of the same step if the last one turns out not to count."""
        rows = [[stack.numbers[:7], stack.numbers_of(max(1, stack.t - 1))[:7]] for stack in stacks]
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
        self._turn = 1 - self._turn
        event = torch.cuda.Event()
        event.record()
        return Pending(self, states, heard, event)

    def settled(self) -> None:
        """The host has heard everything: its counters are right."""
        self._flags.fill_(True)


class Pending(NamedTuple):
    """A step whose outcome is not known yet."""

    ahead: Ahead
    states: list[State]
    flags: Tensor  # pinned; what `Ahead.report` was told, once the event has come
    event: torch.cuda.Event


class UnderWay:
    """The steps that were launched and not yet heard of: two while one is being launched, else one at most."""

    def __init__(self) -> None:
        self._aheads: dict[tuple[int, torch.device], Ahead] = {}
        self._pending: list[Pending] = []

    def ahead(self, n_stacks: int, device: torch.device) -> Ahead:
        """For steps of so many stacks there; the same as last time, since recorded steps read what it holds."""
        if (n_stacks, device) not in self._aheads:
            self._aheads[n_stacks, device] = Ahead(n_stacks, device)
        return self._aheads[n_stacks, device]

    def add(self, ahead: Ahead, states: list[State]) -> None:
        """A step of these states has been launched; hear of the one before."""
        for state in states:
            state["step"] += 1
        self._pending.append(ahead.fetch(states))
        if len(self._pending) > 1:
            self._hear(self._pending.pop(0))

    def settle(self) -> None:
        """Wait for all."""
        while self._pending:
            step = self._pending.pop(0)
            step.ahead.settled()
            self._hear(step)

    def _hear(self, step: Pending) -> None:
        step.event.synchronize()
        usable, taken = step.flags.tolist()
        for state in step.states if not usable else ():
            state["step"] -= 1
        if not taken:
            warn_skipped(BAD_PARAMETER if usable else BAD_GRADIENT)

"""What host and device tell each other about steps that are launched without waiting for the one before.

The device knows first whether a gradient was usable. Kernels look at the answer themselves, and leave everything as
it was where it is no. The host hears of it one step later. Until then its counters may be one too high, so it sends
the numbers of a step for both cases, and the device takes those that are right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from swallowtail.optim.adam.state import DeviceNumbers, Numbers, Stack, State

N_NUMBERS = len(Numbers._fields)


class Mailbox:
    """Messages about steps of ``n_stacks`` stacks. Host buffers alternate: two steps may be under way at a time."""

    def __init__(self, n_stacks: int, device: torch.device) -> None:
        # usable, taken: of the last step, on the device
        self._flags = torch.ones(2, dtype=torch.bool, device=device)
        # for each stack: the numbers of the next step, and those it has if the last step does not count
        self._rows = torch.ones(n_stacks, 2, N_NUMBERS, dtype=torch.float64, device=device)
        self._sent = torch.ones(2, n_stacks, 2, N_NUMBERS, dtype=torch.float64).pin_memory()
        self._heard = torch.ones(2, 2, dtype=torch.bool).pin_memory()
        self._turn = 0

    def send(self, stacks: Sequence[Stack]) -> None:
        """The numbers of the next step, and of the same step if the last one turns out not to count."""
        rows = [[stack.numbers, stack.numbers_of(max(1, stack.t - 1))] for stack in stacks]
        self._sent[self._turn] = torch.tensor(rows, dtype=torch.float64)
        self._rows.copy_(self._sent[self._turn], non_blocking=True)

    def numbers(self, usable: Tensor) -> list[DeviceNumbers]:
        """On the device: each stack's numbers, to be used if its gradients are ``usable``."""
        rows = torch.where(self._flags[0], self._rows[:, 0], self._rows[:, 1])
        rows[:, DeviceNumbers.index("used")] = usable
        return [DeviceNumbers(rows, k) for k in range(len(rows))]

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

    mailbox: Mailbox
    states: list[State]
    flags: Tensor  # pinned; what `Mailbox.report` was told, once the event has come
    event: torch.cuda.Event

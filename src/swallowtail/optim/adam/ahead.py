"""Steps that are launched without waiting for the one before.

Waiting to hear whether a step was taken would leave a GPU idle while Python prepares the next one, for as long as the
step itself takes. So the device decides (`mailbox`), and the host corrects its counters one step later.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable

import torch
from torch import Tensor

from swallowtail.optim.adam.bases import KeptBases
from swallowtail.optim.adam.fit import fit_waits
from swallowtail.optim.adam.gpu import gpu_for
from swallowtail.optim.adam.mailbox import Mailbox, Pending
from swallowtail.optim.adam.replay import Replay
from swallowtail.optim.adam.state import Stack, State, params_of, states_of
from swallowtail.optim.adam.step import launch_step
from swallowtail.optim.gradients import BAD_GRADIENT, BAD_PARAMETER, usable, warn_skipped

# Entries. A recording keeps a copy of the parameters, and what a step needs, for as long as it lives; with more
# entries the work outweighs the launches anyway.
RECORDED_UP_TO = 1 << 28


class KnownPlaces:
    """Where the tensors lie that a step reads. Those of the state are looked up again only when they are others."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[list[Tensor], tuple[int, ...] | None]] = {}

    def of(
        self, params: list[Tensor], gradients: list[Tensor], state_of: dict[Tensor, State]
    ) -> Hashable | None:
        """Of all parameters; None where a step cannot be launched without waiting."""
        places: list[Hashable] = []
        device = params[0].device
        if device.type != "cuda" or gpu_for(params[0]) is None:
            return None
        for p, g in zip(params, gradients, strict=True):
            kept = self._state(p, state_of.get(p))
            if kept is None or p.device != device:
                return None
            places.append((p.data_ptr(), p.stride(), g.data_ptr(), g.dtype, g.stride(), kept))
        return tuple(places)

    def _state(self, p: Tensor, state: State | None) -> tuple[int, ...] | None:
        """Where a parameter's state lies; None where there is none, or where its fits wait."""
        if not state:  # a first step is like no other
            return None
        values = state.values()
        known = self._known.get(id(p))
        if known is None or len(known[0]) != len(values) or not all(map(operator.is_, known[0], values)):
            places = None if fit_waits(state) else tuple(value.data_ptr() for value in values)
            known = self._known[id(p)] = list(values), places
        return known[1]


class StepsAhead:
    """Launches steps. Two are under way while one is being launched; else one at most."""

    def __init__(self) -> None:
        self.replay = Replay()
        self._mailboxes: dict[tuple[int, torch.device], Mailbox] = {}
        self._pending: list[Pending] = []
        # of the last step: where its tensors lie, and its stacks
        self._places: Hashable = None
        self._stacks: list[Stack] = []

    def step(
        self,
        gradients: list[Tensor],
        places: Hashable,
        make_stacks: Callable[[], list[Stack]],
        kept_bases: KeptBases,
    ) -> None:
        """Launch a step, then hear what came of the last one."""
        if places != self._places:
            self.settle()
            self._places, self._stacks = places, make_stacks()
        stacks = self._stacks
        for stack in stacks:
            stack.begin_step()
        if any(stack.refit and not stack.grouped for stack in stacks):
            # The counters decide on this, so they must be right; and kernels that fit angles do not look at gradients.
            self.settle()
            if not usable(gradients):
                return
            for stack in stacks:
                stack.begin_step()
        mailbox = self._mailbox(len(stacks), gradients[0].device)
        mailbox.send(stacks)
        early = bool(self._pending)
        if sum(map(torch.numel, gradients)) > RECORDED_UP_TO:
            launch_step(stacks, gradients, kept_bases, mailbox, early)
        else:
            key = (places, id(mailbox), early, *(stack.launch_constants(early) for stack in stacks))
            self.replay(key, lambda: launch_step(stacks, gradients, kept_bases, mailbox, early))
        torch.autograd.graph.increment_version(params_of(stacks))  # replaying does not
        self._launched(mailbox, states_of(stacks))

    def settle(self) -> None:
        """Wait for all steps."""
        while self._pending:
            step = self._pending.pop(0)
            step.mailbox.settled()
            self._hear(step)

    def end(self) -> None:
        """Wait for all steps; the next one is not like the last."""
        self.settle()
        self._places, self._stacks = None, []

    def _mailbox(self, n_stacks: int, device: torch.device) -> Mailbox:
        """The same as last time, since recorded steps read what it holds."""
        if (n_stacks, device) not in self._mailboxes:
            self._mailboxes[n_stacks, device] = Mailbox(n_stacks, device)
        return self._mailboxes[n_stacks, device]

    def _launched(self, mailbox: Mailbox, states: list[State]) -> None:
        """Count a step that has been launched; hear of the one before."""
        torch._foreach_add_([state["step"] for state in states], 1)
        self._pending.append(mailbox.fetch(states))
        if len(self._pending) > 1:
            self._hear(self._pending.pop(0))

    def _hear(self, step: Pending) -> None:
        step.event.synchronize()
        was_usable, taken = step.flags.tolist()
        for state in step.states if not was_usable else ():
            state["step"] -= 1
        if not taken:
            warn_skipped(BAD_PARAMETER if was_usable else BAD_GRADIENT)

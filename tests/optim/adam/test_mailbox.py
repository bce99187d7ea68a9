"""What host and device tell each other, on a CPU, where nothing is pinned and nothing is awaited."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from swallowtail.optim.adam.mailbox import Mailbox
from swallowtail.optim.adam.state import DeviceNumbers, Stack

GROUP = {
    "betas": (0.9, 0.99), "lr": 0.1, "eps": 1e-8, "weight_decay": 0.0, "maximize": False, "statistics_decay": 0.9,
}  # fmt: skip
YES, NO = torch.tensor(True), torch.tensor(False)


@pytest.fixture
def mailbox(monkeypatch):
    monkeypatch.setattr(torch.cuda, "Event", lambda: SimpleNamespace(record=bool, synchronize=bool))
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self)
    return Mailbox(2, torch.device("cpu"))


def stacks_at(*steps: int) -> list[Stack]:
    stacks = [Stack(GROUP, None, [], [{"step": torch.tensor(float(t - 1))}]) for t in steps]
    for stack in stacks:
        stack.begin_step()
    return stacks


def test_the_device_takes_the_numbers_of_this_step(mailbox):
    stacks = stacks_at(3, 7)
    mailbox.send(stacks)
    for stack, found in zip(stacks, mailbox.numbers(YES), strict=True):
        assert found.row.tolist() == list(stack.numbers)


def test_after_a_step_that_does_not_count_it_takes_those_of_the_step_before(mailbox):
    stacks = stacks_at(3, 1)
    mailbox.report(NO, NO)
    mailbox.send(stacks)
    found = mailbox.numbers(YES)
    assert found[0].row.tolist() == list(stacks[0].numbers_of(2))
    assert found[1].row.tolist() == list(stacks[1].numbers_of(1))  # there is no step before the first
    mailbox.settled()
    assert mailbox.numbers(YES)[0].row.tolist() == list(stacks[0].numbers)


def test_unusable_gradients_are_marked(mailbox):
    mailbox.send(stacks_at(2, 2))
    assert all(found.row[DeviceNumbers.index("used")] == 0 for found in mailbox.numbers(NO))


def test_reports_of_two_steps_are_kept_apart(mailbox):
    mailbox.report(YES, NO)
    first = mailbox.fetch([])
    mailbox.report(NO, NO)
    second = mailbox.fetch([])
    assert first.flags.tolist() == [True, False]
    assert second.flags.tolist() == [False, False]

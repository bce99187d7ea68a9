"""What L-BFGS remembers: the gate."""

from __future__ import annotations

import torch

from swallowtail.optim.lbfgs.memory import learn, learned_is_used, new_memory
from swallowtail.optim.lbfgs.settings import Settings


def test_a_planted_diagonal_opens_the_gate():
    d = torch.logspace(-3, 0, 64, dtype=torch.float64)
    memory, settings = new_memory(d, 10), Settings(preconditioner="diagonal")
    generator = torch.Generator().manual_seed(0)
    for _ in range(24):
        s = torch.randn(64, generator=generator, dtype=torch.float64)
        learn(memory, s, d * s, settings)
    assert float(memory["gate"]) > 0
    learned = memory["inverse_eigenvalues"]
    assert float(torch.corrcoef(torch.stack([learned.log(), -d.log()]))[0, 1]) > 0.8


def test_later_the_gate_asks_for_more():
    memory = new_memory(torch.ones(4), 10)
    memory["gate"].fill_(0.15)
    used = []
    for n_fits in (0, 1, 5, 30, 1000):
        memory["n_fits"].fill_(n_fits)
        used.append(learned_is_used(memory))
    assert used == [False, True, True, False, False]
    memory["gate"].fill_(0.21)
    assert learned_is_used(memory)

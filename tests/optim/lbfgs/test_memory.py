"""What L-BFGS remembers: the gate."""

from __future__ import annotations

import torch

from swallowtail.optim.lbfgs.memory import learn, new_memory
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

"""A quadratic with a planted Hessian, and steps on it."""

from __future__ import annotations

import numpy as np
import torch

from swallowtail import random_symmetric

N = 16


def quadratic(seed=0):
    H = np.asarray(random_symmetric(N, 4, seed))
    d, U = np.linalg.eigh(H)
    H = torch.tensor((U * (np.abs(d) + 0.05)) @ U.T)
    target = torch.randn(N, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    u = torch.nn.Parameter(torch.zeros(N, dtype=torch.float64))
    return u, lambda: 0.5 * (u - target) @ H @ (u - target), H


def run(u, loss, optimizer, steps):
    def closure():
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    for _ in range(steps):
        optimizer.step(closure)
    return loss().item()

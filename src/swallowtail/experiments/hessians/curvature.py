"""Trained networks on digits and products with the Hessian, or the GGN, of their mean loss."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor
from torch.nn import functional as F

from swallowtail.experiments.common.digits import digits
from swallowtail.gaussians.laplace import GivensLaplace

DECAY = 1e-3  # weight decay while training


def inputs(n: int, rows: int) -> tuple[Tensor, Tensor]:
    """Digits with n = 64 pixels, or 16: means over squares of four."""
    X, y = digits(rows)
    return (X, y) if n == 64 else (F.avg_pool2d(X.view(-1, 1, 8, 8), 2).flatten(1), y)


class Curvature:
    """The mean loss of a trained network on digits: products with its Hessian or GGN, and a gradient elsewhere."""

    def __init__(self, widths: tuple[int, ...], kind: str, rows: int, seed: int) -> None:
        X, y = inputs(widths[0], rows + 200)
        self.model = trained(widths, rows, seed)
        self._batch, self._rows = (X[:rows], y[:rows]), rows
        self._laplace = GivensLaplace(self.model, "classification", curvature=kind)
        self.n = len(self._laplace.mean)
        loss = F.cross_entropy(self.model(X[rows:]), y[rows:])
        parts = torch.autograd.grad(loss, list(self.model.parameters()))
        self.gradient = torch.cat([g.reshape(-1) for g in parts]).numpy()

    def __call__(self, V: np.ndarray) -> np.ndarray:
        """H V for columns V (n, k), by differentiating twice."""
        return self._laplace._products([self._batch], V) / self._rows


def trained(widths: tuple[int, ...], rows: int, seed: int) -> torch.nn.Module:
    """A tanh network, cross-entropy with weight decay, minimised by L-BFGS."""
    X, y = inputs(widths[0], rows + 200)
    generator = torch.Generator().manual_seed(seed)
    layers: list[torch.nn.Module] = []
    for m, n in pairwise(widths):
        layer = torch.nn.Linear(m, n, dtype=torch.float64)
        with torch.no_grad():
            layer.weight.copy_(torch.randn(n, m, generator=generator, dtype=torch.float64) / m**0.5)
            layer.bias.zero_()
        layers += [layer, torch.nn.Tanh()]
    model = torch.nn.Sequential(*layers[:-1])
    params = list(model.parameters())

    def value(u: np.ndarray) -> tuple[float, np.ndarray]:
        torch.nn.utils.vector_to_parameters(torch.from_numpy(u), params)
        squares = torch.stack([p.square().sum() for p in params]).sum()
        loss: Tensor = F.cross_entropy(model(X[:rows]), y[:rows]) + 0.5 * DECAY * squares
        grads = torch.autograd.grad(loss, params)
        return loss.item(), torch.cat([g.reshape(-1) for g in grads]).numpy()

    start = torch.nn.utils.parameters_to_vector(params).detach().numpy().copy()
    found = minimize(value, start, jac=True, method="L-BFGS-B", options={"maxiter": 200})
    torch.nn.utils.vector_to_parameters(torch.from_numpy(found.x), params)
    return model

"""Gradients are counted, and the least loss is one."""

import numpy as np
import pytest
import torch

from swallowtail.experiments.algorithm2.problems import (
    Flat,
    LimitReachedError,
    Problem,
    digits_network,
    make_problem,
)
from swallowtail.experiments.algorithm2.runs import contenders


def test_every_gradient_is_counted_and_the_best_loss_kept():
    u = torch.nn.Parameter(torch.tensor([2.0], dtype=torch.float64))
    flat = Flat(Problem([u], lambda _: (u**2).sum()), limit=3)
    for at, best in ((1.0, 1.0), (3.0, 1.0), (0.5, 0.25)):
        value, gradient = flat(np.array([at]))
        assert (value, gradient[0]) == (at**2, 2 * at)
        assert flat.curve[-1] == (len(flat.curve), best)
    with pytest.raises(LimitReachedError):
        flat(np.array([0.0]))
    assert len(flat.curve) == 3


def test_the_least_loss_of_logistic_regression_is_a_minimum():
    problem = make_problem("logistic", 2, 30)
    for seed in range(3):
        other = digits_network((64, 10), seed, 30, decay=1e-3)
        assert float(other.loss(None).detach()) > problem.least
    flat = Flat(problem, 300)
    contenders("logistic")["L-BFGS"](flat)
    assert flat.curve[-1][1] == pytest.approx(problem.least, rel=1e-6)

"""Optimisers: the paper's Algorithm 2, and what it was reaching for."""

from swallowtail.optim.adam.optimizer import GivensAdam
from swallowtail.optim.lbfgs import GivensLBFGS
from swallowtail.optim.newton import GivensNewton
from swallowtail.optim.scipy_method import minimize_givens

__all__ = ["GivensAdam", "GivensLBFGS", "GivensNewton", "minimize_givens"]

"""Optimisers: the paper's Algorithm 2 (`GivensNewton`), and what it leads to.

`GivensLBFGS` and `minimize_givens` are for deterministic problems, `GivensAdam` for stochastic ones.
"""

from swallowtail.optim.adam import GivensAdam
from swallowtail.optim.lbfgs import GivensLBFGS, minimize_givens
from swallowtail.optim.newton import GivensNewton

__all__ = ["GivensAdam", "GivensLBFGS", "GivensNewton", "minimize_givens"]

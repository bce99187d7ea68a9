"""L-BFGS that learns its H₀. Each file imports only from those below it:

optimizer      GivensLBFGS, the torch.optim.Optimizer
scipy_method   minimize_givens, a method of scipy.optimize.minimize
iteration      the algorithm on one vector, for both
line_search    strong Wolfe
memory         the samples (s, y), and H₀ learned from them
settings       the options that both share
"""

from swallowtail.optim.lbfgs.optimizer import GivensLBFGS
from swallowtail.optim.lbfgs.scipy_method import minimize_givens

__all__ = ["GivensLBFGS", "minimize_givens"]

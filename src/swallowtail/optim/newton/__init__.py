"""The paper's Algorithm 2. Each file imports only from those below it:

optimizer   GivensNewton, the torch.optim.Optimizer
block       one parameter group as a vector: its gradients, its samples, its move
hessian     Ĥ = Q D Qᵀ, learned from samples
"""

from swallowtail.optim.newton.optimizer import GivensNewton

__all__ = ["GivensNewton"]

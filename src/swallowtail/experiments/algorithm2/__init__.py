"""The paper's Algorithm 2: optimisation with the tracked Hessian."""

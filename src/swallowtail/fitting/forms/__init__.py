"""The two objectives: which forms are tried on a matrix, in which order, and how each is fitted.

`symmetric` maximises Σ diag(QᵀHQ)² (or the likelihood), `orthogonal` trace(QᵀR).
"""

"""Gaussians whose covariance is Q D Qᵀ: estimators, mixtures, distributions, Bayesian regression."""

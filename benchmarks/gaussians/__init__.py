"""Covariances, mixtures and Laplace posteriors beside their rivals: python -m benchmarks.gaussians."""

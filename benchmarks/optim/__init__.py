"""The optimisers beside their rivals: python -m benchmarks.optim and python -m benchmarks.optim.gpu."""

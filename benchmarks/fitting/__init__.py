"""Fits beside c·I, c·I + low rank and pyfaust's eigtj: python -m benchmarks.fitting."""

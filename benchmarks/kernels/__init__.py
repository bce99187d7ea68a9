"""The kernels beside copy, dense products, FFT, low rank and other packages: python -m benchmarks.kernels."""

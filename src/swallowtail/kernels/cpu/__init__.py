"""Kernels for CPUs: Numba functions over LLVM vector codelets."""

"""Emits the LLVM vector code that the CPU kernels are made of."""

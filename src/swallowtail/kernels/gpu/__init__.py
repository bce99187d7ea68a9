"""Kernels for GPUs: Triton, and Gluon where the layout of registers has to be said."""

"""Gluon kernels: who holds which number is said in the source. For warps of 32 threads."""

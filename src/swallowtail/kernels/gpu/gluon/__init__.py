"""Gluon kernels: the source says which thread has which numbers. For warps of 32 threads."""

"""Triton kernels. They run on any GPU and in Triton's interpreter."""

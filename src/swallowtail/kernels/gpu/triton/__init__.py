"""Triton kernels; they also run in Triton's interpreter."""

"""Measuring on one thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numba
import torch
from threadpoolctl import threadpool_limits  # comes with scikit-learn


@contextmanager
def one_thread() -> Iterator[None]:
    """PyTorch, Numba and the libraries of linear algebra use one thread each."""
    torch.set_num_threads(1)
    numba.set_num_threads(1)
    with threadpool_limits(1):
        yield

"""Scikit-learn's digits, the data of the networks that are trained here."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from swallowtail.datasets import import_optional


@lru_cache(maxsize=4)
def digits(rows: int) -> tuple[Tensor, Tensor]:
    """The first so many of scikit-learn's 8×8 digits in a fixed random order, pixels in [0, 1], and their labels."""
    X, y = import_optional("sklearn.datasets", "sklearn").load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))[:rows]
    return torch.from_numpy(X[order] / 16.0), torch.from_numpy(y[order].astype(np.int64))

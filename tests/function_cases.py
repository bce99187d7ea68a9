"""A small matrix, a sparse one, and a function of both: what tests of targets share."""

import numpy as np
import scipy.sparse as sp
import torch

import swallowtail as st

N = 48
A = st.random_symmetric(N, 6, seed=3) + 0.2 * np.eye(N)
LINE = sp.diags_array(
    [np.full(N, 2.2), np.full(N - 1, -1.0), np.full(N - 1, -1.0)], offsets=[0, 1, -1]
).tocsr()


def heat(d):
    return torch.exp(-3.0 * d)

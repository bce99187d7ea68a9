"""Products of rotations in steps, against the compiled core; kernels are compared in test_kernels.py."""

import numpy as np
import torch

from swallowtail.fitting.core.curvature import derivatives
from swallowtail.fitting.core.product import MATRIX, conjugate, rotate_rows, tile
from swallowtail.fitting.device.walks import DERIVATIVES, STEP, Steps, rotate, walk_back

N, K = 23, 70
RNG = np.random.default_rng(0)
PAIRS, ANGLES = np.stack([RNG.permutation(N)[:2] for _ in range(K)]), RNG.uniform(-3, 3, K)
STEPS = Steps.of(N, PAIRS, torch.device("cpu"))
C, S = STEPS.coefficients(ANGLES, torch.float64)


def test_steps_share_no_row_and_keep_the_order():
    both = torch.stack([STEPS.first, STEPS.second]).numpy()
    np.testing.assert_array_equal(both[:, STEPS.place].T, PAIRS)
    for begin in range(0, both.shape[1], STEP):
        rows = both[:, begin : begin + STEP]
        rows = rows[rows >= 0]
        assert len(np.unique(rows)) == len(rows)


def test_rotations_there_and_back():
    X = RNG.standard_normal((N, 5))
    expected, Y = X.copy(), torch.from_numpy(X.copy())
    rotate_rows(expected, PAIRS, np.cos(ANGLES), np.sin(ANGLES), True)
    rotate(Y, STEPS, C, S)
    np.testing.assert_allclose(Y, expected, atol=1e-13)
    rotate(Y, STEPS, C, S, back=True)
    np.testing.assert_allclose(Y, X, atol=1e-13)


def test_sums_are_the_derivatives():
    A = RNG.standard_normal((N, N))
    A = A + A.T
    V = torch.from_numpy(conjugate(A, PAIRS, ANGLES))
    d = V.diagonal().clone()
    sums = walk_back(V, torch.eye(N, dtype=torch.float64), d, STEPS, C, S, DERIVATIVES)[
        :, STEPS.place
    ].numpy()
    wedge, steep, along, mii, mij, mjj, xx, xy, yy = sums
    _, gradient, bend = derivatives(tile(A), PAIRS, ANGLES, MATRIX, 0.0)
    np.testing.assert_allclose(2 * wedge, gradient, atol=1e-10)
    np.testing.assert_allclose(
        4 * steep + 2 * (mii * yy - 2 * mij * xy + mjj * xx - along), bend, atol=1e-10 * np.abs(bend).max()
    )

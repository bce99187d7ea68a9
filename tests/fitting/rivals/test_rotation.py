"""The rivals of a rotation."""

import numpy as np

from swallowtail import random_orthogonal
from swallowtail.fitting.rivals import low_rank_rotation


def test_low_rank_rival_of_a_rotation_is_the_best():
    R = random_orthogonal(12, 0)
    for r, form in low_rank_rotation(R, [0, 1, 3, 12]).items():
        error = np.linalg.norm(R - form @ np.eye(12))
        for c in np.linspace(-1, 1, 41):
            rest = np.linalg.svd(R - c * np.eye(12), compute_uv=False)[r:]
            assert error <= np.linalg.norm(rest) + 1e-9

"""The compiled parts that `test_small` does not compare step by step."""

from __future__ import annotations

import numpy as np

from swallowtail.optim.adam import compiled


def test_largest_square_knows_nan():
    work = np.zeros(1)
    for values, expected in (([3.0, 4.0], 25.0), ([np.nan, 1.0], np.inf), ([1e200, 1.0], np.inf)):
        row, gradient = np.zeros((1, compiled.WIDTH), np.int64), np.array(values)
        row[0, compiled.GRADIENT], row[0, compiled.COLUMNS] = gradient.ctypes.data, 2
        assert compiled.largest_square(row, work) == expected

"""The floating-point flags say exactly when a result overflows, is invalid, or is subnormal and inexact."""

import math

import numpy as np
import pytest
import torch

from swallowtail.kernels.cpu import elementwise
from swallowtail.kernels.cpu.codegen.flags import OVERFLOW, READABLE, UNDERFLOW

TINY = float(np.finfo(np.float32).tiny)


@pytest.mark.skipif(not READABLE, reason="this processor's flags are not read")
@pytest.mark.parametrize(
    ("x", "factor", "flags"),
    [
        (1.0, 3.0, 0),
        (0.0, 3.0, 0),
        (1e30, 1e30, OVERFLOW),
        (math.inf, 0.0, OVERFLOW),  # invalid
        (math.inf, 2.0, 0),
        (math.nan, 2.0, 0),
        (1e-30, 1e-30, UNDERFLOW),
        (TINY, 1 / 3.0, UNDERFLOW),
        (TINY, 0.5, 0),  # subnormal, and exact
    ],
)
def test_flags_of_a_product(x, factor, flags):
    rows = np.full((3, 33), x, np.float32)
    rows[1:] = 1
    factors = np.ones(33, np.float32)
    factors[:] = factor if factor else 1.0
    if not factor:
        factors[5] = 0
    assert elementwise.multiply_rows(rows, factors) == flags
    assert elementwise.multiply_rows(np.ones((1, 33), np.float32), factors) == 0  # cleared again


def test_subnormal_numbers_are_not_flushed():
    """Neither by Numba's code nor, unless somebody asks for it, by PyTorch's."""
    rows = np.full((1, 40), 2.0**-140, np.float32)
    elementwise.multiply_rows(rows, np.full(40, 0.5, np.float32))
    assert (rows == np.float32(2.0**-141)).all()
    assert float(torch.full((1,), 2.0**-140) * 0.5) == 2.0**-141

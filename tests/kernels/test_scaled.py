"""Scaling by powers of two is exact, and keeps what is summed in proportion."""

import math

import pytest
import torch

from swallowtail.kernels import scaled

RANGES = {torch.float32: (-149, 127), torch.float64: (-1074, 1023)}


@pytest.mark.parametrize("dtype", RANGES, ids=str)
def test_shift_by_every_power_is_exact(dtype):
    """PyTorch does not promise that exp2 of an integer is exact: the whole module rests on it."""
    low, high = RANGES[dtype]
    powers = torch.arange(low, high + 1)
    expected = torch.tensor([math.ldexp(1.0, k) for k in powers.tolist()], dtype=torch.float64)
    ones = torch.ones(len(powers), dtype=dtype)
    assert torch.equal(scaled.shift(ones, powers).double(), expected)
    for k in range(low, high + 1):  # one number alone goes through other code than a vector of them
        assert float(scaled.shift(ones[:1], powers[k - low : k - low + 1])) == math.ldexp(1.0, k)
    smallest, largest = expected.to(dtype)[0], expected.to(dtype)[-1]
    assert float(scaled.shift(smallest, torch.tensor(high - low))) == float(largest)
    assert float(scaled.shift(largest, torch.tensor(low - high))) == float(smallest)


def test_moderate_vectors_are_left_alone():
    x = torch.tensor([[1e-10, 1e10], [0.0, 0.0], [1e-30, 1e-20], [1e30, 1.0], [math.inf, 1.0]])
    e = scaled.row_exponents(x)
    assert e[:, 0].tolist() == [0, 0, -66, 100, 0]


@pytest.mark.parametrize("dtype", RANGES, ids=str)
def test_products_of_extreme_vectors_are_in_proportion(dtype):
    """Zeros, whose gradients are huge, neither count nor overflow."""
    big, small = (1e38, 1e-40) if dtype == torch.float32 else (1e300, 1e-310)
    y = torch.tensor([[[0.0, 0.0], [small, small], [1.0, 1.0]]], dtype=dtype)
    g = torch.tensor([[[big, big], [big, big], [small, small]]], dtype=dtype)
    a, common = scaled.outer_exponents(y, g)
    left, right = scaled.shift(y, -a), scaled.shift(g, a - common)
    assert torch.isfinite(left).all()
    assert torch.isfinite(right).all()
    sums = scaled.shift((left * right).sum(-2), common[:, 0])
    assert sums.double()[0].tolist() == pytest.approx([float(y[0, 1, 0]) * float(g[0, 1, 0])] * 2, rel=1e-6)

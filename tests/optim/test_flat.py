"""Several parameters as one vector."""

from __future__ import annotations

import torch

from swallowtail.optim.flat import FlatParameters


def test_values_and_gradients_in_the_widest_dtype():
    a, b = torch.nn.Parameter(torch.ones(2, 3)), torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
    flat = FlatParameters([a, b])
    assert flat.values().tolist() == [1] * 6 + [0] * 2
    assert flat.values().dtype == torch.float64
    a.grad = torch.arange(6.0).reshape(2, 3)
    assert flat.gradient().tolist() == [0, 1, 2, 3, 4, 5, 0, 0]
    assert flat.gradient(negate=True).tolist() == [0, -1, -2, -3, -4, -5, 0, 0]
    assert a.grad[1, 2] == 5  # the user's own is left alone


def test_split_and_assign_undo_join():
    params = [torch.nn.Parameter(torch.zeros(shape, dtype=torch.bfloat16)) for shape in ((2, 2), (), (3,))]
    flat = FlatParameters(params)
    x = torch.arange(8.0)
    pieces = flat.split(x)
    assert [piece.shape for piece in pieces] == [p.shape for p in params]
    assert torch.equal(flat.join(pieces), x)
    flat.assign(x)
    assert torch.equal(flat.values(), x)
    assert all(p.dtype == torch.bfloat16 for p in params)

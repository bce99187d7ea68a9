"""Gradients of Q D Qᵀx and xᵀQ D Qᵀx over the range in which D Qᵀx and D Qᵀg are, against an oracle of its own."""

from __future__ import annotations

import numpy as np
import torch
from cases import tolerance
from hypothesis import assume, given, settings
from range_cases import WIDE, cases, dense, norm, walk_back

from swallowtail import ops


@settings(deadline=None, max_examples=60)
@given(case=cases())
def test_gradients_of_products_over_the_range(case):
    number, n, layers = case.x.dtype.type, case.wiring.n, case.wiring.n_layers
    largest = WIDE(np.finfo(number).max) / (4 * n)
    d_size, x_size, g_size = (np.abs(z.astype(WIDE)).max() for z in (case.d, case.x, case.g))
    assume(max(d_size, 1) * max(x_size, g_size, 1) ** 2 < largest)  # otherwise some gradients do not fit
    angles, d, x = (torch.from_numpy(z).requires_grad_() for z in (case.angles, case.d, case.x))
    g = torch.from_numpy(case.g)
    Q = dense(case.layers, case.angles, n, WIDE)
    w, h = case.x @ Q, case.g @ Q
    step = n * WIDE(np.finfo(number).smallest_subnormal) * len(case.x)
    usual, size_x, size_g = tolerance(g.dtype, 2 * layers), norm(case.x), norm(case.g)

    y = ops.symmetric_matvec(x, case.wiring, angles, d)
    grads = torch.autograd.grad(y, (x, angles, d), g)
    size = d_size * size_x * size_g
    right = walk_back(case.layers, case.angles, w, case.d * h, True)
    left = walk_back(case.layers, case.angles, case.d * w, h, True)
    expected = ((case.d * h) @ Q.T, right - left, (w * h).sum(0))
    bounds = (usual * d_size * size_g[:, None], 2 * usual * size.sum(), usual * (size_x * size_g).sum())
    # What underflows in D Qᵀg is multiplied by x afterwards, and the other way round.
    lost = step * (1 + np.array([d_size, size_x.sum() + size_g.sum(), size_x.sum() + size_g.sum()]))
    for actual, exact, bound, more in zip(grads, expected, bounds, lost, strict=True):
        assert (np.abs(actual.numpy() - exact) <= bound + more).all()

    q = ops.quadratic_form(x, case.wiring, angles, d)
    grads = torch.autograd.grad(q.sum(), (x, angles, d))
    expected = (
        2 * (case.d * w) @ Q.T,
        walk_back(case.layers, case.angles, w, 2 * case.d * w, True),
        (w * w).sum(0),
    )
    bounds = (
        2 * usual * d_size * size_x[:, None],
        2 * usual * d_size * (size_x**2).sum(),
        2 * usual * (size_x**2).sum(),
    )
    lost = step * (1 + np.array([d_size, size_x.sum(), size_x.sum()]))
    for actual, exact, bound, more in zip(grads, expected, bounds, lost, strict=True):
        assert (np.abs(actual.numpy() - exact) <= bound + more).all()

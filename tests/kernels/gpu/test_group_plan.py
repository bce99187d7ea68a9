"""Which wirings are block-diagonal, and what their tables say."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from kernels.gpu.grouping import fixed_groups

from swallowtail.kernels import reference
from swallowtail.kernels.gpu.group_plan import group_plan
from swallowtail.wiring import Butterfly, Grouped, Pairs


def test_fixed_groups_of_128():
    plan = group_plan(fixed_groups(3584, 128, 2), torch.bfloat16)
    assert plan.size == 128
    assert plan.starts.tolist() == list(range(0, 3585, 128))
    assert plan.even
    assert plan.unit == 8


@pytest.mark.parametrize(("n", "last"), [(4000, 32), (300, 44)])
def test_the_last_group_may_be_shorter(n, last):
    plan = group_plan(fixed_groups(n, 128, 1), torch.float16)
    assert np.diff(plan.starts)[-1] == last
    assert not plan.even
    assert plan.unit == (8 if n == 4000 else 4)


def test_small_groups_are_put_together():
    wiring = fixed_groups(256, 16, 2)
    assert group_plan(wiring, torch.bfloat16).n_blocks == 2
    assert group_plan(wiring, torch.float32).n_blocks == 4
    assert group_plan(Pairs(5, [[(0, 4)]]), torch.float32).starts.tolist() == [0, 5]


def test_wirings_that_are_not_block_diagonal():
    assert group_plan(Butterfly(1024), torch.bfloat16) is None
    assert group_plan(Pairs(200, [[(0, 150)]]), torch.float32) is None
    assert group_plan(Pairs(200, []), torch.bfloat16) is None
    assert group_plan(Butterfly(64), torch.float64) is None


def test_large_blocks_in_half_precision_are_full_or_alone():
    assert group_plan(Butterfly(200), torch.bfloat16).size == 256
    assert group_plan(fixed_groups(512, 256, 1), torch.float16).n_blocks == 2
    assert group_plan(fixed_groups(700, 256, 1), torch.float16) is None
    assert group_plan(fixed_groups(512, 256, 1), torch.float32) is None


@pytest.mark.parametrize(
    "wiring", [fixed_groups(50, 20, 3), Butterfly(24, 2, reverse=True), Grouped.from_wiring(Butterfly(40), 8)]
)
def test_levels_are_the_rotation(wiring):
    """Walk through the tables in NumPy."""
    plan = group_plan(wiring, torch.float32)
    theta = np.linspace(-3, 3, wiring.n_rotations)
    x = np.random.default_rng(0).normal(size=wiring.n)
    expected = reference.rotate(wiring, torch.tensor(theta)[None], torch.tensor(x)[None, None])[0, 0].numpy()
    for q, (start, stop) in enumerate(zip(plan.starts, plan.starts[1:], strict=False)):
        y = np.zeros(plan.size)
        y[: stop - start] = x[start:stop]
        for partner, angle in zip(plan.partner[::-1, q], plan.angle[::-1, q], strict=True):
            t = np.where(angle != 0, theta[np.abs(angle) - 1], 0.0)
            y = np.cos(t) * y + np.sign(angle) * np.sin(t) * y[partner]
        np.testing.assert_allclose(y[: stop - start], expected[start:stop], atol=1e-13)

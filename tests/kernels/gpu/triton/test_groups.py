"""How the stages of a pass are shared out among its groups."""

from __future__ import annotations

import pytest

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from swallowtail.kernels.gpu import plan
from swallowtail.kernels.gpu.triton.groups import direct_group, first_bit, radix

PASSES = sorted(
    {p for n in (2, 9, 17, 100, 500, 1000, 2000, 4000, 2**13, 2**17, 2**24) for p in plan.passes_of(n)}
)


@pytest.mark.parametrize("p", [*PASSES, *(training.whole for training in plan.TRAINING.values())])
def test_groups_follow_each_other_and_cover_the_pass(p):
    stages = []
    for group in range(p.groups):
        first, r = int(first_bit(group, p.groups, p.bits)), int(radix(group, p.groups, p.bits))
        assert 1 <= r <= 4
        stages += range(first, first + r)
    assert stages == list(range(p.bits))


@pytest.mark.parametrize("growing", [False, True])
@pytest.mark.parametrize("groups", [1, 3])
def test_tiles_are_read_in_the_layout_of_the_group_of_the_largest_strides(growing, groups):
    """Only there neighbouring threads have neighbouring numbers; strided tiles have them in every group."""
    first, last = (0, groups - 1) if growing else (groups - 1, 0)
    direct = lambda group: group if group == groups - 1 else -1
    assert int(direct_group(growing, True, groups, 1, True)) == direct(first)
    assert int(direct_group(growing, False, groups, 1, True)) == direct(last)
    assert int(direct_group(growing, True, groups, 64, True)) == first
    assert int(direct_group(growing, False, groups, 64, True)) == last
    assert int(direct_group(growing, True, groups, 64, False)) == -1

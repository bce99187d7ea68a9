"""Layouts of vectors that a program keeps whole in registers."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from swallowtail.kernels.gpu import plan
from swallowtail.kernels.gpu.gluon import layouts
from swallowtail.kernels.gpu.triton.groups import radix

KINDS = [(plan.WHOLE, *tile) for tile in plan.WHOLE_TILES.values()]
KINDS += [(t.whole, 2, t.warps) for t in plan.TRAINING.values()]


@pytest.mark.parametrize(("p", "rows", "warps"), KINDS)
def test_each_number_is_in_one_register_of_one_thread(p, rows, warps):
    for group in range(p.groups):
        layout = layouts.group_layout(group, p.groups, p.bits, rows, warps)
        partners = 2 ** int(radix(group, p.groups, p.bits))
        covered = [
            math.prod(sizes)
            for sizes in zip(
                layout.size_per_thread, layout.threads_per_warp, layout.warps_per_cta, strict=True
            )
        ]
        assert covered == [partners, rows, 2**p.bits // partners]


@pytest.mark.parametrize(("growing", "expected"), [(True, [0, 0, 1, 2]), (False, [1, 2, 3, 3])])
def test_the_group_before(growing, expected):
    assert [int(layouts.previous(group, 4, growing)) for group in range(4)] == expected

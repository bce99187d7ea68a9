"""Which launches may share a binary."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from swallowtail.kernels.gpu_launch import _kinds


def test_what_triton_compiles_apart_is_told_apart():
    x = torch.zeros(8)
    kinds = [_kinds((a,)) for a in (1, 16, 7, 2**31, 2**31 + 1, 1.0, x, x[1:], x.double())]
    assert all(a != b for i, a in enumerate(kinds) for b in kinds[:i])


def test_other_values_of_a_kind_are_not():
    x = torch.zeros(8)
    for one, other in ((16, 32), (7, 9), (1.0, 16.0), (x, x[4:])):
        assert _kinds((one,)) == _kinds((other,))

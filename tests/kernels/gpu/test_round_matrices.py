"""The matrices of a round against the reference with the other angles set to zero."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from interpreter import needs_kernels

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from kernels.gpu.checking import assert_close, problem

from swallowtail.kernels import reference
from swallowtail.kernels.gpu.round_matrices import matrices
from swallowtail.wiring import Butterfly


@needs_kernels
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("n", "stride", "size", "width"), [(32, 1, 8, 32), (29, 4, 8, 32), (50, 8, 2, 16)])
def test_columns_are_the_images_of_unit_vectors(n, stride, size, width, reverse, transpose):
    wiring = Butterfly(n, reverse=reverse)
    angles = problem(wiring, 1, 1, torch.float32)[0]
    made = matrices(wiring, angles, torch.float32, stride, size, width, transpose).cpu()
    strides = np.repeat(wiring.strides, np.diff(wiring.offsets))
    inside = torch.from_numpy((strides >= stride) & (strides < stride * size))
    alone = torch.where(inside, angles.cpu().double(), 0.0)
    Q = reference.rotate(wiring, alone, torch.eye(n, dtype=torch.float64)[None], transpose)[0].T
    columns = -(-n // width)
    assert made.shape == (columns, width // size, size, size)
    whole = torch.eye(columns * width, dtype=torch.float64)
    at = torch.arange(columns * width).view(columns, -1, size, stride).transpose(2, 3).reshape(-1, size)
    for block, places in zip(made.flatten(0, 1), at, strict=True):
        whole[places[:, None], places] = block.double()
    assert_close(whole[:n, :n], Q, 3e-7, "matrices of a round")

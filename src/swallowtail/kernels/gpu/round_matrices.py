"""The small matrices of a round of a butterfly, made from the angles by one launch. Nothing waits for the device.

A round is the stages with strides from ``stride`` to below ``stride · size``. It mixes the coordinates of blocks: those
that differ by multiples of the stride below ``stride · size``.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch

from swallowtail.kernels.gpu.device import constant
from swallowtail.kernels.gpu.launch import launch
from swallowtail.kernels.gpu.triton.sweeps import matrices_kernel
from swallowtail.wiring import Butterfly

COLUMNS = 16  # of a matrix that one program makes


def matrices(
    wiring: Butterfly,
    angles: torch.Tensor,
    dtype: torch.dtype,
    stride: int,
    size: int,
    width: int,
    transpose: bool,
    thirds: bool = False,
) -> torch.Tensor:  # shape: (column blocks, width / size, to, from)
    """The matrices of a round of Q, or of Qᵀ, in float32 arithmetic and rounded once.

    Vectors are cut into column blocks of ``width`` coordinates. With ``thirds``, the first stage is left out and blocks
    are counted as the high round of `gluon.thirds` does.
    """
    partner, angle = _levels(wiring, stride, size, width, transpose, thirds, angles.device)
    levels, count = partner.shape[:2]
    columns = min(COLUMNS, size)
    made = torch.empty(count * size // width, width // size, size, size, dtype=dtype, device=angles.device)
    angles = angles.contiguous()
    launch(
        matrices_kernel, (count, size // columns), angles, partner, angle, angle, angles, made, made, levels, count,
        SYMMETRIC=False, BOTH=False, SIZE=size, COLS=columns, warps=2 if size <= 32 else 4 if size <= 128 else 8,
    )  # fmt: skip
    return made


@cache  # never dropped: recorded launches go on reading it
def _levels(
    wiring: Butterfly, stride: int, size: int, width: int, transpose: bool, thirds: bool, where: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Partners and angles of each stage and block as in `group_plan.GroupPlan`, (stages, blocks, size), int32.

    Coordinate (u · size + i) · stride + v of a column block is the i-th of its block number u · stride + v.
    """
    chosen = [k for k, p in enumerate(wiring.strides) if stride << thirds <= p < stride * size]
    count = -(-wiring.n // width) * (width // size)
    shape = (len(chosen), count, size)
    partner = np.broadcast_to(np.arange(size, dtype=np.int32), shape).copy()
    angle = np.zeros(shape, np.int32)
    for level, layer in enumerate(reversed(chosen) if transpose else chosen):
        pairs = wiring.layer(layer)
        block = pairs[:, 0] // (stride * size) * stride + pairs[:, 0] % stride
        i, j = (pairs // stride % size).T
        number = np.arange(wiring.offsets[layer], wiring.offsets[layer + 1]) + 1
        if transpose:
            number = -number
        partner[level, block, i], partner[level, block, j] = j, i
        angle[level, block, i], angle[level, block, j] = -number, number
    if thirds:  # by bits 0–2, 4–6 and 3 of a coordinate, not by bits 4–6 and 0–3
        partner, angle = (
            a.reshape(-1, 8, 2, 8, size).transpose(0, 3, 1, 2, 4).reshape(shape) for a in (partner, angle)
        )
    return constant(partner, where), constant(angle, where)

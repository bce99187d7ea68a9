"""Pairs and grouped rounds on the GPU: one small matrix per group, many groups at a time, in shared memory.

Where many rotations act on few coordinates, one dense matrix is faster in half precision. It is made once, for
rotations that stay as they are.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from swallowtail.kernels.gpu import device, half_rounds
from swallowtail.kernels.gpu.block_plan import Form
from swallowtail.kernels.gpu.block_tables import power_of_two
from swallowtail.kernels.gpu.gluon.rounds import rounds_kernel
from swallowtail.kernels.gpu.half_rounds import MadeHalf
from swallowtail.kernels.gpu.launch import launch
from swallowtail.kernels.gpu.round_plan import LONG_SHAPES, SHAPES, SPARE, RoundPlan, places, round_plan
from swallowtail.kernels.gpu.triton.sweeps import matrices_kernel
from swallowtail.wiring import Pairs

DTYPES = (torch.bfloat16, torch.float16, torch.float32)


# The most bytes of shared memory with which two programs share a multiprocessor.
HALF_OF_SHARED = 112 << 10
WORDS = 256  # bytes of shared memory beside the vectors
MAX_DENSE = 4096  # coordinates of a dense matrix: 32 MiB


class RoundLayout(NamedTuple):
    """A plan with its tables on a device."""

    plan: RoundPlan
    places: dict[int, torch.Tensor]  # by vectors per program: (steps · warps, size)
    partner: torch.Tensor
    angle: torch.Tensor


class MadeRounds(NamedTuple):
    """The matrices of every group, float32, (steps · warps, size, size)."""

    layout: RoundLayout
    angles: torch.Tensor  # shape: (1, K): what they were made from
    to_basis: torch.Tensor
    from_basis: torch.Tensor
    middle: torch.Tensor | None  # shape: (n,): the eigenvalues; None if there were none


class Dense(NamedTuple):
    """One matrix for all rotations: rows are multiplied from the left."""

    matrix: torch.Tensor  # shape: (n, n)
    gain: torch.Tensor | None  # shape: (1,): as in `block_tables.Made`


class RoundTables:
    """Makes matrices when they are first asked for, and keeps them as long as the angles are valid.

    Args:
        wiring: any pairs.
        angles: shape (1, K).
        eigenvalues: shape (1, n), or None.
        many: they serve so many calls that a dense matrix is worth making.
    """

    def __init__(
        self, wiring: Pairs, angles: torch.Tensor, eigenvalues: torch.Tensor | None, many: bool
    ) -> None:
        self.many = many
        self._wiring, self._angles = wiring, angles.detach()
        self._eigenvalues = None if eigenvalues is None else eigenvalues.detach()
        self._made: MadeRounds | None = None
        self._half: dict[tuple[Form, torch.dtype], MadeHalf] = {}
        self._dense: dict[tuple[bool, torch.dtype], Dense] = {}

    def get(self) -> MadeRounds:
        """The matrices of groups."""
        if self._made is not None:
            return self._made
        made = make(self._wiring, self._angles, self._eigenvalues)
        # Within a graph that is being recorded, nothing is computed yet: others must not read it.
        if not device.capturing(self._angles.device):
            self._made = made
        return made

    def half(self, form: Form, x: torch.Tensor, eigenvalues: torch.Tensor | None) -> MadeHalf | None:
        """The matrices for vectors x in half precision; None where `half_rounds` does not take them."""
        if not half_rounds.suits(self._wiring, x.dtype, x.device):
            return None
        found = self._half.get((form, x.dtype))
        if found is None:
            own = eigenvalues if self._eigenvalues is None else self._eigenvalues
            found = half_rounds.make(self._wiring, self._angles, own, form, x.dtype)
            kept = form != "symmetric" or self._eigenvalues is not None
            if kept and not device.capturing(x.device):
                self._half[form, x.dtype] = found
        return found

    def prefers_dense(self, x: torch.Tensor, both: bool) -> bool:
        """Whether one dense matrix takes less time.

        In half precision, `gluon.rounds` takes 1.3 times as many copies of the vectors as in float32. Q D Qᵀ takes 1.7
        times as many as Q. A dense product takes as long as 0.6 copies, and one more for every 430 coordinates.
        """
        n = x.shape[2]
        if x.itemsize != 2 or n > MAX_DENSE or (both and self._eigenvalues is None):
            return False
        if half_rounds.suits(self._wiring, x.dtype, x.device):
            cost = half_rounds.cost(self._wiring, "symmetric" if both else "from_basis", x.dtype)
        else:
            plan = layout_of(self._wiring, x.device).plan
            cost = 1.3 * plan.shape.cost(plan.steps) * (1.7 if both else 1.0)
        return 0.6 + n / 430 < cost

    def dense(self, to_basis: bool, from_basis: bool, dtype: torch.dtype) -> Dense:
        """The matrix of Q or Qᵀ, one transposed of the other, or of Q D Qᵀ."""
        symmetric = to_basis and from_basis
        kept = self._dense.get((symmetric, dtype))
        if kept is None:
            kept = _make_dense(self.get(), self._wiring.n, symmetric, dtype)
            if not device.capturing(self._angles.device):
                self._dense[symmetric, dtype] = kept
        return kept._replace(matrix=kept.matrix.T) if to_basis and not symmetric else kept


def multiply_dense(dense: Dense, x: torch.Tensor) -> torch.Tensor:
    """The product with x (1, m, n)."""
    with torch.no_grad():
        y = torch.matmul(x, dense.matrix)
        return y if dense.gain is None else y.mul_(dense.gain)  # in float32: fp16 may not hold it


def _make_dense(made: MadeRounds, n: int, symmetric: bool, dtype: torch.dtype) -> Dense:
    """The images of unit vectors, in float32, rounded once."""
    unit = torch.eye(n, device=made.to_basis.device)[None]
    if not symmetric:
        return Dense(apply(made, unit, False, True)[0].to(dtype), None)
    assert made.middle is not None
    gain = power_of_two(made.middle) if dtype == torch.float16 else None  # bf16 has the range of float32
    middle = made.middle if gain is None else made.middle / gain
    return Dense(apply(made, unit, True, True, middle)[0].to(dtype), gain)


def suits(wiring: Pairs, angles: torch.Tensor, dtype: torch.dtype) -> bool:
    """Whether these kernels take one rotation, angles (1, K), of vectors of a dtype."""
    where = angles.device
    return (
        len(angles) == 1
        and dtype in DTYPES
        and device.multiplies_half_blocks(where)
        and _lanes(wiring.n)[-1] * rows(wiring.n) * 4 + WORDS <= device.shared_memory(where)
    )


def layout_of(wiring: Pairs, where: torch.device) -> RoundLayout:
    """The tables of a wiring. They last as long as it does: recorded launches go on reading them."""
    found: RoundLayout | None = wiring.derived.get((layout_of, where))
    if found is None:
        found = wiring.derived[layout_of, where] = _make_layout(wiring, where)
    return found


def _make_layout(wiring: Pairs, where: torch.device) -> RoundLayout:
    lanes = _lanes(wiring.n)
    plan = round_plan(wiring, LONG_SHAPES if lanes == (8,) else SHAPES)
    tensor = lambda array: device.constant(array, where)
    placed = {count: tensor(places(plan, wiring.n, count)) for count in lanes}
    return RoundLayout(plan, placed, tensor(plan.partner), tensor(plan.angle))


def make(wiring: Pairs, angles: torch.Tensor, eigenvalues: torch.Tensor | None = None) -> MadeRounds:
    """The matrices of all groups, in one launch. Nothing waits for the device."""
    layout = layout_of(wiring, angles.device)
    plan, size, angles = layout.plan, layout.plan.shape.size, angles.contiguous()
    count = len(plan.coordinates)
    matrices = torch.empty(count, size, size, dtype=torch.float32, device=angles.device)
    transposed = torch.empty_like(matrices)
    launch(
        matrices_kernel, (count, 1), angles, layout.partner, layout.angle, layout.angle, angles, matrices,
        transposed, len(plan.partner), count, SYMMETRIC=False, BOTH=True, SIZE=size, COLS=size, warps=1,
    )  # fmt: skip
    middle = None if eigenvalues is None else eigenvalues[0].float().contiguous()
    return MadeRounds(layout, angles, transposed, matrices, middle)


def apply(
    made: MadeRounds, x: torch.Tensor, to_basis: bool, from_basis: bool, middle: torch.Tensor | None = None
) -> torch.Tensor:
    """Qᵀ (to basis), the eigenvalues (n,), then Q (from basis), each optional, on x (1, m, n)."""
    x = x.contiguous()
    y = torch.empty_like(x)
    plan, n = made.layout.plan, x.shape[2]
    size, warps = plan.shape[:2]
    available, unit = made.layout.places, 4 if n % 4 == 0 else 1
    # More vectors share each load of a matrix, fewer leave room for more programs. The latter is better where memory
    # takes most of the time.
    few = x.itemsize == 4 and not (to_basis and from_basis)
    lanes = min(available) if few or size == 32 else max(available)
    # Rounding what tensor cores take costs bf16 little; fp16 would lose a digit.
    exact = x.dtype == torch.float16 or (x.dtype == torch.float32 and device.float32_products() == "tf32x3")
    launch(
        rounds_kernel, (-(-x.shape[1] // lanes),),
        x, y, made.to_basis, made.from_basis, available[lanes], made.to_basis if middle is None else middle,
        x.shape[1], n // unit, plan.steps,
        TO_BASIS=to_basis, FROM_BASIS=from_basis, EXACT=exact, UNIT=unit, N=rows(n), SIZE=size, LANES=lanes,
        COLUMNS=128 if lanes == 32 else 32 * warps, WARPS=warps, warps=warps,
    )  # fmt: skip
    return y


def rows(n: int) -> int:
    """Rows of shared memory."""
    return -(-n // 16) * 16 + SPARE


def _lanes(n: int) -> tuple[int, ...]:
    """The numbers of vectors that a program may take, the smallest last."""
    return tuple(lanes for lanes in (32, 16) if 4 * lanes * rows(n) <= HALF_OF_SHARED) or (8,)

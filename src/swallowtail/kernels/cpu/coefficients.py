"""What the CPU kernels read: coefficients of Qᵀ = S·M, made from angles once and kept while those last.

A fast Givens step turns (a, b) into (a + T_a·b, b + T_b·a). M is the product of these steps. The cosines that they lack
are collected in S, one running scale per coordinate, so T_a = tan θ·S_b/S_a and T_b = −tan θ·S_a/S_b. Then

    Qᵀx = S (M x)      Q x = Mᵀ (S x)      Q D Qᵀx = Mᵀ (S D S) M x

so one set of coefficients serves all three. A plain step, (P_a·a + T_a·b, P_b·b + T_b·a), takes the scales into its
coefficients and leaves 1. It is used where a cosine or a scale would be too small.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

from swallowtail.checks import HALF
from swallowtail.kernels.cpu import butterfly as cpu_butterfly
from swallowtail.kernels.cpu import pairs as cpu_pairs
from swallowtail.kernels.cpu.codegen import rows as simd_rows
from swallowtail.kernels.cpu.codegen import shapes as simd
from swallowtail.kernels.cpu.plan import Plan, make_plan
from swallowtail.wiring import Butterfly, Pairs, Wiring, pairs_at_stride

# The smallest cosine and the smallest running scale of a fast step. A right angle is plain, and so exact.
# Smaller scales would mean fewer plain steps at large depth, but S D S has to hold S², and vectors that differ from the
# true ones by 1/S leave the range sooner (`mend`).
SINGLE, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)
MIN_COSINE = {SINGLE: 2.0**-24, DOUBLE: 2.0**-53}
MIN_SCALE = {SINGLE: 2.0**-48, DOUBLE: 2.0**-400}
# Where the largest number of S D S may be below this, D is divided by a power of two: smaller ones would be subnormal.
MIN_MIDDLE = {SINGLE: 2.0**-100, DOUBLE: 2.0**-960}
SPARE_BYTES = 2**20  # of the largest scratch buffer kept for the next call; more would not stay in a cache
_TORCH = {SINGLE: torch.float32, DOUBLE: torch.float64}


def aligned(shape: tuple[int, ...], number: Any) -> np.ndarray:
    """An uninitialised array that starts on a cache line, as torch's do. NumPy's need not, and a vector load that
    straddles two lines counts as two.
    """
    return torch.empty(shape, dtype=_TORCH[np.dtype(number)]).numpy()


def tile(n: int, number: np.dtype, count: int = 1) -> np.ndarray:
    """A scratch buffer that holds ``count`` vectors feature-major, a few registers of them at a time.

    It is zeroed where the last registers are not full: lanes past the end are computed too, and must not meet numbers
    that are slow or raise a flag.
    """
    out = aligned((n, simd_rows.ROW_REGISTERS * simd.lanes(number.itemsize * 8)), number)
    if count % out.shape[1]:
        out[:] = 0
    return out


class Spare:
    """Scratch buffers, borrowed per call: one that an earlier call gave back is still in the cache.

    Several threads may borrow at once.
    """

    def __init__(self, make: Callable[[], np.ndarray]) -> None:
        self._make, self._left = make, list[np.ndarray]()

    def lend(self) -> np.ndarray:
        try:
            return self._left.pop()
        except IndexError:
            return self._make()

    def give_back(self, room: np.ndarray) -> None:
        if room.nbytes <= SPARE_BYTES:
            self._left.append(room)


def in_arithmetic(x: torch.Tensor) -> torch.Tensor:
    """Half precision is for storage only."""
    return x.float() if x.dtype in HALF else x


class Origin(NamedTuple):
    """What the coefficients of one rotation were made from: copies, which do not change with the originals."""

    wiring: Wiring  # not reversed
    angles: np.ndarray  # shape: (K,), of that wiring, in the kernel's dtype
    reverse: bool  # whether Q is the transpose of that rotation
    eigenvalues: np.ndarray | None = None  # shape: (n,), float64


@dataclass(frozen=True, slots=True, eq=False)
class Coefficients:
    """What the kernels read for one rotation and one diagonal; the letters are explained above.

    A butterfly has T and P by layer and coordinate, Pairs by rotation: (K, 2).
    """

    T: np.ndarray  # multiplies the partner's coordinate
    P: np.ndarray  # multiplies the own coordinate in plain steps
    plain: np.ndarray  # for each pass of a butterfly, or for each rotation of Pairs
    S: np.ndarray  # the scales at the end, float64
    stored_S: np.ndarray  # the same in the kernel's dtype
    scaled: bool  # whether S differs from 1
    origin: Origin
    middle: np.ndarray | None = None  # S D S, divided by `factor`
    factor: float = 1.0  # a power of two
    W: np.ndarray | None = None  # for each rotation, S_a·S_b before it: what wedge products of M x lack
    # Kernels with these coefficients bound to them. They must not refer to this object: such a cycle of references
    # would keep it alive.
    bound: dict[Any, Any] = field(default_factory=dict)


Prepared = tuple[Coefficients, ...]  # one for each of the B rotations


def prepare(
    wiring: Wiring,
    angles: torch.Tensor,
    eigenvalues: torch.Tensor | None = None,
    *,
    fast: bool = True,
    rotation: Prepared | None = None,
    training: bool = False,
) -> Prepared:
    """Coefficients of the rotations (and of the diagonals), good as long as the angles do not change.

    Args:
        wiring: who meets whom.
        angles: shape (B, K), float32 or float64; the kernels will work in this dtype.
        eigenvalues: shape (B, n), if Q D Qᵀ is wanted.
        fast: two multiply-adds per rotation where the range of the scales allows it.
        rotation: the result of an earlier call with the same angles, to add eigenvalues to.
        training: a backward pass will read them too.
    """
    if rotation is None:
        forward, turned, reverse = forward_form(wiring, angles.detach())
        theta = turned.to("cpu", torch.float64)
        cos, sin = torch.cos(theta).numpy(), torch.sin(theta).numpy()
        pack: Any = _pack_butterfly if isinstance(forward, Butterfly) else _pack_pairs
        rotation = tuple(
            pack(Origin(forward, own, reverse), c, s, fast, training)
            for own, c, s in zip(turned.cpu().numpy().copy(), cos, sin, strict=True)
        )
    if eigenvalues is None:
        return rotation
    d = eigenvalues.detach().to("cpu", torch.float64).numpy().copy()
    prepared = tuple(_with_eigenvalues(c, row) for c, row in zip(rotation, d, strict=True))
    if fast and not all(_holds(c) for c in prepared):
        return prepare(wiring, angles, eigenvalues, fast=False)
    return prepared


def multiply_adds(wiring: Wiring, prepared: Prepared, form: str = "rotate") -> int:
    """Multiply-adds of one vector in the kernel that runs: form "rotate", "symmetric" or "quadratic"."""
    c = prepared[0]
    if isinstance(wiring, Butterfly):
        plan = plan_of(wiring, c.T.dtype)
        in_layer = [pairs_at_stride(wiring.n, p) for p in plan.strides.tolist()]
        sizes = np.array([sum(in_layer[a:b]) for a, b in pairwise(plan.bounds)])
    else:
        sizes = np.ones(wiring.n_rotations, np.int64)
    steps = int((sizes * np.where(c.plain, 4, 2)).sum())
    if form == "symmetric" and isinstance(wiring, Butterfly) and wiring.reverse:
        return 2 * (steps + wiring.n * c.scaled) + wiring.n  # two kernels, and D between them
    if form == "symmetric":
        return 2 * steps + wiring.n * (2 if c.factor != 1.0 else 1)
    return steps + (2 * wiring.n if form == "quadratic" else wiring.n * c.scaled)


def forward_form(wiring: Wiring, angles: torch.Tensor) -> tuple[Wiring, torch.Tensor, bool]:
    """A reversed butterfly is the transpose of a plain one; the kernels know only the plain one."""
    if isinstance(wiring, Butterfly) and wiring.reverse:
        order = torch.from_numpy(wiring.transpose_order).to(angles.device)
        return wiring.T, -angles[:, order], True
    return wiring, angles, False


def plan_of(wiring: Butterfly, dtype: np.dtype | type, backward: bool = False) -> Plan:
    """The passes for this machine's registers."""
    radix = simd.WEDGE_RADIX if backward else simd.MAX_RADIX
    return make_plan(wiring.n, wiring.depth, simd.lanes(np.dtype(dtype).itemsize * 8), radix)


def _pack_butterfly(
    origin: Origin, cos: np.ndarray, sin: np.ndarray, fast: bool, training: bool
) -> Coefficients:
    wiring, number = origin.wiring, origin.angles.dtype
    assert isinstance(wiring, Butterfly)
    plan = plan_of(wiring, number)
    shape = (len(plan.strides), plan.padded)
    # One allocation for what is always needed: each costs as much as a thousand rotations.
    size = shape[0] * shape[1]
    room = aligned((size + shape[1] + (len(cos) if training else 0),), number)
    T, stored, W = room[:size].reshape(shape), room[size : size + shape[1]], room[size + shape[1] :]
    S, plain = np.empty(plan.padded), np.empty(len(plan.passes), np.bool_)
    # Most rotations need no plain pass and so no P: try without, and allocate it if one turns up.
    for rows in (0, shape[0]) if fast else (shape[0],):
        P = aligned((rows, plan.padded), number)
        if cpu_butterfly.pack(
            cos,
            sin,
            plan.strides,
            plan.bounds,
            wiring.n,
            fast,
            MIN_COSINE[number],
            MIN_SCALE[number],
            T,
            P,
            S,
            stored,
            W,
            plain,
        ):
            break
    return Coefficients(T, P, plain, S, stored, not plain[-1], origin, W=W if training else None)


def _pack_pairs(origin: Origin, cos: np.ndarray, sin: np.ndarray, fast: bool, training: bool) -> Coefficients:
    wiring, number = origin.wiring, origin.angles.dtype
    assert isinstance(wiring, Pairs)
    T, P = np.empty((wiring.n_rotations, 2), number), np.empty((wiring.n_rotations, 2), number)
    S, plain = np.empty(wiring.n), np.zeros(wiring.n_rotations, np.bool_)
    cpu_pairs.pack(cos, sin, wiring.indices, fast, MIN_COSINE[number], MIN_SCALE[number], T, P, S, plain)
    return Coefficients(T, P, plain, S, _stored(S, number), bool(fast and (S != 1).any()), origin)


def _stored(values: np.ndarray, number: Any) -> np.ndarray:
    out = aligned(values.shape, number)
    out[:] = values
    return out


def _with_eigenvalues(c: Coefficients, eigenvalues: np.ndarray) -> Coefficients:
    """S D S; divided by a power of two where the dtype could not hold it to full precision."""
    d = np.zeros(len(c.S))  # padding is zero and has to stay so
    d[: len(eigenvalues)] = eigenvalues
    largest, smallest = np.abs(d).max(), np.abs(c.S).min()
    factor = 1.0
    if 0 < largest < MIN_MIDDLE[c.T.dtype] / smallest**2:
        factor = float(np.ldexp(1.0, np.frexp(largest)[1] - 1))
    origin = c.origin._replace(eigenvalues=eigenvalues)
    middle = _stored(d / factor * c.S**2, c.T.dtype)
    return replace(c, origin=origin, middle=middle, factor=factor, bound={})


def _holds(c: Coefficients) -> bool:
    """Whether S D S is a normal number wherever D is one: small eigenvalues, too, keep their precision. Products with a
    reversed butterfly do not use S D S.
    """
    if c.origin.reverse:
        return True
    assert c.middle is not None
    assert c.origin.eigenvalues is not None
    tiny, d = np.finfo(c.T.dtype).tiny, np.abs(c.origin.eigenvalues)
    return bool((np.abs(c.middle[: len(d)])[d / c.factor >= tiny] >= tiny).all())

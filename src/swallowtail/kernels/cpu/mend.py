"""Vectors that left the range of a kernel are done again, slowly and right.

The fast form's vectors differ from the true ones by scales as small as MIN_SCALE. On the way they may overflow, or
become subnormal and lose digits, although the result is in range. Near the ends of the range the plain form's vectors
may too. Either raises a floating-point flag, which costs nothing to watch. Then the vectors are looked at, and those
that may be wrong are done again in float64 and in the plain form. `scaled` keeps float64 itself in range.
"""

from __future__ import annotations

import numpy as np
import torch

from swallowtail.kernels import scaled
from swallowtail.kernels.cpu.codegen.flags import OVERFLOW, UNDERFLOW
from swallowtail.kernels.cpu.coefficients import MIN_SCALE, Coefficients, Origin, Prepared, prepare
from swallowtail.kernels.cpu.launch import bound

ROUNDINGS = 2.0**16  # more than the roundings of subnormal numbers that may add up in one number


class Mender:
    """Mends products with one rotation. Its plain coefficients are made when they are first needed."""

    def __init__(self, origin: Origin) -> None:
        self._origin, self._prepared = origin, list[Prepared]()

    def plain(self) -> Prepared:
        """The plain form in float64."""
        if not self._prepared:
            angles = torch.from_numpy(self._origin.angles)[None].double()
            self._prepared.append(prepare(self._origin.wiring, angles, fast=False, training=True))
        return self._prepared[0]

    def mend(self, form: str, flags: int, x: torch.Tensor, out: torch.Tensor) -> None:
        """Look at the results ``out`` of vectors x (…, n), and do again those that may be wrong.

        ``form`` is "to_basis", "from_basis", "symmetric" or "quadratic".
        """
        x = x.reshape(-1, self._origin.wiring.n)
        rows = out.view(len(x), -1)
        (wrong,) = torch.nonzero(self._suspect(form, flags, x, rows), as_tuple=True)
        if not len(wrong):
            return
        z, d = x[wrong][None].double(), self._origin.eigenvalues
        if form == "symmetric" and d is not None:
            right = scaled.symmetric(self._run, torch.from_numpy(d)[None], z)
        elif form == "quadratic" and d is not None:
            right = scaled.quadratic(self._run, torch.from_numpy(d)[None], z)[..., None]
        else:
            right = scaled.rotate(self._run, z, form == "to_basis")
        rows[wrong] = right[0].to(out.dtype)

    def suspects_products(self, flags: int, y: torch.Tensor, grad: torch.Tensor, sums: torch.Tensor) -> bool:
        """Whether sums of products of y and grad over the vectors (m, n) may be wrong."""
        if flags & OVERFLOW and not torch.isfinite(sums).all():
            return bool(torch.isfinite(y).all() and torch.isfinite(grad).all())
        if not flags & UNDERFLOW:
            return False
        lost = ROUNDINGS * torch.finfo(y.dtype).smallest_normal / MIN_SCALE[self._origin.angles.dtype]
        sizes = torch.cat([y.abs().amax(-1), grad.abs().amax(-1), sums.abs().amax()[None]])
        return bool(((sizes > 0) & (sizes < lost)).any())

    def _run(self, x: torch.Tensor, transpose: bool) -> torch.Tensor:
        """Q x or Qᵀ x in the plain form, for x (1, m, n)."""
        x, y = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
        action = "to_basis" if transpose != self._origin.reverse else "from_basis"
        bound(self._origin.wiring, action, self.plain()[0])(x.data_ptr(), y.data_ptr(), x.shape[1])
        return y

    def _suspect(self, form: str, flags: int, x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Which vectors may be wrong, shape (m,). Those that came with infinities or NaN are left as they are."""
        size, result = (z.abs().amax(-1) for z in (x, out))
        suspect = torch.zeros_like(size, dtype=torch.bool)
        if flags & OVERFLOW:
            suspect |= ~torch.isfinite(result)
        if flags & UNDERFLOW:
            # A subnormal number is off by half a step, in the true scale by that over MIN_SCALE. Eigenvalues enlarge
            # what comes before them, and the quadratic form multiplies by x at the end.
            lost = ROUNDINGS * torch.finfo(x.dtype).smallest_normal
            limit = lost / MIN_SCALE[self._origin.angles.dtype] * size.clamp(min=1)
            if form in ("symmetric", "quadratic") and self._origin.eigenvalues is not None:
                limit = limit.clamp(min=lost * float(np.abs(self._origin.eigenvalues).max()))
            suspect |= (size < lost / MIN_SCALE[self._origin.angles.dtype]) | (result < limit)
        return suspect & torch.isfinite(size) & (size > 0)


def mender_of(c: Coefficients) -> Mender:
    """One for each rotation, kept with it."""
    mender: Mender = c.bound.setdefault("mender", Mender(c.origin))
    return mender

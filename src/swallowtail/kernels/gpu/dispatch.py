"""Which kernels the products and gradients of a wiring of pairs go to.

- Where Q is block-diagonal, `grouped`: one matrix per block.
- Elsewhere `rounds`: many small groups at a time, or one dense matrix; their gradients are in `round_backward`.
- Where neither can run, `pairs`, which takes any number of rotations, any dtype and any device.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import torch

from swallowtail.kernels.gpu import group_tables, grouped, half_rounds, pairs, round_backward, rounds
from swallowtail.kernels.gpu.block_plan import Form
from swallowtail.kernels.gpu.gradient_sums import PIECES, whole_products
from swallowtail.kernels.gpu.group_tables import GroupTables, MadeGroups
from swallowtail.kernels.gpu.pairs import PreparedPairs
from swallowtail.kernels.gpu.rounds import RoundTables
from swallowtail.wiring import Pairs, Wiring

SHORT = 128  # coordinates of a butterfly that is trained by its matrix
MANY = 2  # times as many vectors as coordinates: then their gradients are taken together

Prepared: TypeAlias = PreparedPairs | MadeGroups | RoundTables


def prepare(
    wiring: Pairs,
    angles: torch.Tensor,
    eigenvalues: torch.Tensor | None,
    dtype: torch.dtype,
    many: bool = True,
) -> PreparedPairs:
    """Tables for many calls, or for one and its gradients, angles (B, K), for arithmetic in ``dtype``."""
    chunks = pairs.prepare(wiring, angles, eigenvalues, dtype)
    if grouped.suits(wiring, angles, dtype):
        return chunks._replace(groups=GroupTables(wiring, angles, eigenvalues))
    if rounds.suits(wiring, angles, dtype):
        return chunks._replace(rounds=RoundTables(wiring, angles, eigenvalues, many))
    return chunks


def prepare_once(wiring: Pairs, angles: torch.Tensor, dtype: torch.dtype) -> Prepared:
    """Tables for one product with vectors of a dtype."""
    if grouped.suits(wiring, angles, dtype):
        return group_tables.make(wiring, angles, None, dtype)
    if rounds.suits(wiring, angles, dtype):
        return RoundTables(wiring, angles, None, many=False)
    return pairs.prepare(wiring, angles, None, torch.float64 if dtype == torch.float64 else torch.float32)


def prepare_training(wiring: Pairs, angles: torch.Tensor, dtype: torch.dtype) -> Prepared:
    """Tables for Q x or Qᵀ x, and then its gradients."""
    if grouped.suits(wiring, angles, dtype):
        return group_tables.make(wiring, angles, None, dtype)
    if rounds.suits(wiring, angles, dtype) and round_backward.suits(wiring, angles.device):
        return RoundTables(wiring, angles, None, many=False)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    return prepare(wiring, angles, None, wide, many=False)


def rotate(prepared: Any, x: torch.Tensor, transpose: bool) -> torch.Tensor:
    """Q x, or Qᵀ x, on x (B, m, n)."""
    made = made_groups(prepared, x.dtype, False)
    if made is not None:
        return grouped.apply(made, x, transpose)
    y = _in_rounds(prepared, x, transpose, not transpose, None)
    return pairs.apply(prepared, x, transpose, not transpose, None) if y is None else y


def symmetric(
    wiring: Pairs, angles: torch.Tensor, eigenvalues: torch.Tensor, x: torch.Tensor, prepared: Any
) -> torch.Tensor:
    """Q D Qᵀ x on x (B, m, n), with eigenvalues (B, n)."""
    made = None
    if prepared is not None and prepared.middle is not None:
        made = made_groups(prepared, x.dtype, True)
    if (
        made is None
        and (prepared is None or prepared.rounds is None)
        and grouped.suits(wiring, angles, x.dtype)
    ):
        made = group_tables.make(wiring, angles, eigenvalues, x.dtype)
    if made is not None:
        return grouped.apply(made, x, False)
    prepared = prepare_once(wiring, angles, x.dtype) if prepared is None else prepared
    y = _in_rounds(prepared, x, True, True, eigenvalues)
    return pairs.apply(prepared, x, True, True, eigenvalues) if y is None else y


def walk_back(
    wiring: Pairs,
    prepared: Any,
    angles: torch.Tensor,
    y: torch.Tensor,
    grad: torch.Tensor,
    transpose: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients for x (B, m, n) and the angles (B, K), given y = Q x (or Qᵀ x) and its gradient, both contiguous."""
    if len(y) == 1 and takes_sums(wiring, y, angles):
        grad = grad.to(y.dtype)
        grad_angles = from_sums(wiring, prepared, whole_products(grad, y), transpose)
        return rotate(prepared, grad, not transpose), grad_angles
    tables = _round_tables(prepared)
    if tables is not None and y.dtype in rounds.DTYPES and round_backward.suits(wiring, y.device):
        return round_backward.walk_back(tables.get(), wiring, y, grad, transpose)
    return pairs.walk_back(prepared, y, grad, transpose)


def takes_sums(wiring: Wiring, y: torch.Tensor, angles: torch.Tensor) -> bool:
    """Whether the gradients of one rotation's angles, after many vectors y (…, n), are taken from S = Σ g yᵀ.

    They depend on the vectors through S only. In half precision tensor cores make S faster than all vectors walk back.
    """
    return (
        isinstance(wiring, Pairs)
        and y.itemsize == 2
        and y.is_cuda
        and y.numel() >= wiring.n * max(MANY * wiring.n, PIECES)
        and not grouped.suits(wiring, angles.view(1, -1), y.dtype)
    )


def from_sums(wiring: Pairs, prepared: Any, sums: torch.Tensor, transpose: bool) -> torch.Tensor:
    """Gradients for the angles (1, K), given S = Σ g yᵀ, (1, n, n)."""
    tables = _round_tables(prepared)
    if tables is not None and round_backward.suits(wiring, sums.device):
        return round_backward.from_sums(tables.get(), wiring, sums, transpose)
    unit = torch.eye(wiring.n, device=sums.device)[None]
    return pairs.walk_back(prepared, sums, unit, transpose)[1]


def _round_tables(prepared: Any) -> RoundTables | None:
    tables: RoundTables | None = prepared if isinstance(prepared, RoundTables) else prepared.rounds
    return tables


def made_groups(prepared: Any, dtype: torch.dtype, symmetric: bool) -> MadeGroups | None:
    """The matrices of a block-diagonal Q, or of Q D Qᵀ, for vectors of a dtype; None where there are none."""
    if isinstance(prepared, MadeGroups):
        return prepared
    groups = prepared.groups if isinstance(prepared, PreparedPairs) else None
    if groups is None or not grouped.takes(dtype, prepared.u.device):
        return None
    return groups.get(symmetric, dtype)


def trains_groups(wiring: Wiring, angles: torch.Tensor, dtype: torch.dtype) -> bool:
    """Whether a butterfly is trained by its matrix: for short vectors in half precision that is faster than stages."""
    return dtype.itemsize == 2 and wiring.n <= SHORT and grouped.suits(wiring, angles, dtype)


def _in_rounds(
    prepared: Any, x: torch.Tensor, to_basis: bool, from_basis: bool, eigenvalues: torch.Tensor | None
) -> torch.Tensor | None:
    """The product by rounds of groups, or by one dense matrix; None where pairs have to do it."""
    tables = _round_tables(prepared)
    if tables is None or x.dtype not in rounds.DTYPES:
        return None
    both = to_basis and from_basis
    if tables.many and tables.prefers_dense(x, both):
        return rounds.multiply_dense(tables.dense(to_basis, from_basis, x.dtype), x)
    form: Form = "symmetric" if both else "to_basis" if to_basis else "from_basis"
    half = tables.half(form, x, eigenvalues)
    if half is not None:
        return half_rounds.apply(half, x)
    middle = None if eigenvalues is None else eigenvalues[0].float().contiguous()
    return rounds.apply(tables.get(), x, to_basis, from_basis, middle)

"""The GPU back end. Shapes and formulas are those of `reference`.

Every function takes what `prepare` returned for the same wiring and angles as ``prepared=``. Without it, the function
makes tables for this one call. `prepare` chooses the fast form (two multiply-adds per rotation) where it is as accurate
as the plain one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from swallowtail import checks
from swallowtail.errors import ArgumentError
from swallowtail.wiring import Butterfly, Pairs, Wiring

_missing: str | None = None  # why Triton cannot be imported
try:
    from swallowtail.kernels.gpu import (
        backward,
        blocks,
        butterfly,
        dispatch,
        group_tables,
        grouped,
        pairs,
        tables,
    )
    from swallowtail.kernels.gpu.block_plan import Form
    from swallowtail.kernels.gpu.block_tables import BlockTables
    from swallowtail.kernels.gpu.pairs import PreparedPairs
    from swallowtail.kernels.gpu.tables import PreparedButterfly
except ImportError as error:  # `available` says so
    _missing = str(error)

if TYPE_CHECKING:
    Prepared: TypeAlias = PreparedButterfly | dispatch.Prepared


TAKES_ONE_ROTATION = False


def accepts(device: str) -> bool:
    """A GPU."""
    return device == "cuda"


def available() -> str | None:
    """None, or a sentence saying why this back end cannot run here."""
    if _missing is not None:
        return f"Triton cannot be imported ({_missing}); install the package triton."
    if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
        return "PyTorch sees no CUDA device, and TRITON_INTERPRET=1 is not set."
    return None


def prepare(
    wiring: Wiring,
    angles: torch.Tensor,
    eigenvalues: torch.Tensor | None = None,
    *,
    dtype: torch.dtype | None = None,
    fast: bool = True,
) -> Prepared:
    """Make the tables that the kernels read. They are valid while the angles (and eigenvalues) do not change.

    Args:
        wiring: who meets whom.
        angles: shape (B, K).
        eigenvalues: shape (B, n), or None.
        dtype: of the arithmetic, float32 or float64; by default that of the angles.
        fast: allow the fast form. Choosing it waits for the device once.
    """
    dtype = _arithmetic(dtype or angles.dtype)
    if isinstance(wiring, Pairs):
        return dispatch.prepare(wiring, angles, eigenvalues, dtype)
    wiring = _butterfly(wiring)
    prepared = _prepare_butterfly(wiring, angles, eigenvalues, dtype, fast)
    if dtype == torch.float32 and len(angles) == 1 and wiring.depth == 1:
        prepared = prepared._replace(blocks=BlockTables(wiring, angles, eigenvalues))
    return prepared


def prepare_training(wiring: Wiring, angles: torch.Tensor, x: torch.Tensor) -> Prepared | None:
    """Tables for `rotate` and then `rotate_backward`."""
    if not wiring.n_rotations or not x.numel():
        return None
    if isinstance(wiring, Pairs):
        return dispatch.prepare_training(wiring, angles, x.dtype)
    if dispatch.trains_groups(wiring, angles, x.dtype):
        return group_tables.make(wiring, angles, None, x.dtype)
    return tables.prepare_plain(_butterfly(wiring), angles, None, _arithmetic(x.dtype), training=True)


def multiply_adds(wiring: Wiring, prepared: Prepared, form: str = "rotate") -> int:
    """Multiply-adds that the kernel does for one vector.

    A rotation takes four in the plain form and two in the fast form. The fast form adds one scaling by n numbers per
    sweep; in the middle of Q D Qᵀ that scaling is part of D.

    Args:
        wiring: who meets whom.
        prepared: what `prepare` returned.
        form: "rotate" for Q x, "symmetric" for Q D Qᵀ x, "quadratic" for xᵀ Q D Qᵀ x.
    """
    n = wiring.n
    once, scalings = 4 * wiring.n_rotations, 0
    if isinstance(prepared, PreparedButterfly) and prepared.fast:
        once, scalings = 2 * wiring.n_rotations, n * prepared.scale.shape[1]
    if form == "rotate":
        return once + scalings
    inner = max(0, scalings - n)
    return 2 * (once + inner) + n if form == "symmetric" else once + inner + 2 * n


def rotate(
    wiring: Wiring, angles: torch.Tensor, x: torch.Tensor, transpose: bool = False, prepared: Any = None
) -> torch.Tensor:
    """Q x, or Qᵀ x. Shapes: angles (B, K), x (B, m, n)."""
    if not wiring.n_rotations or not x.numel():
        return x.clone(memory_format=torch.contiguous_format)
    if prepared is None and dispatch.trains_groups(wiring, angles, x.dtype):
        prepared = group_tables.make(wiring, angles, None, x.dtype)
    prepared = _for_one_call(wiring, angles, x) if prepared is None else prepared
    if isinstance(wiring, Pairs) or dispatch.made_groups(prepared, x.dtype, False) is not None:
        return dispatch.rotate(prepared, x, transpose)
    y = _in_blocks(wiring, prepared, x, "to_basis" if transpose else "from_basis")
    if y is not None:
        return y
    return butterfly.apply(_butterfly(wiring), prepared, x, transpose, not transpose, None)


def symmetric(
    wiring: Wiring, angles: torch.Tensor, eigenvalues: torch.Tensor, x: torch.Tensor, prepared: Any = None
) -> torch.Tensor:
    """Q D Qᵀ x in one call. Shapes: angles (B, K), eigenvalues (B, n), x (B, m, n)."""
    if not wiring.n_rotations or not x.numel():
        return (_widen(x) * _widen(eigenvalues)[:, None]).to(x.dtype)
    if isinstance(wiring, Pairs):
        return dispatch.symmetric(wiring, angles, eigenvalues, x, prepared)
    prepared = _for_one_call(wiring, angles, x) if prepared is None else prepared
    y = None if prepared.middle is None else _in_blocks(wiring, prepared, x, "symmetric")
    if y is not None:
        return y
    prepared = _with_middle(_butterfly(wiring), angles, eigenvalues, prepared)
    return butterfly.apply(_butterfly(wiring), prepared, x, True, True, prepared.middle)


def quadratic(
    wiring: Wiring, angles: torch.Tensor, eigenvalues: torch.Tensor, x: torch.Tensor, prepared: Any = None
) -> torch.Tensor:
    """xᵀ Q D Qᵀ x, one number per vector: it stops in the middle. Shape (B, m)."""
    if not wiring.n_rotations or not x.numel() or isinstance(wiring, Pairs):
        w = rotate(wiring, angles, _widen(x), transpose=True, prepared=prepared)
        return (w * (w * _widen(eigenvalues)[:, None])).sum(-1).to(x.dtype)
    prepared = _for_one_call(wiring, angles, x) if prepared is None else prepared
    prepared = _with_middle(_butterfly(wiring), angles, eigenvalues, prepared)
    return butterfly.apply(_butterfly(wiring), prepared, x, True, False, prepared.middle, quadratic=True)


def rotate_backward(
    wiring: Wiring,
    angles: torch.Tensor,
    y: torch.Tensor,
    grad: torch.Tensor,
    transpose: bool = False,
    prepared: Any = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of ⟨grad, Q x⟩ with respect to x and the angles, given the output y = Q x (or Qᵀ x).

    The forward pass stores nothing. y and grad walk back together, and an angle's gradient is the sum over the vectors
    of g_j y_i − g_i y_j. The sums are taken in a fixed order.
    """
    if not wiring.n_rotations or not y.numel():
        return grad.to(y.dtype).clone(memory_format=torch.contiguous_format), torch.zeros_like(_widen(angles))
    if prepared is None or (isinstance(prepared, PreparedButterfly) and prepared.fast):
        prepared = prepare_training(wiring, angles, y)
    y, grad = y.contiguous(), grad.contiguous()
    made = dispatch.made_groups(prepared, y.dtype, False)
    if made is not None:
        grad_x, grad_angles = grouped.walk_back(made, y, grad, transpose)
    elif isinstance(wiring, Pairs):
        grad_x, grad_angles = pairs.walk_back(prepared, y, grad, transpose)
    else:
        grad_x, grad_angles = backward.walk_back(_butterfly(wiring), prepared, y, grad, transpose)
    return grad_x, grad_angles.to(_arithmetic(angles.dtype))


def bind(wiring: Wiring, form: str, prepared: Any) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """A function of x alone, (*batch, n), for one rotation: it spares the host most checks and shapes."""
    if not wiring.n_rotations:
        return None
    table = prepared.u if isinstance(prepared, PreparedPairs) else prepared.tables[0].u
    where, n, d = table.device, wiring.n, prepared.middle

    def run(x: torch.Tensor) -> torch.Tensor:
        if x.device != where:  # another GPU
            checks.same_device(x=x, angles=table)
        rows = x.view(1, -1, n)
        # With something prepared, the functions do not look at the angles.
        if form == "quadratic":
            return quadratic(wiring, table, d, rows, prepared).view(x.shape[:-1])
        if form == "symmetric":
            return symmetric(wiring, table, d, rows, prepared).view(x.shape)
        return rotate(wiring, table, rows, form == "to_basis", prepared).view(x.shape)

    return run


def live(
    form: str, wiring: Wiring, x: torch.Tensor, angles: torch.Tensor, eigenvalues: torch.Tensor | None
) -> torch.Tensor | None:
    """The result of one call, from angles (K,) as they are when the device gets there."""
    return None


def _butterfly(wiring: Wiring) -> Butterfly:
    if not isinstance(wiring, Butterfly):
        raise ArgumentError("wiring", "a Butterfly or Pairs", type(wiring).__name__)
    return wiring


def _arithmetic(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _widen(x: torch.Tensor) -> torch.Tensor:
    return x.to(_arithmetic(x.dtype))


def _for_one_call(wiring: Wiring, angles: torch.Tensor, x: torch.Tensor) -> Prepared:
    """The plain form, because it is prepared without waiting for the device."""
    dtype = _arithmetic(x.dtype)
    if isinstance(wiring, Pairs):
        return dispatch.prepare_once(wiring, angles, x.dtype)
    return tables.prepare_plain(_butterfly(wiring), angles, None, dtype)


def _in_blocks(
    wiring: Wiring, prepared: PreparedButterfly, x: torch.Tensor, form: Form
) -> torch.Tensor | None:
    """The product by tensor cores, or None where other kernels have to do it.

    They need matrices that cost several launches to make, so they only serve what was prepared for many calls.
    """
    if prepared.blocks is None or not blocks.suits(_butterfly(wiring), x, form):
        return None
    return blocks.apply(_butterfly(wiring), prepared.blocks.get(form, x.dtype), x, form)


def _prepare_butterfly(
    wiring: Butterfly,
    angles: torch.Tensor,
    eigenvalues: torch.Tensor | None,
    dtype: torch.dtype,
    fast: bool,
) -> PreparedButterfly:
    prepared = (
        tables.prepare_fast(wiring, angles, eigenvalues, dtype) if fast and wiring.n_rotations else None
    )
    return tables.prepare_plain(wiring, angles, eigenvalues, dtype) if prepared is None else prepared


def _with_middle(
    wiring: Butterfly, angles: torch.Tensor, eigenvalues: torch.Tensor, prepared: PreparedButterfly
) -> PreparedButterfly:
    """What was prepared without eigenvalues, with them; the fast form has to look at their range first."""
    if prepared.middle is not None:
        return prepared
    dtype = prepared.tables[0].u.dtype
    if prepared.fast:
        return _prepare_butterfly(wiring, angles, eigenvalues, dtype, fast=True)
    return prepared._replace(middle=eigenvalues.to(dtype).contiguous(), blocks=None)

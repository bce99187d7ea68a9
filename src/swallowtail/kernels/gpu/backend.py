"""The GPU back end. Shapes and formulas are those of `reference`.

Every function takes what `prepare` returned for the same wiring and angles as ``prepared=``. Without it, the function
makes tables for this one call. `prepare` chooses the fast form (two multiply-adds per rotation) where it is as accurate
as the plain one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from swallowtail.errors import ArgumentError
from swallowtail.wiring import Butterfly, Pairs, Wiring

_missing: str | None = None  # why Triton cannot be imported
try:
    from swallowtail.kernels.gpu import (
        backward,
        block_tables,
        blocks,
        butterfly,
        calls,
        device,
        dispatch,
        group_tables,
        grouped,
        plan,
        small,
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
    prepared = tables.prepare(wiring, angles, eigenvalues, dtype, fast)
    if dtype == torch.float32 and len(angles) == 1:
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
        once, scalings = 2 * wiring.n_rotations, prepared.scale[0].numel()
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
    form: Form = "to_basis" if transpose else "from_basis"
    if prepared is None and isinstance(wiring, Butterfly):
        if small.suits(wiring, x, angles):
            return small.apply(wiring, angles, None, x, form)
        if blocks.suits_live(wiring, x, angles, form):
            made = block_tables.make(wiring, angles, None, form, x.dtype, once=True)
            return blocks.apply(wiring, made, x, form)
    if prepared is None:
        # Longer vectors have groups of their own for gradients, and Q x alone is faster without.
        shared = isinstance(wiring, Butterfly) and wiring.n <= 1 << plan.WHOLE.bits
        prepared = (prepare_training if shared else _for_one_call)(wiring, angles, x)
    if isinstance(wiring, Pairs) or dispatch.made_groups(prepared, x.dtype, False) is not None:
        return dispatch.rotate(prepared, x, transpose)
    y = _in_blocks(wiring, prepared, x, form)
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
    if prepared is None and small.suits(_butterfly(wiring), x, angles):
        return small.apply(_butterfly(wiring), angles, eigenvalues, x, "symmetric")
    prepared = _for_one_call(wiring, angles, x) if prepared is None else prepared
    y = None if prepared.middle is None else _in_blocks(wiring, prepared, x, "symmetric")
    if y is not None:
        return y
    prepared = tables.with_middle(_butterfly(wiring), angles, eigenvalues, prepared)
    return butterfly.apply(_butterfly(wiring), prepared, x, True, True, prepared.middle)


def quadratic(
    wiring: Wiring, angles: torch.Tensor, eigenvalues: torch.Tensor, x: torch.Tensor, prepared: Any = None
) -> torch.Tensor:
    """xᵀ Q D Qᵀ x, one number per vector: it stops in the middle. Shape (B, m)."""
    if not wiring.n_rotations or not x.numel() or isinstance(wiring, Pairs):
        w = rotate(wiring, angles, _widen(x), transpose=True, prepared=prepared)
        return (w * (w * _widen(eigenvalues)[:, None])).sum(-1).to(x.dtype)
    if prepared is None and small.suits(_butterfly(wiring), x, angles):
        return small.apply(_butterfly(wiring), angles, eigenvalues, x, "quadratic")
    prepared = _for_one_call(wiring, angles, x) if prepared is None else prepared
    prepared = tables.with_middle(_butterfly(wiring), angles, eigenvalues, prepared)
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
    y, grad = y.contiguous(), grad.contiguous()
    if prepared is None or (isinstance(prepared, PreparedButterfly) and prepared.fast):
        prepared = prepare_training(wiring, angles, y)
    made = dispatch.made_groups(prepared, y.dtype, False)
    if made is not None:
        grad_x, grad_angles = grouped.walk_back(made, y, grad, transpose)
    elif isinstance(wiring, Pairs):
        grad_x, grad_angles = dispatch.walk_back(wiring, prepared, angles, y, grad, transpose)
    else:
        grad_x, grad_angles = backward.walk_back(_butterfly(wiring), prepared, y, grad, transpose)
    return grad_x, grad_angles.to(_arithmetic(angles.dtype))


def bind(wiring: Wiring, form: str, prepared: Any) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """A function of x alone, (*batch, n), for one rotation: the launches of each shape are worked out once."""
    if not wiring.n_rotations:
        return None
    table = prepared.u if isinstance(prepared, PreparedPairs) else prepared.tables[0].u
    # With something prepared, the functions do not look at the angles.
    return calls.bound(partial(_form, wiring, form, prepared), table, prepared.middle)


def live(
    form: str, wiring: Wiring, x: torch.Tensor, angles: torch.Tensor, eigenvalues: torch.Tensor | None
) -> torch.Tensor | None:
    """The result for one of `FORMS`, from angles as they are when the device gets there."""
    return calls.live(_form, wiring, form, x, angles, eigenvalues)


def live_backward(
    wiring: Wiring, y: torch.Tensor, grad: torch.Tensor, angles: torch.Tensor, transpose: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients for x and the angles, in the shapes of grad and the angles."""
    y, grad, angles = y.contiguous(), grad.contiguous(), angles.contiguous()
    return calls.live_backward(_gradients, live, wiring, y, grad, angles, transpose)


def _form(
    wiring: Wiring,
    form: str,
    prepared: Any,
    x: torch.Tensor,
    angles: torch.Tensor,
    eigenvalues: torch.Tensor | None,
) -> torch.Tensor:
    """One of `FORMS` for x (*batch, n), the angles of one rotation, and its eigenvalues or None."""
    rows, theta = x.view(1, x.numel() // wiring.n, wiring.n), angles.view(1, -1)
    if eigenvalues is None or form in ("from_basis", "to_basis"):
        return rotate(wiring, theta, rows, form == "to_basis", prepared).view(x.shape)
    product, shape = (quadratic, x.shape[:-1]) if form == "quadratic" else (symmetric, x.shape)
    return product(wiring, theta, eigenvalues.view(1, -1), rows, prepared).view(shape)


def _gradients(
    wiring: Wiring, transpose: bool, y: torch.Tensor, grad: torch.Tensor, angles: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    rows = (1, y.numel() // wiring.n, wiring.n)
    theta = angles.view(1, -1)
    grad_x, grad_angles = rotate_backward(wiring, theta, y.view(rows), grad.view(rows), transpose)
    return grad_x.view(grad.shape), grad_angles.view(angles.shape)


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
    if device.capturing(x.device) and not prepared.blocks.has(form, x.dtype):
        return None  # what is made now would be good within the graph only
    return blocks.apply(_butterfly(wiring), prepared.blocks.get(form, x.dtype), x, form)

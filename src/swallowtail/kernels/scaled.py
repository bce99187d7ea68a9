"""Products over the whole range of a dtype: vectors are brought near 1 by powers of two, and results back.

A rotation keeps a vector's length. But on the way through its layers a number can grow by √n and overflow, and
subnormal numbers lose digits in every layer. Here every function is given the rotation as ``run(x, transpose)`` for
x (B, m, n), and calls it with vectors of moderate size only. Vectors whose largest number is moderate already are left
as they are, so that results and gradients do not change there. Nothing waits for a device.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

Run = Callable[[torch.Tensor, bool], torch.Tensor]

# Numbers between 2^-MODERATE and 2^MODERATE need no scaling: their squares times n and over eps are in range.
MODERATE = {torch.float32: 40, torch.float64: 400}
_STEP = {torch.float32: 126, torch.float64: 1022}  # 2^±_STEP are normal numbers
_NOTHING = -10000  # stands for the exponent of zero: below any sum of exponents of other numbers


def shift(x: torch.Tensor, exponent: torch.Tensor) -> torch.Tensor:
    """x·2^exponent, rounded where the result is subnormal. Exponents may be sums of three of the dtype's own."""
    step = _STEP[x.dtype]
    for _ in range(4):
        part = exponent.clamp(-step, step)
        x = x * torch.exp2(part.to(x.dtype))  # exact: `test_scaled` looks at every power
        exponent = exponent - part
    return x


def exponents(x: torch.Tensor) -> torch.Tensor:
    """e with |x| in [2^(e−1), 2^e), number by number; 0 where x is not finite."""
    x = x.detach()
    return torch.where(x == 0, _NOTHING, torch.frexp(x).exponent)


def row_exponents(x: torch.Tensor) -> torch.Tensor:
    """The exponent of each vector's largest number, shape (…, 1); 0 where that is moderate."""
    return _unless_moderate(exponents(x.detach().abs().amax(-1, keepdim=True)), x.dtype)


def rotate(run: Run, x: torch.Tensor, transpose: bool) -> torch.Tensor:
    """Q x or Qᵀ x."""
    e = row_exponents(x)
    return shift(run(shift(x, -e), transpose), e)


def symmetric(run: Run, eigenvalues: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Q D Qᵀ x for eigenvalues (B, n)."""
    e = row_exponents(x)
    v, f = _times(eigenvalues[:, None], run(shift(x, -e), True))
    return shift(run(v, False), e + f)


def quadratic(run: Run, eigenvalues: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """xᵀ Q D Qᵀ x for eigenvalues (B, n)."""
    e = row_exponents(x)
    w = run(shift(x, -e), True)
    v, f = _times(eigenvalues[:, None], w)
    return shift((v * w).sum(-1), (2 * e + f)[..., 0])


def outer_exponents(y: torch.Tensor, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(a, E) such that y·2^−a and grad·2^(a−E) have moderate products, of which the largest is near 1.

    a has shape (B, m, 1), and E (B, 1, 1): it is common to the vectors of one rotation, whose products are summed.
    """
    a, b = (exponents(z.detach().abs().amax(-1, keepdim=True)) for z in (y, grad))
    largest = (a + b).amax(-2, keepdim=True) if y.shape[-2] else a.new_zeros(len(y), 1, 1)
    # Where y is zero, a stays far below zero, so that grad·2^(a−E) is zero as well: it might overflow otherwise.
    a = torch.where(a == _NOTHING, a, _unless_moderate(a, y.dtype))
    return a, _unless_moderate(largest, y.dtype)


def _times(d: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(v, f) with v·2^f = d·w, where each vector's largest number in v is moderate. f has shape (B, m, 1)."""
    own = exponents(d)
    f = _unless_moderate((own + exponents(w)).amax(-1, keepdim=True), w.dtype)
    own = torch.where(f == 0, 0, own)
    return shift(d, -own) * shift(w, own - f), f


def _unless_moderate(exponent: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    moderate = (exponent.abs() <= MODERATE[dtype]) | (exponent <= _NOTHING // 2)  # the latter: of zero
    return torch.where(moderate, 0, exponent)

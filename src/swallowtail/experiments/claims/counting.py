"""Operations and memory, counted instead of computed from formulas.

A MulAdd of the paper is a multiplication with the addition that follows it, if one does. So multiplications are what
is counted.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

import numpy as np
import torch

from swallowtail import ops
from swallowtail.experiments.claims.network import Counted, Network, Tally, Vector
from swallowtail.experiments.common.rows import Row
from swallowtail.fitting.core.relaxed import extended_gradient, unsigned_pairs
from swallowtail.kernels import reference
from swallowtail.kernels.cpu.coefficients import prepare
from swallowtail.operators import Rotation, SymmetricOperator
from swallowtail.wiring import Pairs


def count_network(operator: SymmetricOperator, what: str) -> int:
    """MulAdds of the plain network: ``what`` is "product", "quadratic_form" or "gradient"."""
    network = Network(
        operator.rotation.wiring, operator.rotation.angles.numpy(), operator.eigenvalues.numpy()
    )
    tally = Tally()
    x = [Counted(v, tally) for v in np.random.default_rng(0).standard_normal(operator.n)]
    getattr(network, what)(*([x, list(x)] if what == "gradient" else [x]))
    return tally.multiplications


def count_fast(operator: SymmetricOperator, x: np.ndarray, quadratic: bool = False) -> tuple[int, np.ndarray]:
    """MulAdds of H x (or of xᵀH x) with the coefficients our kernel prepares, and the result, to be checked.

    A step is x_i ← P_i x_i + T_i x_j; where the kernel takes the fast form P is 1 and there is no such product.
    """
    wiring = operator.rotation.wiring
    pairs = Pairs(wiring.n, list(wiring.layers()))
    d = None if quadratic else operator.eigenvalues[None]
    c = prepare(pairs, operator.rotation.angles[None], d)[0]
    tally = Tally()
    z: Vector = [Counted(v, tally) for v in x]
    times = lambda p, v: v if p == 1.0 else v * p
    for (i, j), t, p in zip(pairs.pairs.tolist(), c.T, c.P, strict=True):
        z[i], z[j] = times(p[0], z[i]) + z[j] * t[0], times(p[1], z[j]) + z[i] * t[1]
    if quadratic:
        weights = c.S**2 * operator.eigenvalues.numpy()  # made once for all x
        total = sum(v * v * w for v, w in zip(z, weights, strict=True))
        return tally.multiplications, np.array(float(total))
    assert c.middle is not None
    z = [v * w for v, w in zip(z, c.middle, strict=True)]
    for (i, j), t, p in reversed(list(zip(pairs.pairs.tolist(), c.T, c.P, strict=True))):
        z[i], z[j] = times(p[0], z[i]) + z[j] * t[1], times(p[1], z[j]) + z[i] * t[0]
    return tally.multiplications, np.array([float(v) for v in z]) * c.factor


def interpreted(compiled: Any) -> FunctionType:
    """A Numba function, and those it calls, as the Python they were compiled from: it runs on any numbers."""
    plain = compiled.py_func
    named = {name: plain.__globals__[name] for name in plain.__code__.co_names if name in plain.__globals__}
    called = {name: interpreted(value) for name, value in named.items() if hasattr(value, "py_func")}
    return FunctionType(plain.__code__, {**plain.__globals__, **called}, plain.__name__)


def count_learning(operator: SymmetricOperator) -> tuple[int, int]:
    """MulAdds of the gradient in our Algorithm 1, which rebuilds activations, and the numbers it is kept in."""
    wiring, n = operator.rotation.wiring, operator.n
    angles, tally = operator.rotation.angles.numpy(), Tally()
    x, y, z, u = (np.empty((n, 1), dtype=object) for _ in range(4))
    for i, v in enumerate(np.random.default_rng(0).standard_normal(n)):
        x[i, 0], y[i, 0] = Counted(v, tally), Counted(-v, tally)
    gradient, by_d = np.empty((wiring.n_rotations, 4), dtype=object), np.empty(n, dtype=object)
    rotation = (unsigned_pairs(wiring), np.cos(angles), np.sin(angles))
    interpreted(extended_gradient)(*rotation, operator.eigenvalues.numpy(), x, y, False, gradient, by_d, z, u)
    return tally.multiplications, gradient.size + by_d.size


def saved_numbers(operator: SymmetricOperator, plain: bool) -> int:
    """Numbers kept between the forward and the backward pass of H x, for one x: by our operator, or by plain autograd.

    Plain is what PyTorch does with the reference, layer by layer; index tensors are not counted.
    """
    angles, d = (t.clone().requires_grad_() for t in (operator.rotation.angles, operator.eigenvalues))
    x, wiring = torch.ones(operator.n, dtype=torch.float64), operator.rotation.wiring
    kept: dict[int, torch.UntypedStorage] = {}  # alive, so that no address is given away twice

    def pack(t: torch.Tensor) -> torch.Tensor:
        if t.dtype == torch.float64:
            kept[t.untyped_storage().data_ptr()] = t.untyped_storage()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        if plain:
            reference.symmetric(wiring, angles[None], d[None], x[None, None])
        else:
            ops.symmetric_matvec(x, wiring, angles, d)
    return sum(storage.nbytes() // 8 for storage in kept.values())


def count_rows(n: int, seed: int) -> list[Row]:
    """The paper's formulas, what was counted, and ours, for n a power of two."""
    rotation = Rotation.random(n, seed=seed, dtype=torch.float64)
    d = torch.rand(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.1
    H, x, L = (
        SymmetricOperator(rotation, d),
        np.random.default_rng(seed).standard_normal(n),
        n.bit_length() - 1,
    )
    fast, y = count_fast(H, x)
    fast_quadratic, q = count_fast(H, x, quadratic=True)
    learning, gradient = count_learning(H)
    factors = sum(len(factor.data) for factor in rotation.to_sparse_factors()) + n
    numbers = sum(t.nbytes // 8 for t in (rotation.angles, H.eigenvalues))
    table = {  # name: the paper's formula, the plain network counted, ours counted
        "product": (4 * n * L + n, count_network(H, "product"), fast),
        "quadratic form": (2 * n * L + 2 * n, count_network(H, "quadratic_form"), fast_quadratic),
        "gradient, with its product": (
            12 * n * L + 3 * n,
            count_network(H, "gradient"),
            learning,
        ),
        "numbers stored": (2 * n * L + n, factors, numbers),
        "numbers of the gradient": (2 * n * L + n, gradient, numbers),
        "numbers kept for backward": (None, *(saved_numbers(H, plain) for plain in (True, False))),
    }
    deviation = max(float(np.abs(y - H @ x).max()), float(abs(q - H.quadratic_form(x))))
    common = {"part": "count", "n": n, "claimed_by_operator": H.multiply_adds, "deviation": deviation}
    return [
        {**common, "quantity": name, "paper": paper, "plain": plain, "ours": ours}
        for name, (paper, plain, ours) in table.items()
    ]

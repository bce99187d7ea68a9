"""Operations and memory, counted: a rotation network run on numbers that count what is done with them.

Nothing here knows a formula. A MulAdd of the paper is a multiplication with the addition that follows it, if one does,
so multiplications are what is counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np
import torch

from swallowtail import ops
from swallowtail.fitting.core.relaxed import extended_gradient, unsigned_pairs
from swallowtail.kernels import reference
from swallowtail.kernels.cpu import coefficients as cpu_coefficients
from swallowtail.operators.symmetric import SymmetricOperator
from swallowtail.wiring import Pairs, Wiring

Vector = list[Any]  # of numbers that may count


@dataclass
class Tally:
    """How often."""

    multiplications: int = 0
    additions: int = 0


class Counted:
    """A real number that tells its tally of every multiplication and addition it takes part in."""

    __slots__ = ("tally", "value")
    __array_ufunc__ = None  # NumPy's scalars leave the arithmetic to us

    def __init__(self, value: float, tally: Tally) -> None:
        self.value, self.tally = float(value), tally

    def __mul__(self, other: Any) -> Counted:
        self.tally.multiplications += 1
        return Counted(self.value * float(other), self.tally)

    def __add__(self, other: Any) -> Counted:
        self.tally.additions += 1
        return Counted(self.value + float(other), self.tally)

    def __sub__(self, other: Any) -> Counted:
        self.tally.additions += 1
        return Counted(self.value - float(other), self.tally)

    def __rsub__(self, other: Any) -> Counted:
        self.tally.additions += 1
        return Counted(float(other) - self.value, self.tally)

    __rmul__, __radd__ = __mul__, __add__

    def __pow__(self, power: int) -> Counted:
        return self * self if power == 2 else NotImplemented

    def __truediv__(self, other: Any) -> Counted:
        return self * (1 / float(other))

    def __lt__(self, other: Any) -> bool:
        return self.value < float(other)

    def __gt__(self, other: Any) -> bool:
        return self.value > float(other)

    def __float__(self) -> float:
        return self.value


class Network:
    """Q D Qᵀ as the paper's network of sparse layers; every activation is kept, as backpropagation wants it."""

    def __init__(self, wiring: Wiring, angles: np.ndarray, eigenvalues: np.ndarray) -> None:
        bounds = wiring.offsets.tolist()
        self.layers = [
            list(zip(wiring.layer(k).tolist(), np.cos(part).tolist(), np.sin(part).tolist(), strict=True))
            for k, part in enumerate(np.split(angles, bounds[1:-1]))
        ]
        self.d = eigenvalues.tolist()

    def product(self, x: Vector) -> Vector:
        """Q D Qᵀ x."""
        return self._up(self._scaled(self._down(x)[-1]))[-1]

    def quadratic_form(self, x: Vector) -> Any:
        """(Qᵀx)ᵀ D (Qᵀx)."""
        return sum(z * z * d for z, d in zip(self._down(x)[-1], self.d, strict=True))

    def gradient(self, x: Vector, y: Vector) -> tuple[list[list[list[Any]]], Vector]:
        """Gradient of ‖Q D Qᵀx − y‖² by every non-zero: layer, rotation, (a, b, c, d); and by D."""
        down = self._down(x)
        up = self._up(self._scaled(down[-1]))
        u = [z - t for z, t in zip(up[-1], y, strict=True)]
        u = [r + r for r in u]
        blocks: list[list[list[Any]]] = [[[] for _ in layer] for layer in self.layers]
        for k, layer in enumerate(self.layers):  # the left half Q, from its end
            entering = up[len(self.layers) - 1 - k]
            for r, ((i, j), _, _) in enumerate(layer):
                blocks[k][r] = [u[m] * entering[p] for m in (i, j) for p in (i, j)]
            u = _apply(layer, u, transpose=True)
        by_d = [v * z for v, z in zip(u, down[-1], strict=True)]
        u = self._scaled(u)
        for k in reversed(range(len(self.layers))):  # the right half Qᵀ holds the same blocks, transposed
            entering = down[k]
            for r, ((i, j), _, _) in enumerate(self.layers[k]):
                more = [entering[m] * u[p] for m in (i, j) for p in (i, j)]
                blocks[k][r] = [g + h for g, h in zip(blocks[k][r], more, strict=True)]
            u = _apply(self.layers[k], u, transpose=False)
        return blocks, by_d

    def _down(self, x: Vector) -> list[Vector]:
        states = [x]
        for layer in self.layers:
            states.append(_apply(layer, states[-1], transpose=True))
        return states

    def _up(self, x: Vector) -> list[Vector]:
        states = [x]
        for layer in reversed(self.layers):
            states.append(_apply(layer, states[-1], transpose=False))
        return states

    def _scaled(self, x: Vector) -> Vector:
        return [z * d for z, d in zip(x, self.d, strict=True)]


def _apply(layer: list[Any], x: Vector, transpose: bool) -> Vector:
    out = list(x)
    for (i, j), c, s in layer:
        s = -s if transpose else s
        out[i], out[j] = x[i] * c - x[j] * s, x[i] * s + x[j] * c
    return out


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
    c = cpu_coefficients.prepare(pairs, operator.rotation.angles[None], d)[0]
    tally = Tally()
    z: Vector = [Counted(v, tally) for v in x]
    times = lambda p, v: v if p == 1.0 else v * p
    for (i, j), t, p in zip(pairs.pairs.tolist(), c.T, c.P, strict=True):
        z[i], z[j] = times(p[0], z[i]) + z[j] * t[0], times(p[1], z[j]) + z[i] * t[1]
    if quadratic:
        weights = c.scale**2 * operator.eigenvalues.numpy()  # made once for all x
        total = sum(v * v * w for v, w in zip(z, weights, strict=True))
        return tally.multiplications, np.array(float(total))
    assert c.diagonal is not None
    z = [v * w for v, w in zip(z, c.diagonal, strict=True)]
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

"""Transforms of a Linear's inputs that `quantise.py` compares: fixed, fitted to moments of the data, and learned.

T x meets W T⁻¹, and both are rounded. Where nothing sticks out (a Hadamard matrix sees to that), the error of an entry
grows with the norm of its vector. To second order the loss then grows by a multiple of tr(C M) · tr(Γ M⁻¹). Here M is
TᵀT, C the mean of x xᵀ, and Γ that of g gᵀ, over the gradients g that errors of the inputs, or of the weights, meet.
The best M is the geometric mean of C⁻¹ and Γ. `fit_symmetric` finds √M ≈ Q D Qᵀ, and T = Hadamard · D · Qᵀ.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from language_model import LanguageModel, precision
from torch import Tensor, nn

from swallowtail import Butterfly, Grouped, fit_symmetric
from swallowtail.nn import Rotate

GROUP = 128  # channels that share a block, and weights of a row that share a scale
ROTATIONS = 7  # per channel, in a fitted basis: as many as in fourteen full layers
DAMPING = 1e-3  # of moments, relative to the mean of their diagonals


class Bits(NamedTuple):
    """How many per weight and per activation; 16 stands for none lost."""

    weight: int
    activation: int

    def noise(self) -> tuple[float, float]:
        """The shares of weights and activations in the squared error of rounding."""
        parts = [0.0 if bits >= 16 else 4.0**-bits for bits in self]
        return parts[0] / sum(parts), parts[1] / sum(parts)


@dataclass(frozen=True, eq=False)
class Moments:
    """What a Linear sees, in float64, on the model's device."""

    inputs: Tensor  # the mean of x xᵀ
    gradients: Tensor  # the mean of g gᵀ, g the gradient of the loss by the outputs
    weight: Tensor

    @property
    def n(self) -> int:
        """The number of input channels."""
        return len(self.inputs)

    def sensitivity(self, noise: tuple[float, float]) -> Tensor:
        """Γ: errors of the weights are independent from output to output, those of the inputs reach all of them."""
        rows, whole = self.gradients.diagonal().diag(), self.gradients
        return self.weight.T @ (noise[0] * rows + noise[1] * whole) @ self.weight


def moments(model: LanguageModel, rows: Iterator[Tensor], batches: int) -> dict[str, Moments]:
    """Of every Linear of the blocks, as means over batches. The loss is that of bytes drawn from the model itself."""
    inputs, gradients = dict[str, Tensor](), dict[str, Tensor]()

    def add(store: dict[str, Tensor], name: str, x: Tensor) -> None:
        flat = x.detach().flatten(0, -2).float()
        with torch.autocast(x.device.type, enabled=False):  # in bfloat16 they would have negative eigenvalues
            moment = (flat.T @ flat).double() / (batches * len(flat))
        store[name] = store[name] + moment if name in store else moment

    def watch(name: str, linear: nn.Linear, arguments: tuple[Tensor, ...], output: Tensor) -> None:
        add(inputs, name, arguments[0])
        output.register_hook(partial(add, gradients, name))

    linears = {name: part for name, part in model.blocks.named_modules() if isinstance(part, nn.Linear)}
    handles = [part.register_forward_hook(partial(watch, name)) for name, part in linears.items()]
    for _ in range(batches):
        x = next(rows)[:, :-1]
        with precision(x.device.type):
            scores = model(x).float().flatten(0, 1)
        generator = torch.Generator(x.device).manual_seed(0)
        drawn = torch.multinomial(scores.detach().softmax(-1), 1, generator=generator)[:, 0]
        F.cross_entropy(scores, drawn, reduction="sum").backward()
    model.zero_grad()
    for handle in handles:
        handle.remove()
    return {
        name: Moments(inputs[name], gradients[name], part.weight.detach().double())
        for name, part in linears.items()
    }


def damped(matrix: Tensor) -> Tensor:
    """Scaled to a mean diagonal of 1, and safely positive definite."""
    scaled = matrix * (len(matrix) / matrix.trace())
    return scaled + DAMPING * torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)


def root(matrix: Tensor) -> Tensor:
    """Of a positive definite matrix."""
    values, vectors = torch.linalg.eigh(matrix)
    return (vectors * values.clamp(min=1e-12 * float(values[-1])).sqrt()) @ vectors.T


# Fixed and learned transforms start from the same matrices: those of all Linears at all settings are kept.
@functools.lru_cache(maxsize=128)
def balance(of: Moments, noise: tuple[float, float]) -> Tensor:
    """√M, of the geometric mean M of C⁻¹ and Γ: with C = L Lᵀ it is L⁻ᵀ (Lᵀ Γ L)^½ L⁻¹."""
    L, gamma = torch.linalg.cholesky(damped(of.inputs)), damped(of.sensitivity(noise))
    half = torch.linalg.solve_triangular(L.T, root(L.T @ gamma @ L), upper=True)
    mean = torch.linalg.solve_triangular(L.T, half.T, upper=True)
    return root((mean + mean.T) / 2)


@functools.lru_cache(maxsize=128)
def basis(of: Moments, noise: tuple[float, float]) -> Rotate:
    """Qᵀ x: coordinates in which √M is nearly diagonal, by rotations of pairs chosen for it."""
    count = int(ROTATIONS * of.n)
    matrix = balance(of, noise)
    matrix = matrix.float() if matrix.is_cuda else matrix  # a GPU fits in the precision of the matrix
    Q = fit_symmetric(matrix, n_rotations=count, method="pairs", effort="quick").operator.rotation
    layer = Rotate(wiring=Q.T.wiring, device=matrix.device)
    with torch.no_grad():
        layer.angles.copy_(Q.T.angles)
    return layer


def scales(of: Moments, bits: Bits, turn: nn.Module | None = None) -> Tensor:
    """The best diagonal D, in the channels themselves or after ``turn``: (Γᵢᵢ / Cᵢᵢ)^¼."""
    Q = torch.eye(of.n, device=of.inputs.device)
    Q = (Q if turn is None else turn(Q).detach()).double()
    C, gamma = damped(of.inputs), damped(of.sensitivity(bits.noise()))
    ratio = ((gamma @ Q * Q).sum(0) / (C @ Q * Q).sum(0)).log()
    return (0.25 * (ratio - ratio.mean())).exp().float()


def random_signs(n: int, seed: int) -> Tensor:
    """±1 at random."""
    return torch.randint(0, 2, (n,), generator=torch.Generator().manual_seed(seed)) * 2.0 - 1


@functools.lru_cache(maxsize=16)
def blocks(n: int, size: int, layers: int) -> Grouped:
    """One wiring for all Linears of a size: what is worked out for it serves all of them."""
    return Grouped.fixed(n, size, layers=layers, pairs="butterfly")


def hadamard(n: int, scales: Tensor | None = None, layers: int = 7) -> Rotate:
    """A Hadamard matrix per block of up to 128 channels, after scales if they are given.

    More than seven ``layers`` start at rest, to be learned.
    """
    block = min(GROUP, n)
    wiring = blocks(n, block, layers)
    layer = Rotate(wiring=wiring, scales=scales is not None)
    with torch.no_grad():
        layer.angles[int(wiring.offsets[layers - (block - 1).bit_length()]) :] = math.pi / 4
        if layer.scales is not None and scales is not None:
            layer.scales.copy_(scales)
    return layer


def butterfly(n: int) -> Rotate:
    """Learned over all channels; it starts as a Hadamard matrix, or as near to one as n allows."""
    layer = Rotate(wiring=Butterfly(n))
    nn.init.constant_(layer.angles, math.pi / 4)
    return layer


class Fitted(nn.Module):
    """Rotations fitted to the data, scales, Hadamard blocks and one more layer: T = Hadamard · D · Qᵀ."""

    def __init__(self, of: Moments, bits: Bits) -> None:
        super().__init__()
        found = basis(of, bits.noise())
        self.turn = Rotate(wiring=found.wiring)
        self.turn.load_state_dict(found.state_dict())
        self.spread = hadamard(of.n, scales(of, bits, found), layers=8)

    def forward(self, x: Tensor) -> Tensor:
        return self.spread(self.turn(x))

    def inverse_transpose(self, x: Tensor) -> Tensor:
        """For rows of the weight."""
        return self.spread.inverse_transpose(self.turn(x))


class DenseMap(nn.Module):
    """Any invertible matrix; it starts as Hadamard · √M. What `Fitted` makes of few rotations, with n² numbers."""

    def __init__(self, of: Moments, bits: Bits) -> None:
        super().__init__()
        root = balance(of, bits.noise()).float()
        # Its transpose: rows are transformed.
        self.matrix = nn.Parameter(hadamard(of.n).to(root.device)(root).detach())

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.matrix.to(x.dtype)

    def inverse_transpose(self, x: Tensor) -> Tensor:
        """For rows of the weight."""
        return torch.linalg.solve(self.matrix, x.float().T).T


class Dense(nn.Module):
    """A learned dense rotation of all channels: the Hadamard blocks times the exponential of a skew matrix."""

    def __init__(self, of: Moments) -> None:
        super().__init__()
        n, device = of.n, of.inputs.device
        self.n, self.skew = n, nn.Parameter(torch.zeros(n * (n - 1) // 2, device=device))
        self.register_buffer("start", hadamard(n).to(device)(torch.eye(n, device=device)).detach())
        self.kept: tuple[object, Tensor] = (None, self.start)

    def matrix(self) -> Tensor:
        """Made once per step: the weight and the activations need the same one."""
        state = (self.skew._version, torch.is_grad_enabled())
        if self.kept[0] != state:
            places = torch.triu_indices(self.n, self.n, 1, device=self.skew.device)
            upper = self.skew.new_zeros(self.n, self.n).index_put(tuple(places), self.skew)
            with torch.autocast(self.skew.device.type, enabled=False):
                self.kept = state, torch.linalg.matrix_exp(upper - upper.T) @ self.start
        return self.kept[1]

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.matrix().to(x.dtype)

    inverse_transpose = forward

"""Ĥ = Q D Qᵀ learned from samples (x, y ≈ H x): the paper's relax-and-project, and two criteria past it.

`swallowtail.Tracker` learns from samples too, for anybody's use; here it is a state of tensors inside an optimiser.
The state is float64 on the CPU, as `fitting.core.relaxed` takes it, in a dictionary of tensors whose memory NumPy
shares.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from swallowtail import ops
from swallowtail.fitting.core.relaxed import relax_and_project, unsigned_pairs
from swallowtail.operators.rotation import Rotation
from swallowtail.operators.symmetric import SymmetricOperator
from swallowtail.wiring import Butterfly

State = dict[str, Tensor]
CRITERIA = ("least_squares", "psgd", "logdet")


class Learning(NamedTuple):
    """How to learn from a sample; `GivensNewton` says what each option means."""

    rate_q: float
    rate_d: float
    epsilon: float
    criterion: str = "least_squares"
    normalized_step: float | None = None
    replay: int = 1
    sweeps: int = 1
    damping: float = 1e-3


def new_hessian(n: int, replay: int) -> State:
    """Q = I, D = I and no samples."""
    K = Butterfly(n).n_rotations
    return {
        "cosines": torch.ones(K, dtype=torch.float64),
        "sines": torch.zeros(K, dtype=torch.float64),
        "eigenvalues": torch.ones(n, dtype=torch.float64),
        "inputs": torch.zeros(replay, n, dtype=torch.float64),
        "outputs": torch.zeros(replay, n, dtype=torch.float64),
        "n_samples": torch.zeros((), dtype=torch.int64),
    }


def learn(state: State, x: Tensor, y: Tensor, how: Learning) -> bool:
    """Learn from a sample y ≈ H x and from those replayed with it; False, and nothing changed, if it diverges.

    Both are scaled by 1/‖x‖ first, as in the paper. A sample with x = 0, or that is not finite, is passed over.
    """
    size = float(x.norm())
    if not (size > 0 and np.isfinite(size) and bool(torch.isfinite(y).all())):
        return True
    slot = int(state["n_samples"]) % how.replay
    state["inputs"][slot], state["outputs"][slot] = x / size, y / size
    state["n_samples"] += 1
    count = min(int(state["n_samples"]), how.replay)
    before = {key: state[key].clone() for key in ("cosines", "sines", "eigenvalues")}
    X, Y = state["inputs"][:count], state["outputs"][:count]
    if how.criterion == "least_squares":
        _least_squares(state, X.numpy(), Y.numpy(), how)
    else:
        _diagonalise(state, X, Y, how)
    if all(bool(torch.isfinite(state[key]).all()) for key in before):
        return True
    for key, value in before.items():
        state[key].copy_(value)
    state["n_samples"].zero_()
    return False


def _least_squares(state: State, X: np.ndarray, Y: np.ndarray, how: Learning) -> None:
    """ω̃ ← ω̃ − α ∂L/∂ω̃ for L = ‖Q D Qᵀx − y‖², mean over the samples, then the projection of equation 5."""
    count = len(X)
    relax_and_project(
        pairs=unsigned_pairs(Butterfly(X.shape[1])),
        cosines=state["cosines"].numpy(),
        sines=state["sines"].numpy(),
        d=state["eigenvalues"].numpy(),
        X=X,
        Y=Y,
        order=np.tile(np.arange(count), how.sweeps),
        batch_size=count,
        rates=np.full(how.sweeps, how.rate_q),
        rates_d=np.full(how.sweeps, how.rate_d),
        floor=how.epsilon,
        rotation=False,
        normalized=how.normalized_step or 0.0,
    )


def _diagonalise(state: State, X: Tensor, Y: Tensor, how: Learning) -> None:
    """Gradient steps on the angles with D eliminated.

    With z = Qᵀx and h = Qᵀy, both criteria have D_i = √(E h_i² / E z_i²), positive by construction. What is left
    for the angles is Σ √(E h_i² · E z_i²) for PSGD's E[yᵀPy + xᵀP⁻¹x], and ½ Σ log E h_i² for "logdet",
    which Hadamard's inequality bounds below by the log-determinant of E yyᵀ.
    """
    wiring = Butterfly(X.shape[1])
    angles = _angles(state)
    for _ in range(how.sweeps if how.rate_q > 0 else 0):
        with torch.enable_grad():
            theta = angles.detach().requires_grad_()
            z2, h2 = _moments(X, Y, wiring, theta, how.damping)
            value = (h2 * z2).sqrt().sum() if how.criterion == "psgd" else 0.5 * h2.log().sum()
            (gradient,) = torch.autograd.grad(value, theta)
        largest = float(gradient.abs().max())
        if how.normalized_step is None:
            angles = angles - how.rate_q * gradient
        elif largest > 0:  # the angle that moves most moves by κ
            angles = angles - (how.normalized_step / largest) * gradient
    state["cosines"].copy_(angles.cos())
    state["sines"].copy_(angles.sin())
    z2, h2 = _moments(X, Y, wiring, angles, how.damping)
    state["eigenvalues"].copy_((h2 / z2).sqrt().clamp(min=how.epsilon))


def _moments(
    X: Tensor, Y: Tensor, wiring: Butterfly, angles: Tensor, damping: float
) -> tuple[Tensor, Tensor]:
    """E z_i² and E h_i², each with a share of its mean added: few samples leave most coordinates unseen."""
    z, h = ops.rotate_transpose(torch.stack([X, Y]), wiring, angles).square().mean(1)
    return z + damping * z.mean(), h + damping * h.mean()


def _angles(state: State) -> Tensor:
    return torch.atan2(state["sines"], state["cosines"])


def as_operator(state: State) -> SymmetricOperator:
    """Ĥ as it is now, float64."""
    wiring = Butterfly(len(state["eigenvalues"]))
    return SymmetricOperator(Rotation(wiring, _angles(state)), state["eigenvalues"].clone())


def newton_direction(state: State, gradient: Tensor, epsilon: float, *, invert: bool) -> Tensor:
    """Ĥ⁻¹ g with D no smaller than ε, or Ĥ g where Ĥ was learned as the inverse itself."""
    g = gradient.detach().to("cpu", torch.float64)
    d = state["eigenvalues"].clamp(min=epsilon)
    product = ops.symmetric_matvec(g, Butterfly(len(g)), _angles(state), 1 / d if invert else d)
    return product.to(gradient)

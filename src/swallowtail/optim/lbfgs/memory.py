"""What L-BFGS remembers: its last samples (s, y), and an H₀ = γ Q D⁻¹ Qᵀ learned from them.

A sample is a step s of the iteration and the change y of the gradient that it caused. Everything that changes is a
dictionary of tensors (`new_memory`), so that it can be saved, copied and resumed.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from swallowtail import ops
from swallowtail.kernels.cpu.jit import switched_off
from swallowtail.operators.rotation import Rotation
from swallowtail.operators.symmetric import SymmetricOperator
from swallowtail.ops import PreparedCache
from swallowtail.optim.closed_form import ROUNDING, angles_from_samples
from swallowtail.optim.lbfgs import compiled
from swallowtail.optim.lbfgs.settings import Settings
from swallowtail.wiring import Butterfly

Memory = dict[str, Tensor]

# The mean gain in log cos above which the learned H₀ is used, at first and after many fits. With few samples L-BFGS
# knows little itself, so little is enough. With 0.05 throughout, quadratics and Rosenbrock's function took up to 1.14
# times the evaluations of γI.
GATE_OPENS_FIRST, GATE_OPENS_LAST = 0.1, 0.2
GATE_RISES = 0.95  # per fit
LEAST_CURVATURE = 1e-12  # of cos(s, y): samples below it say nothing reliable about curvature
LEAST_COSINE = 1e-6  # in the gain: log cos of smaller (or negative) ones would drown all other samples


@lru_cache(8)
def wiring_for(n: int) -> Butterfly:
    """The butterfly with neighbours first: strides 1, 2, 4, …

    A closed-form pass does best when coordinates that are correlated most meet first. PyTorch keeps a layer's
    weights (out, in), so a unit's inputs lie side by side. With strides n/2, n/4, … instead, MLP 64-32-10
    takes 70 evaluations where this takes 41 (L-BFGS: 87).
    """
    return Butterfly(n, reverse=True)


@lru_cache(8)
def pairs_for(n: int) -> np.ndarray:  # shape: (K, 2)
    """The pairs of `wiring_for` (n), layer by layer."""
    return wiring_for(n).flat_pairs()


def is_compiled(x: Tensor) -> bool:
    """Whether vectors like this go through `compiled`."""
    return x.is_cpu and x.dtype in (torch.float32, torch.float64) and not switched_off()


def new_memory(x: Tensor, history_size: int) -> Memory:
    """No samples yet, and no basis."""
    n = x.numel()
    return {
        "steps": x.new_zeros(history_size, n),
        "changes": x.new_zeros(history_size, n),
        "n_samples": torch.zeros((), dtype=torch.int64),
        "angles": x.new_zeros(wiring_for(n).n_rotations),
        "inverse_eigenvalues": x.new_ones(n),
        "gate": torch.zeros((), dtype=torch.float64),
        "n_fits": torch.zeros((), dtype=torch.int64),
    }


def learn(
    memory: Memory, step: Tensor, change: Tensor, settings: Settings, cache: PreparedCache | None = None
) -> None:
    """Take in the sample (s, y): judge P = QD⁻¹Qᵀ on it, remember it, refit every few samples.

    The gate is a moving average of log cos(Py, s) − log cos(y, s). P is used while it has been turning the
    changes of the gradient towards the steps that caused them, by more than `gate_opens`. It is judged on
    samples that it has not been fitted to.
    """
    fitted = int(memory["n_fits"]) > 0
    cosine, new_cosine = _cosines(memory, step, change, fitted, cache)
    if not cosine > LEAST_CURVATURE:
        return
    if fitted:
        gain = math.log(max(new_cosine, LEAST_COSINE)) - math.log(max(cosine, LEAST_COSINE))
        decay = settings.gate_decay
        memory["gate"].mul_(decay).add_((1 - decay) * gain)
    count = int(memory["n_samples"])
    for name, vector in (("steps", step), ("changes", change)):
        memory[name][count % settings.history_size].copy_(vector)
    memory["n_samples"] += 1
    if settings.preconditioner != "none" and (count + 1) % settings.refresh == 0:
        _refit(memory, settings)


def _cosines(
    memory: Memory, step: Tensor, change: Tensor, fitted: bool, cache: PreparedCache | None
) -> tuple[float, float]:
    """cos(y, s) and, once there is a fit, cos(Py, s)."""
    if is_compiled(step):
        angles, d = memory["angles"].numpy(), memory["inverse_eigenvalues"].numpy()
        pairs = pairs_for(step.numel())
        return compiled.cosines(step.numpy(), change.numpy(), fitted, pairs, angles, d)

    def cosine(y: Tensor) -> float:
        sizes = float(step.norm()) * float(y.norm())
        return float(step @ y) / sizes if sizes > 0 else 0.0

    return cosine(change), cosine(precondition(memory, change, cache)) if fitted else 0.0


def forget(memory: Memory) -> None:
    """Drop the samples and the basis."""
    for key in ("n_samples", "n_fits", "gate"):
        memory[key].zero_()


def learned_is_used(memory: Memory) -> bool:
    """Whether the learned H₀ is in use now, rather than γI."""
    n_fits = int(memory["n_fits"])
    return n_fits > 0 and float(memory["gate"]) > gate_opens(n_fits)


def gate_opens(n_fits: int) -> float:
    """The mean gain above which a learned H₀ is used."""
    return GATE_OPENS_LAST - (GATE_OPENS_LAST - GATE_OPENS_FIRST) * GATE_RISES**n_fits


def precondition(memory: Memory, x: Tensor, cache: PreparedCache | None = None) -> Tensor:
    """Q D⁻¹ Qᵀ x for vectors on the last axis."""
    angles, d = memory["angles"], memory["inverse_eigenvalues"]
    if x.ndim == 1 and is_compiled(x):
        parts = (x.numpy(), pairs_for(len(x)), angles.numpy(), d.numpy())
        return torch.from_numpy(compiled.precondition(*parts))
    return ops.symmetric_matvec(x, wiring_for(x.shape[-1]), angles, d, cache=cache)


def initial_inverse(memory: Memory) -> SymmetricOperator:
    """H₀ = γ Q D⁻¹ Qᵀ as an operator; γI while the gate is shut, I before the first sample."""
    n, count = memory["steps"].shape[1], int(memory["n_samples"])
    active = learned_is_used(memory)
    angles = memory["angles"] if active else torch.zeros_like(memory["angles"])
    d = memory["inverse_eigenvalues"] if active else torch.ones_like(memory["inverse_eigenvalues"])
    if count:
        s, y = (memory[key][(count - 1) % len(memory[key])] for key in ("steps", "changes"))
        d = d * ((s @ y) / (y @ (precondition(memory, y) if active else y)))
    return SymmetricOperator(Rotation(wiring_for(n), angles.clone()), d.clone())


def _refit(memory: Memory, settings: Settings) -> None:
    """Q by one closed-form Jacobi pass over the changes y, then D_i = √(E y_i² / E s_i²) in that basis.

    Samples are scaled to ‖s‖ = 1 first. A few samples leave most coordinates almost unseen. A share ``damping`` of
    the mean, added to both moments, keeps those near the mean curvature.
    """
    count = min(int(memory["n_samples"]), settings.history_size)
    S, Y = memory["steps"][:count], memory["changes"][:count]
    if is_compiled(S) and settings.preconditioner != "random":
        _refit_compiled(memory, settings, count)
        return
    scale = 1.0 / S.norm(dim=1, keepdim=True)
    samples = torch.cat([Y * scale, S * scale]).T.contiguous()  # shape: (n, 2 count)
    wiring = wiring_for(samples.shape[0])
    if settings.preconditioner == "rotated":
        angles, samples = angles_from_samples(samples, wiring, count)
        memory["angles"].copy_(angles)
    elif settings.preconditioner == "random":
        if not int(memory["n_fits"]):
            generator = torch.Generator().manual_seed(0)
            draws = torch.rand(wiring.n_rotations, generator=generator, dtype=torch.float64)
            memory["angles"].copy_((2 * draws - 1) * math.pi)
        samples = ops.rotate_transpose(samples.T.contiguous(), wiring, memory["angles"]).T
    y2, s2 = (part.square().mean(1) for part in (samples[:, :count], samples[:, count:]))
    y2, s2 = (m + settings.damping * m.mean() for m in (y2, s2))
    memory["inverse_eigenvalues"].copy_((s2 / y2).sqrt())
    memory["n_fits"] += 1


def _refit_compiled(memory: Memory, settings: Settings, count: int) -> None:
    """`_refit` of a rotated or diagonal H₀."""
    names = ("steps", "changes", "angles", "inverse_eigenvalues")
    S, Y, angles, d = (memory[name].numpy() for name in names)
    rounding, number = ROUNDING * torch.finfo(memory["steps"].dtype).eps, S.dtype.type
    rotated, pairs = settings.preconditioner == "rotated", pairs_for(S.shape[1])
    compiled.refit(S, Y, count, rotated, pairs, angles, d, number(settings.damping), number(rounding))
    memory["n_fits"] += 1

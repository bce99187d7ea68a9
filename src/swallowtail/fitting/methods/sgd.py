"""The paper's Algorithm 1: learn H ≈ Q D Qᵀ, or a rotation R ≈ Q, from samples (x, y) by stochastic gradient.

Each step follows the gradient of L = ‖Q D Qᵀx − y‖² (or L′ = ‖Q x − y‖²) with respect to every non-zero of
every layer as if they were free, then projects each Givens back to the nearest rotation (equation 5).
`core.relaxed` does the work; here are rates, scales and the loop. `tracker.Tracker` takes single steps for an H
that moves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from swallowtail import checks
from swallowtail.errors import ArgumentError
from swallowtail.fitting.core.records import Stop
from swallowtail.fitting.core.relaxed import relax_and_project, unsigned_pairs
from swallowtail.fitting.core.samples import Supply, as_rows
from swallowtail.wiring import Butterfly, Wiring

LOSSES = ("symmetric", "rotation")
RATE = 0.002  # α for one sample per step. Four times as much still converges, to a noisier end.
LARGEST_BATCH_GAIN = 16  # the rate may grow with the batch up to here: beyond, curvature limits it, not noise
PEAK = 24.0  # how far the energy-weighted mean of λ² may exceed its plain mean before the rate has to shrink
DIVERGED = 1e3  # a relative loss that D = 0 would beat a thousand times
WORK = 2**23  # rotations of a sample between two looks at the clock, about a tenth of a second
_WINDOW = 4  # epochs averaged before two of them are compared: single ones are noisy

Rate = float | Callable[[int], float]  # a number, or step ↦ number


class Epoch(NamedTuple):
    """Where a fit stood after an epoch; loss and angle are means over its steps, on the samples trained on."""

    n_products: int
    epoch: int
    loss: float  # mean ‖prediction − y‖² / mean ‖y‖²
    angle: float  # mean angle between prediction and y, degrees


class SGDFit(NamedTuple):
    """H ≈ Q diag(eigenvalues) Qᵀ, or R ≈ Q (then ``eigenvalues`` is None), and how the fit got there."""

    wiring: Wiring
    angles: np.ndarray  # shape: (K,)
    eigenvalues: np.ndarray | None  # shape: (n,)
    history: list[Epoch]
    n_products: int  # 0 if the samples were given


def fit_sgd(
    source: Any,
    n: int | None = None,
    *,
    loss: str = "symmetric",
    wiring: Wiring | None = None,
    inputs: Any = "sphere",
    n_samples: int | None = None,
    fresh: bool = False,
    epochs: int = 10,
    batch_size: int = 1,
    rate: Rate | tuple[Rate, Rate] | None = None,
    rescale: bool = True,
    floor: float | None = None,
    tolerance: float | None = None,
    max_products: int | None = None,
    angles: Any = None,
    eigenvalues: Any = None,
    callback: Callable[[Epoch], Any] | None = None,
    pulse: Callable[[], None] | None = None,
    seed: int = 0,
) -> SGDFit:
    """Learn Q and D with Algorithm 1.

    Args:
        source: what gives y for x: a function of columns (n, k), anything with ``@``, or a tuple (X, Y) of
            columns (n, m) that the caller already has.
        n: dimension; needed for a plain function.
        loss: "symmetric" for L with Q D Qᵀ, "rotation" for L′ with Q alone.
        wiring: who meets whom; `Butterfly` (n) by default.
        inputs: where to take x: "sphere" (unit sphere), "cube" (centred hypercube), a region as a function
            (k, generator) ↦ columns (n, k), or columns (n, k) to draw from. Unused with given samples.
        n_samples: m, the number of samples; 32 n by default.
        fresh: take m new samples every epoch, each once, instead of drawing from the same m at random.
        epochs: an epoch is m draws.
        batch_size: samples whose mean gradient makes one step.
        rate: α: a number, a function of the step, or one of these for Q and one for D, as a tuple.
        rescale: measure x in units of its root mean square and H in units of its own scale
            (`spectral_scale`), so that one rate fits any norm. With False, α acts on the numbers as they are.
        floor: ε: negative eigenvalues become this at each projection; None leaves them.
        tolerance: stop when the loss, averaged over 4 epochs, fell by less than this fraction.
        max_products: a hard limit on products, over all epochs.
        angles: where to start, (K,); by default uniform in (−π, π).
        eigenvalues: where to start, (n,); by default all Σ xᵀy / Σ xᵀx, an estimate of tr(H)/n.
        callback: called with each `Epoch`; raising `Stop` in it, or Ctrl-C, returns the fit so far.
        pulse: called ten times per second or so, inside an epoch too; it may raise `Stop` as well.
        seed: of x, of the start and of the order of samples.

    Returns:
        An `SGDFit`.

    Raises:
        ValueError: arguments that make no sense, products that are not finite, a rate at which D diverges.
    """
    checks.choice("loss", loss, LOSSES)
    epochs = checks.integer("epochs", epochs, at_least=1)
    batch_size = checks.integer("batch_size", batch_size, at_least=1)
    epsilon = floor_or_nan(floor)
    rng = np.random.default_rng(seed)
    supply = Supply(source, n, inputs, n_samples, max_products, rng)
    n, wiring = supply.n, wiring_for(supply.n, wiring)
    pairs, rotation = unsigned_pairs(wiring), loss == "rotation"
    cosines, sines = start_rotation(wiring, angles, rng)
    alpha, alpha_d = rate_pair(default_rate(batch_size, rotation) if rate is None else rate)

    X, Y = supply.draw(pulse)
    x_scale, y_scale = spectral_scale(X, Y) if rescale else (1.0, 1.0)
    X, Y = X / x_scale, Y / (x_scale * y_scale)
    if eigenvalues is None:
        d = np.full(n, np.vdot(X, Y) / (np.vdot(X, X) or 1.0))
    else:
        d = given_eigenvalues(n, eigenvalues) / y_scale
    energy = float(np.mean(np.einsum("mi,mi->m", Y, Y))) or 1.0

    history: list[Epoch] = []
    step = 0
    try:
        for epoch in range(1, epochs + 1):
            if fresh and epoch > 1:
                if supply.is_exhausted:
                    break
                X, Y = supply.draw(pulse)
                X, Y = X / x_scale, Y / (x_scale * y_scale)
            b = min(batch_size, len(X))
            n_steps = len(X) // b
            order = rng.permutation(len(X)) if fresh else rng.integers(len(X), size=n_steps * b)
            rates, rates_d = evaluate(alpha, step, n_steps), evaluate(alpha_d, step, n_steps)
            chunk = max(1, WORK // (b * max(1, len(pairs))))
            sums, done, stopped = np.zeros(2), 0, False
            while done < n_steps and not stopped:
                now = slice(done, min(n_steps, done + chunk))
                samples = order[now.start * b : now.stop * b]
                means = relax_and_project(
                    pairs, cosines, sines, d, X, Y, samples, b, rates[now], rates_d[now], epsilon / y_scale,
                    rotation, 0.0,
                )  # fmt: skip
                sums, done = sums + np.array(means) * (now.stop - now.start), now.stop
                stopped = _is_over(pulse)
            mean_loss, angle = (float(total) / done for total in sums)
            step += done
            history.append(Epoch(supply.n_products, epoch, mean_loss / energy, float(np.degrees(angle))))
            if not np.isfinite([mean_loss, *d]).all() or (epoch > 1 and mean_loss > DIVERGED * energy):
                raise ArgumentError(
                    "rate",
                    "one at which the fit converges",
                    f"a relative loss of {mean_loss / energy:.1e} in epoch {epoch}",
                    "try a tenth of it",
                )
            if callback is not None:
                callback(history[-1])
            if stopped or (tolerance is not None and _converged(history, tolerance)):
                break
    except (Stop, KeyboardInterrupt):
        pass
    found = None if rotation else d * y_scale
    return SGDFit(wiring, np.arctan2(sines, cosines), found, history, supply.n_products)


def _is_over(pulse: Callable[[], None] | None) -> bool:
    try:
        if pulse is not None:
            pulse()
    except Stop:
        return True
    return False


def spectral_scale(X: np.ndarray, Y: np.ndarray) -> tuple[float, float]:
    """The units in which one rate fits all: the root mean square of X's entries, and a scale σ of H.

    In units of the former E‖x‖² = n, and σ² = max(h², w/24) with h² = tr(H²)/n, the plain mean of λ², and
    w = tr(H⁴)/tr(H²), its mean weighted by energy. The gradient's noise grows with h and its curvature with
    the few large λ, which w sees: a step of 0.1/w is about the largest that converges, on any matrix tried.
    With E x xᵀ = I, E‖y‖² = tr(H²), and E(y₁ᵀy₂)² = tr(H⁴) for independent samples, so both come for free.

    Args:
        X, Y: samples as rows, shape (m, n).

    Returns:
        The scale of x and σ; 1 for what is zero.
    """
    x_scale = float(np.abs(X).max()) or 1.0
    x_scale *= float(np.sqrt(np.mean((X / x_scale) ** 2))) or 1.0
    top = float(np.abs(Y).max()) or 1.0  # taken out first: squares neither over- nor underflow
    S = Y[:256] / top
    gram = (S @ S.T) ** 2
    fourth = (gram.sum() - np.trace(gram)) / (len(S) * (len(S) - 1)) if len(S) > 1 else gram[0, 0]
    second = float(np.mean(np.einsum("mi,mi->m", S, S))) or 1.0
    return x_scale, top / x_scale * scale_from_moments(second / X.shape[1], fourth / second)


def scale_from_moments(plain: float, weighted: float) -> float:
    """σ from the plain and the energy-weighted mean of λ²; 1 if both are zero."""
    return float(np.sqrt(max(plain, weighted / PEAK))) or 1.0


def wiring_for(n: int, wiring: Wiring | None) -> Wiring:
    """The given wiring, or the paper's, on n coordinates."""
    if wiring is None:
        return Butterfly(n)
    checks.instance("wiring", wiring, Wiring, "try Butterfly(n)")
    if wiring.n != n:
        raise ArgumentError("wiring", f"one on n = {n} coordinates", wiring)
    return wiring


def start_rotation(wiring: Wiring, angles: Any, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines (K,) of the given angles, or of angles uniform in (−π, π)."""
    if angles is None:
        theta = rng.uniform(-np.pi, np.pi, wiring.n_rotations)
    else:
        theta = as_rows("angles", angles)[0]
        if len(theta) != wiring.n_rotations:
            raise ArgumentError("angles", f"{wiring.n_rotations}, one per rotation", len(theta))
    return np.cos(theta), np.sin(theta)


def given_eigenvalues(n: int, eigenvalues: Any) -> np.ndarray:  # shape: (n,)
    """The given numbers, a copy; one number stands for n equal ones."""
    plain = np.isscalar(eigenvalues) or isinstance(eigenvalues, (list, tuple))
    values = as_rows("eigenvalues", np.atleast_1d(eigenvalues) if plain else eigenvalues)[0]
    if len(values) not in (1, n):
        raise ArgumentError("eigenvalues", f"n = {n} numbers, or one", len(values))
    return np.array(np.broadcast_to(values, n))


def default_rate(batch_size: int, rotation: bool) -> float:
    """α that works; twice as large for L′, where every block stands once in the product and not twice."""
    return RATE * min(batch_size, LARGEST_BATCH_GAIN) * (2 if rotation else 1)


def rate_pair(rate: Rate | tuple[Rate, Rate]) -> tuple[Rate, Rate]:
    """α for Q and α for D."""
    rates = rate if isinstance(rate, tuple) else (rate, rate)
    if len(rates) != 2:
        raise ArgumentError("rate", "one for Q and one for D", len(rates))
    for alpha in rates:
        if not callable(alpha):
            checks.number("rate", alpha, at_least=0)
    return rates


def evaluate(rate: Rate, start: int, n_steps: int) -> np.ndarray:  # shape: (n_steps,)
    """α for the steps from ``start`` on."""
    if callable(rate):
        return np.array([rate(step) for step in range(start, start + n_steps)], dtype=np.float64)
    return np.full(n_steps, rate, dtype=np.float64)


def floor_or_nan(floor: float | None) -> float:
    """ε as the kernel takes it: NaN for none."""
    return float("nan") if floor is None else checks.number("floor", floor, at_least=0)


def _converged(history: list[Epoch], tolerance: float) -> bool:
    if len(history) < 2 * _WINDOW:
        return False
    losses = [record.loss for record in history[-2 * _WINDOW :]]
    return bool(np.mean(losses[_WINDOW:]) >= (1.0 - tolerance) * np.mean(losses[:_WINDOW]))

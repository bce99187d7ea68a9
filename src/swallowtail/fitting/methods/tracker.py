"""Tracker: follow a slowly changing H, one relax-and-project step of Algorithm 1 for each sample that comes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from swallowtail import checks
from swallowtail.errors import ArgumentError
from swallowtail.fitting.core.relaxed import relax_and_project, unsigned_pairs
from swallowtail.fitting.core.samples import as_rows
from swallowtail.fitting.methods.sgd import (
    LOSSES,
    Rate,
    evaluate,
    floor_or_nan,
    given_eigenvalues,
    rate_pair,
    scale_from_moments,
    start_rotation,
    wiring_for,
)
from swallowtail.operators.rotation import Rotation
from swallowtail.operators.symmetric import SymmetricOperator
from swallowtail.wiring import Wiring

TRACKING_RATE = 0.004  # following wants a larger step than settling: see benchmarks/tracking


class Tracker:
    """Ĥ = Q D Qᵀ (or Q̂ = Q) that learns from every sample it is shown.

    Section 4 of the paper: x may be a step δu and y the change δg of a gradient. ``rescale=False`` makes
    ``rate`` its α, ``unit_inputs=True`` is its factor 1/‖δu‖, ``floor`` its ε for negative eigenvalues.

    Args:
        n: dimension.
        wiring: who meets whom; `Butterfly` (n) by default.
        loss: "symmetric" for ‖Q D Qᵀx − y‖², "rotation" for ‖Q x − y‖².
        rate: α: a number, a function of the update's number, or one of these for Q and one for D, as a tuple.
        rescale: measure x and H in units of their own scale, as `fit_sgd` does, from running means over
            the last n updates or so; with False, α is the paper's, on the numbers as they are.
        unit_inputs: scale each sample by 1/‖x‖ first. A sample with x = 0 says nothing and is passed over.
        floor: ε: negative eigenvalues become this at each projection; None leaves them.
        normalized_step: κ: choose each step's length so that it lowers the linearised loss by κ L; ``rate``
            then only says how the step is shared between Q and D. None: plain steps.
        angles: where to start, (K,); by default uniform in (−π, π).
        eigenvalues: where to start, (n,) or one number for all; by default D = I as in the paper, or with
            ``rescale`` the first update's Σ xᵀy / Σ xᵀx.
        seed: of the angles.

    >>> tracker = Tracker(2, angles=[0.0], eigenvalues=1.0, rate=0.05)
    >>> x = np.array([1.0, 1.0])
    >>> losses = [tracker.update(x, 3 * x) for _ in range(50)]
    >>> losses[-1] < 0.01 * losses[0]
    True
    """

    def __init__(
        self,
        n: int,
        wiring: Wiring | None = None,
        *,
        loss: str = "symmetric",
        rate: Rate | tuple[Rate, Rate] = TRACKING_RATE,
        rescale: bool = True,
        unit_inputs: bool = True,
        floor: float | None = None,
        normalized_step: float | None = None,
        angles: Any = None,
        eigenvalues: Any = None,
        seed: int = 0,
    ) -> None:
        self.n = checks.integer("n", n, at_least=1)
        self.wiring = wiring_for(self.n, wiring)
        self._rotation = checks.choice("loss", loss, LOSSES) == "rotation"
        self._rates, self._floor = rate_pair(rate), floor_or_nan(floor)
        self._rescale, self._unit_inputs = (
            checks.flag("rescale", rescale),
            checks.flag("unit_inputs", unit_inputs),
        )
        if normalized_step is not None:
            checks.number("normalized_step", normalized_step, above=0)
        self._normalized = float(normalized_step or 0.0)
        self._pairs = unsigned_pairs(self.wiring)
        self._cosines, self._sines = start_rotation(
            self.wiring, angles, np.random.default_rng(checks.seed("seed", seed))
        )
        self._eigenvalues = given_eigenvalues(self.n, 1.0 if eigenvalues is None else eigenvalues)
        self._guess_eigenvalues = eigenvalues is None and self._rescale
        self._moments = np.zeros(3)  # running means of ‖x‖², ‖y‖² and (yᵀy′)², y′ from the update before
        self._last_y = np.zeros(self.n)
        self.n_updates = 0

    def update(self, x: Any, y: Any) -> float:
        """Take one step on a sample, or on the mean over a batch of samples.

        Args:
            x, y: shape (n,), or columns (n, b).

        Returns:
            The mean loss over the samples (after ``unit_inputs``) before the step; 0 if every x is zero.
        """
        X, Y = as_rows("x", x), as_rows("y", y)
        if X.shape != Y.shape or X.shape[1] != self.n or not len(X):
            raise ArgumentError(
                "x, y", f"({self.n},) or ({self.n}, b), both alike", f"{np.shape(x)} and {np.shape(y)}"
            )
        if self._unit_inputs:
            sizes = np.linalg.norm(X, axis=1, keepdims=True)
            if not sizes.all():
                X, Y, sizes = (z[sizes[:, 0] > 0] for z in (X, Y, sizes))
            X, Y = X / sizes, Y / sizes
        if not X.any():
            return 0.0
        alpha, alpha_d = (evaluate(rate, self.n_updates, 1) for rate in self._rates)
        self.n_updates += 1
        if self._rescale:
            x_scale, sigma = self._scales(X, Y)
            alpha, alpha_d = alpha / (x_scale * sigma) ** 2, alpha_d / x_scale**2
        if self._guess_eigenvalues:
            self._eigenvalues[:] = np.vdot(X, Y) / np.vdot(X, X)
            self._guess_eigenvalues = False
        loss, _ = relax_and_project(
            self._pairs,
            self._cosines,
            self._sines,
            self._eigenvalues,
            X,
            Y,
            np.arange(len(X)),
            len(X),
            alpha,
            alpha_d,
            self._floor,
            self._rotation,
            self._normalized,
        )
        return float(loss)

    @property
    def angles(self) -> np.ndarray:  # shape: (K,)
        """The angles of Q now."""
        return np.arctan2(self._sines, self._cosines)

    @property
    def eigenvalues(self) -> np.ndarray:  # shape: (n,)
        """The diagonal of D now, a copy."""
        return self._eigenvalues.copy()

    @property
    def operator(self) -> Rotation | SymmetricOperator:
        """Ĥ (or Q̂) as it is now, float64; later updates do not change it."""
        Q = Rotation(self.wiring, torch.from_numpy(self.angles))
        return Q if self._rotation else SymmetricOperator(Q, torch.from_numpy(self.eigenvalues))

    def state_dict(self) -> dict[str, np.ndarray]:
        """All that changes, as arrays; loaded into a tracker made alike, it continues to the same bits."""
        return {
            "cosines": self._cosines.copy(),
            "sines": self._sines.copy(),
            "eigenvalues": self._eigenvalues.copy(),
            "moments": self._moments.copy(),
            "last_y": self._last_y.copy(),
            "counts": np.array([self.n_updates, int(self._guess_eigenvalues)]),
        }

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        """Go back to what `state_dict` returned."""
        own = self.state_dict()
        if set(state) != set(own) or any(np.shape(state[key]) != own[key].shape for key in own):
            shapes = {key: value.shape for key, value in own.items()}
            raise ArgumentError("state", f"{shapes}, as state_dict gives", list(state))
        for key in ("cosines", "sines", "eigenvalues", "moments", "last_y"):
            setattr(self, f"_{key}", np.array(state[key], np.float64))
        self.n_updates, self._guess_eigenvalues = int(state["counts"][0]), bool(state["counts"][1])

    def _scales(self, X: np.ndarray, Y: np.ndarray) -> tuple[float, float]:
        """`spectral_scale` from running means; the first update has no y before it and takes its own."""
        before = self._last_y if self.n_updates > 1 else Y[-1]
        now = [np.vdot(X, X) / len(X), np.vdot(Y, Y) / len(Y), np.mean((Y @ before) ** 2)]
        self._moments += (np.array(now) - self._moments) / min(self.n_updates, self.n)
        self._last_y = Y[-1].copy()
        xx, yy, fourth = self._moments
        x_scale = float(np.sqrt(xx / self.n))
        if yy == 0.0:
            return x_scale, 1.0
        return x_scale, scale_from_moments(yy / xx, fourth / (yy * x_scale**2))

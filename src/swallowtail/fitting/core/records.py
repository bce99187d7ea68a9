"""What every fitter shares: the record it returns, the callback it calls, and how that stops it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from swallowtail.wiring import Wiring

History = list[tuple[str, int, float]]  # (stage, rotations K, objective), best so far, first to last
Callback = Callable[[str, int, float], None]  # called as callback(stage, K, best objective so far)


class Stop(Exception):
    """Raise it in a callback: the fit ends early and returns the best so far, as it does on Ctrl-C."""


class Listener:
    """A callback that remembers whether it ended a fit. Fitters catch what it raises, and no further one may begin."""

    def __init__(self, callback: Callback | None) -> None:
        self._callback, self.stopped = callback, False

    def __call__(self, stage: str, n_rotations: int, objective: float) -> None:
        if self._callback is None:
            return
        try:
            self._callback(stage, n_rotations, objective)
        except (Stop, KeyboardInterrupt):
            self.stopped = True
            raise


class DenseFit(NamedTuple):
    """H ≈ Q diag(eigenvalues) Qᵀ, and how the fit got there."""

    wiring: Wiring
    angles: np.ndarray  # shape: (K,)
    eigenvalues: np.ndarray  # shape: (n,), diag(QᵀHQ)
    history: History  # of the squared relative error, or of the mean of log d for the likelihood


class AlignedFit(NamedTuple):
    """R ≈ Q, and how the fit got there."""

    wiring: Wiring
    angles: np.ndarray  # shape: (K,)
    history: History  # of ‖R − Q‖²_F / n

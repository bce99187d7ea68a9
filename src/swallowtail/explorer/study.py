"""A matrix, its fits at several budgets, made in the background, and what the page shows of them."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from swallowtail.errors import ArgumentError
from swallowtail.explorer.curves import amounts, rival_curves
from swallowtail.fitting import FitResult, Stop, fit_symmetric
from swallowtail.fitting.budget import Cost, Prices, default_budget
from swallowtail.fitting.timing import time_model

LARGEST = 2048  # n; beyond, a fit takes minutes and a picture shows nothing more
SHARES = (1.0, 0.5, 2.0, 0.25, 4.0, 0.125)  # of the default budget, in the order of fitting
PIXELS = 192  # of a picture's side
MOST_PAIRS = 6000  # that are drawn, over all layers


class Study:
    """A matrix under study. `start` fits in a thread; everything else may be asked for at any time.

    Args:
        name: what to call the matrix.
        data: symmetric (n, n), or samples (N, n), whose covariance is taken.
        seed: of the fits.
    """

    def __init__(self, name: str, data: Any, seed: int = 0) -> None:
        self.name, self._seed, self.note = name, seed, ""
        H = np.asarray(data.toarray() if hasattr(data, "toarray") else data)
        if H.ndim != 2 or min(H.shape) < 2:
            raise ArgumentError(name, "a matrix with two rows and columns or more", f"shape {H.shape}")
        if np.iscomplexobj(H):
            raise ArgumentError(name, "real numbers", "complex ones", "try its real part")
        H = H.astype(np.float64)
        if not np.isfinite(H).all():
            got = f"{int((~np.isfinite(H)).sum())} of {H.size} NaN or infinite"
            raise ArgumentError(name, "a matrix of finite numbers", got)
        if H.shape[0] != H.shape[1]:
            self.note = f"Not square: taken for {H.shape[0]} samples of {H.shape[1]} numbers; this is their covariance."
            H = np.cov(H.T)
        if len(H) > LARGEST:
            hint = "try a part of it, or fit_symmetric"
            raise ArgumentError(name, f"at most {LARGEST} rows for this page", str(len(H)), hint)
        if np.abs(H - H.T).max() > 1e-6 * np.abs(H).max():
            raise ArgumentError(name, "a symmetric matrix", "one that is not", "try (H + H.T) / 2")
        self.H = (H + H.T) / 2
        self.n = len(self.H)
        values, vectors = np.linalg.eigh(self.H)
        self._values = values
        self._curves = rival_curves(self.H, values, vectors)
        self._dense = amounts(Prices(self.n, time_model()).dense())
        most = self.n * (self.n - 1) // 2
        budgets = [min(most, max(1, round(share * default_budget(self.n)))) for share in SHARES]
        self.budgets = list(dict.fromkeys(budgets))  # in the order of fitting
        self._fits: dict[int, FitResult] = {}
        self._working: tuple[int, float] | None = None  # the budget being fitted, and how far it is
        self._failure = ""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Fit all budgets in a thread of their own."""
        self._thread = threading.Thread(target=self.fit_all, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the fits; wait for them."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def fit_all(self, watch: Callable[[str], None] = lambda text: None) -> None:
        """Fit budget after budget; ``watch`` is told which."""
        for budget in self.budgets:
            watch(f"{self.name}: {budget} rotations")
            if self._stop.is_set():
                return
            try:
                fit = fit_symmetric(
                    self.H, n_rotations=budget, seed=self._seed, callback=self._progress(budget)
                )
            except Exception as error:  # shown on the page: there is nobody else to tell
                self._failure = str(error)
                return
            if not self._stop.is_set():
                self._fits[budget] = fit
        self._working = None

    def _progress(self, budget: int) -> Callable[[str, int, float], None]:
        def callback(stage: str, rotations: int, objective: float) -> None:
            if self._stop.is_set():
                raise Stop
            self._working = budget, min(1.0, rotations / budget)

        return callback

    def overview(self) -> dict[str, Any]:
        """Everything but pictures: JSON."""
        working = self._working
        return {
            "name": self.name,
            "n": self.n,
            "note": self.note,
            "failure": self._failure,
            "spectrum": _rounded(self._values[::-1]),
            "rivals": self._curves,
            "dense": self._dense,
            "fits": [self._summary(budget) for budget in sorted(self.budgets)],
            "working": None if working is None else {"budget": working[0], "done": round(working[1], 3)},
        }

    def _summary(self, budget: int) -> dict[str, Any]:
        fit = self._fits.get(budget)
        if fit is None:
            return {"rotations": budget, "ready": False}
        return {
            "rotations": budget,
            "ready": True,
            "angle": round(fit.angle, 3),
            "error": round(fit.relative_error, 5),
            **amounts(Cost(fit.floats, fit.bytes, fit.multiply_adds, fit.time)),
            "seconds": round(fit.seconds, 2),
            "method": fit.method,
            "message": fit.message,
        }

    def matrix(self) -> dict[str, Any]:
        """The picture of H."""
        return _picture(self.H)

    def detail(self, budget: int) -> dict[str, Any]:
        """Pictures, spectrum and wiring of one fit: JSON. A KeyError if it is not ready."""
        operator = self._fits[budget].operator
        dense = np.asarray(operator)
        return {
            "fit": _picture(dense),
            "residual": _picture(self.H - dense),
            "spectrum": _rounded(np.linalg.eigvalsh(dense)[::-1]),
            "layers": _layers(operator),
        }

    def operator(self, budget: int) -> Any:
        """The operator of one fit. A KeyError if it is not ready."""
        return self._fits[budget].operator


def _picture(A: np.ndarray) -> dict[str, Any]:
    """A as bytes from −127 to 127, averaged over blocks where it has more rows than there are pixels."""
    n = len(A)
    if n > PIXELS:
        edges = np.linspace(0, n, PIXELS + 1).astype(int)[:-1]
        sizes = np.diff([*edges, n])
        A = np.add.reduceat(np.add.reduceat(A, edges, 0), edges, 1) / np.outer(sizes, sizes)
    largest = float(np.abs(A).max()) or 1.0
    levels = np.round(127 * A / largest).astype(np.int8)
    return {"side": len(A), "largest": largest, "levels": base64.b64encode(levels.tobytes()).decode()}


def _layers(operator: Any) -> list[list[list[float]]]:
    """(i, j, degrees) of every rotation that is drawn, layer by layer."""
    rotation = getattr(operator, "rotation", operator)
    angles, wiring, drawn, layers = np.degrees(rotation.angles.numpy()), rotation.wiring, 0, []
    for index, pairs in enumerate(wiring.layers()):
        theta = angles[wiring.offsets[index] : wiring.offsets[index + 1]]
        layers.append([[int(i), int(j), round(float(t), 1)] for (i, j), t in zip(pairs, theta, strict=True)])
        drawn += len(pairs)
        if drawn > MOST_PAIRS:
            break
    return layers


def _rounded(values: np.ndarray) -> list[float]:
    return [float(f"{value:.5g}") for value in values]

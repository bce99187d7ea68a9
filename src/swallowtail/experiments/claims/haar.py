"""How far a random product of Givens rotations is from a uniform (Haar) rotation: statistics with known values."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from swallowtail.datasets import random_orthogonal
from swallowtail.experiments.common.rows import Row
from swallowtail.operators.rotation import Rotation
from swallowtail.wiring import Butterfly

UNIFORM = "uniform"  # in the column "depth": a uniform rotation instead of a butterfly


def haar_values(n: int) -> dict[str, float | None]:
    """What the statistics below are on the average for a uniform rotation; None where no closed form is known."""
    return {"fourth_moment": 3 * n / (n + 2), "largest_entry": None, "spacing_ratio": 0.5996}


def statistics(Q: np.ndarray) -> dict[str, float]:
    """Of one orthogonal matrix.

    fourth_moment: n² times the mean of Q_ij⁴. A uniform rotation has 3n/(n + 2), near a Gaussian's 3; n times as
        much for a permutation. With independent uniform angles and depth 1 every entry is a product of lg n cosines
        or sines, so it is n² (3/8)^(lg n) on the average.
    largest_entry: √n max |Q_ij|.
    spacing_ratio: mean of min(s, s′)/max(s, s′) for neighbouring gaps of the eigenvalues' phases: 0.5996 where they
        repel each other as a uniform rotation's do, 2 ln 2 − 1 = 0.386 where they ignore each other.
    """
    n = len(Q)
    phases = np.angle(np.linalg.eigvals(Q))
    gaps = np.diff(np.sort(phases[phases > 1e-9]))  # they come in pairs ±φ
    ratios = np.minimum(gaps[1:], gaps[:-1]) / np.maximum(np.maximum(gaps[1:], gaps[:-1]), 1e-300)
    return {
        "fourth_moment": float(n**2 * np.mean(Q**4)),
        "largest_entry": float(np.sqrt(n) * np.abs(Q).max()),
        "spacing_ratio": float(np.mean(ratios)) if len(ratios) else np.nan,
    }


def haar_rows(n: int, depths: tuple[int, ...], draws: int, seed: int) -> list[Row]:
    """Means over draws of random butterflies by depth, and of uniform rotations, with standard errors."""
    rows = []
    for depth in (*depths, 0):
        found: dict[str, list[float]] = {}
        for draw in range(draws):
            s = seed + draw
            Q: Any = random_orthogonal(n, s) if depth == 0 else dense(n, depth, s)
            for name, value in statistics(Q).items():
                found.setdefault(name, []).append(value)
        angles = Butterfly(n, depth).n_rotations if depth else n * (n - 1) // 2
        for name, values in found.items():
            error = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
            rows.append(
                {
                    "part": "haar",
                    "n": n,
                    "depth": depth or UNIFORM,
                    "statistic": name,
                    "value": float(np.mean(values)),
                    "standard_error": error,
                    "haar": haar_values(n)[name],
                    "angles": angles,
                }
            )
    return rows


def interaction_rows(sizes: tuple[int, ...]) -> list[Row]:
    """Which share of Q's entries can be other than zero, and the fewest in a column, at depth 1 and 2."""
    rows = []
    for n in sizes:
        for depth in (1, 2):
            filled = dense(n, depth, 0) != 0
            share, fewest = float(filled.mean()), int(filled.sum(0).min())
            rows.append({"part": "interaction", "n": n, "depth": depth, "share": share, "fewest": fewest})
    return rows


def dense(n: int, depth: int, seed: int) -> np.ndarray:
    """A butterfly with angles uniform in (−π, π), as a matrix."""
    return Rotation.random(n, depth, seed=seed, dtype=torch.float64).to_dense().numpy()

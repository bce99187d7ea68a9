"""Matrices that are butterflies: a part of the benchmark."""

from __future__ import annotations

import numpy as np
import torch

import swallowtail as st
from benchmarks.common.rows import Row
from benchmarks.common.timing import timed
from benchmarks.fitting.compare import seeds
from benchmarks.fitting.quality import quality
from swallowtail.fitting.methods.recovery import recover_rotation
from swallowtail.operators import Rotation, SymmetricOperator


def recovery(quick: bool) -> list[Row]:
    """H and R that are butterflies: are they found again?"""
    rows = []
    for n in (8, 64) if quick else (8, 16, 32, 64, 100, 128, 256, 512, 1024):
        for seed in seeds(10, quick):
            rng = np.random.default_rng(seed)
            Q = Rotation.random(n, seed=seed).to(dtype=torch.float64)
            spectra = {
                "H in the class": rng.standard_normal(n),
                "H in the class, two levels": np.where(np.arange(n) < max(1, n // 8), 1.0, 0.1),
            }
            for name, d in spectra.items():
                H = SymmetricOperator(Q, torch.from_numpy(rng.permutation(d))).to_dense().numpy()
                H = (H + H.T) / 2
                result, wall, cpu = timed(
                    lambda H=H, seed=seed: st.fit_symmetric(H, method="recovery", seed=seed)
                )
                row = {"part": "recovery", "matrix": name, "n": n, "seed": seed, "contender": "swallowtail"}
                row |= {"seconds": wall, "cpu_seconds": cpu, "status": result.status}
                rows.append(row | quality(H, result.operator, n, seed))
            fit, wall, cpu = timed(lambda Q=Q: recover_rotation(Q.to_dense().numpy()))
            row = {"part": "recovery", "matrix": "R in the class", "n": n, "seed": seed}
            row |= {"contender": "swallowtail", "seconds": wall, "cpu_seconds": cpu}
            rows.append(row | {"relative_error": fit.relative_error})
    return rows

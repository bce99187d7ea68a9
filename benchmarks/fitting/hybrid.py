"""Rotations and rank-one terms beside rotations alone and c·I + low rank of equal work: a part of the benchmark."""

from __future__ import annotations

from benchmarks.common.rows import Row
from benchmarks.fitting.compare import FIRST, compare
from swallowtail import datasets

FITS: dict[str, Row] = {
    "rotations alone": {"method": "pairs"},
    "rotations and rank-one terms": {"method": "hybrid"},
}


def hybrid(quick: bool) -> list[Row]:
    """Few strong directions, many, covariances and a kernel."""
    rows = []
    for large in (5, 32, 64):
        for seed in range(FIRST, FIRST + (1 if quick else 5)):
            H = datasets.random_symmetric(64, large, seed)
            rows += compare("hybrid", f"n_mu={large}", H, seed, FITS, ())
    rows += compare("hybrid", "digits", datasets.digits_covariance(), FIRST, FITS, ())
    kernel = datasets.grid_kernel((8, 8), "rbf", 1.5, scramble=FIRST)
    rows += compare("hybrid", "RBF 8×8, scrambled", kernel, FIRST, FITS, ())
    if not quick:
        rows += compare("hybrid", "MNIST", datasets.mnist_covariance()[0], FIRST, FITS, ())
    return rows

"""Parts of the benchmark that fit whole matrices: synthetic ones, covariances, graphs and kernels."""

from __future__ import annotations

import swallowtail as st
from benchmarks.common.rows import Row
from benchmarks.common.timing import timed
from benchmarks.fitting.compare import FIRST, compare, seeds
from benchmarks.fitting.eigtj import eigtj_row
from benchmarks.fitting.products import LENGTH
from benchmarks.fitting.quality import quality
from swallowtail import datasets

LARGE = (5, 32, 64)  # n_μ
MANY = 120  # seeds at n = 64: with n_μ = 64 even c·I varies by 1.9° from one to the next


def synthetic(quick: bool) -> list[Row]:
    """The paper's matrices, n = 64: the default at one and at two budgets."""
    fits = {f"swallowtail, K={K}": {"n_rotations": K} for K in (192, 384)}
    return [
        row
        for large in LARGE
        for seed in seeds(MANY, quick)
        for row in compare("synthetic", f"n_mu={large}", st.random_symmetric(64, large, seed), seed, fits)
    ]


def butterfly(quick: bool) -> list[Row]:
    """The paper's wiring."""
    fits = {f"swallowtail, depth {d}": {"wiring": "butterfly", "depth": d} for d in (1, 2)}
    return [
        row
        for large in LARGE
        for seed in seeds(MANY, quick)
        for row in compare("butterfly", f"n_mu={large}", st.random_symmetric(64, large, seed), seed, fits, ())
    ]


def algorithm1(quick: bool) -> list[Row]:
    """The paper's Algorithm 1 with its defaults, on H and on uniformly random rotations."""
    rows = []
    for large in LARGE:
        for seed in seeds(12, quick):
            H = st.random_symmetric(64, large, seed)
            rows += compare("algorithm1", f"n_mu={large}", H, seed, {"Algorithm 1": {"method": "sgd"}}, ())
    for seed in seeds(12, quick):
        R = st.random_orthogonal(64, seed)
        Q, wall, cpu = timed(lambda R=R, seed=seed: st.fit_rotation(R, method="sgd", seed=seed).operator)
        row = {"part": "algorithm1", "matrix": "Haar R", "n": 64, "seed": seed, "contender": "Algorithm 1"}
        row |= {"n_rotations": Q.n_rotations, "seconds": wall, "cpu_seconds": cpu}
        rows.append(row | quality(R, Q, 64, seed))
    return rows


def structured(quick: bool) -> list[Row]:
    """Covariances, graphs and kernels."""
    rows = compare(
        "structured", "digits", datasets.digits_covariance(), FIRST, {"swallowtail": {"n_rotations": 192}}
    )
    for seed in seeds(3, quick):
        heat, laplacian = (
            f(n, seed=seed) for f, n in ((datasets.sensor_heat_kernel, 200), (datasets.sensor_laplacian, 256))
        )
        rows += compare("structured", "sensor heat kernel", heat, seed, {"swallowtail": {"n_rotations": 800}})
        rows += compare("structured", "sensor Laplacian", laplacian, seed, {"swallowtail": {}})
    grids = {
        "RBF 64": ((64,), 3.0),
        "RBF 8×8": ((8, 8), 1.5),
        "RBF 16×16": ((16, 16), 2.0),
    }
    for name, (shape, length) in grids.items():
        H = datasets.grid_kernel(shape, "rbf", length)
        rows += compare("structured", name, H, FIRST, {"swallowtail": {}})
        H = datasets.grid_kernel(shape, "rbf", length, scramble=FIRST)
        rows += compare("structured", f"{name}, scrambled", H, FIRST, {"swallowtail": {}})
    return rows


def mnist(quick: bool) -> list[Row]:
    """The covariance of MNIST's pixels; the sentence that says which images goes into a note."""
    H, images = datasets.mnist_covariance()
    K = 3920
    fits = {f"swallowtail, K={k}": {"n_rotations": k} for k in ((K,) if quick else (K, 4 * K))}
    rows = compare("mnist", "MNIST", H, FIRST, fits, ("sequential",))
    rows.append(
        {"part": "mnist", "matrix": "MNIST", "n": 784, "seed": FIRST} | eigtj_row(H, K, "parallel", FIRST)
    )
    rows[0]["note"] = images
    return rows  # fmt: skip


def n1024(quick: bool) -> list[Row]:
    """n = 1024, n_μ = 80."""
    return [
        row
        for seed in seeds(2, quick)
        for row in compare(
            "n1024", "n_mu=80", st.random_symmetric(1024, 80, seed), seed, {"swallowtail": {}}, ("sequential",)
        )
    ]  # fmt: skip


def kernel4096(quick: bool) -> list[Row]:
    """The dense exponential kernel on a scrambled 64 × 64 grid."""
    H = datasets.grid_kernel((64, 64), "exponential", LENGTH, scramble=FIRST)
    name = f"exponential 64×64, length {LENGTH:g}"
    return compare(
        "kernel4096", name, H, FIRST, {"swallowtail": {"max_seconds": 300.0}}, () if quick else ("sequential",)
    )  # fmt: skip

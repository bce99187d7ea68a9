"""The fitting benchmark: python -m benchmarks.fitting [--quick] [--only part,…] [--resume]

Fits every matrix of the table of bars on seeds that development never saw, beside c·I, c·I + low rank and
pyfaust's eigtj, on one core. Each part writes its rows to benchmarks/results/fitting.csv as it ends, so that a run
that was killed continues with --resume; then the bars are printed as met or MISSED, angle is drawn against time in
fitting-time.png, and README.md's table and the section of docs/benchmarks.md are written. Seconds are those of the
processor: on one thread they are what a quiet machine's clock shows. Rows have both.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import torch
from tqdm import tqdm

import swallowtail as st
from benchmarks import fitting_bars, fitting_page, timing
from benchmarks.fitting_cases import (
    LENGTH,
    Row,
    apart,
    compare,
    eigtj_row,
    has_pyfaust,
    low_rank_rows,
    products_rows,
    quality,
    timed,
    warm_up,
)
from benchmarks.fitting_hybrid import hybrid
from benchmarks.fitting_targets import inverse, likelihood
from swallowtail import datasets
from swallowtail.fitting.methods.pairs import fit_pairs
from swallowtail.fitting.methods.sgd import fit_sgd
from swallowtail.operators import Rotation, SymmetricOperator

FIRST = 9000  # of the seeds
LARGE = (5, 32, 64)  # n_μ
MANY = 120  # seeds at n = 64: with n_μ = 64 even c·I varies by 1.9° from one to the next


def seeds(count: int, quick: bool) -> range:
    return range(FIRST, FIRST + (min(count, 2) if quick else count))


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
        Q, wall, cpu = timed(lambda R=R, seed=seed: learned_rotation(R, seed))
        row = {"part": "algorithm1", "matrix": "Haar R", "n": 64, "seed": seed, "contender": "Algorithm 1"}
        row |= {"n_rotations": Q.n_rotations, "seconds": wall, "cpu_seconds": cpu}
        rows.append(row | quality(R, Q, 64, seed))
    return rows


def learned_rotation(R: np.ndarray, seed: int) -> Any:
    """R ≈ Q by Algorithm 1's loss L′."""
    if hasattr(st, "fit_rotation"):
        return st.fit_rotation(R, method="sgd", seed=seed).operator
    fit = fit_sgd(R, loss="rotation", seed=seed)
    return Rotation(fit.wiring, torch.from_numpy(fit.angles))


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


def recovery(quick: bool) -> list[Row]:
    """H and R that are butterflies: are they found again?"""
    from swallowtail.fitting.methods.recovery import recover_rotation

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


def products(quick: bool) -> list[Row]:
    """Products alone."""
    rows = []
    for seed in seeds(12, quick):
        H = st.random_symmetric(64, 5, seed)
        for m in (8, 16, 32):
            found = products_rows(lambda X, H=H: H @ X, H, 64, 192, m, seed)
            rows += [{"part": "products", "matrix": "n_mu=5", "max_products": m} | row for row in found]
    if not quick:
        H, _ = datasets.mnist_covariance()
        for seed in seeds(3, quick):
            found = products_rows(lambda X, H=H: H @ X, H, 784, 3920, 64, seed)
            rows += [{"part": "products", "matrix": "MNIST", "max_products": 64} | row for row in found]
    return rows


def products_large(quick: bool) -> list[Row]:
    """The exponential kernel on scrambled grids from 32 products, each in a process of its own."""
    rows: list[Row] = []
    for side, length in ((64, LENGTH), (64, 16.0), (128, LENGTH), (128, 32.0)):
        matrix = f"exponential {side}×{side}, length {length:g}"
        if quick and side > 64:
            continue
        for seed in seeds(24 if side == 64 else 3, quick):
            task = {"task": "products", "side": side, "length": length, "products": 32, "seed": seed}
            answer = apart(task, limit=400)
            stopped = {"n": side * side, "contender": "swallowtail", "note": "stopped after 400 s"}
            found = [stopped] if answer is None else answer["rows"]
            rows += [{"part": "products_large", "matrix": matrix, "max_products": 32} | row for row in found]
    return rows


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


def curve(quick: bool) -> list[Row]:
    """Angle against time: growth alone, with a polish, and the default, beside eigtj, at several K."""
    matrices = {
        "n_mu=32": st.random_symmetric(64, 32, FIRST),
        "digits": datasets.digits_covariance(),
        "sensor Laplacian": datasets.sensor_laplacian(256, seed=FIRST),
    }
    if not quick:
        matrices["MNIST"] = datasets.mnist_covariance()[0]
    rows = []
    for matrix, H in matrices.items():
        n = len(H)
        paper = n * (n - 1).bit_length() // 2
        for K in (paper // 4, paper // 2, paper, 2 * paper, 4 * paper):
            ways: dict[str, Row] = {
                "swallowtail, grown": {"cycles": 0, "finish": 0},
                "swallowtail, grown, 10 iterations": {"cycles": 0, "finish": 10},
                "swallowtail, grown and polished": {"cycles": 0},
                "swallowtail": {},
            }
            for name, arguments in ways.items():
                fit, wall, cpu = _best_of(lambda a=arguments, H=H, K=K: fit_pairs(H, K, **a))
                rotation = Rotation(fit.wiring, torch.from_numpy(fit.angles))
                operator = SymmetricOperator(rotation, torch.from_numpy(fit.eigenvalues))
                row = {
                    "contender": name,
                    "n_rotations": rotation.n_rotations,
                    "seconds": wall,
                    "cpu_seconds": cpu,
                }
                rows.append(
                    {"part": "curve", "matrix": matrix, "n": n, "seed": FIRST}
                    | row
                    | quality(H, operator, n, FIRST)
                )
            kinds = ("sequential", "parallel") if n <= 256 else ("sequential",)
            for kind in kinds:
                found = min((eigtj_row(H, K, kind, FIRST) for _ in range(3 if n <= 256 else 1)), key=_cpu)
                rows.append({"part": "curve", "matrix": matrix, "n": n} | found)
    return [row for row in rows if "contender" in row]  # fmt: skip


def _best_of(run: Callable[[], Any]) -> tuple[Any, float, float]:
    """The quickest of up to five runs, a second in all: short ones are noisy."""
    done = [timed(run)]
    while len(done) < 5 and sum(cpu for _, _, cpu in done) < 1.0:
        done.append(timed(run))
    return min(done, key=lambda one: one[2])


def _cpu(row: Row) -> float:
    return float(row.get("cpu_seconds", np.inf))


PARTS: dict[str, Callable[[bool], list[Row]]] = {
    part.__name__: part
    for part in (
        synthetic, butterfly, algorithm1, structured, products, inverse, recovery, mnist, products_large, n1024,
        kernel4096, curve, likelihood, hybrid,
    )
}  # fmt: skip
SLOW = ("n1024", "products_large", "kernel4096", "mnist")  # left out by --quick


def kept_rows(resume: bool, only: list[str]) -> list[Row]:
    """Rows of an earlier run that stay: all with --resume, those of other parts with --only."""
    if not (resume or only) or not (timing.RESULTS / "fitting.csv").exists():
        return []
    rows, facts = timing.read_rows("fitting"), timing.machine()
    other = {row["hardware"] for row in rows} - {facts["hardware"]}
    if other:
        sys.exit(
            f"fitting.csv holds rows of another machine ({other}); start afresh, without --resume or --only"
        )
    drop = (*facts, "date", "command")
    rows = [{key: value for key, value in row.items() if key not in drop and value} for row in rows]
    return [row for row in rows if resume or row["part"] not in only]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="two seeds, no large matrices; rows are not written"
    )
    parser.add_argument("--only", default="", help=f"measure these again, keep the rest: {', '.join(PARTS)}")
    parser.add_argument("--resume", action="store_true", help="continue a run that was killed")
    parser.add_argument(
        "--report", action="store_true", help="measure nothing: bars and plot of the rows there are"
    )
    options = parser.parse_args()
    only = [name for name in options.only.split(",") if name]
    unknown = sorted(set(only) - set(PARTS))
    if unknown:
        parser.error(f"--only: expected some of {', '.join(PARTS)}, got {', '.join(unknown)}")
    rows = kept_rows(options.resume or options.report, only)
    done = {row["part"] for row in rows}
    names = [
        name
        for name in PARTS
        if name in (only or PARTS) and not (options.quick and not only and name in SLOW)
    ]
    names = [] if options.report else [name for name in names if name not in done or name in only]
    measure(names, rows, options.quick)
    fitting_bars.report(rows)
    if any(row["part"] == "curve" for row in rows) and not options.quick:
        print("plot:", fitting_bars.plot(rows))
        fitting_page.write(rows)


def measure(names: list[str], rows: list[Row], quick: bool) -> None:
    """Run the parts and add their rows, to the file too unless ``quick``."""
    if not names:
        return
    numba.set_num_threads(1)
    if not has_pyfaust():
        print("pyfaust is not installed: no eigtj in this run; try: pip install -e .[bench]", file=sys.stderr)
    from threadpoolctl import threadpool_limits  # comes with scikit-learn

    with threadpool_limits(1):
        warm_up()
        low_rank_rows(np.eye(4), st.fit_symmetric(np.eye(4)).operator, 0)
        for name in (bar := tqdm(names, unit="part")):
            bar.set_description(name)
            rows[:] = [row for row in rows if row["part"] != name] + PARTS[name](quick)
            if not quick:
                timing.write_rows("fitting", rows, "python -m benchmarks.fitting")


if __name__ == "__main__":
    main()

"""What the fitting benchmark measures with: a row for every contender, pyfaust's eigtj, processes of their own.

    python -m benchmarks.fitting_cases '{"task": "products", "side": 64, …}'

is how the benchmark starts itself for what needs a time limit or its own peak of memory; the answer is a line of
JSON.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import swallowtail as st
from swallowtail.fitting import rivals
from swallowtail.fitting.methods.products import complete, probe
from swallowtail.fitting.result import count_floats
from swallowtail.metrics import error_angle, relative_error

PROBES = 2000  # x for an angle; a tenth of it from n = 1500 on
DENSE = 1500  # up to this n the relative error is exact
ONE_CORE = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)
LENGTH = 8.0  # of the exponential kernel, in steps of the grid

Row = dict[str, Any]


def timed(run: Callable[[], Any]) -> tuple[Any, float, float]:
    """What ``run`` returns, wall seconds and processor seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = run()
    return result, time.perf_counter() - wall, time.process_time() - cpu


def quality(H: Any, B: Any, n: int, seed: int) -> Row:
    """Angle and relative error of B as an approximation of H."""
    few = n > DENSE
    angle = error_angle(H, B, PROBES // 10 if few else PROBES, seed, n=n)
    if not few:
        H, B = (M @ np.eye(n) if hasattr(M, "__matmul__") else M(np.eye(n)) for M in (H, B))
    return {"angle": angle, "relative_error": relative_error(H, B, 100, seed, n=n).mean}


def cost(operator: Any) -> Row:
    """What a fit stores and what its product takes."""
    row = {"n_rotations": operator.rotation.n_rotations, "floats": count_floats(operator)}
    rank = {"rank": operator.rank} if hasattr(operator, "rank") else {}
    return row | {"multiply_adds": operator.multiply_adds} | rank


def fit_row(H: np.ndarray, seed: int, contender: str = "swallowtail", **arguments: Any) -> tuple[Row, Any]:
    """One fit of a dense matrix, as a row, and its result."""
    result, wall, cpu = timed(lambda: st.fit_symmetric(H, seed=seed, **arguments))
    row = {"seed": seed, "contender": contender, "method": result.method, "status": result.status}
    row |= {"seconds": wall, "cpu_seconds": cpu} | cost(result.operator)
    return row | quality(H, result.operator, len(H), seed), result


def low_rank_rows(H: np.ndarray, operator: Any, seed: int) -> list[Row]:
    """c·I alone, and c·I + low rank of equal floats and equal multiply-adds, ranks rounded to the nearest."""
    n = len(H)
    ranks = {
        "c·I": 0,
        "c·I + low rank, equal floats": (operator.rotation.n_rotations + n - 1) / (n + 1),
        "c·I + low rank, equal multiply-adds": (operator.multiply_adds - n) / (2 * n),
    }
    ranks = {name: min(n, max(0, round(r))) for name, r in ranks.items()}
    cuts, wall, cpu = timed(lambda: rivals.low_rank(H, sorted(set(ranks.values()))))
    rows = []
    for name, r in ranks.items():
        row = {"seed": seed, "contender": name, "rank": r, "seconds": wall, "cpu_seconds": cpu}
        row |= {"floats": r * (n + 1) + 1, "multiply_adds": (2 * r + 1) * n}
        rows.append(row | quality(H, cuts[r], n, seed))
    return rows


def compare(
    part: str,
    matrix: str,
    H: np.ndarray,
    seed: int,
    fits: dict[str, Row],
    kinds: tuple[str, ...] = ("sequential", "parallel"),
) -> list[Row]:
    """Every fit asked for, the plain rivals of the first, and eigtj with as many rotations as each budget."""
    rows, first = [], None
    for name, arguments in fits.items():
        row, result = fit_row(H, seed, name, **arguments)
        first = result.operator if first is None else first
        rows.append(row)
    rows += low_rank_rows(H, first, seed)
    for K in dict.fromkeys(row["n_rotations"] for row in rows if "n_rotations" in row):
        rows += [eigtj_row(H, K, kind, seed) for kind in kinds]
    return [{"part": part, "matrix": matrix, "n": len(H)} | row for row in rows if row]


def eigtj(H: np.ndarray, K: int, kind: str) -> tuple[Callable[[np.ndarray], np.ndarray], float, float]:
    """pyfaust's truncated Jacobi: the product with V diag(w) Vᵀ, wall and processor seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it misses an optional package
        from pyfaust.fact import eigtj as run
    many = {"nGivens_per_fac": 1} if kind == "sequential" else {}
    (w, V), wall, cpu = timed(
        lambda: run(H, nGivens=K, order="undef", enable_large_Faust=True, err_period=K, **many)
    )
    w, V = np.asarray(w).real, _multiplied(V)
    return lambda X: V @ (w[:, None] * (V.T @ X)), wall, cpu


def _multiplied(faust: Any) -> np.ndarray:  # shape: (n, n)
    """The product of sparse factors that differ from 1 in a few columns; faust.toarray() takes a minute for 15000."""
    V = np.asfortranarray(np.eye(faust.shape[0]))
    for k in range(faust.numfactors()):
        factor = faust.factors(k).tocoo()
        other = (factor.row != factor.col) | (factor.data != 1)
        at = np.unique(np.concatenate([factor.row[other], factor.col[other]]))
        V[:, at] = V[:, at] @ factor.tocsr()[at][:, at].toarray()
    return V


def eigtj_row(H: np.ndarray, K: int, kind: str, seed: int, limit: float = 240.0) -> Row:
    """eigtj as a row; large matrices in a process of their own, stopped after ``limit`` processor seconds."""
    row: Row = {"seed": seed, "contender": f"eigtj {kind}", "n_rotations": K, "floats": K + len(H)}
    if not has_pyfaust():
        return {}
    if len(H) <= 256:
        apply, wall, cpu = eigtj(H, K, kind)
        return row | {"seconds": wall, "cpu_seconds": cpu} | quality(H, apply, len(H), seed)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "H.npy"))
        np.save(path, H)
        answer = apart({"task": "eigtj", "path": path, "K": K, "kind": kind, "seed": seed}, limit)
    return row | (answer or {"note": f"stopped after {limit:g} s"})


def has_pyfaust() -> bool:
    from importlib.util import find_spec

    return find_spec("pyfaust") is not None


def apart(task: Row, limit: float) -> Row | None:
    """Run a task of this module in a process of its own; None if it needed more than ``limit`` processor seconds."""
    command = [sys.executable, "-m", "benchmarks.fitting_cases", json.dumps(task | {"limit": int(limit)})]
    try:
        done = subprocess.run(
            command, env=os.environ | ONE_CORE, capture_output=True, text=True, timeout=10 * limit, check=True
        )
    except subprocess.TimeoutExpired:
        return None
    except subprocess.CalledProcessError as error:
        if error.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            return None
        raise RuntimeError(f"{task}: {error.stderr[-2000:]}") from error
    return json.loads(done.stdout.splitlines()[-1])


class GridProduct:
    """Products with grid_kernel((side, side), "exponential", scramble=…) by FFT: no n² numbers anywhere."""

    def __init__(self, side: int, length: float, scramble: int) -> None:
        n = side * side
        # As `grid_kernel` scrambles: rows of the list of points, so position i holds point order[i].
        self.order = np.random.default_rng(scramble).permutation(np.arange(n))
        self.side, self.columns, self.shape = side, 0, (n, n)
        step = np.minimum(np.arange(2 * side), 2 * side - np.arange(2 * side))
        self.transform = np.fft.rfft2(np.exp(-np.hypot(*np.meshgrid(step, step)) / length))

    def __call__(self, X: np.ndarray) -> np.ndarray:
        self.columns += X.shape[1]
        Y, s = np.empty_like(X), self.side
        for k, x in enumerate(X.T):
            image = np.empty(len(x))
            image[self.order] = x
            padded = np.fft.rfft2(image.reshape(s, s), (2 * s, 2 * s)) * self.transform
            Y[:, k] = np.fft.irfft2(padded)[:s, :s].reshape(-1)[self.order]
        return Y


def products_rows(
    product: Callable[[np.ndarray], np.ndarray], H: Any, n: int, K: int, m: int, seed: int
) -> list[Row]:
    """A fit from m products, and c·I + low rank cut from the completion of as many; both against the true H."""
    columns = 0

    def counted(X: np.ndarray) -> np.ndarray:
        nonlocal columns
        columns += X.shape[1]
        return product(X)

    result, wall, cpu = timed(lambda: st.fit_symmetric(counted, n, n_rotations=K, max_products=m, seed=seed))
    row = {"contender": "swallowtail", "method": result.method, "products": columns, "estimate": result.angle}
    row |= {"seconds": wall, "cpu_seconds": cpu, "peak_mib": peak_mib()}
    rows = [row | cost(result.operator) | quality(H, result.operator, n, seed)]
    factor, wall, cpu = timed(lambda: complete(probe(product, n, m, seed=seed)).factor)
    operator = result.operator
    ranks = {
        "c·I": 0,
        "c·I + low rank, equal floats, same products": (K + n - 1) / (n + 1),
        "c·I + low rank, equal multiply-adds, same products": (operator.multiply_adds - n) / (2 * n),
    }
    for name, rank in ranks.items():
        r = min(len(factor.weights), round(rank))
        row = {"contender": name, "rank": r, "products": m, "seconds": wall, "cpu_seconds": cpu}
        row |= {"floats": r * (n + 1) + 1, "multiply_adds": (2 * r + 1) * n}
        rows.append(row | quality(H, factor.cut(r), n, seed))
    return [{"seed": seed, "n": n} | row for row in rows]


def peak_mib() -> float:
    """The most memory this process has held, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def warm_up() -> None:
    """Let Numba compile what will be timed."""
    torch.set_num_threads(1)
    H = st.random_symmetric(16, 3, 0)
    st.fit_symmetric(H)
    st.fit_symmetric(H, target="likelihood")
    st.fit_symmetric(H, method="sgd", epochs=1)
    st.fit_symmetric(lambda X: H @ X, 16, max_products=4)
    from swallowtail.fitting.methods.factor import Factor, fit_factor

    fit_factor(Factor(0.1, np.linalg.qr(np.ones((16, 2)) + H[:, :2])[0], np.ones(2)), 8)


def main(task: Row) -> Row:
    """One task of `apart`."""
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_CPU, (task["limit"], task["limit"] + 5))
    if task["task"] == "eigtj":
        H = np.load(task["path"])
        apply, wall, cpu = eigtj(H, task["K"], task["kind"])
        return {"seconds": wall, "cpu_seconds": cpu} | quality(H, apply, len(H), task["seed"])
    warm_up()
    product = GridProduct(task["side"], task["length"], task["seed"])
    n = product.shape[0]
    before = peak_mib()
    rows = products_rows(product, product, n, n * (n - 1).bit_length() // 2, task["products"], task["seed"])
    rows[0]["note"] = f"{before:.0f} MiB before the fit: interpreter, libraries, compiled code"
    return {"rows": rows}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))

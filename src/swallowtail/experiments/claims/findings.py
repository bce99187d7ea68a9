"""What the rows say about each claim."""

from __future__ import annotations

from swallowtail.experiments.claims.haar import UNIFORM
from swallowtail.experiments.claims.rates import NEAR, epochs_to_converge
from swallowtail.experiments.common import select
from swallowtail.experiments.common.findings import Finding
from swallowtail.experiments.common.rows import Row


def findings(rows: list[Row]) -> list[Finding]:
    """One line per claim."""
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
    "product": "4n lg n + n MulAdds; fast Givens takes two per rotation instead of four",
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
    counts = {f: epochs_to_converge(rows, f) for f in select.kinds(rows, "factor", part="rates")}
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

"""What the rows say about each matrix."""

from __future__ import annotations

from swallowtail.experiments.common import select
from swallowtail.experiments.common.findings import Finding
from swallowtail.experiments.common.rows import Row
from swallowtail.experiments.hessians.runs import ALL_DIRECTIONS, SHORT


def findings(rows: list[Row]) -> list[Finding]:
    """Angles and iterations, one line per case."""
    result = []
    for problem, curvature in dict.fromkeys((r["problem"], r["curvature"]) for r in rows):
        found = select.where(rows, part="fit", problem=problem, curvature=curvature)
        m = max(select.kinds(found, "products", method="ours"))
        angle = lambda method, m=m, found=found: select.mean(found, "angle", method=method, products=m)
        count = lambda method, found=found, **w: f"{select.mean(found, 'iterations', method=method, **w):.0f}"
        n = found[0]["n"]
        ours = f"{angle('ours'):.1f}°; c·I + low rank {angle('c·I + low rank'):.1f}° at equal floats"
        note = f"n = {n}; {select.mean(found, 'angle', method='ours, all entries'):.1f}° from all entries"
        result.append(Finding(f"{SHORT[curvature]} of {problem}, {m} products", "no number", ours, note))
        plain = f"none {count('none')}, diagonal {count('diagonal')}"
        ours = (
            f"{plain}, c·I + low rank {count('c·I + low rank', products=m)}, ours {count('ours', products=m)}"
        )
        times = m * (n + 1) / select.mean(found, "floats", method="ours")
        note = f"{count(ALL_DIRECTIONS, products=m)} with all {m} directions, {times:.1f}× our floats; "
        note += f"{count('ours, all entries, fitted to the inverse')} fitted to the inverse"
        result.append(Finding("CG iterations with these as preconditioner", "–", ours, note))
    return result


def text(rows: list[Row]) -> str:
    """Who wins at what, counted over the cases."""
    wins = {"angle": 0, "iterations": 0, "all": 0}
    cases = list(dict.fromkeys((r["problem"], r["curvature"]) for r in select.where(rows, part="fit")))
    for problem, curvature in cases:
        found = select.where(rows, part="fit", problem=problem, curvature=curvature)
        m = max(select.kinds(found, "products", method="ours"))
        of = lambda method, column, m=m, found=found: select.mean(found, column, method=method, products=m)
        for column in ("angle", "iterations"):
            wins[column] += of("ours", column) < of("c·I + low rank", column)
        wins["all"] += of("ours", "iterations") < of(ALL_DIRECTIONS, "iterations")
    least = min(r["true"] for r in select.where(rows, part="spectrum"))
    return (
        "At equal floats ours is nearer to the matrix than c·I + low rank from the same products in "
        f"{wins['angle']} of {len(cases)} cases and the better preconditioner in {wins['iterations']}. Where memory "
        "does not count, keeping all directions the products showed is the plain alternative: ours beats it in "
        f"{wins['all']}. The least eigenvalue of all is {least:.1e}; preconditioners count negative ones as 0."
    )

"""Findings are medians, and say who does not arrive."""

from swallowtail.experiments.algorithm2.findings import _counts, text


def test_findings_take_medians_and_say_who_does_not_arrive():
    rows = [
        {"part": "goal", "problem": "quadratic", "method": m, "seed": s, "gap": 1.0, "limit": 9}
        | ({"gradients": g} if g else {})
        for m, counts in {"Algorithm 2": (7, None, None), "L-BFGS": (5, 3, 4)}.items()
        for s, g in enumerate(counts)
    ]
    assert _counts(rows, "quadratic") == {"Algorithm 2": "–", "L-BFGS": "4"}
    assert "L-BFGS on quadratic" in text(
        [*rows, {"part": "detail", "variant": "negative elements kept", "negative": 0.25}]
    )

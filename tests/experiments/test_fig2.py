"""Figure 2: findings see the shape of the curve."""

from swallowtail.experiments import fig2


def test_findings_of_figure_2_see_the_shape():
    def rows(angles):
        return [
            {"n": 64, "n_large": x, "seed": 0, "method": fig2.ALGORITHM_1, "angle": a}
            for x, a in angles.items()
        ]

    peak, end, shape = fig2.findings(rows({0: 25.0, 16: 42.0, 32: 38.0, 64: 19.0}))
    assert peak.ours == "42.0° at n_μ = 16"
    assert "38.0°" in peak.note
    assert end.ours == "19.0°"
    assert "−1.0° from the paper, within ±2°" in end.note
    assert shape.ours == "yes"
    assert fig2.findings(rows({0: 50.0, 16: 42.0, 64: 19.0}))[2].ours == "no"
    short = [{"n": 64, "n_large": 64, "seed": s, "method": fig2.BY_DEFAULT, "angle": a, "alone": 1, "epochs": 10}
             for s, a in ((0, 24.0), (1, 26.0))]  # fmt: skip
    found = fig2.findings(rows({0: 25.0, 16: 42.0, 32: 38.0, 64: 19.0}) + short)[2]
    assert (found.claim, found.ours) == ("the same, stopped after 10 epochs", "25.0° (24.0 … 26.0)")
    assert "beyond ±2°, ours the worse" in found.note

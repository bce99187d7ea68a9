"""Figure 1: findings are means over seeds."""

from swallowtail.experiments import fig1


def test_findings_of_figure_1_are_means_over_seeds():
    ends = {"H": (34.0, 37.0), "R": (70.0, 71.0)}
    rows = [
        {"part": "end", "what": what, "n": 64, "n_large": 5, "seed": seed, "angle": angle}
        for what, angles in ends.items()
        for seed, angle in enumerate(angles)
    ]
    H, R, order = fig1.findings(rows)
    assert (H.paper, H.ours) == ("about 35°", "35.5° (34.0 … 37.0)")
    assert "+0.5° from the paper, within ±2°; 2 seeds" in H.note
    assert R.ours == "70.5° (70.0 … 71.0)"
    assert "beyond ±1.5°" in R.note
    assert order.ours == "yes"

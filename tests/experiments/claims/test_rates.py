"""Convergence is counted at the best rate."""

from swallowtail.experiments.claims.rates import best_rate, epochs_to_converge


def test_epochs_to_converge_take_the_best_rate():
    curves = {(0.1, 1.0): (40, 39, 30), (0.2, 1.0): (35, 30.5, 30), (0.1, 0.1): (40, 38, 36)}
    rows = [
        {"part": "rates", "seed": 0, "rate": rate, "factor": factor, "epoch": k + 1, "angle": a}
        for (rate, factor), angles in curves.items()
        for k, a in enumerate(angles)
    ]
    assert best_rate(rows, 1.0) == 0.2
    assert epochs_to_converge(rows, 1.0) == 2
    assert epochs_to_converge(rows, 0.1) == 4  # never within three

"""The butterfly on its whole objective: exact cases, orders of the coordinates, quality on fixed seeds."""

import numpy as np
import pytest
from fitting.common import error_angle, relative_error, synthetic

from swallowtail.fitting.core.product import conjugate
from swallowtail.fitting.core.records import Stop
from swallowtail.fitting.methods.butterfly import fit_butterfly
from swallowtail.wiring import Butterfly


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 13, 33])
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("target", ["matrix", "likelihood"])
def test_any_n(n, depth, target):
    H = synthetic(n, n // 3, n) + 0.01 * np.eye(n)
    fit = fit_butterfly(H, depth, target=target, starts=1, kicks=2)
    assert fit.wiring == Butterfly(n, depth)
    values = [value for _, _, value in fit.history]
    assert values == sorted(values, reverse=True)
    if target == "matrix":
        assert relative_error(H, fit) ** 2 == pytest.approx(values[-1], abs=1e-12)


def test_diagonal_and_two_by_two_are_exact():
    assert relative_error(np.diag([1.0, 2.0, 4.0]), fit_butterfly(np.diag([1.0, 2.0, 4.0]), kicks=0)) < 1e-7
    assert (
        relative_error(
            np.array([[1.0, 3.0], [3.0, -1.0]]), fit_butterfly(np.array([[1.0, 3.0], [3.0, -1.0]]))
        )
        < 1e-7
    )


def test_a_matrix_in_the_class_is_found():
    wiring = Butterfly(64)
    generator = np.random.default_rng(0)
    angles = generator.uniform(-np.pi, np.pi, wiring.n_rotations)
    H = conjugate(np.diag(generator.random(64)), wiring.flat_pairs()[::-1].copy(), -angles[::-1])
    assert relative_error(H, fit_butterfly(H, starts=0, kicks=0)) < 1e-6


def test_interruption_keeps_the_best():
    calls = []

    def callback(stage, n_rotations, objective):
        calls.append(objective)
        if len(calls) == 7:
            raise Stop

    H = synthetic(32, 5, 0)
    fit = fit_butterfly(H, callback=callback)
    assert len(calls) == 7
    assert relative_error(H, fit) ** 2 == pytest.approx(calls[-1], abs=1e-12)


@pytest.mark.parametrize(
    ("depth", "n_large", "bar"), [(1, 5, 31.8), (1, 64, 17.6), (2, 5, 10.4), (2, 32, 25.9)]
)
def test_quality(depth, n_large, bar):
    angles = []
    for seed in (11, 12, 13):
        H = synthetic(64, n_large, seed)
        angles.append(error_angle(H, fit_butterfly(H, depth, kicks=20)))
    assert np.mean(angles) < bar

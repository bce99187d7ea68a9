"""The fit in rounds of groups: exact cases, its promises about groups, interruption, and quality on fixed seeds."""

import numpy as np
import pytest
from fitting.common import relative_error
from fitting.core.matrices import covariance
from scipy.linalg import block_diag

from swallowtail import Grouped, random_symmetric
from swallowtail.fitting.core.product import conjugate
from swallowtail.fitting.core.records import Stop
from swallowtail.fitting.methods.grouped import fit_grouped, in_rounds
from swallowtail.fitting.methods.pairs import fit_pairs


def synthetic(n, n_large, seed):
    return np.asarray(random_symmetric(n, n_large, seed=seed))


@pytest.mark.parametrize("H", [np.zeros((3, 3)), np.diag([3.0, -1.0, 2.0]), np.array([[2.5]])])
@pytest.mark.parametrize("target", ["matrix", "likelihood"])
def test_a_diagonal_matrix_needs_no_rotations(H, target):
    fit = fit_grouped(H, 5, target=target)
    assert fit.wiring.n_rotations == 0
    assert np.allclose(fit.eigenvalues, np.diagonal(H))


def test_small_blocks_are_exact():
    H = block_diag(*(synthetic(3, 1, seed) for seed in range(4)))
    fit = fit_grouped(H, 60, size=3, n_rounds=2)
    assert relative_error(H, fit) < 1e-7


@pytest.mark.parametrize("target", ["matrix", "likelihood"])
@pytest.mark.parametrize("n_rotations", [40, 80])
@pytest.mark.parametrize(("size", "n_rounds"), [(8, 2), (8, 4), (16, 8)])
def test_groups_and_budget_are_kept(size, n_rounds, n_rotations, target):
    H = synthetic(32, 8, seed=1)
    fit = fit_grouped(H, n_rotations, size=size, n_rounds=n_rounds, target=target, cycles=6)
    assert isinstance(fit.wiring, Grouped)
    assert fit.wiring.size <= size
    assert len(fit.wiring.groups) <= n_rounds
    assert fit.wiring.n_rotations <= n_rotations
    values = [value for _, _, value in fit.history]
    assert values == sorted(values, reverse=True)
    d = np.diagonal(conjugate(H, fit.wiring.pairs, fit.angles))
    assert np.allclose(d, fit.eigenvalues, atol=1e-12)
    value = 1 - (d**2).sum() / (H**2).sum() if target == "matrix" else None
    assert value is None or np.isclose(values[-1], value, rtol=1e-9)


def test_rounds_too_small_for_the_rotations_get_company():
    """In groups of two a round of 96 coordinates has 48 rotations."""
    H = np.exp(-8.0 * np.abs(np.subtract.outer(*2 * [np.linspace(0, 1, 96)])))
    fit = fit_grouped(H, 336, size=2, n_rounds=4, cycles=0)
    assert len(fit.wiring.groups) >= 7
    assert fit.wiring.n_rotations == 336
    assert relative_error(H, fit) < 0.3  # in four rounds 0.6


def test_a_quality_is_reached_and_no_rotations_are_wasted():
    H, error = covariance(48), 0.02
    free, grouped = (fit(H, 48 * 47, target_error=error) for fit in (fit_pairs, fit_grouped))
    assert relative_error(H, grouped) <= error
    assert grouped.wiring.n_rotations < 2 * free.wiring.n_rotations


def test_the_same_seed_gives_the_same_answer():
    H = synthetic(32, 8, seed=2)
    first, second, other = (fit_grouped(H, 60, size=8, n_rounds=6, cycles=8, seed=s) for s in (3, 3, 4))
    assert first.wiring == second.wiring
    assert np.array_equal(first.angles, second.angles)
    assert other.wiring != first.wiring


def test_cycles_help():
    H = synthetic(48, 12, seed=5)
    without, with_cycles = (fit_grouped(H, 120, size=16, cycles=c) for c in (0, 40))
    assert relative_error(H, with_cycles) < 0.97 * relative_error(H, without)


@pytest.mark.parametrize("stage", ["grow", "polish", "cycle"])
def test_a_stop_keeps_the_best_so_far(stage):
    H, seen = synthetic(24, 6, seed=3), []

    def stop(now, k, value):
        seen.append(value)
        if now == stage:
            raise Stop

    fit = fit_grouped(H, 50, size=8, cycles=5, callback=stop)
    assert np.isclose(relative_error(H, fit) ** 2, min(seen), rtol=1e-9)


def test_a_sequence_in_rounds_is_the_same_product():
    H = synthetic(20, 5, seed=4)
    free = fit_pairs(H, 50, cycles=0)
    wiring, angles = in_rounds(20, free.wiring.pairs, free.angles, 6)
    assert wiring.size <= 6
    assert np.allclose(conjugate(H, wiring.pairs, angles), conjugate(H, free.wiring.pairs, free.angles))


@pytest.mark.slow
@pytest.mark.parametrize("n_large", [5, 32, 64])
def test_groups_cost_no_accuracy(n_large):
    """Within 3 % of free pairs on the mean of a few matrices."""
    ratios = []
    for seed in (1, 2, 3, 4):
        H = synthetic(64, n_large, seed)
        ratios.append(relative_error(H, fit_grouped(H, 192)) / relative_error(H, fit_pairs(H, 192)))
    assert np.mean(ratios) < 1.03


def test_steps_are_those_asked_for():
    H, grown = synthetic(48, 12, seed=4), []
    for steps in (2, 5):
        fit = fit_grouped(H, 120, steps=steps, cycles=0)
        grown.append([stage for stage, _, _ in fit.history].count("grow"))
    assert grown[1] > grown[0]

"""Building: better than growing greedily, within the budget, and never at the mercy of one start."""

import pytest
from fitting.core.matrices import covariance, kernel_of_points, scrambled_kernel
from scipy.linalg import block_diag

from swallowtail import random_symmetric
from swallowtail.datasets import sensor_heat_kernel
from swallowtail.fitting.core.build import FEWEST, BuildPlan
from swallowtail.fitting.core.objectives import Objective
from swallowtail.fitting.core.records import Stop
from swallowtail.fitting.core.search import POLISH, POLISH_TOLERANCE, Search
from swallowtail.fitting.core.stages import search_pairs

KERNELS = {
    "points": kernel_of_points(200),
    "grid": scrambled_kernel(14),
    "random": random_symmetric(120, 10, 3),
    "graph": sensor_heat_kernel(120, seed=2),
}


def greedy(objective, n_rotations):
    """The squared error of a greedy growth of so many rotations, polished."""
    search = Search(objective, n_rotations, None, None)
    search.grow(objective.rounding)
    search.polish(3 * POLISH, POLISH_TOLERANCE)
    return search.value


@pytest.mark.parametrize(("name", "ratio"), [("points", 0.65), ("grid", 0.65), ("random", 0.9)])
def test_better_than_growing_greedily(name, ratio):
    objective = Objective(KERNELS[name])
    K = 4 * objective.n
    built = search_pairs(objective, K, cycles=0, finish=3 * POLISH)
    assert len(built.angles) == K
    assert built.value < ratio * greedy(objective, K)


@pytest.mark.parametrize(("name", "better"), [("grid", "matchings"), ("graph", "layers")])
def test_the_better_start_goes_on(name, better):
    objective, ends = Objective(KERNELS[name]), {}
    for starts in (("matchings",), ("layers",), ("matchings", "layers")):
        objective.starts = starts
        ends["+".join(starts)] = search_pairs(objective, 4 * objective.n, cycles=0, finish=0).value
    both = ends.pop("matchings+layers")
    assert both == ends.pop(better)
    (other,) = ends.values()
    assert both < 0.95 * other


@pytest.mark.parametrize("n", [1, 2, 3, 5, 17])
@pytest.mark.parametrize("target", ["matrix", "likelihood"])
def test_any_size_and_budget(n, target):
    H = covariance(n)
    for K in (0, 1, 2, n, 3 * n, n * n):
        search = search_pairs(Objective(H, target), K, cycles=0)
        assert len(search.angles) <= K
        assert search.value == pytest.approx(Objective(H, target)(search.pairs, search.angles)[0], abs=1e-12)


def test_what_few_rotations_make_exact_is_exact():
    """Greedily, six blocks of two need six rotations; built, two of these would stand behind what is in front."""
    H = block_diag(*[random_symmetric(2, 1, seed) for seed in range(6)])
    assert search_pairs(Objective(H), 6, cycles=0).value < 1e-14


def test_a_quality_takes_few_rotations():
    objective = Objective(KERNELS["points"])
    goal = greedy(objective, 800)
    search = search_pairs(objective, 4000, cycles=0, goal=goal)
    assert search.value <= goal
    assert len(search.angles) < 650


def test_a_quality_that_greed_reaches_first_takes_no_more():
    H = block_diag(*[random_symmetric(2, 1, seed) for seed in range(20)])
    search = search_pairs(Objective(H), 780, cycles=0, goal=1e-12)
    assert len(search.angles) <= 20
    assert search.value <= 1e-12


def test_a_stop_at_any_time_keeps_the_best():
    H, calls = covariance(40), []

    def stop(last):
        def callback(stage, k, value):
            calls.append(value)
            if len(calls) == last:
                raise Stop

        return callback

    search_pairs(Objective(H), 120, cycles=0, callback=stop(10**9))
    for last in range(1, len(calls), 7):
        calls.clear()
        search = search_pairs(Objective(H), 120, cycles=0, callback=stop(last))
        assert len(calls) == last
        assert search.value == pytest.approx(min(calls), rel=1e-12)
        assert search.value == pytest.approx(Objective(H)(search.pairs, search.angles)[0], abs=1e-12)


def test_steps_fall_with_size():
    plan = BuildPlan(steps=8)
    assert plan.limited(100) == plan.limited(1000) == plan
    assert plan.steps > plan.limited(2500).steps > FEWEST
    assert plan.limited(10**4) == plan._replace(steps=FEWEST, starts=1)
    assert plan._replace(steps=0).limited(100).steps == 0

"""Every state of a search leads to the same end."""

import copy

import numpy as np
import pytest
from fitting.core.matrices import scrambled_kernel

from swallowtail import random_orthogonal, random_symmetric
from swallowtail.fitting.core.objectives import Objective
from swallowtail.fitting.core.search import STAGES
from swallowtail.fitting.methods.pairs import align_pairs, fit_pairs

FITS = {
    "matrix": lambda **k: fit_pairs(random_symmetric(20, 4, seed=1), 40, cycles=25, **k),
    "likelihood": lambda **k: fit_pairs(
        random_symmetric(20, 4, seed=1), 40, cycles=6, target="likelihood", **k
    ),
    "goal": lambda **k: fit_pairs(random_symmetric(20, 4, seed=1), 150, cycles=6, target_error=0.2, **k),
    "equal entries": lambda **k: fit_pairs(scrambled_kernel(15), 400, cycles=2, **k),
    "rotation": lambda **k: align_pairs(random_orthogonal(20, seed=1), 40, cycles=25, **k),
}


def assert_same(a, b):
    assert a.wiring == b.wiring
    assert a.angles.tobytes() == b.angles.tobytes()
    assert a.history == b.history


@pytest.mark.parametrize("name", FITS)
def test_every_state_leads_to_the_same_end(name):
    states = []
    undisturbed = FITS[name](save=lambda state: states.append(copy.deepcopy(state)))
    assert_same(undisturbed, FITS[name]())
    seen = {state["stage"] for state in states}
    assert seen == (set(STAGES) - {"cycle"} if name == "goal" else set(STAGES) - {"shrink"})
    for state in states:
        before = copy.deepcopy(state)
        assert_same(FITS[name](resume=state), undisturbed)
        for key, value in before.items():  # a state can be used again
            assert np.array_equal(state[key], value) if isinstance(value, np.ndarray) else state[key] == value


def test_equal_entries_are_told_apart_where_that_helps(monkeypatch):
    H = scrambled_kernel(16)
    found = fit_pairs(H, 1024, cycles=0, finish=0).history[-1][2]
    in_order = fit_pairs(np.ascontiguousarray(H[::-1, ::-1]), 1024, cycles=0, finish=0).history[-1][2]
    monkeypatch.setattr(Objective, "told_apart", lambda self: None)
    without = fit_pairs(H, 1024, cycles=0, finish=0).history[-1][2]
    assert found < 0.8 * without  # squared errors
    assert in_order < 0.8 * without

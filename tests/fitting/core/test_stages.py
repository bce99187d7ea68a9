"""Every state of a search leads to the same end."""

import copy

import numpy as np
import pytest

from swallowtail import random_orthogonal, random_symmetric
from swallowtail.fitting.methods.grouped import fit_grouped
from swallowtail.fitting.methods.pairs import align_pairs, fit_pairs

FITS = {
    "matrix": lambda **k: fit_pairs(random_symmetric(20, 4, seed=1), 40, cycles=25, **k),
    "likelihood": lambda **k: fit_pairs(
        random_symmetric(20, 4, seed=1), 40, cycles=6, target="likelihood", **k
    ),
    "goal": lambda **k: fit_pairs(random_symmetric(20, 4, seed=1), 150, cycles=6, target_error=0.2, **k),
    "trials": lambda **k: fit_pairs(random_symmetric(20, 4, seed=1), 40, cycles=60, **k),
    "few": lambda **k: fit_pairs(random_symmetric(20, 4, seed=1), 25, cycles=6, **k),
    "groups": lambda **k: fit_grouped(random_symmetric(20, 4, seed=1), 40, size=6, n_rounds=5, cycles=6, **k),
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
    own = {"goal": {"shrink"}, "trials": {"trial", "cycle"}}.get(name, {"cycle"})
    assert seen == {"build", "polish", "finish"} | own
    for state in states:
        before = copy.deepcopy(state)
        assert_same(FITS[name](resume=state), undisturbed)
        for key, value in before.items():  # a state can be used again
            assert np.array_equal(state[key], value) if isinstance(value, np.ndarray) else state[key] == value

"""Everybody who competes goes downhill."""

import pytest

from swallowtail.experiments.algorithm2.problems import Flat, make_problem
from swallowtail.experiments.algorithm2.runs import GOALS, contenders


@pytest.mark.parametrize("name", GOALS)
def test_every_contender_descends(name):
    for method, minimise in contenders(name).items():
        flat = Flat(make_problem(name, 1, 30), 25)
        minimise(flat)
        assert flat.curve[-1][1] < flat.curve[0][1], method
        assert len(flat.curve) <= 25

"""The written-out Algorithm 2 is GivensNewton, and each of its details matters."""

from dataclasses import replace

import numpy as np
import pytest

from swallowtail.experiments.algorithm2.descent import Details, descend
from swallowtail.experiments.algorithm2.problems import Flat, make_problem, with_torch
from swallowtail.experiments.algorithm2.runs import PAPER, SETTINGS, VARIANTS
from swallowtail.optim import GivensNewton


def test_the_algorithm_written_out_is_the_library_s():
    how = Details(rate=0.3, lr=0.8, epsilon=0.01)
    plain = descend(make_problem("quadratic", 3), how, 40)
    flat = Flat(make_problem("quadratic", 3), 40)
    options = {"lr": how.lr, "rate": how.rate, "epsilon": how.epsilon, "normalized_step": None}
    with_torch(GivensNewton(flat.problem.params, **options), flat)
    np.testing.assert_allclose(plain.curve, flat.curve, rtol=1e-9)
    assert flat.curve[-1][1] < 0.1 * flat.curve[0][1]


@pytest.mark.parametrize("variant", [v for v in VARIANTS if v != "as in the text"])
def test_every_detail_changes_the_way(variant):
    how = replace(SETTINGS["wells"][PAPER], **VARIANTS[variant])
    ends = [descend(make_problem("wells", 3), h, 60).curve[-1][1] for h in (SETTINGS["wells"][PAPER], how)]
    assert abs(ends[0] - ends[1]) > 1e-6 * abs(ends[0])


def test_negative_curvature_kept_leads_uphill():
    how = SETTINGS["wells"][PAPER]
    good, bad = (
        descend(make_problem("wells", 3), h, 150) for h in (how, replace(how, negative_to_epsilon=False))
    )
    assert good.curve[-1][1] < 1e-3 * good.curve[0][1]
    assert bad.curve[-1][1] > 100 * good.curve[-1][1]
    assert good.negative == 0.0
    assert bad.negative > 0.5


def test_divergence_is_noticed():
    how = Details(rate=0.3, lr=1e6, epsilon=0.01)
    assert descend(make_problem("Rosenbrock", 1), how, 50).diverged
    assert len(descend(make_problem("Rosenbrock", 1), how, 50).curve) < 50

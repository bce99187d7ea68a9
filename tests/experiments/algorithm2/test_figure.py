"""The written-out Algorithm 2 is GivensNewton, gradients are counted, and what is said comes from rows."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from experiments.checks import check_comes_from_rows, check_continues

from swallowtail.experiments.algorithm2 import figure as algorithm2
from swallowtail.experiments.algorithm2.descent import Details, descend, identity_rows
from swallowtail.experiments.algorithm2.runs import GOALS, PAPER, SETTINGS, VARIANTS, contenders
from swallowtail.experiments.problems import (
    Flat,
    LimitReachedError,
    Problem,
    digits_network,
    make_problem,
    with_torch,
)
from swallowtail.optim import GivensNewton

TINY = algorithm2.Config((("quadratic", 12), ("Rosenbrock", 12)), 1, (0.1, 1.0), 6, 5, rows=30)


def test_rows_continue_and_make_the_report(tmp_path):
    rows = check_continues(algorithm2, TINY, tmp_path / "rows.csv")
    check_comes_from_rows(algorithm2, rows, "gap", "loss")
    assert {row["part"] for row in rows} == {"goal", "curve", "detail", "epsilon", "minibatch", "identity"}
    assert all(row["gradients"] <= 12 for row in rows if row["part"] == "curve")


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


def test_minibatch_gradients_average_with_weights_and_not_as_printed():
    weighted, printed = identity_rows((10, 15, 5), 1)
    assert weighted["deviation"] < 1e-12
    assert printed["deviation"] > 0.1


def test_every_gradient_is_counted_and_the_best_loss_kept():
    u = torch.nn.Parameter(torch.tensor([2.0], dtype=torch.float64))
    flat = Flat(Problem([u], lambda _: (u**2).sum()), limit=3)
    for at, best in ((1.0, 1.0), (3.0, 1.0), (0.5, 0.25)):
        value, gradient = flat(np.array([at]))
        assert (value, gradient[0]) == (at**2, 2 * at)
        assert flat.curve[-1] == (len(flat.curve), best)
    with pytest.raises(LimitReachedError):
        flat(np.array([0.0]))
    assert len(flat.curve) == 3


@pytest.mark.parametrize("name", GOALS)
def test_every_contender_descends(name):
    for method, minimise in contenders(name).items():
        flat = Flat(make_problem(name, 1, 30), 25)
        minimise(flat)
        assert flat.curve[-1][1] < flat.curve[0][1], method
        assert len(flat.curve) <= 25


def test_the_least_loss_of_logistic_regression_is_a_minimum():
    problem = make_problem("logistic", 2, 30)
    for seed in range(3):
        other = digits_network((64, 10), seed, 30, decay=1e-3)
        assert float(other.loss(None).detach()) > problem.least
    flat = Flat(problem, 300)
    contenders("logistic")["L-BFGS"](flat)
    assert flat.curve[-1][1] == pytest.approx(problem.least, rel=1e-6)


def test_findings_take_medians_and_say_who_does_not_arrive():
    rows = [
        {"part": "goal", "problem": "quadratic", "method": m, "seed": s, "gap": 1.0, "limit": 9}
        | ({"gradients": g} if g else {})
        for m, counts in {"Algorithm 2": (7, None, None), "L-BFGS": (5, 3, 4)}.items()
        for s, g in enumerate(counts)
    ]
    assert algorithm2._counts(rows, "quadratic") == {"Algorithm 2": "–", "L-BFGS": "4"}
    assert "L-BFGS on quadratic" in algorithm2.text(
        [*rows, {"part": "detail", "variant": "negative elements kept", "negative": 0.25}]
    )

"""Arguments that make no sense, by themselves or together."""

import inspect

import numpy as np
import pytest

import swallowtail as st
from swallowtail import Butterfly, fit_rotation, random_orthogonal
from swallowtail.fitting import fit_symmetric
from swallowtail.fitting.methods import butterfly, grouped, hybrid, pairs, products, sgd
from swallowtail.fitting.request import METHODS, OPTIONS

N = 12


H = st.random_symmetric(N, 3, 0)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"n_rotations": -1}, ValueError, "n_rotations: expected an integer ≥ 0, got -1"),
        ({"n_rotations": 2.5}, TypeError, "n_rotations"),
        ({"n_rotations": True}, TypeError, "n_rotations"),
        ({"depth": 0}, ValueError, "depth"),
        ({"max_products": 0}, ValueError, "max_products"),
        ({"method": "pairs", "steps": 2.5}, TypeError, "steps: expected an integer"),
        ({"method": "pairs", "cycles": -1}, ValueError, "cycles: expected an integer ≥ 0, got -1"),
        ({"method": "butterfly", "starts": "many"}, TypeError, "starts: expected an integer"),
        ({"max_seconds": 0}, ValueError, "max_seconds"),
        ({"max_seconds": float("nan")}, ValueError, "max_seconds"),
        ({"target_angle": 0}, ValueError, "target_angle"),
        ({"target_angle": 90.5}, ValueError, "target_angle"),
        ({"target_angle": float("nan")}, ValueError, "target_angle"),
        ({"method": "magic"}, ValueError, "method: expected one of 'auto'"),
        ({"effort": "much"}, ValueError, "effort: expected one of 'quick', 'default', 'best', got 'much'"),
        (
            {"target": "magic"},
            ValueError,
            "target: expected one of 'matrix', .* or a function of the eigenvalues",
        ),
        ({"wiring": "magic"}, ValueError, "wiring: expected one of 'auto'"),
        ({"wiring": st.Butterfly(8, 1)}, ValueError, "n = 12"),
        ({"wiring": st.Pairs(N, [[(0, 1)]])}, ValueError, "Butterfly"),
        ({"n": 5}, ValueError, "n: expected 12"),
        ({"max_seconds": "1"}, TypeError, "max_seconds: expected a number > 0, got '1'"),
        ({"target_angle": "5"}, TypeError, "target_angle: expected a number, got '5'"),
        ({"seed": -1}, ValueError, "seed: expected an integer ≥ 0, got -1"),
        ({"seed": None}, TypeError, "seed: expected an integer ≥ 0, got None"),
        ({"callback": 3}, TypeError, "callback: expected a function"),
        ({"method": "pair"}, ValueError, "got 'pair'; try 'pairs'"),
        (
            {"cycles": 3},
            TypeError,
            "cycles: expected a method that has this option, got method='auto'; try `method='pairs'`",
        ),
        (
            {"n_rotation": 3},
            TypeError,
            "n_rotation: expected an argument of fit_symmetric, .*; try `n_rotations`",
        ),
        ({"random_state": 3}, TypeError, "random_state: expected an argument .*; try `seed`"),
        ({"method": "pairs", "cycle": 3}, TypeError, "cycle: expected an argument .*; try `cycles`"),
        (
            {"method": "recovery", "kicks": 3},
            TypeError,
            "kicks: .* got method='recovery'; try `method='butterfly'`",
        ),
        (
            {"method": "sgd", "xyzzy": 3},
            TypeError,
            r"xyzzy: expected an argument .*; try help\(fit_symmetric\)",
        ),
        ({"method": "sgd", "target": "likelihood"}, ValueError, "target: expected 'matrix'"),
        ({"method": "grouped", "size": 1}, ValueError, "size: expected an integer ≥ 2, got 1"),
        ({"method": "grouped", "size": None}, TypeError, "size: expected an integer ≥ 2, got None"),
        ({"method": "grouped", "n_rounds": 0}, ValueError, "n_rounds: expected an integer ≥ 1, got 0"),
        ({"method": "grouped", "n_rounds": None}, TypeError, "n_rounds: expected an integer ≥ 1, got None"),
        ({"method": "products", "passes": 2}, ValueError, "passes: expected a fit .* from products"),
        (
            {"method": "hybrid", "target": "likelihood", "budget": "floats", "rank": 2},
            ValueError,
            "rank: expected a fit with rank-one terms",
        ),
        ({"method": "butterfly", "order": [0] * N}, ValueError, "order: expected None, 'learn' or each of 0"),
        ({"method": "butterfly", "order": range(5)}, ValueError, "order: expected None, 'learn' or each of"),
        ({"method": "butterfly", "order": "any"}, ValueError, "order: expected None, 'learn' or each of 0"),
        ({"seed": 2**63}, ValueError, "seed: expected an integer below 2.63, got 9223372036854775808"),
        ({"checkpoint": "."}, ValueError, "checkpoint: expected a file, got the folder"),
    ],
)
def test_arguments_that_make_no_sense(arguments, error, message):
    with pytest.raises(error, match=message):
        fit_symmetric(H, **arguments)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, TypeError, "n: expected the dimension"),
        ({"n": 0}, ValueError, "n: expected an integer ≥ 1"),
        ({"n": N, "max_products": 4, "target": "likelihood"}, ValueError, "target='matrix'"),
        ({"n": N, "max_products": 4, "wiring": "butterfly"}, ValueError, "method='sgd'"),
    ],
)
def test_arguments_that_products_cannot_serve(arguments, error, message):
    with pytest.raises(error, match=message):
        fit_symmetric(lambda X: H @ X, **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"wiring": "butterfly", "n_rotations": 5}, "n_rotations: expected 12"),
        ({"method": "sgd", "n_rotations": 5}, "n_rotations: expected 12"),
        ({"method": "recovery", "depth": 2, "n_rotations": 12}, "n_rotations: expected 24"),
        ({"method": "sgd", "wiring": "pairs"}, "a fixed one"),
        ({"method": "butterfly", "wiring": "grouped"}, "a fixed one"),
        ({"method": "pairs", "wiring": "butterfly"}, "chooses pairs"),
        ({"method": "hybrid", "wiring": st.Butterfly(8)}, "chooses pairs"),
        ({"target_angle": 0}, "above 0 and below 90"),
    ],
)
def test_requests_that_contradict_themselves(arguments, message):
    with pytest.raises(ValueError, match=message):
        fit_symmetric(st.random_symmetric(8, 2, 0), **arguments)


def test_what_goes_together_is_accepted():
    A = st.random_symmetric(8, 2, 0)
    for arguments in (
        {"wiring": "butterfly"},
        {"method": "sgd", "epochs": 1},
        {"method": "sgd", "wiring": st.Butterfly(8)},
    ):
        assert fit_symmetric(A, n_rotations=12, **arguments).operator.rotation.n_rotations == 12


def test_wrong_arguments():
    R = np.eye(4)
    with pytest.raises(TypeError, match="expected float64"):
        fit_rotation(1j * R)
    with pytest.raises(TypeError, match="n: expected the dimension"):
        fit_rotation(lambda X: X)
    with pytest.raises(ValueError, match="whose length changed"):
        fit_rotation(lambda X: 2 * X, 8, max_products=4)
    with pytest.raises(ValueError, match="expected the entries of R"):
        fit_rotation(lambda X: X, 8, max_products=4, method="pairs")
    with pytest.raises(ValueError, match="R is not in the butterfly class"):
        fit_rotation(random_orthogonal(16, 0), method="recovery")
    with pytest.raises(TypeError, match="cycles: expected a method that has this option"):
        fit_rotation(R, cycles=3)
    for arguments in (
        {"n": 5}, {"method": "qr"}, {"wiring": "tree"}, {"wiring": Butterfly(5)}, {"n_rotations": -1}, {"depth": 0},
        {"max_seconds": 0}, {"target_angle": 90}, {"max_products": 0},
    ):  # fmt: skip
        with pytest.raises(ValueError, match="expected"):
            fit_rotation(R, **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"wiring": "butterfly", "n_rotations": 5}, "n_rotations: expected 12"),
        ({"method": "sgd", "wiring": "pairs"}, "a fixed one"),
        ({"method": "pairs", "wiring": "butterfly"}, "chooses pairs"),
    ],
)
def test_requests_for_a_rotation_that_contradict_themselves(arguments, message):
    with pytest.raises(ValueError, match=message):
        fit_rotation(np.eye(8), **arguments)


FITTERS = {
    "symmetric": {
        "pairs": pairs.fit_pairs,
        "grouped": grouped.fit_grouped,
        "butterfly": butterfly.fit_butterfly,
        "hybrid": hybrid.fit_hybrid,
        "sgd": sgd.fit_sgd,
        "products": products.fit_products,
    },
    "rotation": {"pairs": pairs.align_pairs, "butterfly": butterfly.align_butterfly, "sgd": sgd.fit_sgd},
}


@pytest.mark.parametrize("kind", METHODS)
def test_every_option_is_one_of_its_method(kind):
    assert OPTIONS[kind].keys() == set(METHODS[kind]) - {"auto", "recovery"}
    for method, options in OPTIONS[kind].items():
        allowed = inspect.signature(FITTERS[kind][method]).parameters.keys()
        if method == "products":  # with the entries of H it fits pairs
            allowed |= inspect.signature(pairs.fit_pairs).parameters.keys()
        assert set(options) <= allowed

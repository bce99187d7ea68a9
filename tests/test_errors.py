"""The error of a wrong argument: its fields, its text, its types; and that nothing else comes in its place."""

import copy
import pickle

import numpy as np
import pytest
import torch

import swallowtail as st
from swallowtail import ArgumentError
from swallowtail.operators import LowRank

TEXTS = [
    (("n", "an integer ≥ 1", 0, "try 1 or more"), "n: expected an integer ≥ 1, got 0; try 1 or more"),
    (("n", "an integer ≥ 1", 0), "n: expected an integer ≥ 1, got 0"),
    (("", "one device", "two", ""), "expected one device, got two"),
    (("got", "anything", None), "got: expected anything, got None"),
]


@pytest.mark.parametrize(("fields", "text"), TEXTS, ids=[text for _, text in TEXTS])
def test_fields_and_text(fields, text):
    error = ArgumentError(*fields)
    assert str(error) == text
    for other in (error, copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert (other.name, other.expected, other.got, other.hint) == (*fields, "")[:4]
        assert str(other) == text


@pytest.mark.parametrize("kind", [ValueError, TypeError, ArgumentError])
def test_it_is_a_value_error_and_a_type_error(kind):
    with pytest.raises(kind, match="n: expected more, got less"):
        raise ArgumentError("n", "more", "less")


Q = st.Rotation.random(8, 2, seed=0)
H = st.SymmetricOperator(Q, torch.linspace(0.5, 2, 8))
HYBRID = H + LowRank(torch.ones(8))
SEEDED = {
    "Rotation.random": lambda seed: st.Rotation.random(8, seed=seed),
    "random_orthogonal": lambda seed: st.random_orthogonal(4, seed),
    "random_symmetric": lambda seed: st.random_symmetric(4, 2, seed),
    "grid_kernel": lambda seed: st.datasets.grid_kernel(4, scramble=seed),
    "sensor_laplacian": lambda seed: st.datasets.sensor_laplacian(9, seed=seed),
    "sample": lambda seed: H.sample(seed=seed),
    "diagonal": lambda seed: H.diagonal("estimate", seed=seed),
    "error_angle": lambda seed: st.error_angle(H, H, seed=seed),
    "fixed": lambda seed: st.Grouped.fixed(8, 4, 1, seed=seed),
    "Tracker": lambda seed: st.Tracker(4, seed=seed),
    "log_determinant": lambda seed: st.log_determinant(H, H, seed=seed),
}
NO_SEEDS = ["a", -1, 2**70, 1.5, True, [1, 2], np.ones((2, 2)), torch.ones(3)]
HUGE, ARRAY = 10**400, np.ones(3)
REFUSED = {
    "sparse vectors": lambda: Q(torch.eye(8).to_sparse()),
    "sparse columns": lambda: H @ torch.eye(8).to_sparse(),
    "an array for a choice": lambda: H.diagonal(ARRAY),
    "an array for a method": lambda: st.fit_symmetric(np.eye(3), method=ARRAY),
    "an array for a time": lambda: st.fit_symmetric(np.eye(3), max_seconds=ARRAY),
    "an array for n": lambda: st.fit_symmetric(np.eye(3), ARRAY),
    "a list for a path": lambda: st.fit_symmetric(np.eye(3), checkpoint=["a"]),
    "no path to load": lambda: st.load(None),
    "no path to save": lambda: st.save(Q, None),
    "no function": lambda: H.function(None),
    "no function of a hybrid": lambda: HYBRID.function("sqrt"),
    "a word for epsilon": lambda: H.inverse("small"),
    "NaN for epsilon": lambda: H.logdet(epsilon=float("nan")),
    "NaN for a sample's epsilon": lambda: HYBRID.sample(epsilon=float("nan")),
    "no device": lambda: Q.to("abacus"),
    "no dtype": lambda: st.Rotation.random(8, dtype="float32"),
    "an array for a dtype": lambda: st.Rotation.identity(8, dtype=ARRAY),
    "whole numbers for angles": lambda: Q.to(torch.int64),
    "a huge number to add": lambda: H + HUGE,
    "a huge number to divide by": lambda: HYBRID / HUGE,
    "a huge index": lambda: H[HUGE, 0],
    "huge entries": lambda: st.error_angle(H, [[HUGE]]),
    "a huge length": lambda: st.datasets.grid_kernel(4, "rbf", HUGE),
    "a huge size": lambda: st.random_orthogonal(HUGE, 0),
    "a huge grid": lambda: st.datasets.grid_kernel((2**40, 2**40)),
    "huge graph": lambda: st.datasets.sensor_laplacian(HUGE),
    "too many samples": lambda: H.sample(HUGE),
    "layers of nothing": lambda: st.Pairs(8, None),
    "layers of negated views": lambda: st.Pairs(8, [torch.ones(2, dtype=torch.complex64).conj().imag]),
    "no parameters": lambda: st.hessian(lambda: torch.zeros(()), None),
    "no tensor": lambda: st.select_backend("cpu"),
    "no product": lambda: st.conjugate_gradients(None, torch.ones(8)),
    "a word for a flag": lambda: st.Tracker(4, rescale="no"),
    "a word for a rate": lambda: st.Tracker(4, rate="fast"),
    "no wiring": lambda: st.Tracker(4, "butterfly"),
    "a number for a path": lambda: st.datasets.mnist_images(7),
}


@pytest.mark.parametrize("name", SEEDED)
def test_a_wrong_seed_is_refused(name):
    SEEDED[name](2**63)
    for seed in NO_SEEDS:
        with pytest.raises(ArgumentError, match=r"seed|scramble"):
            SEEDED[name](seed)


@pytest.mark.parametrize("name", REFUSED)
def test_nothing_else_is_raised_in_its_place(name):
    with pytest.raises(ArgumentError):
        REFUSED[name]()

"""Nothing that is read from disk is trusted: damaged checkpoints are noticed, wrong ones are refused."""

import copy
import json

import numpy as np
import pytest
import torch

from swallowtail import Pairs, Rotation, SymmetricOperator, io, random_symmetric
from swallowtail.errors import ArgumentError
from swallowtail.fitting.checkpoint import Checkpoint, digest_of_contents
from swallowtail.fitting.checkpoint_contents import check_form, finished_form
from swallowtail.fitting.inputs import Problem
from swallowtail.fitting.methods.pairs import fit_pairs
from swallowtail.fitting.result import Candidate

N, BUDGET = 6, 12
PROBLEM = Problem(N, dense=random_symmetric(N, 2, seed=0))


def states():
    """One state of each stage that a search without a goal comes through."""
    found = {}
    save = lambda s: found.__setitem__(s["stage"], copy.deepcopy(s))
    fit_pairs(PROBLEM.dense, BUDGET, cycles=3, save=save)
    return found


def finished(wiring=None):
    rotation = Rotation.random(N, seed=0, dtype=torch.float64)
    if wiring is not None:
        rotation = Rotation(wiring, torch.linspace(-1, 1, wiring.n_rotations, dtype=torch.float64))
    operator = SymmetricOperator(rotation, torch.arange(N, dtype=torch.float64))
    return finished_form(Candidate("butterfly", operator, [("polish", 9, 0.5)], 0.5))


def write(path, **forms):
    checkpoint = Checkpoint(path, PROBLEM, BUDGET, ())
    checkpoint._forms = forms
    checkpoint._write()


def read(path):
    return Checkpoint(path, PROBLEM, BUDGET, ())


def test_what_was_written_is_read(tmp_path):
    path = tmp_path / "fit"
    for name, state in states().items():
        write(path, pairs=state, butterfly=finished())
        again = read(path)
        assert again.finished("pairs") is None
        assert again.state("butterfly") is None
        assert again.state("pairs")["stage"] == name
        assert np.array_equal(again.state("pairs")["pairs"], state["pairs"])
        assert again.finished("butterfly").objective == 0.5


@pytest.mark.parametrize("how", ["flipped bits", "truncated", "longer"])
def test_damage_is_noticed(how, tmp_path, monkeypatch):
    path, generator = tmp_path / "fit", np.random.default_rng(0)
    write(
        path, pairs=states()["cycle"], butterfly=finished(), recovery=finished(Pairs(N, [[(0, 5), (1, 2)]]))
    )
    whole = path.read_bytes()
    read(path)
    for _ in range(600 if how == "flipped bits" else 100):
        damaged = bytearray(whole)
        if how == "flipped bits":
            bit = int(generator.integers(8 * len(whole)))
            damaged[bit // 8] ^= 1 << bit % 8
        elif how == "truncated":
            damaged = damaged[: int(generator.integers(len(whole)))]
        else:
            damaged += generator.bytes(int(generator.integers(1, 9)))
        path.write_bytes(damaged)
        with pytest.raises(
            ArgumentError, match=r"checkpoint: expected a file written by an unfinished fit"
        ) as caught:
            read(path)
        assert str(path) in str(caught.value)


def replaced(form, key, value):
    form[key] = value


STATES = {
    "index too large": ("cycle", lambda s: s["pairs"].__setitem__((0, 1), N), "indices from 0 to 5"),
    "negative index": ("polish", lambda s: s["pairs"].__setitem__((0, 0), -1), "indices from 0 to 5, got -1"),
    "i = j": ("polish", lambda s: s["pairs"].__setitem__(0, [2, 2]), "paired with itself"),
    "current pairs": ("cycle", lambda s: s["current_pairs"].__setitem__((0, 1), 10**6), "indices from 0"),
    "angle not finite": ("polish", lambda s: s["angles"].__setitem__(0, np.nan), "angles: expected finite"),
    "lengths": ("polish", lambda s: replaced(s, "angles", s["angles"][:-1].copy()), "pairs: expected int64"),
    "dtype": ("polish", lambda s: replaced(s, "pairs", s["pairs"].astype(np.int32)), "pairs: expected int64"),
    "too many": ("polish", lambda s: [replaced(s, k, np.concatenate([s[k]] * 9)) for k in ("pairs", "angles")],
                 "at most 12, got 108"),
    "start": ("build", lambda s: replaced(s, "start", -1), "start: expected an integer from 0"),
    "step": ("build", lambda s: replaced(s, "step", 0.5), "step: expected an integer from 0"),
    "built pairs": ("build", lambda s: s["current_pairs"].__setitem__((0, 1), N), "indices from 0 to 5"),
    "stage": ("polish", lambda s: replaced(s, "stage", "magic"), "stage: expected one of build"),
    "generator": ("cycle", lambda s: replaced(s, "generator", {"bit_generator": "PCG64"}), "is wrong"),
    "cycle": ("cycle", lambda s: replaced(s, "index", -1), "index: expected an integer from 0"),
    "value": ("finish", lambda s: replaced(s, "value", float("inf")), "value: expected a finite number"),
    "history": ("finish", lambda s: replaced(s, "history", [["polish", 3]]), "is wrong"),
    "missing": ("finish", lambda s: s.pop("pairs"), "it lacks 'pairs'"),
}  # fmt: skip


@pytest.mark.parametrize("name", STATES)
def test_states_that_cannot_be(name, tmp_path):
    stage, change, message = STATES[name]
    state = states()[stage]
    change(state)
    write(tmp_path / "fit", pairs=state)
    with pytest.raises(ArgumentError, match=f"in which 'pairs' is wrong.*{message}|{message}"):
        read(tmp_path / "fit")


FORMS = {
    "n": lambda f: replaced(f["operator"]["wiring"], "n", 10**400),
    "another n": lambda f: replaced(f["operator"]["wiring"], "n", 5),
    "n as text": lambda f: replaced(f["operator"]["wiring"], "n", "6"),
    "depth": lambda f: replaced(f["operator"]["wiring"], "depth", 10**9),
    "depth beyond 64 bits": lambda f: replaced(f["operator"]["wiring"], "depth", 10**18),
    "no depth": lambda f: f["operator"]["wiring"].pop("depth"),
    "reverse": lambda f: replaced(f["operator"]["wiring"], "reverse", "false"),
    "kind": lambda f: replaced(f["operator"], "kind", "Magic"),
    "NaN": lambda f: f["eigenvalues"].__setitem__(0, np.nan),
    "too few angles": lambda f: replaced(f, "angles", f["angles"][:3].copy()),
    "too few eigenvalues": lambda f: replaced(f, "eigenvalues", f["eigenvalues"][:3].copy()),
    "no wiring": lambda f: f["operator"].pop("wiring"),
    "method": lambda f: replaced(f, "method", 3),
    "objective": lambda f: replaced(f, "objective", None),
}


@pytest.mark.parametrize("name", FORMS)
def test_finished_forms_that_cannot_be(name, tmp_path):
    form = finished()
    FORMS[name](form)
    write(tmp_path / "fit", butterfly=form)
    with pytest.raises(ArgumentError, match="in which 'butterfly' is wrong"):
        read(tmp_path / "fit")


@pytest.mark.parametrize(
    ("pairs", "offsets"),
    [
        ([[0, 1], [1, 2]], [0, 2]),  # one layer, not disjoint
        ([[0, 1], [2, 2]], [0, 2]),
        ([[0, 1], [2, 6]], [0, 2]),
        ([[0, 1], [2, -1]], [0, 2]),
        ([[0, 1], [2, 3]], [0, 3]),
        ([[0, 1], [2, 3]], [0, 5, 2]),
        ([[0, 1], [2, 3]], []),
        ([0, 1], [0, 2]),
    ],
)
def test_wirings_that_cannot_be(pairs, offsets):
    form = finished(Pairs(N, [[(0, 1), (2, 3)]]))
    check_form(dict(form), N, BUDGET)
    form["pairs"], form["offsets"] = np.array(pairs, np.int32), np.array(offsets, np.int64)
    with pytest.raises(ValueError, match=r"."):
        check_form(form, N, BUDGET)


@pytest.mark.parametrize("contents", ["[", "[]", "3", "{}", '{"fit": 0}', '{"fit": FIT}', '{"fit": FIT, "forms": 3}',
                                      '{"fit": FIT, "forms": {}}', '{"fit": FIT, "forms": {"pairs": 3}}'])  # fmt: skip
def test_contents_that_are_no_forms_under_a_digest_that_fits(contents, tmp_path):
    path = tmp_path / "fit"
    write(path, butterfly=finished())
    tensors, notes = io.read(path)
    header = contents.replace("FIT", json.dumps(read(path)._fit))
    digest = digest_of_contents(tensors, header)
    io.write(path, tensors, {**notes, "swallowtail checkpoint": header, "sha256": digest})
    with pytest.raises(
        ArgumentError, match=r"^checkpoint: expected a file .*, got .*fit.*; try another path"
    ):
        read(path)

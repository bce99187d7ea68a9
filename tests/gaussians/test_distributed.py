"""Statistics over the processes of a gloo group."""

import os
import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from swallowtail import GivensCovariance, GivensDiscriminant, GivensMixture
from swallowtail.gaussians.distributed import fit_distributed

PROGRAM = """
import datetime, os, pickle, sys
import numpy as np, pandas as pd, torch.distributed as dist
from swallowtail import GivensCovariance, GivensDiscriminant, GivensMixture
from swallowtail.gaussians.distributed import fit_distributed

folder, rank, world, what = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
dist.init_process_group(
    "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world, timeout=datetime.timedelta(seconds=20)
)
X = np.load(f"{folder}/rows.npy")
X = np.array_split(X, [40, 41])[rank] if world == 3 else np.array_split(X, world)[rank]
weights = None
if what.startswith("empty") and rank == 1:
    X = X[:0]
if what == "none":
    X = X[:0]
if what == "weights":
    weights = np.ones(len(X) - rank)
if what == "no weight":
    weights = np.zeros(len(X))
if what == "no columns":
    X = X[:, :0]
if what == "heavy":
    weights = np.full(len(X), 1e155)
if what == "masked" and rank == 1:
    X = np.ma.masked_greater(X, 1)
if what == "names":
    X = pd.DataFrame(X, columns=list("abcdef" if rank == 0 else "bacdef"))
if what == "nan" and rank == 1:
    X[3, 2] = np.nan
if what == "columns" and rank == 1:
    X = X[:, :5]
if what == "dead" and rank == 1:
    os._exit(0)
try:
    mixture = what.endswith("mixture")
    model = fit_distributed(GivensMixture(2, random_state=0) if mixture else GivensCovariance(), X, None, weights)
    result = {"score": model.score(np.load(f"{folder}/rows.npy")), "mean": model.means_ if mixture else
              model.location_, "rows": getattr(model, "n_samples_seen_", None), "columns": model.n_features_in_}
    if not mixture:
        result["scatter"] = model.statistics_.moments.scatter
except (ValueError, RuntimeError) as error:
    result = {"error": str(error)}
pickle.dump(result, open(f"{folder}/result-{rank}", "wb"))
if what != "dead":
    dist.destroy_process_group()
os._exit(0)
"""


def run(folder, world, what=""):
    np.save(folder / "rows.npy", rows())
    (folder / "program.py").write_text(textwrap.dedent(PROGRAM))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, str(folder / "program.py"), str(folder), str(rank), str(world), what],
            env=environment,
        )
        for rank in range(world)
    ]
    for process in processes:
        assert process.wait(timeout=300) == 0
    paths = [folder / f"result-{rank}" for rank in range(world)]
    return [pickle.loads(path.read_bytes()) for path in paths if path.exists()]


def rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 6)) @ rng.standard_normal((6, 6))
    return np.concatenate([X, X[:, ::-1] + 9.0])


def test_two_processes_find_what_one_finds(tmp_path):
    whole = GivensCovariance().fit(rows())
    found = run(tmp_path, 2)
    scale = np.abs(whole.statistics_.moments.scatter).max()
    for one in found:
        assert (one["rows"], one["columns"]) == (400, 6)
        np.testing.assert_allclose(one["scatter"], whole.statistics_.moments.scatter, atol=1e-10 * scale)
        assert one["score"] == pytest.approx(whole.score(rows()), abs=1e-6)
    np.testing.assert_array_equal(found[0]["scatter"], found[1]["scatter"])


@pytest.mark.extras
def test_uneven_processes_and_an_empty_one(tmp_path):
    whole = GivensCovariance().fit(rows())
    (tmp_path / "a").mkdir()
    for one in run(tmp_path / "a", 3):
        assert one["score"] == pytest.approx(whole.score(rows()), abs=1e-6)
    (tmp_path / "b").mkdir()
    half = GivensCovariance().fit(rows()[:200])
    for one in run(tmp_path / "b", 2, "empty"):
        assert one["score"] == pytest.approx(half.score(rows()), abs=1e-6)


@pytest.mark.extras
def test_em_over_processes(tmp_path):
    whole = GivensMixture(2, random_state=0).fit(rows())
    found = run(tmp_path, 2, "mixture")
    np.testing.assert_array_equal(found[0]["mean"], found[1]["mean"])
    assert found[0]["score"] > whole.score(rows()) - 0.05
    (tmp_path / "b").mkdir()
    half = GivensMixture(2, random_state=0).fit(rows()[:200])
    for one in run(tmp_path / "b", 2, "empty mixture"):
        assert one["score"] == pytest.approx(half.score(rows()), abs=0.05)


def test_a_group_has_to_be_there():
    with pytest.raises(RuntimeError, match=r"expected a process group, got none; try .*init_process_group"):
        fit_distributed(GivensCovariance(), rows())


def test_other_estimators_are_refused():
    with pytest.raises(ValueError, match="GivensCovariance or a GivensMixture, got GivensDiscriminant"):
        fit_distributed(GivensDiscriminant(), rows())


@pytest.mark.extras
@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("nan", "process 1: NaN or infinity in row 3"),
        ("columns", "process 1 has 5"),
        ("weights", "process 1: sample_weight: expected 200 finite numbers"),
        ("names", "process 1 has ['b', 'a'"),
        ("none", "2 rows or more in all processes together"),
        ("no weight", "weights that add up to more than 0 in all processes together"),
        ("no columns", "process 0: an array of shape (200, 0)"),
        ("heavy", "process 1: sample_weight: expected weights that add up to at most 1e+30"),
        ("masked", "process 1: X: expected all entries"),
        ("dead", "process group no longer works"),
    ],
)
def test_trouble_is_told_to_all(tmp_path, what, words):
    found = run(tmp_path, 2, what)
    assert found
    for one in found:
        assert words in one["error"]

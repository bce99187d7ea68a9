"""A fit that was killed goes on from its checkpoint to the very answer of an undisturbed one."""

import json
import os
import signal
import sys
import time

import numpy as np
import pytest
import torch
from bounded import started

from swallowtail import (
    Rotation,
    atomic,
    fit_rotation,
    fit_symmetric,
    io,
    random_orthogonal,
    random_symmetric,
    save,
)
from swallowtail.fitting import checkpoint as _checkpoint
from swallowtail.fitting.core.records import Stop
from swallowtail.fitting.core.search import Search
from swallowtail.fitting.watch import Watch


@pytest.fixture
def eager(monkeypatch):
    """Every state is written, and none waits for the disk."""
    monkeypatch.setattr(_checkpoint, "EVERY", 0.0)
    monkeypatch.setattr(_checkpoint, "SHARE", np.inf)
    monkeypatch.setattr(atomic.os, "fsync", lambda descriptor: None)


def result_bytes(result):
    rotation = getattr(result.operator, "rotation", result.operator)
    return rotation.wiring, rotation.angles.numpy().tobytes(), result.history, result.method


@pytest.mark.parametrize(
    "fit",
    [
        lambda **k: fit_symmetric(random_symmetric(10, 3, seed=0), **k),
        lambda **k: fit_rotation(random_orthogonal(10, seed=0), **k),
        lambda **k: fit_symmetric(random_symmetric(10, 3, seed=0), method="grouped", size=4, **k),
    ],
    ids=["symmetric", "rotation", "grouped"],
)
def test_stopped_between_any_two_states(fit, tmp_path, monkeypatch, eager):
    """The process ends, as far as the files can tell, right after a state is written."""
    undisturbed, path = fit(), tmp_path / "fit"
    write = _checkpoint.Checkpoint._write
    for writes in (3, 60):
        left = [writes]

        def killed(self, left=left):
            write(self)
            left[0] -= 1
            if not left[0]:
                raise MemoryError  # nothing in a fit catches it

        monkeypatch.setattr(_checkpoint.Checkpoint, "_write", killed)
        try:
            fit(checkpoint=path)
        except MemoryError:
            assert path.exists()
        monkeypatch.setattr(_checkpoint.Checkpoint, "_write", write)
        assert result_bytes(fit(checkpoint=path)) == result_bytes(undisturbed)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_killed_in_mid_fit(tmp_path):
    path = tmp_path / "fit"
    program = f"""
from swallowtail import fit_symmetric, random_symmetric
from swallowtail.fitting import checkpoint as _checkpoint
_checkpoint.EVERY, _checkpoint.SHARE = 0.0, float("inf")
fit_symmetric(random_symmetric(48, 5, seed=0), method="pairs", cycles=100000, checkpoint={str(path)!r})
"""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "OMP_NUM_THREADS": "1",
    }
    with started([sys.executable, "-c", program], env=environment) as process:
        while index_of(path) < 3 and process.poll() is None:
            time.sleep(0.01)
    reached = index_of(path)
    assert reached >= 3
    # So many cycles would take hours: both fits are stopped a few cycles on.
    H, calls = random_symmetric(48, 5, seed=0), []
    resumed = best_at_cycle(reached + 5, calls, H, method="pairs", cycles=100000, checkpoint=path)
    assert calls[0] == reached  # where the other stopped
    assert resumed == best_at_cycle(reached + 5, [], H, method="pairs", cycles=100000)


def index_of(path):
    """The cycle a checkpoint has come to; −1 before there is one."""
    if not path.exists():
        return -1
    form = json.loads(io.read(path)[1]["swallowtail checkpoint"])["forms"].get("pairs", {})
    return form.get("index", -1)


def best_at_cycle(cycle, calls, H, **arguments):
    """The best product when the search comes to this cycle; ``calls`` are the cycles before."""
    original, found, searches = Search.mark, [], []

    def mark(self, stage, **more):
        searches.append(self)
        if stage == "cycle" and self is searches[0]:  # not one of its trials
            calls.append(more["index"])
            if more["index"] == cycle:
                found.append((self.pairs.tobytes(), self.angles.tobytes(), self.history))
                raise Stop
        original(self, stage, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Search, "mark", mark)
        fit_symmetric(H, **arguments)
    return found[0]


def test_out_of_time_can_be_continued(tmp_path, monkeypatch, eager):
    H, path = random_symmetric(16, 4, seed=0), tmp_path / "fit"
    callback = Watch.callback

    def time_is_up(self, stage, done, objective):
        self.limit = 0.0 if stage == "cycle" else None
        callback(self, stage, done, objective)

    monkeypatch.setattr(Watch, "callback", time_is_up)
    assert fit_symmetric(H, method="pairs", cycles=20, checkpoint=path).status == "time"
    assert path.exists()
    monkeypatch.setattr(Watch, "callback", callback)
    continued = fit_symmetric(H, method="pairs", cycles=20, checkpoint=path)
    assert result_bytes(continued) == result_bytes(fit_symmetric(H, method="pairs", cycles=20))
    assert not path.exists()


@pytest.mark.parametrize("how", ["time", "interrupted", "twice"])
@pytest.mark.parametrize("fit", ["symmetric", "rotation"])
def test_a_stop_writes_the_state_though_none_was_due(fit, how, tmp_path, monkeypatch):
    path, callback, calls = tmp_path / "fit", Watch.callback, []
    run = {
        "symmetric": lambda **k: fit_symmetric(
            random_symmetric(16, 4, seed=0), method="pairs", cycles=20, **k
        ),
        "rotation": lambda **k: fit_rotation(random_orthogonal(16, seed=0), method="pairs", **k),
    }[fit]

    def stopped(self, stage, done, objective):
        calls.append(stage)
        if calls.count("cycle") > 30:
            self.limit = 0.0 if how == "time" else None
            for _ in range({"time": 0, "interrupted": 1, "twice": 2}[how]):
                self._interrupt(signal.SIGINT, None)
        callback(self, stage, done, objective)

    with monkeypatch.context() as patch:
        patch.setattr(Watch, "callback", stopped)
        patch.setattr(_checkpoint, "SHARE", np.inf)  # every state is copied, however slow the machine
        assert run(checkpoint=path).status == ("time" if how == "time" else "interrupted")
    form = json.loads(io.read(path)[1]["swallowtail checkpoint"])["forms"]["pairs"]
    assert form["stage"] == "cycle"
    assert form["index"] > 0
    assert result_bytes(run(checkpoint=path)) == result_bytes(run())
    assert not path.exists()


def test_a_stop_writes_a_copy_from_before_the_fit_went_on(tmp_path):
    """The fit may work on in the arrays it has handed over."""
    problem = type("Problem", (), {"n": 3, "dense": np.eye(3), "samples": None})
    path, angles, none = tmp_path / "fit", np.ones(1), np.zeros((0, 2), np.int64)
    current = {"current_pairs": np.array([[0, 1]]), "current_angles": angles, "current_value": 1.0}
    best = {"pairs": none, "angles": np.zeros(0), "value": 1.0, "history": []}
    with Watch(False, None) as watch:
        saver = _checkpoint.Checkpoint(path, problem, 5, ()).saver("pairs")
        saver({"stage": "build", "start": 0, "step": 1, **best, **current})
        angles[:] = 7
        watch.status = "interrupted"
    state = _checkpoint.Checkpoint(path, problem, 5, ()).state("pairs")
    assert np.array_equal(state["current_angles"], [1.0])


@pytest.mark.parametrize(("error", "written"), [(KeyboardInterrupt, ["fit"]), (ValueError, [])])
def test_ctrl_c_writes_the_state_and_an_error_does_not(error, written, tmp_path):
    problem = type("Problem", (), {"n": 3, "dense": np.eye(3), "samples": None})

    def fit():
        with Watch(False, None):
            _checkpoint.Checkpoint(tmp_path / "fit", problem, 5, ()).saver("pairs")({"stage": "build"})
            raise error

    with pytest.raises(error):
        fit()
    assert [file.name for file in tmp_path.iterdir()] == written


def test_states_are_written_now_and_then(tmp_path, monkeypatch):
    writes = []
    monkeypatch.setattr(_checkpoint.Checkpoint, "_write", lambda self: writes.append(1))
    problem = type("Problem", (), {"n": 3, "dense": np.eye(3), "samples": None})
    saver = _checkpoint.Checkpoint(tmp_path / "fit", problem, 5, ()).saver("pairs")
    for _ in range(1000):
        saver({"stage": "build"})
    assert writes == []  # five seconds have not passed
    monkeypatch.setattr(_checkpoint, "EVERY", 0.0)
    saver = _checkpoint.Checkpoint(tmp_path / "fit", problem, 5, ()).saver("pairs")
    saver({"stage": "build"})
    assert writes == [1]
    assert _checkpoint.Checkpoint(None, problem, 5, ()).saver("pairs") is None


@pytest.fixture
def unfinished(tmp_path, monkeypatch):
    """A checkpoint on disk, and the matrix it belongs to."""
    monkeypatch.setattr(_checkpoint.Checkpoint, "remove", lambda self: None)
    H, path = random_symmetric(8, 2, seed=0), tmp_path / "fit"
    fit_symmetric(H, checkpoint=path)
    return H, path


def test_another_fits_checkpoint_is_refused(unfinished):
    H, path = unfinished
    for matrix, arguments in [
        (2 * H, {}),
        (H, {"seed": 1}),
        (H, {"n_rotations": 5}),
        (H, {"method": "pairs"}),
        (H, {"depth": 2}),
    ]:
        with pytest.raises(ValueError, match="belongs to another fit"):
            fit_symmetric(matrix, checkpoint=path, **arguments)
    fit_symmetric(H, checkpoint=path)


def test_options_belong_to_the_fit(tmp_path, monkeypatch):
    monkeypatch.setattr(_checkpoint.Checkpoint, "remove", lambda self: None)
    H, path = random_symmetric(8, 2, seed=0), tmp_path / "fit"
    fit_symmetric(H, method="butterfly", order=np.arange(8), checkpoint=path)
    fit_symmetric(H, method="butterfly", order=np.arange(8), checkpoint=path)
    with pytest.raises(ValueError, match="belongs to another fit"):
        fit_symmetric(H, method="butterfly", order=np.arange(8)[::-1], checkpoint=path)


def test_what_is_no_checkpoint(unfinished):
    H, path = unfinished
    whole = path.read_bytes()
    for content in (b"", b"something else", whole[: len(whole) // 2], whole[:-1]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="expected a file written by an unfinished fit"):
            fit_symmetric(H, checkpoint=path)
    save(Rotation(Rotation.random(8, seed=0).wiring, torch.zeros(12)), path)
    with pytest.raises(ValueError, match="expected a file written by an unfinished fit"):
        fit_symmetric(H, checkpoint=path)


def test_no_folder(tmp_path):
    with pytest.raises(ValueError, match="expected an existing folder"):
        fit_symmetric(np.eye(3), checkpoint=tmp_path / "absent" / "fit")


def test_a_kill_in_mid_write_leaves_nothing_behind(tmp_path):
    (tmp_path / f"{atomic.PREFIX}0123{atomic.SUFFIX}").write_bytes(b"half")
    (tmp_path / ".other.tmp").write_bytes(b"somebody else's")
    fit_symmetric(random_symmetric(8, 2, seed=0), checkpoint=tmp_path / "fit")
    assert [file.name for file in tmp_path.iterdir()] == [".other.tmp"]


def test_a_full_disk_does_not_stop_the_fit(tmp_path, eager, monkeypatch):
    path, H = tmp_path / "fit", random_symmetric(8, 2, seed=0)

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic.os, "fsync", full)
    expected = r"cannot be written \(No space left on device\); the fit goes on"
    with pytest.warns(UserWarning, match=expected) as seen:
        result = fit_symmetric(H, checkpoint=path)
    assert len(seen) == 1
    assert result_bytes(result) == result_bytes(fit_symmetric(H))
    assert list(tmp_path.iterdir()) == []

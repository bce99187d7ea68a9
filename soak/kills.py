"""SIGKILL at any moment: nothing that was kept is lost, and what continues comes to the very same end.

Each child is forked from this warm process, killed after a random time, and started again until it is done.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

import swallowtail as st
from soak.trial import Outcome, Outcomes, Trial
from swallowtail import Rotation, atomic
from swallowtail.fitting import checkpoint
from swallowtail.gaussians import fit_distributed
from swallowtail.optim import GivensAdam

MOST_KILLS = 100  # of one piece of work, whose time grows from kill to kill
PATIENCE = 3.0  # seconds, of a process that waits for another
ALONE = 3


def _forked(work: Callable[[], None]) -> int:
    """The process that does ``work``, and leaves with 0."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            torch.set_num_threads(1)
            work()
            code = 0
        finally:
            os._exit(code)
    return child


def _left(child: int, within: float) -> int | None:
    """With what the process ended within so many seconds; None if it runs on."""
    end = time.perf_counter() + within
    while time.perf_counter() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    return None


def _kill(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def killed(work: Callable[[], None], after: float) -> bool:
    """Run ``work`` in a fork and kill it after so many seconds; whether it had finished by then."""
    child = _forked(work)
    code = _left(child, after)
    if code is None:
        _kill(child)
    elif code:
        raise RuntimeError(f"the child failed with {code}")
    return code == 0


def _saves(seed: int) -> Outcomes:
    rng = np.random.default_rng(seed)
    both = tuple(Rotation.random(4096, seed=s) for s in (0, 1))
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "q"
        st.save(both[0], path)

        def work() -> None:
            while True:
                for q in both:
                    st.save(q, path)

        while True:
            killed(work, float(rng.uniform(0.003, 0.03)))
            found = st.load(path).angles
            whole = any(torch.equal(found, q.angles) for q in both)
            st.save(both[0], path)  # this sweeps what the kill has left
            left = [p.name for p in path.parent.iterdir() if p != path]
            yield None if whole and not left else f"seed {seed}: whole {whole}, left behind {left}"


def _until_done(rng: np.random.Generator, work: Callable[[], None], shortest: float, longest: float) -> int:
    """Kill and start again until it gets through; how many kills that took. Each run may take longer."""
    for kills in range(MOST_KILLS):
        if killed(work, float(rng.uniform(shortest, longest)) * (1 + kills / 4)):
            return kills
    raise RuntimeError(f"not done after {MOST_KILLS} kills")


def _counted(kills: int, outcome: Outcome) -> Outcomes:
    """One outcome per kill: all of them led to this end."""
    yield outcome
    for _ in range(kills - 1):
        yield None


def _fits(seed: int) -> Outcomes:
    """Fits with a checkpoint."""
    rng = np.random.default_rng(seed)
    checkpoint.EVERY, checkpoint.SHARE = 0.0, np.inf  # every state is written
    H = st.random_symmetric(20, 5, 0)
    expected = st.fit_symmetric(H, wiring="pairs").operator
    with tempfile.TemporaryDirectory() as name:
        path, result = Path(name) / "fit", Path(name) / "result"

        def work() -> None:
            st.save(st.fit_symmetric(H, wiring="pairs", checkpoint=path).operator, result)

        while True:
            kills = _until_done(rng, work, 0.02, 0.4)
            found = st.load(result)
            same = torch.equal(found.rotation.angles, expected.rotation.angles)
            rest = sorted(p.name for p in Path(name).iterdir())
            fault = None if same and rest == ["result"] else f"seed {seed}: same answer {same}, files {rest}"
            yield from _counted(kills, fault)
            result.unlink()


def _streams(seed: int) -> Outcomes:
    """An estimator that is shown one batch after another, and pickled after each."""
    from swallowtail import GivensCovariance

    rng = np.random.default_rng(seed)
    batches = [np.random.default_rng(k).normal(size=(30, 6)) for k in range(12)]
    whole = GivensCovariance(random_state=0)
    for batch in batches:
        whole.partial_fit(batch)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "state"

        def work() -> None:
            done, estimator = (
                pickle.loads(path.read_bytes()) if path.exists() else (0, GivensCovariance(random_state=0))
            )
            for k in range(done, len(batches)):
                estimator.partial_fit(batches[k])
                with atomic.replacing(path) as file:
                    pickle.dump((k + 1, estimator), file)

        while True:
            path.unlink(missing_ok=True)
            kills = _until_done(rng, work, 0.005, 0.1)
            found = pickle.loads(path.read_bytes())[1]
            same = torch.equal(found.covariance_.to_dense(), whole.covariance_.to_dense())
            yield from _counted(
                kills, None if same else f"seed {seed}: another covariance after {kills} kills"
            )


def _optimisers(seed: int) -> Outcomes:
    """Training whose parameters and optimiser are saved after every step."""
    rng = np.random.default_rng(seed)
    X, Y = (torch.randn(64, size, generator=torch.Generator().manual_seed(size)) for size in (8, 3))
    steps = 30

    def train(path: Path | None) -> torch.Tensor:
        torch.manual_seed(0)
        model = torch.nn.Linear(8, 3)
        optimizer, done = GivensAdam(model.parameters(), lr=0.02, refresh=5), 0
        if path is not None and path.exists():
            state = torch.load(path, weights_only=True)
            done = state["done"]
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
        for k in range(done, steps):
            optimizer.zero_grad()
            ((model(X) - Y) ** 2).mean().backward()
            optimizer.step()
            if path is not None:
                with atomic.replacing(path) as file:
                    state = {"done": k + 1, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
                    torch.save(state, file)
        return model.weight.detach().clone()

    expected = train(None)
    with tempfile.TemporaryDirectory() as name:
        path, result = Path(name) / "state", Path(name) / "weights"

        def work() -> None:
            weights = train(path)
            with atomic.replacing(result) as file:
                file.write(weights.numpy().tobytes())

        while True:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
            kills = _until_done(rng, work, 0.01, 0.15)
            same = result.read_bytes() == expected.numpy().tobytes()
            yield from _counted(kills, None if same else f"seed {seed}: other weights after {kills} kills")


def _distributed(seed: int) -> Outcomes:
    """Fits over two processes, one of which is killed. The other ends too, soon; what has been saved is the answer."""
    rng, rows = np.random.default_rng(seed), np.random.default_rng(0).normal(size=(400, 12)).cumsum(1)

    def fit(folder: str, rank: int) -> None:
        meeting, limit = f"file://{folder}/meeting", timedelta(seconds=PATIENCE)
        try:
            dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2, timeout=limit)
            found = fit_distributed(st.GivensCovariance(random_state=0), np.array_split(rows, 2)[rank])
        except RuntimeError:
            os._exit(ALONE)  # the error of the one whose partner is gone
        st.save(found.covariance_, Path(folder) / f"result-{rank}")

    def run(kill: int | None, after: float) -> tuple[list[int | None], list[torch.Tensor]]:
        """With what both processes ended, and what was saved."""
        with tempfile.TemporaryDirectory() as folder:
            children = [_forked(lambda rank=rank: fit(folder, rank)) for rank in range(2)]
            if kill is not None and (early := _left(children[kill], after)) is None:
                _kill(children[kill])
                early = -signal.SIGKILL
            codes = [early if k == kill else _left(child, 60) for k, child in enumerate(children)]
            for child, code in zip(children, codes, strict=True):
                if code is None:
                    _kill(child)
            saved = [Path(folder) / f"result-{rank}" for rank in range(2)]
            return codes, [st.load(path).to_dense() for path in saved if path.exists()]

    begin = time.perf_counter()
    codes, expected = run(None, 0.0)
    if codes != [0, 0]:
        raise RuntimeError(f"undisturbed processes left with {codes}")
    whole = time.perf_counter() - begin
    while True:
        codes, saved = run(int(rng.integers(2)), float(rng.uniform(0, whole)))
        right = all(torch.equal(found, expected[0]) for found in saved) and codes.count(0) <= len(saved)
        ended = all(code in (0, ALONE, -signal.SIGKILL) for code in codes)
        yield None if right and ended else f"seed {seed}: left with {codes}, saved is right: {right}"


TRIALS = (
    Trial("killed saves", _saves, 400, 0.02),
    Trial("killed fits", _fits, 300, 0.06),
    Trial("killed streams", _streams, 200, 0.03),
    Trial("killed training", _optimisers, 200, 0.04),
    Trial("killed distributed fits", _distributed, 100, 0.04),
)

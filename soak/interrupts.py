"""Ctrl-C at any moment: no thread works on after a call has been left, files stay whole, fits return their best.

The interrupts come from the kernel's own timer (setitimer), at a random moment of the work, in a forked child.
"""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

import swallowtail as st
from soak.trial import Outcome, Outcomes, Trial, in_child
from swallowtail import Butterfly, Pairs, Rotation
from swallowtail.kernels.cpu import backward, launch, threads

BATCH = 60  # interrupts per child
THREADS = 4


@contextmanager
def ctrl_c(after: float) -> Iterator[None]:
    """SIGINT after so many seconds, once; none once the block is left."""
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    signal.setitimer(signal.ITIMER_REAL, max(1e-6, after))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _interrupted(work: Callable[[], Any], after: float) -> tuple[bool, Any]:
    """Run ``work`` with an interrupt on the way; whether it was left, and what it returned."""
    try:
        with ctrl_c(after):
            return False, work()
    except KeyboardInterrupt:
        return True, None


def _products(seed: int) -> Outcomes:
    """Rows over threads: once the call is left, nobody writes into memory that is free again."""
    for module in (threads, launch, backward):
        module.WORTH_A_THREAD = 1
    torch.set_num_threads(THREADS)
    rng = np.random.default_rng(seed)
    wirings = (Pairs(128, [rng.permutation(128).reshape(-1, 2) for _ in range(20)]), Butterfly(256, 4))
    layers = [st.nn.Rotate(wiring=wiring) for wiring in wirings]
    x = [torch.randn(600, wiring.n) for wiring in wirings]
    expected = [layer(v).detach() for layer, v in zip(layers, x, strict=True)]
    while True:
        k = int(rng.integers(2))
        if rng.integers(3):
            work = lambda k=k: layers[k](x[k]).detach()
        else:
            work = lambda k=k: torch.autograd.grad(layers[k](x[k]).sum(), list(layers[k].parameters()))
        _interrupted(work, float(rng.exponential(0.003)))
        # The memory of the result that was not returned is free: a fresh tensor gets it.
        fresh = torch.full_like(expected[k], 7.0)
        time.sleep(0.003)
        if not bool((fresh == 7.0).all()):
            yield f"seed {seed}: a thread wrote after the call was left"
            continue
        again = layers[k](x[k]).detach()
        yield None if torch.equal(again, expected[k]) else f"seed {seed}: another result after an interrupt"


def _saves(seed: int) -> Outcomes:
    rng = np.random.default_rng(seed)
    first, second = (Rotation.random(512, seed=s) for s in (0, 1))
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "q"
        while True:
            st.save(first, path)
            _interrupted(lambda: st.save(second, path), float(rng.exponential(0.002)))
            yield _whole(path, (first, second)) or _alone(path)


def _fits(seed: int) -> Outcomes:
    """The first Ctrl-C makes a fit return its best; it can be continued to the very answer of an undisturbed one."""
    rng = np.random.default_rng(seed)
    H = st.random_symmetric(24, 6, 0)
    expected = st.fit_symmetric(H, wiring="pairs").operator
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "fit"
        while True:
            left, result = _interrupted(
                lambda: st.fit_symmetric(H, wiring="pairs", checkpoint=path), float(rng.uniform(0.0, 0.3))
            )
            if left:  # it came before the fit had begun to watch, or after it had ended
                yield None
                path.unlink(missing_ok=True)
                continue
            if result.status == "interrupted" and not np.isfinite(result.relative_error):
                yield f"seed {seed}: an interrupted fit has the error {result.relative_error}"
                continue
            final = st.fit_symmetric(H, wiring="pairs", checkpoint=path).operator
            same = torch.equal(final.rotation.angles, expected.rotation.angles)
            yield None if same else f"seed {seed}: continued after {result.status}, another answer"


def _whole(path: Path, possible: tuple[Rotation, ...]) -> Outcome:
    try:
        found = st.load(path).angles
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None if any(torch.equal(found, q.angles) for q in possible) else "a file that nobody wrote"


def _alone(path: Path) -> Outcome:
    """An interrupt, unlike a kill, leaves nothing beside the file."""
    others = [p.name for p in path.parent.iterdir() if p != path]
    return f"left behind: {others}" if others else None


def _limited(work: Callable[[int], Outcomes], seed: int) -> Outcomes:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for count, outcome in enumerate(work(seed), start=1):
        yield outcome
        if count == BATCH:
            return


def _outcomes(work: Callable[[int], Outcomes], seed: int) -> Outcomes:
    while True:
        yield from in_child(lambda seed=seed: _limited(work, seed), timeout=240)
        seed += 1


TRIALS = (
    Trial("interrupted products and gradients", lambda seed: _outcomes(_products, seed), 2_000, 0.05),
    Trial("interrupted saves", lambda seed: _outcomes(_saves, seed), 600, 0.02),
    Trial("interrupted fits", lambda seed: _outcomes(_fits, seed), 200, 0.06),
)

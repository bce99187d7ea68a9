"""Threads while parameters change, and processes: forked, spawned, from a fork server."""

from __future__ import annotations

import multiprocessing
import threading
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import numpy as np
import torch

import swallowtail as st
from soak import oracle
from soak.trial import Outcomes, Trial, in_child
from swallowtail import Butterfly, Pairs, Rotation, SymmetricOperator

THREADS, BATCH = 6, 2000


def _threads(seed: int) -> Outcomes:
    """Some threads multiply with one layer while another changes its angles, in each of the ways people use.

    A reader notes the version before and after its call. Where they agree no change came between, and the result must
    be that of this version.
    """
    torch.set_num_threads(1)
    rng = np.random.default_rng(seed)
    n = int(rng.choice([16, 33, 64]))
    wiring = (
        Butterfly(n, 2)
        if seed % 2
        else Pairs(n, [rng.permutation(n)[: n // 2 * 2].reshape(-1, 2) for _ in range(6)])
    )
    versions = torch.from_numpy(rng.uniform(-3, 3, (8, wiring.n_rotations)))
    layer = st.nn.Rotate(wiring=wiring).double()
    (angles,) = layer.parameters()
    frozen = bool(seed % 3 == 0)
    angles.requires_grad_(not frozen)
    x = torch.randn(n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    results = [Rotation(wiring, a)(x) for a in versions]
    state, lock, found, over = [0, 0], threading.Lock(), list[str | None](), threading.Event()
    with torch.no_grad():
        angles.copy_(versions[0])

    def write() -> None:
        mine = np.random.default_rng(seed + 1)
        while not over.is_set():
            k = int(mine.integers(len(versions)))
            with lock, torch.no_grad():
                state[0] += 1  # odd: being changed
                if mine.integers(2):
                    angles.copy_(versions[k])
                elif mine.integers(2):
                    angles.data.copy_(versions[k])
                else:
                    angles.detach().numpy()[:] = versions[k].numpy()
                state[1] = k
                state[0] += 1
            over.wait(0.0005)

    def read() -> None:
        while not over.is_set():
            before, k = state[0], state[1]
            with torch.no_grad():
                y = layer(x)
            if before % 2 or state[0] != before:
                continue
            good = bool((y - results[k]).norm() <= 1e-12 * results[k].norm())
            found.append(
                None if good else f"seed {seed}, {wiring!r}, frozen {frozen}: not the angles of version {k}"
            )
            if len(found) > BATCH:
                over.set()

    threads = [threading.Thread(target=write)] + [threading.Thread(target=read) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    yield from found


def thread_outcomes(seed: int) -> Outcomes:
    while True:
        yield from in_child(lambda seed=seed: _threads(seed), timeout=120)
        seed += 1


def product_in_child(n: int, threads: int) -> float:
    """How far a product is off, computed where this is called; it is run in other processes."""
    torch.set_num_threads(threads)
    wiring = Butterfly(n)
    rng = np.random.default_rng(0)
    angles, d, x = rng.uniform(-3, 3, wiring.n_rotations), rng.normal(size=n), rng.normal(size=(400, n))
    turns = oracle.turns(oracle.butterfly_layers(n, 1, False), angles)
    exact = oracle.symmetric(turns, d, x[:2])
    found = SymmetricOperator(Rotation(wiring, torch.from_numpy(angles)), torch.from_numpy(d))(
        torch.from_numpy(x)
    )
    return float(np.abs(found.numpy()[:2] - exact).max())


def _ask(context: Any, count: int) -> Outcomes:
    """Products in worker processes, while the parent has made some itself. Nobody waits for a worker that crashed."""
    method = context.get_start_method()
    with ProcessPoolExecutor(2, context) as pool:
        asked = [pool.submit(product_in_child, 64 + 64 * (k % 3), 1 + k % 2) for k in range(count)]
        try:
            for answer in asked:
                error = answer.result(timeout=120)
                yield None if error < 1e-12 else f"{method}: off by {error}"
        except (BrokenProcessPool, TimeoutError) as error:
            yield f"{method}: {type(error).__name__} {error}"
            for process in pool._processes.values():
                process.kill()


def process_outcomes(seed: int) -> Outcomes:
    """Forked workers mostly; spawned ones and those of a fork server take seconds to import."""
    product_in_child(128, 1)
    while True:
        for method, count in (("fork", 60), ("forkserver", 20), ("spawn", 20), ("fork", 60)):
            yield from _ask(multiprocessing.get_context(method), count)


TRIALS = (
    Trial("threads while angles change", thread_outcomes, 60_000, 0.03),
    Trial("forked, spawned and served processes", process_outcomes, 640, 0.05),
)

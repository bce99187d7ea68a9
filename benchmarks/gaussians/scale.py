"""Statistics past one machine: workers killed at random moments, two workers beside one, memory over many rows.

    python -m benchmarks.gaussians.scale [--only kills groups speed memory] [--trials 20] [--rows 1000000]

Rows go to results/scale.csv; docs/scale.md quotes them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from benchmarks.common.rows import Row, read_rows, write_rows
from benchmarks.gaussians.large import _memory
from swallowtail import GivensCovariance, GivensMixture

COLUMNS, CHUNK, CHUNKS = 256, 2_000, 40  # of the fits whose workers are killed
LARGE = 784, 20_000, 16  # the same for speed: chunks of 63 MB
PROGRAM = """
import datetime, sys, time
import numpy as np, torch.distributed as dist
from swallowtail import GivensCovariance
from swallowtail.gaussians import fit_distributed

folder, rank, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
X = np.random.default_rng([seed, rank]).standard_normal((20_000, 256), np.float32)
dist.init_process_group(
    "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2, timeout=datetime.timedelta(seconds=15)
)
print("begun", flush=True)
try:
    for _ in range(40):
        fit_distributed(GivensCovariance(sketch=False), X).statistics_
    print("finished", flush=True)
except RuntimeError as error:
    assert "start a group of those that are left" in str(error), error
    print("told", flush=True)
"""


def made(seed: int, count: int, columns: int) -> np.ndarray:
    """Rows for one chunk, made where they are used."""
    return np.random.default_rng(seed).standard_normal((count, columns), np.float32)


def _cluster(workers: int) -> tuple[Any, Any]:
    from distributed import Client, LocalCluster

    cluster = LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
    )
    return cluster, Client(cluster)


def _rows(columns: int, chunk: int, chunks: int) -> Any:
    import dask.array as da
    from dask import delayed

    parts = [delayed(made)(i, chunk, columns) for i in range(chunks)]
    return da.concatenate([da.from_delayed(part, (chunk, columns), np.float32) for part in parts])


def _worker(address: str) -> subprocess.Popen[bytes]:
    """A worker process without a nanny, which nobody but us starts again."""
    command = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--no-nanny", "--no-dashboard"]
    quiet = subprocess.DEVNULL
    return subprocess.Popen([*command, "--nthreads", "1"], stdout=quiet, stderr=quiet)


def _imported() -> None:
    GivensCovariance().partial_fit(made(0, CHUNK, COLUMNS))


def _moments(X: Any) -> np.ndarray:
    return GivensCovariance().partial_fit(X).statistics_.moments.scatter


def _means(X: Any) -> np.ndarray:
    return GivensMixture(2, max_iter=5, n_rotations=100, random_state=0).fit(X).means_


def kills(trials: int) -> list[Row]:
    """A dask worker killed at a random moment of every fit: the same answer, bit by bit, or an error; and no hang."""
    cluster, client = _cluster(2)
    workers = [_worker(cluster.scheduler_address) for _ in range(3)]  # beside two that live on
    rng, rows, X = np.random.default_rng(0), [], _rows(COLUMNS, CHUNK, CHUNKS)
    for engine, answer, data in (("dask", _moments, X), ("dask, mixture", _means, X[: 8 * CHUNK, :32])):
        client.wait_for_workers(5, timeout=300)
        right = answer(data)
        start = time.perf_counter()
        answer(data)
        usual = time.perf_counter() - start
        same = errors = killed = 0
        for _ in tqdm(range(trials), desc=engine):
            client.wait_for_workers(4, timeout=300)
            victim = workers.pop(int(rng.integers(len(workers))))
            timer = threading.Timer(float(rng.uniform(0, usual)), victim.kill)
            timer.start()
            try:
                same += bool(np.array_equal(answer(data), right))
            except Exception as error:  # counted: none of them is expected
                errors += 1
                tqdm.write(f"{type(error).__name__}: {error}")
            killed += timer.finished.is_set()
            timer.join()
            victim.wait()
            workers.append(_worker(cluster.scheduler_address))
        about: Row = {"task": "kills", "engine": engine, "trials": trials, "killed": killed}
        rows.append({**about, "same": same, "errors": errors, "seconds": usual})
        tqdm.write(str(rows[-1]))
    for worker in workers:
        worker.kill()
        worker.wait()
    client.close()
    cluster.close()
    return rows


def groups(trials: int) -> list[Row]:
    """One of two gloo processes killed at a random moment: the other must finish or say how to go on, and not hang."""
    rng, told, finished = np.random.default_rng(1), 0, 0
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    for seed in tqdm(range(trials), desc="gloo"):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "program.py").write_text(PROGRAM)
            command = [sys.executable, f"{folder}/program.py", folder]
            processes = [
                subprocess.Popen(
                    [*command, str(rank), str(seed)], env=environment, stdout=subprocess.PIPE, text=True
                )
                for rank in range(2)
            ]
            assert processes[0].stdout
            processes[0].stdout.readline()  # both have met
            time.sleep(float(rng.uniform(0, 2.0)))
            processes[1].kill()
            said, _ = processes[0].communicate(timeout=120)
            processes[1].communicate()
            told, finished = told + ("told" in said), finished + ("finished" in said)
    return [{"task": "kills", "engine": "gloo", "trials": trials, "same": finished, "errors": told}]


def speed(rounds: int = 2) -> list[Row]:
    """The same rows by one worker and by two, in turn; the least seconds of each. All workers have imported before."""
    seconds: dict[int, list[float]] = {1: [], 2: []}
    X = _rows(*LARGE)
    for _ in range(rounds):
        for workers, found in seconds.items():
            cluster, client = _cluster(workers)
            client.run(_imported)
            start = time.perf_counter()
            GivensCovariance().partial_fit(X)
            found.append(time.perf_counter() - start)
            client.close()
            cluster.close()
    one, two = (min(found) for found in seconds.values())
    return [{"task": "speed", "engine": "dask", "trials": rounds, "one": one, "two": two, "ratio": one / two}]


def memory(count: int) -> list[Row]:
    """``count`` × 784 rows made on the fly; this process's memory after a tenth of them and at the end."""
    rng, model, marks = np.random.default_rng(0), GivensCovariance(), []
    start = time.process_time()
    for first in tqdm(range(0, count, 10_000), desc="rows"):
        model.partial_fit(rng.standard_normal((10_000, 784), np.float32))
        if first + 10_000 in (count // 10, count):
            marks.append(_memory("RssAnon"))
    seconds = time.process_time() - start
    about: Row = {"task": "memory", "engine": "partial_fit", "trials": count, "seconds": seconds}
    return [{**about, "bytes_at_a_tenth": marks[0], "bytes_at_the_end": marks[-1]}]


def main() -> None:
    tasks = ("kills", "groups", "speed", "memory")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=tasks, default=tasks)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--rows", type=int, default=1_000_000)
    options = parser.parse_args()
    command = f"python -m benchmarks.gaussians.scale {' '.join(sys.argv[1:])}".strip()
    rows = read_rows("scale")  # what is not run again stays, with its own machine and day
    for task in options.only:
        made_rows = {
            "kills": lambda: kills(options.trials),
            "groups": lambda: groups(options.trials),
            "speed": speed,
            "memory": lambda: memory(options.rows),
        }[task]()
        keys = {(r["task"], r["engine"]) for r in made_rows}
        rows = [r for r in rows if (r["task"], r["engine"]) not in keys]
        rows += [{**row, "run": command} for row in made_rows]
        write_rows("scale", rows, command)
        tqdm.write(str(made_rows))


if __name__ == "__main__":
    main()

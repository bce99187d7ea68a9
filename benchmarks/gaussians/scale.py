"""Memory over many rows: 784 columns made on the fly and taken in by partial_fit.

    python -m benchmarks.gaussians.scale [--rows 1000000]

The row goes to results/scale.csv; docs/scale.md quotes it.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np
from tqdm import tqdm

from benchmarks.common.rows import Row, write_rows
from benchmarks.gaussians.large import _memory
from swallowtail import GivensCovariance

BLOCK = 10_000  # rows at a time


def memory(count: int) -> Row:
    """This process's memory after a tenth of the rows and at the end."""
    rng, model, marks = np.random.default_rng(0), GivensCovariance(), []
    start = time.process_time()
    for first in tqdm(range(0, count, BLOCK), desc="rows"):
        model.partial_fit(rng.standard_normal((BLOCK, 784), np.float32))
        if first + BLOCK in (count // 10, count):
            marks.append(_memory("RssAnon"))
    seconds = time.process_time() - start
    about: Row = {"task": "memory", "engine": "partial_fit", "trials": count, "seconds": seconds}
    return {**about, "bytes_at_a_tenth": marks[0], "bytes_at_the_end": marks[-1]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="a multiple of 100,000")
    row = memory(parser.parse_args().rows)
    write_rows("scale", [row], f"python -m benchmarks.gaussians.scale {' '.join(sys.argv[1:])}".strip())
    print(row)


if __name__ == "__main__":
    main()

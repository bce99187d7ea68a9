"""The optimisers against their rivals and their own ablations, medians over seeds not used in development.

    python -m benchmarks.optim [--parts lbfgs,newton,minibatch,adam,rates,images] [--seeds 5]
    python -m benchmarks.optim --parts adam --methods GivensAdam     # only these; rows of the others stay
    python -m benchmarks.optim --report      # bars, plots and docs from the committed rows

Every row is one run: problem, method, seed, and what it took. Learning rates of the stochastic methods (``RATES``)
were chosen from a grid on development seeds by ``--tune``, those of heavy ball and GivensNewton on seeds 1 to 5 by
hand; all other settings of GivensAdam and GivensLBFGS are their defaults.
Curves of loss against gradients and against seconds are rows too (part "curve"). What a step costs on a GPU is
measured by `benchmarks.optim.gpu`, on a CPU by `benchmarks.optim.cost`.
"""

from __future__ import annotations

import argparse
from functools import partial

import torch
from tqdm import tqdm

from benchmarks.common.rows import read_rows, write_rows
from benchmarks.optim import images, stochastic
from benchmarks.optim.deterministic import lbfgs, newton
from benchmarks.optim.problems import FIRST_SEED
from benchmarks.optim.report import show, write_report
from benchmarks.optim.stochastic import adam, minibatch, rates

PARTS = {
    "lbfgs": lbfgs,
    "newton": newton,
    "minibatch": minibatch,
    "adam": adam,
    "rates": rates,
    "images": images.real,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument(
        "--methods", default="", help="of part adam, without seconds: they compare in one run only"
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--first-seed", type=int, default=FIRST_SEED, help="for development; rows are not written"
    )
    parser.add_argument("--tune", action="store_true", help="print losses over the grids of rates, and end")
    parser.add_argument("--report", action="store_true", help="only read the committed rows")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.tune:
        stochastic.tune()
        images.tune()
        return
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    for part in () if options.report else options.parts.split(","):
        chosen = options.methods.split(",") if options.methods and part == "adam" else []
        run = partial(adam, chosen=chosen) if chosen else PARTS[part]
        rows = [row for seed in tqdm(seeds, desc=part, unit="seed") for row in run(seed)]
        show(rows)
        rows = [row for row in read_rows(f"optim-{part}") if row["method"] not in chosen] * bool(
            chosen
        ) + rows
        if options.first_seed == FIRST_SEED:
            print("rows:", write_rows(f"optim-{part}", rows, f"python -m benchmarks.optim --parts {part}"))
    if options.report or options.first_seed == FIRST_SEED:
        write_report()


if __name__ == "__main__":
    main()

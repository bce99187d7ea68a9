"""Optimisers on a byte-level language model, trained on Python's own library sources.

    python -m benchmarks.language [--device cuda] [--steps 400] [--equal-time 15] [--seeds 3] [TASK ...]
    python -m benchmarks.language --device cuda "100 M,time,110" "20 M,time,50" "20 M,steps,30"
    python -m benchmarks.language --device cuda --no-time --more --steps 300 "20 M,steps,120"
    python -m benchmarks.language --device cuda --methods AdamW,SOAP,GivensAdam --rates .001,.002,.001 "20 M,steps,90"
    python -m benchmarks.language --report      # plots and the page from the committed rows

A task is a size, what the methods have in common ("steps", or the "time" of a run) and the seconds for all of it.
With equal time every method gets as many steps as fit, at its own time per step, and its schedule has that length.
Times come from short runs alone on the machine. Runs for losses share it (``--processes``).

Rates are tuned alike: every method runs with every rate of its grid, for one seed. While the best is at an edge, the
next rate is tried as well. The best one runs with the other seeds, as far as the seconds go. Runs get shorter if they
would not fit into the seconds: the share of the gap that is judged comes first, so at equal steps Muon is last.
With ``--rates`` every method runs at its own rate only. Rows are written after every run. They replace those of the
same model and kind; ``--more`` keeps those of other methods, rates, seeds and numbers of steps, which ran at another
time, and goes on from them: what is there is not run again.
"""

from __future__ import annotations

import argparse

from benchmarks.common.rows import RESULTS
from benchmarks.language.methods import METHODS
from benchmarks.language.runs import Runs
from benchmarks.language.tasks import Table, Task
from benchmarks.language.training import Job, Trainer, time_step
from benchmarks.language.tuning import FIRST_SEED, measure


def time_steps(size: str, methods: list[str], device: str, table: Table, runs: Runs) -> None:
    """Alone on the machine: other processes have started by then, and wait."""
    runs.start()
    if device == "cuda":  # kernels compile meanwhile
        Trainer(Job(size, "GivensAdam", 1e-3, 0, 1, device)).step(0.5)
    runs.ready(device)
    for method in methods:
        row = time_step(Job(size, method, METHODS[method].rate, 0, 0, device))
        print({key: row[key] for key in ("size", "method", "ms", "first_s")}, flush=True)
        table.add([row])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "tasks", nargs="*", metavar="TASK", help='such as "20 M,time,60"; "0.2 M" unless given'
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--steps", type=int, default=400, help="of a run at equal steps, at most")
    parser.add_argument(
        "--equal-time", type=float, default=15.0, help="seconds of a run at equal time, at most"
    )
    parser.add_argument("--rates", default="", help="of the methods, in their order, instead of a grid")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument(
        "--more", action="store_true", help="keep earlier rows of other methods, rates and seeds"
    )
    parser.add_argument("--processes", type=int, default=1, help="runs at a time")
    parser.add_argument("--no-time", dest="time", action="store_false", help="take the times of earlier rows")
    parser.add_argument("--name", default=None, help="of the rows; language-<device> unless given")
    parser.add_argument("--report", action="store_true", help="only read the committed rows")
    options = parser.parse_args()
    if not options.report:
        table = Table(options.name or f"language-{options.device}", options.device, options.more)
        runs, timed = Runs(options.processes), set[str]()
        for text in options.tasks or ["0.2 M"]:
            task = Task.read(text)
            if options.time and task.size not in timed:
                time_steps(task.size, options.methods.split(","), options.device, table, runs)
                timed.add(task.size)
            measure(task, options, table, runs)
        runs.stop()
        print("rows:", RESULTS / f"{table.name}.csv", flush=True)
    if options.name is None:
        from benchmarks.language.report import report  # matplotlib, which measuring does not need

        report()


if __name__ == "__main__":
    main()

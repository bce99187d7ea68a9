"""The kernel benchmark: python -m benchmarks.kernels [--device cuda] [--quick]

Times every contender in turn, refuses to report if a checked result is wrong, writes
benchmarks/results/kernels-<device>.csv and prints which bars are met.
"""

from __future__ import annotations

import argparse
import sys

from benchmarks.common.rows import write_rows
from benchmarks.common.timing import keep_freed_memory
from benchmarks.kernels import bars
from benchmarks.kernels.contenders import has_lazylinop
from benchmarks.kernels.measure import measure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--threads", type=int, default=1, help="of torch and of our CPU kernels")
    parser.add_argument("--quick", action="store_true", help="two sizes only; rows are not written")
    options = parser.parse_args()
    keep_freed_memory()
    if options.device == "cpu" and not has_lazylinop():
        print("lazylinop is not installed: not in this run; try: pip install -e .[bench]", file=sys.stderr)
    rows = measure(options.device, options.rounds, options.threads, options.quick)
    if not options.quick:
        command = "python -m benchmarks.kernels" + (
            f" --device {options.device}" if options.device != "cpu" else ""
        )
        if options.rounds != parser.get_default("rounds"):
            command += f" --rounds {options.rounds}"
        print("rows:", write_rows(f"kernels-{options.device}", rows, command, options.device))
    for bar in (bars.cuda if options.device == "cuda" else bars.cpu)(rows):
        print(bar.line(42))


if __name__ == "__main__":
    main()

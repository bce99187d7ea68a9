"""The kernel benchmark: python -m benchmarks.kernels [--device cuda] [--quick]

Times every contender in turn, refuses to report if a checked result is wrong, writes
benchmarks/results/kernels-<device>.csv and prints which bars are met.
"""

from __future__ import annotations

import argparse
import sys

from benchmarks.common.rows import Row, read_rows, write_rows
from benchmarks.common.timing import keep_freed_memory
from benchmarks.kernels import bars
from benchmarks.kernels.contenders import has_lazylinop
from benchmarks.kernels.measure import chosen, measure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--threads", type=int, default=1, help="of torch and of our CPU kernels")
    parser.add_argument("--quick", action="store_true", help="two sizes only; rows are not written")
    parser.add_argument("--only", nargs="*", default=[], help="suites whose names begin so; other rows stay")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no suite after so long")
    options = parser.parse_args()
    keep_freed_memory()
    if options.device == "cpu" and not has_lazylinop():
        print("lazylinop is not installed: not in this run; try: pip install -e .[bench]", file=sys.stderr)
    of = chosen(options.device, options.quick, options.only)
    whole = not options.only
    found = list(measure(options.device, options.rounds, options.threads, of, whole, options.seconds))
    if not options.quick:
        rows = found + _others(found, f"kernels-{options.device}")
        print(
            "rows:", write_rows(f"kernels-{options.device}", rows, _command(options, parser), options.device)
        )
    for bar in (bars.cuda if options.device == "cuda" else bars.cpu)(found):
        print(bar.line(42))


def _others(found: list[Row], name: str) -> list[Row]:
    """Rows of earlier runs, of suites that were not measured in this one."""
    new = {(row["suite"], str(row["n"])) for row in found}
    return [row for row in read_rows(name) if (row["suite"], row["n"]) not in new]


def _command(options: argparse.Namespace, parser: argparse.ArgumentParser) -> str:
    command = "python -m benchmarks.kernels"
    for name in ("device", "rounds"):
        if getattr(options, name) != parser.get_default(name):
            command += f" --{name} {getattr(options, name)}"
    return command + (f" --only {' '.join(map(repr, options.only))}" if options.only else "")


if __name__ == "__main__":
    main()

"""The table of times that the package ships: python -m benchmarks.fitting.times --device cuda --record FILE

Calibrates on this machine and prints the tables as src/swallowtail/fitting/timing/shipped.json has them. The record
serves `benchmarks.fitting.budgets` and `benchmarks.fitting.frontier` too. --print measures nothing.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from swallowtail.fitting.timing import calibrate
from swallowtail.fitting.timing.calibrate import DTYPES
from swallowtail.fitting.timing.record import Table, read_tables


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--record", type=Path, required=True, help="a JSON file, made or added to")
    parser.add_argument("--sizes", type=int, nargs="+", help="the n that are measured; by default all")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no dtype after so long")
    parser.add_argument("--print", action="store_true", help="only print the tables of the record")
    options = parser.parse_args()
    if not options.print:
        measure(options.device, options.record, options.sizes, options.seconds)
    for name, table in read_tables(options.record).items():
        if name.startswith(options.device):
            print(shipped(name, table))


def measure(device: str, record: Path, sizes: list[int] | None, seconds: float) -> None:
    """Calibrate dtype by dtype, float32 first. What is measured is kept even if a later dtype fails."""
    begin = time.monotonic()
    for dtype in DTYPES[device]:
        if time.monotonic() - begin > seconds:
            print(f"ended after {seconds:g} s, before {dtype}")
            return
        calibrate(device, _say, record, sizes=tuple(sizes) if sizes else None, dtypes=(dtype,))
        print(f"{device}, {dtype}: calibrated, {time.monotonic() - begin:.0f} s since the start", flush=True)


def _say(done: int, total: int, what: str) -> None:
    if done % 8 == 0:
        print(f"{done} of {total}, {what}", flush=True)


def shipped(name: str, table: Table) -> str:
    """A table in the form of shipped.json, numbers in three digits."""
    head = ", ".join(f'"{key}": {_text(table[key])}' for key in ("vectors", "made", "hardware"))
    series = []
    for kind, by_n in table["series"].items():
        lines = [
            f'   "{n}": [{", ".join(f"[{round(a, 4):g}, {s:.3g}]" for a, s in points)}]'
            for n, points in sorted(by_n.items())
        ]
        series.append(f'  "{kind}": {{\n' + ",\n".join(lines) + "\n  }")
    return f' "{name}": {{{head}, "series": {{\n' + ",\n".join(series) + "\n }},"


def _text(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


if __name__ == "__main__":
    main()

"""How well `Tracker` follows a matrix that turns: angle(Ĥ_t, H_t) against the speed of drift.

    python -m benchmarks.tracking

H_t = R_t Λ R_tᵀ with R_t = exp(t A) R_0 and A a random antisymmetric matrix, scaled so that one update turns
a random vector by ``speed`` degrees (root mean square). Each run settles on H_0, then drifts; the angle is
the mean over the second half of the drift. ``frozen_angle`` is what the settled Ĥ_0 reaches meanwhile.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path

from benchmarks.common.rows import RESULTS
from benchmarks.tracking.drift import rows


def main() -> None:
    """Write the rows as they come, so that a killed run leaves what it has."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=64)
    parser.add_argument("--n-large", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--settle", type=int, default=20_000, help="updates on the matrix at rest")
    parser.add_argument("--drift", type=int, default=5_000, help="updates while it turns")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / "tracking.csv")
    options = parser.parse_args()
    command = f"python -m benchmarks.tracking {' '.join(sys.argv[1:])}".strip()
    options.output.parent.mkdir(parents=True, exist_ok=True)
    with options.output.open("w", newline="") as file:
        writer = None
        for row in rows(options, command):
            writer = writer or csv.DictWriter(file, list(row))
            if file.tell() == 0:
                writer.writeheader()
            writer.writerow(row)
            file.flush()


if __name__ == "__main__":
    main()

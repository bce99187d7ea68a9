"""What a new user waits for: the import, and README's example with nothing compiled yet.

    python -m benchmarks.start

Each line is a process of its own, with files already in memory; cold and warm runs take turns. Cold means that the
folder of compiled kernels is empty. `import swallowtail` is what it adds to `import torch`.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.common.rows import Row, write_rows

README = Path(__file__).parents[2] / "README.md"
IMPORT = """
import time
import torch
begin = time.perf_counter()
import swallowtail
print(time.perf_counter() - begin)
"""


def seconds(code: str, folder: Path) -> tuple[float, str]:
    """Seconds of a process that runs the code, and its last line of output."""
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
        cwd=folder,
        env=os.environ | {"NUMBA_CACHE_DIR": str(folder / "kernels")},
    )
    return time.perf_counter() - begin, done.stdout.splitlines()[-1]


def measure(repeats: int) -> list[Row]:
    """One row per thing that is waited for."""
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf8"), re.S)
    example += "\nprint(fit.seconds)"
    found: dict[str, list[float]] = {}
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            found.setdefault("import swallowtail", []).append(float(seconds(IMPORT, Path(folder))[1]))
            for state in ("cold", "warm"):
                wall, fit = seconds(example, Path(folder))
                found.setdefault(f"README's example, {state}", []).append(wall)
                found.setdefault(f"its fit.seconds, {state}", []).append(float(fit))
    return [
        {
            "what": what,
            "seconds": statistics.median(times),
            "least": min(times),
            "most": max(times),
            "runs": len(times),
        }
        for what, times in found.items()
    ]


def main() -> None:
    """Print the rows, and keep them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="to benchmarks/results/start.csv")
    options = parser.parse_args()
    rows = measure(options.repeats)
    for row in rows:
        print("{what:28} {seconds:6.2f} s ({least:.2f} … {most:.2f})".format(**row))
    if options.write:
        write_rows("start", rows, f"python -m benchmarks.start --repeats {options.repeats} --write")


if __name__ == "__main__":
    main()

"""What the examples share: where pictures go, how they look, and how long a call takes."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure

OURS, RIVAL, PLAIN = "#0072B2", "#D55E00", "#66707F"


def output_folder(description: str | None) -> Path:
    """The folder of --output, made."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="where the picture goes")
    folder: Path = parser.parse_args().output
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def save(figure: Figure, path: Path) -> None:
    """Write a picture and say where."""
    figure.savefig(path, dpi=80)
    print(f"picture in {path}")


def microseconds(run: Callable[[], object]) -> float:
    """The least time of 60 calls."""
    run()
    times = []
    for _ in range(60):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return 1e6 * min(times)

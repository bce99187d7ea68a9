"""Put generated text into the pages of the documentation, between two markers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "docs" / "benchmarks.md"  # for readers
BARS = ROOT / "docs" / "bars.md"  # for contributors: the limits that we set ourselves


def replace_between(path: Path, begin: str, end: str, lines: Iterable[str]) -> None:
    """Replace what stands between two markers; at the end of the file if they are not there yet."""
    text = path.read_text()
    if begin not in text:
        text = text.rstrip("\n") + f"\n\n{begin}\n{end}\n"
    head, _, rest = text.partition(begin)
    path.write_text(head + "\n".join([begin, *lines, end]) + rest.partition(end)[2])

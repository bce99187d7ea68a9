"""The table of docs/reliability.md, made from the rows of the last full run."""

from __future__ import annotations

from pathlib import Path

from soak.trial import Row

PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"
BEGIN, END = "<!-- rows of the last full run -->", "<!-- end of the rows -->"


def table(rows: list[Row]) -> str:
    """The rows in Markdown."""
    lines = ["| trial | cases | failures | seconds |", "|---|---:|---:|---:|"]
    lines += [f"| {row.name} | {row.cases:,} | {row.failures} | {row.seconds:.0f} |" for row in rows]
    return "\n".join(lines)


def write_report(rows: list[Row], page: Path = PAGE) -> None:
    """Put the table into its place on the page."""
    text = page.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    tail = rest.partition(END)[2]
    page.write_text(f"{head}{BEGIN}\n\n{table(rows)}\n\n{END}{tail}", encoding="utf-8")

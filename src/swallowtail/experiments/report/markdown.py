"""The table of findings as Markdown, for where HTML is not shown."""

from __future__ import annotations

from swallowtail.experiments.report.page import Page


def render_findings(page: Page) -> str:
    """The findings of every experiment, one table each."""
    lines = ["# The paper's numbers and ours", ""]
    for section in page.sections:
        if section.findings:
            source = f"`experiments/{section.name}`, rows in `{section.name}.csv`."
            lines += [f"## {section.title}", "", source, ""]
            lines += ["| claim | paper | ours | note |", "|---|---|---|---|"]
            for finding in section.findings:
                lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in finding) + " |")
            lines.append("")
    return "\n".join(lines)

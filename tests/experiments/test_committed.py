"""The committed report is what its rows give, and the page on the paper quotes it."""

import json
from pathlib import Path

import pytest

from swallowtail.experiments import EXPERIMENTS
from swallowtail.experiments.report.markdown import render_findings
from swallowtail.experiments.report.page import page_of

DOCS = Path(__file__).parents[2] / "docs"
REPORT = DOCS / "report"
BEGIN, END = "<!-- findings -->\n", "<!-- end -->"

pytestmark = pytest.mark.skipif(not REPORT.is_dir(), reason="there is no docs/report beside these tests")


def test_report_is_that_of_a_full_run_of_everything():
    record = json.loads((REPORT / "run.json").read_text(encoding="utf-8"))
    assert record["mode"] == "full"
    for name in EXPERIMENTS:
        assert record["experiments"][name]["finished"]
        assert "failure" not in record["experiments"][name]
        assert (REPORT / f"{name}.png").exists()


def test_numbers_come_from_the_rows():
    """If this fails: swallowtail reproduce --redraw -o docs/report."""
    table = render_findings(page_of(REPORT, draw=False))
    assert (REPORT / "findings.md").read_text(encoding="utf-8") == table


def test_page_on_the_paper_quotes_them():
    """If this fails: put what docs/report/findings.md has below its title between the marks of docs/paper.md."""
    text = (DOCS / "paper.md").read_text(encoding="utf-8")
    quoted = text.partition(BEGIN)[2].partition(END)[0]
    table = (REPORT / "findings.md").read_text(encoding="utf-8").partition("\n\n")[2]
    assert quoted.strip() == table.replace("\n## ", "\n### ").replace("## ", "### ", 1).strip()


def test_no_places_of_a_machine():
    for path in REPORT.iterdir():
        if path.suffix in (".html", ".csv", ".json", ".md"):
            text = path.read_text(encoding="utf-8")
            places = [f"/{name}/" for name in ("home", "work", "tmp", "root", "Users")]
            assert not any(place in text for place in places), path.name

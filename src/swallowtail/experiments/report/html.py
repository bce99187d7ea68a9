"""The report as one HTML file that needs nothing beside it and can be read on a phone."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from html import escape

from swallowtail.experiments.common.findings import Finding
from swallowtail.experiments.report.page import Page, Section

STYLE = """
:root { color-scheme: light; --line: #d9dde2; --soft: #f5f6f8; --ink: #1c2126; --dim: #5a646e; --mark: #0072B2; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 46rem; padding: 1rem; font: 1rem/1.55 system-ui, "Segoe UI", Roboto, sans-serif;
       color: var(--ink); background: #fff; overflow-wrap: break-word; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: .6rem 0; }
h2 { font-size: 1.25rem; line-height: 1.3; margin: 2.6rem 0 .6rem; padding-top: 1rem;
     border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.4rem 0 .4rem; }
p { margin: .6rem 0; } li { margin: .35rem 0; } ul { padding-left: 1.2rem; }
a { color: var(--mark); }
code { font-size: .9em; background: var(--soft); padding: .05rem .25rem; border-radius: 3px; }
img { display: block; width: 100%; max-width: 40rem; height: auto; margin: 1rem auto; }
nav { font-size: .95rem; } nav a { display: block; padding: .2rem 0; }
.dim { color: var(--dim); font-size: .9rem; }
.failed { border-left: 4px solid #D55E00; background: #fdf3ec; padding: .6rem .8rem; margin: 1rem 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
th, td { text-align: left; vertical-align: top; padding: .45rem .6rem .45rem 0; border-bottom: 1px solid var(--line); }
th { color: var(--dim); font-weight: 600; }
td.ours { font-weight: 600; } td.note { color: var(--dim); }
details { background: var(--soft); border-radius: 6px; padding: .5rem .8rem; margin: .8rem 0; }
dt { font-weight: 600; } dd { margin: 0 0 .4rem 1.2rem; }
summary { cursor: pointer; font-weight: 600; }
.findings { table-layout: fixed; }
.findings th:nth-child(1) { width: 28%; } .findings th:nth-child(2) { width: 15%; }
@media (max-width: 600px) {
  .findings thead { display: none; }
  .findings, .findings tbody, .findings tr, .findings td { display: block; }
  .findings tr { border-bottom: 1px solid var(--line); padding: .6rem 0; }
  .findings td { border: 0; padding: .1rem 0; }
  .findings td.claim { font-weight: 600; } .findings td.ours { font-weight: 400; }
  .findings td[data-label]:not(:empty)::before { content: attr(data-label) ": "; color: var(--dim); }
}
@media print { details { background: none; } h2 { break-after: avoid; } img { break-inside: avoid; } }
"""


OPENING = "fig3"  # the experiment whose picture says most: it stands at the top
GLOSSARY = {
    "H, R": "the matrices that are approximated: H symmetric, R a rotation.",
    "Q D Qᵀ": "the approximation: Q is a product of Givens rotations, which turn two coordinates each; D is diagonal.",
    "butterfly": "the paper's order of rotations, as in the fast Fourier transform: n lg n / 2 of them.",
    "pairs": "as many rotations, of coordinates chosen from the matrix.",
    "Algorithm 1": "the paper's way to learn Q and D: stochastic gradients on samples (x, Hx), each once per epoch.",
    "whole objective": "the same Q and D found from all entries of H, by L-BFGS.",
    "n_μ": "how many eigenvalues of a random test matrix are large.",
    "c·I + low rank": "the plain rival: a multiple of the identity and the largest eigenvectors, at equal cost.",
    "angle": "the mean angle between Q D Qᵀx and Hx over random x, in degrees: 0° is exact, 90° unrelated.",
}


def render(page: Page) -> str:
    """The page as HTML."""
    failed = [s for s in page.sections if s.failure]
    better = [f"<li>{_inline(line)}</li>" for s in page.sections for line in s.better]
    count = "the quick run: few seeds, short fits" if page.mode == "quick" else "the full run"
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Mathieu &amp; LeCun (2014), reproduced</title><style>{STYLE}</style></head><body>",
        "<h1>Fast approximation of rotations and Hessians, reproduced</h1>",
        "<p>Every experiment of Mathieu &amp; LeCun (2014) run again with swallowtail, the paper's number beside "
        f"ours: {count}. A range in brackets runs from the least to the greatest over seeds.</p>",
        *[_image(s) for s in page.sections if s.name == OPENING and s.image],
        "<h3>Words</h3><dl>"
        + "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in GLOSSARY.items())
        + "</dl>",
    ]
    if failed:
        names = ", ".join(f"<a href='#{s.name}'>{escape(s.title)}</a>" for s in failed)
        parts.append(f"<p class='failed'><b>Failed:</b> {names}. The reasons are below.</p>")
    if page.absent:
        parts.append(f"<p class='dim'>Not in this run: {escape(', '.join(page.absent))}.</p>")
    links = "".join(f"<a href='#{s.name}'>{escape(s.title)}</a>" for s in page.sections)
    parts.append(f"<nav>{links}<a href='#run'>This run</a></nav>")
    if better:
        parts.append("<h2>What is better here, and what is not</h2><ul>" + "".join(better) + "</ul>")
    numbers = [
        f._replace(note="") for s in page.sections for f in s.findings if any(map(str.isdecimal, f.paper))
    ]
    if numbers:
        parts.append(f"<h2>The paper's numbers and ours</h2>{_table(numbers)}")
        parts.append("<p class='dim'>Claims without a number, and notes, are with the experiments below.</p>")
    parts += [_section(s) for s in page.sections]
    facts = "".join(f"<tr><th>{escape(k)}</th><td>{_inline(v)}</td></tr>" for k, v in page.facts.items())
    parts.append(f"<h2 id='run'>This run</h2><div class='scroll'><table>{facts}</table></div>")
    parts.append("</body></html>\n")
    return "\n".join(parts)


def _section(section: Section) -> str:
    parts = [f"<h2 id='{section.name}'>{escape(section.title)}</h2>"]
    if section.failure:
        parts.append(f"<p class='failed'><b>This experiment failed:</b> {escape(section.failure)}</p>")
    if section.text:
        parts.append(_paragraphs(section.text))
    if section.findings:
        parts.append(_table(section.findings))
    if section.image and section.name == OPENING:
        parts.append("<p>Its picture is at the top of this page.</p>")
    elif section.image:
        parts.append(_image(section))
    parts.append(
        f"<details><summary>What the paper says, what we do</summary>{_paragraphs(section.about)}</details>"
    )
    parts.append(f"<p class='dim'>{_inline(section.run)}</p>")
    return "\n".join(parts)


def _image(section: Section) -> str:
    data = base64.b64encode(section.image).decode("ascii")
    return f'<img alt="{escape(section.title)}" src="data:image/png;base64,{data}">'


def _table(findings: Sequence[Finding]) -> str:
    """The findings as a table; the column of notes only where there are some."""
    noted = any(f.note for f in findings)
    rows = "".join(
        f"<tr><td class='claim'>{_inline(f.claim)}</td><td data-label='paper'>{_inline(f.paper)}</td>"
        f"<td class='ours' data-label='ours'>{_inline(f.ours)}</td>"
        + (f"<td class='note'>{_inline(f.note)}</td></tr>" if noted else "</tr>")
        for f in findings
    )
    columns = "<th>claim</th><th>paper</th><th>ours</th>" + ("<th>note</th>" if noted else "")
    head = f"<thead><tr>{columns}</tr></thead>"
    return f"<div class='scroll'><table class='findings'>{head}<tbody>{rows}</tbody></table></div>"


def _paragraphs(text: str) -> str:
    """Plain prose with blank lines between paragraphs; lines that begin with "- " are a list."""
    parts = []
    for block in re.split(r"\n\s*\n", text.strip()):
        lines = [line.strip() for line in block.splitlines()]
        if lines[0].startswith("- "):
            items = re.split(r"(?:^|\n)- ", "\n".join(lines))[1:]
            parts.append("<ul>" + "".join(f"<li>{_inline(item)}</li>" for item in items) + "</ul>")
        else:
            parts.append(f"<p>{_inline(' '.join(lines))}</p>")
    return "".join(parts)


def _inline(text: str) -> str:
    """Escaped, with `code` and ``code`` as such."""
    return re.sub(r"(`{1,2})([^`]+)\1", r"<code>\2</code>", escape(text, quote=False))

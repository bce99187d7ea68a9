"""Every experiment of Mathieu & LeCun (2014), one module each, and the report that puts them on one page.

Each module has a ``Config`` with ``QUICK`` and ``FULL``, ``run(config, path)`` → rows, ``plot(rows)`` → figure,
``findings(rows)`` → lines of the report's table, and perhaps ``text(rows)`` and ``better(rows)``. An experiment that
outgrew a file is a folder: its ``__init__`` has the settings and ``run``, the other parts are beside it. What several
experiments share is in ``common``.
"""

from __future__ import annotations

# In the order of the report.
EXPERIMENTS = {
    "fig1": "swallowtail.experiments.fig1",
    "samples": "swallowtail.experiments.samples",
    "fig2": "swallowtail.experiments.fig2",
    "fig3": "swallowtail.experiments.fig3",
    "hessians": "swallowtail.experiments.hessians",
    "sanity": "swallowtail.experiments.sanity",
    "claims": "swallowtail.experiments.claims",
    "tracking": "swallowtail.experiments.tracking",
    "algorithm2": "swallowtail.experiments.algorithm2",
}

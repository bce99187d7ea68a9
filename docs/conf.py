"""How the site is built: `make docs`. Warnings are errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import swallowtail

project, author = "swallowtail", "the swallowtail authors"
release = swallowtail.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
html_theme = "furo"
html_title = "swallowtail"
html_show_copyright = False
html_copy_source = False
# Whole folders, as they are: the paper's report is a page of its own.
html_extra_path = ["extra"] if (Path(__file__).parent / "extra").is_dir() else []
exclude_patterns = ["report", "extra", "pictures/*.py"]
templates_path: list[str] = []

myst_heading_anchors = 3
myst_enable_extensions = ["fieldlist"]
suppress_warnings = ["myst.xref_missing"]  # pages outside the site are checked by tests/docs

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
# scikit-learn adds these to every estimator, with references into its own pages.
REQUESTS = (
    "set_fit_request,set_partial_fit_request,set_score_request,set_predict_request,set_transform_request"
)
autodoc_default_options = {"members": True, "show-inheritance": False, "exclude-members": REQUESTS}
autodoc_mock_imports: list[str] = []
add_module_names = False
napoleon_google_docstring = True
napoleon_use_rtype = False
python_use_unqualified_type_names = True
nitpicky = False
napoleon_use_ivar = True  # an attribute that is a property too is described once
default_role = "code"


COLON = "\ue000"  # napoleon takes what stands before a colon in the first line of a property for its type


def _escape(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are plain text: a star or a bar in them is what it is, except in code."""
    for index, line in enumerate(lines):
        if line.lstrip().startswith((">>>", "...", ".. ")):
            continue
        parts = line.split("``")
        parts[::2] = [part.replace("*", r"\*").replace("|", r"\|") for part in parts[::2]]
        lines[index] = "``".join(parts).replace(r"\*\*", "**")
    if what == "property" and lines:
        lines[0] = lines[0].replace(":", COLON)


def _unescape(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = [line.replace(COLON, ":") for line in lines]


def setup(app: Any) -> None:
    """Before and after napoleon reads the docstrings."""
    app.connect("autodoc-process-docstring", _escape, priority=400)
    app.connect("autodoc-process-docstring", _unescape, priority=600)

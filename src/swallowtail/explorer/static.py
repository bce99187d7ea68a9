"""The explorer as one file: the page, its style, its program and the data of one or more studies."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from swallowtail import atomic
from swallowtail.explorer.study import Study

PAGE = files("swallowtail.explorer") / "page"


def write_page(path: Path, studies: list[Study]) -> None:
    """Write a page that needs no server. The studies must have been fitted."""
    data = [_everything(study) for study in studies]
    # "</" would end the script wherever it stood, even in the name of a file.
    script = f"window.STUDIES = {json.dumps(data)};".replace("</", "<\\/")
    html = (PAGE / "index.html").read_text(encoding="utf8")
    style = (PAGE / "explorer.css").read_text(encoding="utf8")
    program = (PAGE / "explorer.js").read_text(encoding="utf8")
    html = html.replace('<link rel="stylesheet" href="explorer.css">', f"<style>{style}</style>")
    # Only files can be deferred, so the program goes to the end of the page.
    html = html.replace('<script src="explorer.js" defer></script>\n', "")
    html = html.replace("</body>", f"<script>{script}</script><script>{program}</script></body>")
    with atomic.replacing(path) as file:
        file.write(html.encode())


def _everything(study: Study) -> dict[str, Any]:
    ready = [fit["rotations"] for fit in study.overview()["fits"] if fit["ready"]]
    details = {str(budget): study.detail(budget) for budget in ready}
    return {"overview": study.overview(), "matrix": study.matrix(), "details": details}

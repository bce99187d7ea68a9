"""The pages: every block of code runs as it stands, and every link leads somewhere."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.glob("**/*.md")])
pytestmark = pytest.mark.skipif(
    not DOCS.is_dir(), reason="the pages are not shipped with an installed package"
)


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf8"), re.S | re.M)


def name(page):
    return str(page.relative_to(ROOT))


@pytest.mark.extras
@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=name)
def test_code_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for number, code in enumerate(blocks(page)):
        exec(compile(code, f"{page.name}, block {number}", "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf8"), flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://", "#")):
            continue
        assert (page.parent / target.partition("#")[0]).exists(), f"{name(page)} links to {target}"


@pytest.mark.parametrize("module", ["swallowtail", "swallowtail.nn", "swallowtail.optim"])
def test_every_public_name_is_in_the_reference(module):
    pages = "\n".join(page.read_text(encoding="utf8") for page in (DOCS / "api").glob("*.md"))
    listed = {path.rpartition(".")[2] for path in re.findall(r"^\.\. auto\w+:: (\S+)$", pages, re.M)}
    package = import_module(module)
    subpackages = {name for name in package.__all__ if isinstance(getattr(package, name), ModuleType)}
    assert set(package.__all__) - subpackages <= listed

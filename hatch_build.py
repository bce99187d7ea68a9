"""The long description of the wheel: README.md without what a package index cannot follow."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class LongDescription(MetadataHookInterface):
    """Sets ``readme``."""

    def update(self, metadata: dict[str, Any]) -> None:
        """README.md, for `[tool.hatch.metadata.hooks.custom]`."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf8")
        metadata["readme"] = {"content-type": "text/markdown", "text": without_relative_links(text)}


def without_relative_links(text: str) -> str:
    """Pictures in the repository are left out; links to its files become the files' names."""
    text = re.sub(r"^!\[[^]]*\]\((?!https?:)[^)]*\)\n+", "", text, flags=re.M)
    text = re.sub(r"^<!--.*?-->\n", "", text, flags=re.M)
    return re.sub(r"\[([^]]*)\]\((?!https?:|#)([^)]*)\)", _named, text)


def _named(link: re.Match[str]) -> str:
    text, target = link.groups()
    return f"`{target}`" if text == target else f"{text} (`{target}`)"

"""MkDocs hooks: draw state diagrams without a script from another server, and resolve links that leave docs/."""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import diagram

MERMAID = re.compile(r"```mermaid\n(.*?)```", re.DOTALL)
LEAVES_DOCS = re.compile(r"\[([^\]]*)\]\((?:\.\./)+([^)#\s]*)(?:#[^)\s]*)?\)")


def on_page_markdown(markdown: str, page: object, **_: object) -> str:
    """Replace diagrams by SVG, and links to files of the repository by their path."""
    title = str(getattr(page, "title", ""))
    markdown = MERMAID.sub(lambda found: f"<figure>{diagram.svg(found[1], title)}</figure>\n", markdown)
    depth = str(getattr(page, "file").src_uri).count("/")  # noqa: B009
    return LEAVES_DOCS.sub(lambda found: _repository_link(found, depth), markdown)


def _repository_link(found: re.Match[str], depth: int) -> str:
    """Keep a link that stays inside docs/."""
    if found[0].partition("](")[2].count("../") <= depth:
        return found[0]
    return f"{found[1]} (`{found[2]}`)" if found[1].strip("`") != found[2] else f"`{found[2]}`"

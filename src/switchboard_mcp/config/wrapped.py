"""Children that are wrapped: where the original of one is, and how it is read.

Owns the layout: in the folder of a wrapped child stand `.mcp.json`, which starts the wrapper, `CLAUDE.md` with what the
model is told of the child, and `original/.mcp.json`. The original runs in the folder it stood in before. A child that
stands elsewhere, as in an `mcpServers` map, stays there; its wrapper has a folder of its own and stands for it.
"""

from __future__ import annotations

import os

from switchboard_mcp.config.discover import ELSEWHERE
from switchboard_mcp.config.documents import Unreadable, read_document
from switchboard_mcp.config.entries import Place, read_entry
from switchboard_mcp.config.models import ChildSpec, ConfigWarning

FILE, ROLE_FILE = ".mcp.json", "CLAUDE.md"
ORIGINAL = "original/.mcp.json"
MAX_ROLE_BYTES = 100_000


def original(spec: ChildSpec, warnings: list[ConfigWarning]) -> ChildSpec | None:
    """The child that a wrapper stands for; None where it is found elsewhere, or cannot be read."""
    if spec.wraps == ELSEWHERE:
        return None
    folder = os.path.dirname(spec.source)
    path = os.path.join(folder, spec.wraps)
    document = read_document(path)
    if document is None or isinstance(document, Unreadable):
        why = document.message if isinstance(document, Unreadable) else "is not there."
        warnings.append(ConfigWarning(path, "", f"the original of the wrapped child '{spec.name}' {why}"))
        return None
    return read_entry(document, Place(path, "", folder), warnings, name=spec.name)


def own_folder(workspace: str, spec: ChildSpec) -> str:
    """The folder where the wrapper of a child stands, or would."""
    folder, name = os.path.split(spec.source)
    if not spec.key and name == FILE and folder != workspace:
        return os.path.dirname(folder) if spec.source.endswith(os.sep + ORIGINAL) else folder
    return os.path.join(workspace, ".switchboard", "mcps", spec.name)


def read_role(folder: str) -> str:
    """What the model is told of a child, where somebody wrote it down."""
    try:
        with open(os.path.join(folder, ROLE_FILE), "rb") as file:
            return file.read(MAX_ROLE_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""

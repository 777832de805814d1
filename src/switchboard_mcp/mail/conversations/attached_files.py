"""Files that are sent with messages: reading them from the workspace, and their content as text."""

from __future__ import annotations

import os
from binascii import Error, a2b_base64, b2a_base64

from switchboard_mcp.errors import refused
from switchboard_mcp.mail.messages import MAX_ATTACHMENT_BYTES
from switchboard_mcp.mail.workspace_files import read_workspace_file

# More would fill the context of most models; the file is on disk too.
MAX_SHOWN_BYTES = 262_144
MEDIA_TYPES = {
    "csv": "text/csv",
    "gif": "image/gif",
    "gz": "application/gzip",
    "html": "text/html",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "json": "application/json",
    "md": "text/markdown",
    "pdf": "application/pdf",
    "png": "image/png",
    "svg": "image/svg+xml",
    "txt": "text/plain",
    "webp": "image/webp",
    "zip": "application/zip",
}


def media_type(name: str) -> str:
    """Return the media type that a file name suggests."""
    return MEDIA_TYPES.get(name.rpartition(".")[2].lower(), "application/octet-stream")


def read_file(workspace: str, path: str) -> bytes:
    """Return the content of a file of the workspace; one that is too large is refused when it is sent. Blocking."""
    name = os.path.join(workspace, path)
    return read_workspace_file(workspace, name, MAX_ATTACHMENT_BYTES, "Send a file of the workspace.")


def encode_base64(data: bytes) -> str:
    """Return content as base64."""
    return b2a_base64(data, newline=False).decode()


def decode_base64(text: str) -> bytes:
    """Return the content of base64. Raises `mail_message_invalid` or `mail_too_large`."""
    if len(text) // 4 * 3 > MAX_ATTACHMENT_BYTES + 2:
        raise refused("mail_too_large", f"The file has more than {MAX_ATTACHMENT_BYTES} bytes.")
    try:
        return a2b_base64(text.encode("ascii"), strict_mode=True)
    except (Error, UnicodeEncodeError, ValueError):
        raise refused("mail_message_invalid", "The data of the file is not base64.") from None

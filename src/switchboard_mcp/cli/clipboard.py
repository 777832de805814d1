"""`switchboard terminal --copy FILE`: copy a file of the workspace to the user's clipboard.

The terminal does it (OSC 52), so it works over ssh and in tmux. Only files inside the workspace are copied, none of
the mail store, and links that lead outside are not followed.
"""

from __future__ import annotations

from base64 import b64encode

from switchboard_mcp.cli.invocation import Invocation, usage_error
from switchboard_mcp.errors import refused
from switchboard_mcp.mail.workspace_files import read_workspace_file

# Terminals silently drop more than about this much.
MOST_BYTES = 74_994
TERMINAL = "/dev/tty"


def copy(workspace: str, path: str, invocation: Invocation) -> int:
    """Read the file and send it to the terminal."""
    data = read_file(workspace, path)
    sequence = b"\x1b]52;c;" + b64encode(data) + b"\x07"
    try:
        with open(TERMINAL, "wb", buffering=0) as terminal:
            terminal.write(sequence)
    except OSError as problem:
        message = f"There is no terminal: {problem.strerror}."
        raise usage_error(message, "Run it in a terminal window, or in tmux.") from None
    invocation.report(
        {"file": path, "bytes": len(data)}, f"{len(data):,} bytes copied to the clipboard.", "dim"
    )
    return 0


def read_file(workspace: str, name: str) -> bytes:
    """Return the content of a file; raises if it is outside the workspace or too large."""
    data = read_workspace_file(workspace, name, MOST_BYTES, "Only files inside the workspace can be copied.")
    if len(data) > MOST_BYTES:
        message = f"{name} is larger than {MOST_BYTES:,} bytes, the limit of terminals."
        raise refused("mail_too_large", message, hint="Copy a part of it, or its path.")
    return data

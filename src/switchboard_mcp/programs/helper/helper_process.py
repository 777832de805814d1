"""The helper process: confines itself, then answers one request after the other on its standard streams.

Run by file name, with the limit of memory and the folders to import from.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from types import ModuleType


def main() -> None:
    """Serve until standard input ends."""
    sys.path[:0] = sys.argv[2:]
    # The client imports it for handlers that are not used here: 7 MiB, and half of the start.
    sys.modules["asyncio"] = ModuleType("asyncio")
    # The client may write to the standard output, which is the channel.
    output = os.dup(1)
    os.dup2(2, 1)
    import_module("switchboard_mcp.programs.helper.serving").serve(0, output, int(sys.argv[1]))


if __name__ == "__main__":
    main()

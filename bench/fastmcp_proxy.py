"""FastMCP's proxy as its documentation says to make one: `python fastmcp_proxy.py COMMAND [ARGUMENT ...]`."""

from __future__ import annotations

import sys

from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy

if __name__ == "__main__":
    create_proxy(StdioTransport(sys.argv[1], sys.argv[2:]), name="proxy").run(show_banner=False)

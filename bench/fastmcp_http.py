"""FastMCP's proxy over HTTP: `python fastmcp_http.py PORT COMMAND [ARGUMENT ...]`."""

from __future__ import annotations

import sys

from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy

if __name__ == "__main__":
    proxy = create_proxy(StdioTransport(sys.argv[2], sys.argv[3:]), name="proxy")
    proxy.run(
        transport="http", host="127.0.0.1", port=int(sys.argv[1]), show_banner=False, log_level="warning"
    )

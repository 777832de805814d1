"""Acquires what the HTTP server needs before it starts: the listening socket, the tokens and the token file.

Everything that can fail fails here, before any child is started.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from socket import socket

import uvicorn  # noqa: F401 - a missing extra must fail here, not after the address is taken
from msgspec import Struct

from switchboard_mcp.config.models import Workspace
from switchboard_mcp.errors import refused
from switchboard_mcp.observability.log import Log
from switchboard_mcp.server.http import auth, server_info
from switchboard_mcp.server.http.auth import TokenTable
from switchboard_mcp.server.http.server_info import ServerInfo
from switchboard_mcp.server.http.sockets import (
    bound_address,
    connect_host,
    format_address,
    listen,
    raise_file_limit,
)
from switchboard_mcp.server.http.transport_security import is_loopback, split_address


class BindAddress(Struct):
    """The listening socket with the tokens and the published server info."""

    listener: socket
    host: str
    folder: str
    tokens: TokenTable
    info: ServerInfo

    @property
    def url(self) -> str:
        """Return the URL of the MCP endpoint."""
        return f"http://{format_address(self.info.host, self.info.port)}{self.info.mcp_endpoint}"

    @property
    def listening(self) -> str:
        """Return the address and port listened on."""
        return format_address(self.info.bind_address, self.info.port)

    @property
    def is_exposed(self) -> bool:
        """True if other machines can reach the address."""
        return not is_loopback(self.info.bind_address)

    @property
    def token_file(self) -> str:
        """Return the path of the file with the token of this start."""
        return os.path.join(self.folder, auth.FILE)


def bind(
    workspace: Workspace, address: str, environ: Mapping[str, str], hide: Callable[[str], None], log: Log
) -> BindAddress:
    """Listen on the address and write the token file. Calls `hide` with every token, for redaction."""
    http = workspace.config.http
    host_port = split_address(address, http.host) if address else (http.host, http.port)
    if host_port is None:
        hint = "Use PORT, HOST:PORT, or [HOST]:PORT for IPv6, e.g. 3100 or 0.0.0.0:3100."
        raise refused("usage", f"--http: '{address}' is not an address.", hint=hint)
    host, port = host_port
    tokens = auth.named_tokens(http.tokens, environ)
    folder = auth.private_folder(workspace.folder, log)
    server_info.require_free(folder)
    listener = listen(host, port)
    raise_file_limit(http.max_connections)
    token = auth.write_token(folder)
    for secret in (token, *tokens.values()):
        hide(secret)
    started = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    address_bound = bound_address(listener)
    info = ServerInfo(
        port=listener.getsockname()[1],
        host=connect_host(address_bound),
        bind_address=address_bound,
        pid=os.getpid(),
        started_at=started,
    )
    return BindAddress(listener, host, folder, TokenTable({"": token, **tokens}), info)

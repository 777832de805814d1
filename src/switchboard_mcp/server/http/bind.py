"""Everything the HTTP front takes before it serves: the address, the tokens, the files that tell of them.

Whatever may be refused is refused here, before anything runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from socket import socket

import uvicorn  # noqa: F401 - so that whoever takes a place can also serve there
from msgspec import Struct

from switchboard_mcp.config.models import Workspace
from switchboard_mcp.errors import refused
from switchboard_mcp.server.http import auth, server_info
from switchboard_mcp.server.http.auth import TokenTable
from switchboard_mcp.server.http.server_info import ServerInfo
from switchboard_mcp.server.http.sockets import connect_host, format_address, listen, raise_file_limit
from switchboard_mcp.server.http.transport_security import split_address


class BindAddress(Struct):
    """Where the front serves, and who may come."""

    listener: socket
    host: str
    folder: str
    tokens: TokenTable
    info: ServerInfo

    @property
    def url(self) -> str:
        """Where hosts connect."""
        return f"http://{format_address(self.info.host, self.info.port)}{self.info.mcp_endpoint}"

    @property
    def token_file(self) -> str:
        """Where they find the token of this start."""
        return os.path.join(self.folder, auth.FILE)


def bind(
    workspace: Workspace, address: str, environ: Mapping[str, str], hide: Callable[[str], None]
) -> BindAddress:
    """Take the address and write the token; `hide` is told every token."""
    http = workspace.config.http
    host_port = split_address(address, http.host) if address else (http.host, http.port)
    if host_port is None:
        hint = "Give PORT, HOST:PORT, or [HOST]:PORT for IPv6, e.g. 3100 or 0.0.0.0:3100."
        raise refused("usage", f"--http: '{address}' is no address.", hint=hint)
    host, port = host_port
    tokens = auth.named_tokens(http.tokens, environ)
    folder = auth.private_folder(workspace.folder)
    server_info.require_free(folder)
    listener = listen(host, port)
    raise_file_limit(http.max_connections)
    token = auth.write_token(folder)
    for secret in (token, *tokens.values()):
        hide(secret)
    started = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    info = ServerInfo(
        port=listener.getsockname()[1], host=connect_host(host), pid=os.getpid(), started_at=started
    )
    return BindAddress(listener, host, folder, TokenTable({"": token, **tokens}), info)

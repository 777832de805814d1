"""Taking an address to listen on, or saying why that cannot be."""

from __future__ import annotations

import errno
import socket

from switchboard_mcp.errors import refused
from switchboard_mcp.server.http.transport_security import ANY_ADDRESS

BACKLOG = 512
# Of the files this process may have open, those that are not connections: children have three each.
OTHER_FILES = 512


def listen(host: str, port: int) -> socket.socket:
    """A listening socket."""
    try:
        addresses = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = addresses[0]
        listener = socket.create_server(address, family=family, backlog=BACKLOG)
        # Inherited by what is accepted; asyncio leaves it out for sockets made like this, and answers would wait.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OSError as problem:
        message = f"Cannot listen on {format_address(host, port)}: {problem.strerror or problem}."
        if problem.errno == errno.EADDRINUSE:
            raise refused("address_taken", message) from None
        hint = "Use an address of this machine, and a port that you may use."
        raise refused("address_taken", message, hint=hint) from None


def format_address(host: str, port: int) -> str:
    """An address as it stands in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def connect_host(host: str) -> str:
    """The address under which this machine reaches a listener on `host`."""
    if host not in ANY_ADDRESS:
        return host
    return "::1" if host == "::" else "127.0.0.1"


def raise_file_limit(connections: int) -> None:
    """Let this process have as many files open as it has to serve, where the system permits."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        limit = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))

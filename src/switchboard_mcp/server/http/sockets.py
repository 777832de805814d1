"""Opens listening sockets, with errors that say why it failed."""

from __future__ import annotations

import errno
import socket

from switchboard_mcp.errors import refused
from switchboard_mcp.server.http.transport_security import ANY_ADDRESS

BACKLOG = 512
# Open files other than connections: each child has three, and two threads of mail keep up to 140 folders open each.
OTHER_FILES = 768


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on the address."""
    try:
        addresses = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = addresses[0]
        listener = socket.create_server(address, family=family, backlog=BACKLOG)
        # Accepted sockets inherit it. asyncio sets it only on sockets it created; Nagle would delay responses.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OSError as problem:
        message = f"Cannot listen on {format_address(host, port)}: {problem.strerror or problem}."
        if problem.errno == errno.EADDRINUSE:
            raise refused("address_taken", message) from None
        hint = "Use an address of this machine and a port that you have permission for."
        raise refused("address_taken", message, hint=hint) from None


def format_address(host: str, port: int) -> str:
    """Format an address for a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def bound_address(listener: socket.socket) -> str:
    """Return the address that a socket listens on."""
    return str(listener.getsockname()[0])


def connect_host(address: str) -> str:
    """Return the address on which this machine reaches a listener on `address`."""
    if address not in ANY_ADDRESS:
        return address
    return "::1" if address == "::" else "127.0.0.1"


def raise_file_limit(connections: int) -> None:
    """Raise the limit of open files to what the connections need, as far as the system permits."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        limit = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))

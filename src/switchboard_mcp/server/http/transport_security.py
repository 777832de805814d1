"""Whether a request was meant for us and comes from where it may: its `Host` and its `Origin`.

A web page can make a browser connect to a server on this machine, under a name of its own that it points here. So the
name must be one we go by, and a page must be allowed. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

LOOPBACK = ("127.0.0.1", "localhost", "::1")
ANY_ADDRESS = ("", "0.0.0.0", "::")


def allowed_hosts(host: str, allowed: Iterable[str]) -> frozenset[str]:
    """The names we go by when we listen on `host`."""
    names = {name.strip("[]").lower() for name in allowed}
    names.add(host.lower())
    if host in ANY_ADDRESS or is_loopback(host):
        names.update(LOOPBACK)
    return frozenset(names - set(ANY_ADDRESS))


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine can reach an address."""
    return host in LOOPBACK or host.startswith("127.")


def host_name(authority: str) -> str:
    """The name in `name:port` or `[address]:port`."""
    if authority.startswith("["):
        return authority[1:].partition("]")[0].lower()
    name, colon, port = authority.rpartition(":")
    return (name if colon and port.isdigit() else authority).lower()


def is_origin_allowed(origin: str, host: str, allowed: frozenset[str]) -> bool:
    """Whether a page of this origin may connect: one of ours, or one that is allowed."""
    if origin.lower().rstrip("/") in allowed:
        return True
    scheme, separator, authority = origin.partition("://")
    return bool(separator) and scheme.lower() in ("http", "https") and authority.lower() == host.lower()


def split_address(text: str, host: str) -> tuple[str, int] | None:
    """`PORT`, `HOST:PORT` or `[HOST]:PORT`; None where it is none of them."""
    before, colon, port = text.rpartition(":")
    if colon:
        bracketed = before.startswith("[") and before.endswith("]")
        host = before[1:-1] if bracketed else before
        if not host or (":" in host and not bracketed):
            return None
    return (host, int(port)) if port.isdecimal() and port.isascii() and int(port) < 65_536 else None

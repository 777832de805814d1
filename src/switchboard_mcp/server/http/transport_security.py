"""Checks of the `Host` and `Origin` headers against DNS rebinding.

A web page can make a browser connect to a server on this machine through a domain that resolves to 127.0.0.1. So the
host name must be one of ours, and the page's origin must be allowed. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

LOOPBACK = ("127.0.0.1", "localhost", "::1")
ANY_ADDRESS = ("", "0.0.0.0", "::")
MAX_PORT = 65_535

# Stricter than RFC 3986: no user, no escapes, no empty port.
_AUTHORITY = re.compile(r"(?:\[([0-9A-Fa-f.]*:[0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::([0-9]{1,5}))?")


def allowed_hosts(host: str, address: str, allowed: Iterable[str]) -> frozenset[str]:
    """Return the accepted host names of a server configured for `host` that listens on `address`."""
    names = {name.strip("[]").lower() for name in allowed}
    names.update((host.lower(), address.lower()))
    if address in ANY_ADDRESS or is_loopback(address):
        names.update(LOOPBACK)
    return frozenset(names - set(ANY_ADDRESS))


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach an address."""
    return host in LOOPBACK or host.startswith("127.")


def host_name(authority: str) -> str:
    """Return the name in `name`, `name:port` or `[address]:port`, empty if it is none of them."""
    match = _AUTHORITY.fullmatch(authority)
    if match is None:
        return ""
    address, name, port = match.groups()
    return (address or name).lower() if int(port or 0) <= MAX_PORT else ""


def is_origin_allowed(origin: str, host: str, allowed: frozenset[str]) -> bool:
    """Return True if pages of this origin may connect: our own, or an allowed one."""
    if origin.lower().rstrip("/") in allowed:
        return True
    scheme, separator, authority = origin.partition("://")
    return bool(separator) and scheme.lower() in ("http", "https") and authority.lower() == host.lower()


def split_address(text: str, host: str) -> tuple[str, int] | None:
    """Parse `PORT`, `HOST:PORT` or `[HOST]:PORT`. Return None if it is none of them."""
    before, colon, port = text.rpartition(":")
    if colon:
        bracketed = before.startswith("[") and before.endswith("]")
        host = before[1:-1] if bracketed else before
        if not host or (":" in host and not bracketed):
            return None
    return (host, int(port)) if port.isdecimal() and port.isascii() and int(port) <= MAX_PORT else None
